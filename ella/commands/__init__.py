"""One module per sub-command of the command line; imported only when called."""
