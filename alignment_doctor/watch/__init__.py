"""A run that is watched while it trains: ``Watch`` in anyone's loop, ``--watch`` of tools/train.py."""

from alignment_doctor.watch.watch import Watch

__all__ = ["Watch"]
