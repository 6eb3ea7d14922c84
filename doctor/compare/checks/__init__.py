"""The checks of two runs; each takes a ``doctor.compare.subject.RunsSubject``."""
