"""MobileNetV3's list of faults, and the ways in which they break its port."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from alignment.faults import Faults
from alignment.kinds import Kind
from alignment.models.weights import load_renamed
from alignment.project import ModelSpec, Project
from mobilenetv3_common.weights import State

FAULTS = Faults()
fault = FAULTS.add


def with_model(project: Project, change: Callable[[Any], Any]) -> Project:
    """The project with its port's models changed after they are built; ``change`` returns another model, or None."""

    def changed(spec: ModelSpec) -> ModelSpec:
        def build(*args: Any, **kwargs: Any) -> Any:
            model = spec.port(*args, **kwargs)
            return change(model) or model

        return dataclasses.replace(spec, port=build)

    return project.with_models(changed)


def with_loading(project: Project, change: Callable[[State], State]) -> Project:
    """The project whose port gets changed weights: the function takes and returns the canonical state."""

    def load(model: Any, state: State) -> None:
        load_renamed(project.port.framework, model, change({name: array.copy() for name, array in state.items()}))

    return project.with_models(lambda spec: dataclasses.replace(spec, load=load))


__all__ = ["FAULTS", "Kind", "fault", "with_loading", "with_model"]
