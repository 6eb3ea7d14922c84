"""Training on several ranks against the reference in one process: what is run, by whom, what is expected, and what differs."""
