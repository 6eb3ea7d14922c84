"""Pairs of models that nobody here wrote: other people's ports against their references, and what was found in each."""
