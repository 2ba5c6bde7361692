"""The files of one run: settings, metrics, checkpoints, policies, log and lock."""
