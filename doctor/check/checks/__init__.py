"""The checks of a run; each takes a ``doctor.check.subject.RunSubject``."""
