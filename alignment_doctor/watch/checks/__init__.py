"""The checks of a run while it trains: each takes what the latest looks saw."""
