"""The check of paired results; it takes a ``alignment_doctor.equal.subject.Results``."""
