"""A data set examined: every picture decoded, and what the checks make of it."""
