"""The check of paired results; it takes a ``doctor.equal.subject.Results``."""
