"""Exit statuses of commands, besides 0 and 2 (bad input)."""

EXIT_DIVERGED = 3
EXIT_INTERRUPTED = 128 + 2
"""As a shell reports a command that SIGINT ended."""
EXIT_BROKEN_PIPE = 128 + 13
"""As a shell reports a command that SIGPIPE ended."""
