"""Reads the files of runs and compares them: statistics, figures, the page."""
