"""Training as compiled programs, and measuring what was trained."""
