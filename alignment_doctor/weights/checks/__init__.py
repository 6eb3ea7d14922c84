"""The checks of two states; each takes a ``alignment_doctor.weights.subject.WeightsSubject``."""
