"""A run that has ended, or still goes on, examined by all that its folder holds."""
