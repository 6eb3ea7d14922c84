"""The checks of a profile."""
