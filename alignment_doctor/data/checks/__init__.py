"""The checks of a data set; each takes a ``alignment_doctor.data.subject.DataSubject``."""
