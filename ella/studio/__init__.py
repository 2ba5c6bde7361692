"""A local web page to watch an agent, step by step, and to take over."""
