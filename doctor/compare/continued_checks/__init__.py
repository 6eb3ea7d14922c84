"""The checks of one checkpoint continued in both frameworks; each takes a ``doctor.compare.continued.ContinuedSubject``."""
