"""A training run examined before it costs an hour: its first batch, its first updates and its plan."""
