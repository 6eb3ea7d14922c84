"""The checks of two states; each takes a ``doctor.weights.subject.WeightsSubject``."""
