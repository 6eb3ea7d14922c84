"""The checks of a data set; each takes a ``doctor.data.subject.DataSubject``."""
