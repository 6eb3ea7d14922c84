"""The checks of one checkpoint continued in both frameworks; each takes a ``compare.continued.ContinuedSubject``."""
