"""Single mistakes, each with the place and the hint that localisation owes: what ``--inject NAME`` breaks.

Every one was made in earnest by somebody: most are in the guides and checklists that porters read, the others are traps of
these very versions (docs/known_differences.md). A fault changes the port alone, by replacing a name of one of its parts, by
changing its models after they are built, or by replacing one function while it is injected. Every file of this folder is
imported, so a new fault is one function in one file.
"""

import sys

from .base import FAULTS

FAULTS.collect(sys.modules[__name__])

__all__ = ["FAULTS"]
