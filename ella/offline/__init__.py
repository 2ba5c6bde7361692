"""What is learned ahead of training, from examples of low-level tasks."""
