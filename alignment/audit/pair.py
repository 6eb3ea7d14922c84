"""Two callables that make models, ``MODULE:CALLABLE``, as a project of the engine."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alignment.audit.inputs import InputFunction, Inputs, chosen_inputs, tried
from alignment.audit.named import named_object
from alignment.frameworks import building, framework_of, load_first
from alignment.frameworks.base import Framework, Module
from alignment.models.links import covered
from alignment.models.matching import Matched
from alignment.models.names import NameMap
from alignment.project import ModelSpec, Project, Side
from alignment.strangers import strangers
from mobilenetv3_common.errors import UserError


class _PartialBuilder(functools.partial):
    """A callable with its arguments, whose models may name their parameters: the engine builds several of each.

    Their tensors are held in the form that other frameworks have, too.
    """

    def __call__(self, /, *args: Any, **keywords: Any) -> Module:
        with building():
            model = super().__call__(*args, **keywords)
        with contextlib.suppress(UserError):  # it is no model, which others say
            framework_of(model).in_plain_form(model)
        return model


@dataclass(frozen=True)
class ModelMaker:
    """A callable that makes a model, as it was named on the command line.

    Attributes:
        flag: ``"--port"`` or ``"--reference"``.
        text: ``MODULE:CALLABLE`` or ``FILE.py:CALLABLE``.
        arguments: keyword arguments of the callable.
    """

    flag: str
    text: str
    arguments: Mapping[str, Any]
    built = False  # whether it gives copies of one model, whose weights are not drawn anew

    @property
    def title(self) -> str:
        return f"{self.flag} {self.text}"

    @functools.cached_property
    def function(self) -> Callable[..., Module]:
        """The callable with its arguments.

        Raises:
            UserError: it does not exist, is no callable, or does not take the arguments.
        """
        found = named_object(self.flag, self.text)
        if not callable(found) or not (inspect.isroutine(found) or isinstance(found, type | functools.partial)):
            kind = type(found).__name__
            raise UserError(f"{self.title} is a {kind}: name the class or function that makes the model")
        try:
            inspect.signature(found).bind(**self.arguments)
        except TypeError as error:
            raise UserError(f"{self.title}: {error}; give its arguments with {self.flag}-args '{{...}}'") from error
        except ValueError:  # a signature that cannot be read
            pass
        return _PartialBuilder(found, **self.arguments)

    def made(self) -> Module:
        """A model.

        Raises:
            UserError: the callable raises.
        """
        with strangers("callable", alone=True) as raised:
            return self.function()
        if isinstance(raised.error, UserError):
            raise raised.error
        raise UserError(f"{self.title} cannot be built: {raised.words}{raised.there}") from raised.error


@dataclass(frozen=True)
class GivenMaker(ModelMaker):
    """A callable that makes a model, given by a program; ``text`` names it for people.

    Attributes:
        made: the callable.
        built: whether it copies a model that was built already.
    """

    made: Callable[..., Module] = dict
    built: bool = False

    @functools.cached_property
    def function(self) -> Callable[..., Module]:
        return _PartialBuilder(self.made, **self.arguments)


def arguments(flag: str, text: str | None) -> Mapping[str, Any]:
    """Keyword arguments from a JSON object.

    Raises:
        UserError: it is none.
    """
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{flag} {text}: no JSON ({error.msg}); give an object, e.g. '{{\"num_classes\": 10}}'") from error
    if not isinstance(found, dict):
        raise UserError(f"{flag} {text}: expected a JSON object, e.g. '{{\"num_classes\": 10}}'")
    return found


@dataclass(frozen=True)
class AuditPair:
    """A port and its reference, ready to be aligned.

    Attributes:
        project: of the one model.
        inputs: on what it runs.
        outputs: how many tensors the port and the reference return in evaluation mode; 0 where the port does not run.
    """

    project: Project
    inputs: Inputs
    outputs: tuple[int, int]


def pair_of(port: ModelMaker, reference: ModelMaker, given: str | InputFunction | None, initialisation: bool) -> AuditPair:
    """Build both models once, find out their frameworks and what the reference accepts.

    Args:
        port, reference: the two sides.
        given: ``--input``, or a function of it; None to try.
        initialisation: whether fresh weights are compared; those of a model that is built already are not drawn anew.

    Raises:
        UserError: a side cannot be built or is no model, or the reference accepts no input.
    """
    load_first((port.text, reference.text))
    network, ported = reference.made(), port.made()
    sides = Side(_framework(port, ported)), Side(_framework(reference, network))
    inputs = chosen_inputs(given, sides[1].framework, network, ported)
    least = replace(inputs, shape=inputs.small or inputs.shape)
    right, _ = tried(sides[1].framework, network, least)
    count, problem = tried(sides[0].framework, ported, least)
    if inputs.small and problem:
        inputs = replace(inputs, small=None)  # step 1 says what the port does with other sizes; the rest is compared in this one
    spec = ModelSpec(
        port.function,
        reference.function,
        input_shape=inputs.shape,
        small_shape=inputs.small,
        inputs=inputs.make,
        whole_inputs=inputs.whole,
        initialisation=initialisation and not (port.built or reference.built),
    )
    name = title_of(reference.text, sides[1].framework.layer(network).title)
    return AuditPair(Project(name, sides[0], sides[1], {name: spec}), inputs, (count, right))


def title_of(text: str, kind: str) -> str:
    """What people call a model: by the callable that makes it, where that names the model's class, else by the class.

    Args:
        text: ``MODULE:CALLABLE``.
        kind: the class; ``build`` and ``get_model`` say nothing of what they make.
    """
    name = text.rpartition(":")[2].rpartition(".")[2]
    return name if kind.lower() in name.lower().replace("_", "") else kind


def _framework(maker: ModelMaker, model: Any) -> Framework:
    try:
        return framework_of(model)
    except UserError as error:
        raise UserError(f"{maker.title} makes a {type(model).__name__}: {error.line}") from error


def name_map(matched: Matched, frameworks: tuple[Framework, Framework], models: tuple[Module, Module]) -> NameMap:
    """Every module with tensors that is called or nested otherwise in the port, and every tensor that is held otherwise.

    Args:
        matched: the matching of the two models.
        frameworks: of the port and of the reference.
        models: of either side, as they were built.
    """
    named = covered(matched.links)
    held = [
        {e.canonical.rpartition(".")[0] for e in side.entries(model) if e.canonical not in names}
        for side, model, names in zip(frameworks, models, named, strict=True)
    ]
    modules = {own: path for own, path in matched.paired.items() if own in held[0] and path in held[1]}
    return NameMap(modules, tuple(matched.links))


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of named arrays: names, types, shapes and values, by name."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        found.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        found.update(array.tobytes())
    return found.hexdigest()
