"""Reward shapers: what bonus, and when."""
