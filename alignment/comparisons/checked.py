"""Whether a project's description of a model holds, before anything is said of the port."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from alignment.comparisons.context import Context
from alignment.comparisons.given import Given
from alignment.frameworks.base import Module, leaves
from alignment.models.links import forms_of
from alignment.models.names import check_names
from alignment.strangers import strangers
from mobilenetv3_common.errors import UserError


def check(context: Context) -> None:
    """See that the project's description of the model holds, before anything is said of the port.

    Raises:
        UserError: the reference cannot be built or run, a side is no model of its framework, or a named layer is not there.
    """
    title = f"{context.project.name}: the reference of {context.model}"
    with strangers("reference") as raised:  # a stranger's builder raises what it likes
        network = context.paired.made("reference", context.options)
    if raised.error is not None:
        raise UserError(f"{title} cannot be built: {raised.whole}") from raised.error
    _check_type(context, "reference", network)
    with strangers("port") as raised:  # that is a finding of the steps
        port = context.paired.made("port", context.options)
    if raised.error is not None:
        port = None
    if port is not None:
        _check_type(context, "port", port)
    framework = context.reference.framework
    known = framework.modules(network)
    check_names(context.names, None if port is None else context.port.framework.modules(port), known)
    if port is not None:
        forms_of(context.links, context.port.framework.entries(port), framework.entries(network))
    named = [context.spec.last_layer] if context.spec.last_layer is not None else []
    named += context.spec.blocks(framework, network) if context.spec.blocks is not None else []
    for path in named:
        if path not in known:
            raise UserError(f"{title} has no module {path!r}: last_layer and blocks name modules of the reference")
    for field_name in ("compared_options", "compared_structures"):
        for options in getattr(context.spec, field_name):
            if why := refusal(context, options):
                raise UserError(f"{title} does not take {field_name} {dict(options)}: {why}")
    for count, small in ((2, True), (2, False), *(() if context.spec.whole_inputs else ((1, False),))):
        inputs = context.fake_inputs(count, small)
        arrays = leaves(inputs, np.ndarray)
        samples = context.spec.whole_inputs or all(array.ndim and len(array) == count for array in arrays)
        if not isinstance(inputs, tuple) or not arrays or not samples:
            raise UserError(f"{context.project.name}: inputs of {context.model} must return a tuple of arrays, samples first")
        framework.set_training(network, False)
        with strangers("reference") as raised:
            framework.call(framework.place(network), inputs)
        if raised.error is not None:
            shapes = ", ".join(str(array.shape) for array in arrays)
            raise UserError(f"{title} cannot run on inputs of shape {shapes}: {raised.whole}") from raised.error


def refusal(given: Given, options: Mapping[str, Any]) -> str:
    """Why the reference's builder does not take options besides those of its spec; ``""`` where it does."""
    try:
        inspect.signature(given.spec.reference).bind(**{**given.spec.options, **options})
    except TypeError as error:
        return str(error)
    return ""


def _check_type(given: Given, role: str, network: Module) -> None:
    framework = given.sides[role].framework
    if not isinstance(network, framework.module_type):
        found = f"must make a {framework.title} model, found one of type {type(network).__name__}"
        raise UserError(f"{given.project.name}: the builder of the {role} of {given.model} {found}")
