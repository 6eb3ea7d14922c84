"""The former name of ``alignment_doctor``, kept in a checkout: ``python -m doctor``, ``from doctor.watch import Watch``."""
