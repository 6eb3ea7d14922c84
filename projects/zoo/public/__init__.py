"""Pairs of public repositories: other people's ports against the public models that they are ports of."""
