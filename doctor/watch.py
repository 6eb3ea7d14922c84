"""The former name of ``alignment_doctor.watch``."""

from alignment_doctor.watch import Watch

__all__ = ["Watch"]
