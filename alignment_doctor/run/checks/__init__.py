"""The checks of a run's folder; each takes a ``alignment_doctor.run.subject.RunFolder``."""
