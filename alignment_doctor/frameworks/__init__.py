"""What the doctor asks of a framework while a run computes: one file a framework, imported when a model of it is watched."""

from __future__ import annotations

import importlib
from typing import Any

from alignment.frameworks import framework_of
from alignment.frameworks.base import Framework
from alignment_doctor.frameworks.base import Probe


def probe_of(model: Any) -> tuple[Framework, Probe]:
    """The engine's view of a model's framework, and the doctor's.

    Raises:
        UserError: the model belongs to no framework that the engine knows.
    """
    engine = framework_of(model)
    return engine, importlib.import_module(f"{__name__}.{engine.name}").PROBE()
