"""The checks of a run; each takes a ``alignment_doctor.check.subject.RunSubject``."""
