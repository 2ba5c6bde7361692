"""The paper's figures as data, and launchers for their runs."""
