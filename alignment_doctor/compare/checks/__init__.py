"""The checks of two runs; each takes a ``alignment_doctor.compare.subject.RunsSubject``."""
