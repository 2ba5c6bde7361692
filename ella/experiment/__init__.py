"""Whole experiments: settings, the compiled training loop, logs, checkpoints, evaluation."""
