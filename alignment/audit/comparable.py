"""Whether two models can be compared at all: otherwise an audit ends with one line, and finds no mistake where none may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from alignment.comparisons.context import Context
from alignment.frameworks.base import Description, Module
from alignment.models.counterparts import Unmatched
from alignment.models.links import covered
from alignment.strangers import strangers
from mobilenetv3_common.counted import counted
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import Entry

ANEW = (("_g", "_v"), ("_orig", "_u"))  # how tensors of weight and of spectral normalisation end
ALONE = {"port": "missing", "reference": "extra"}  # kind of what a side does not have
MOST_NAMED = 3  # tensors of a side

Models = tuple[Module, Module]


def check_outputs(port: str, reference: str, outputs: tuple[int, int], context: Context) -> None:
    """See that the two models return so many tensors; where their layers differ, too, these are the finding.

    Args:
        port, reference: what was given for them.
        outputs: how many tensors each returns.
        context: of both.

    Raises:
        UserError: they do not.
    """
    ours, theirs = outputs
    if not ours or ours == theirs:
        return
    with strangers("port") as raised:  # whatever the port raises: the steps say so
        context.networks.build("port")
    if raised.error is not None:
        return
    if any(other.parameters for other in context.paired.matched.matching.unmatched):
        return
    raise UserError(
        f"--port {port} returns {ours} tensor{'s' if ours > 1 else ''} in evaluation mode, --reference {reference} "
        f"{theirs}: outputs that differ in number cannot be paired; give callables whose models return the same ones"
    )


def check_layers(context: Context) -> None:
    """See that the layers without a counterpart are mistakes, if any: that no side merely holds the same numbers otherwise.

    Raises:
        UserError: a layer without a counterpart computes its weight anew in each pass, so that its tensors have none; or both
            sides hold as many numbers, in other layers.
    """
    with strangers("port") as raised:  # whatever the port raises: the steps say so
        alone = [other for other in context.paired.matched.matching.unmatched if other.parameters]
        models = context.spec.port(), context.spec.reference()
    if raised.error is None:
        _check_reparametrised(context, models, alone)
        _check_held_otherwise(context, models, alone)


def _check_reparametrised(context: Context, models: Models, alone: Sequence[Unmatched]) -> None:
    for role, side, model in zip(context.sides, context.frameworks, models, strict=True):
        own, modules = [entry.own for entry in side.entries(model)], side.modules(model, every_path=True)
        for path in [other.own if role == "port" else other.path for other in alone if other.kind != ALONE[role]]:
            if path and (name := _made_anew([one for one in own if one.startswith(f"{path}.")], modules)):
                raise UserError(
                    f"not compared: the {role} computes a weight anew in each pass ({name}: weight or spectral normalisation), and "
                    "the other side has no such tensors. Take it out in the callables of both sides, with "
                    'torch.nn.utils.parametrize.remove_parametrizations(layer, "weight") (or remove_weight_norm of '
                    "torch.nn.utils, for the older weight_norm) and paddle.nn.utils.remove_weight_norm(layer)"
                )


def _made_anew(names: Sequence[str], modules: Mapping[str, Module]) -> str:
    """The first of a module's tensors from which a weight is computed that its module holds beside them; ``""`` without one."""
    for name in names:
        if ".parametrizations." in f".{name}":
            return name
        for end, beside in ANEW:
            if name.endswith(end) and name.removesuffix(end) + beside in names:
                path, _, weight = name.removesuffix(end).rpartition(".")
                if weight and hasattr(modules.get(path), weight):
                    return name
    return ""


def _check_held_otherwise(context: Context, models: Models, alone: Sequence[Unmatched]) -> None:
    """A layer that is missing or superfluous changes the number of parameters; another way to hold them does not.

    A single layer in the place of another is a mistake, though both hold as many.
    """
    inside = [list(side.modules(model, every_path=True)) for side, model in zip(context.frameworks, models, strict=True)]
    single = lambda paths, path: not any(one.startswith(f"{path}.") for one in paths)  # noqa: E731
    if any(one.kind == "replaced" and single(inside[0], one.own) and single(inside[1], one.path) for one in alone):
        return
    total, theirs = (_parameters(side, model) for side, model in zip(context.frameworks, models, strict=True))
    if total != theirs:
        return
    matched = context.paired.matched
    linked, back = covered(matched.links), {own: path for path, own in matched.matching.paths.items()}
    known: list[dict[str, Entry]] = [{}, {}]
    for number, (side, model) in enumerate(zip(context.frameworks, models, strict=True)):
        for entry in (one for one in side.entries(model) if one.canonical not in linked[number]):
            path, _, last = entry.canonical.rpartition(".")
            shown = path if number else matched.shown.get(path, path)
            known[number][f"{shown if number else back.get(shown, shown)}.{last}"] = entry
    left = [[one for name, one in side.items() if name not in other] for side, other in (known, known[::-1])]
    parameters = all(any(one.role == "parameter" for one in side) for side in left)
    if not parameters and not (alone and all(left)):  # a layer of tied tensors may lack its statistics alone
        return
    apart = [
        [one for name, one in side.items() if name not in other or other[name].shape != one.shape]
        for side, other in (known, known[::-1])
    ]
    which = "; ".join(f"of the {role}: {_listed(side)}" for role, side in zip(context.sides, apart, strict=True))
    raise UserError(
        f"not compared: both sides hold {total:,} parameters, but in other layers, and which are the same was not found ({which}). "
        "Say it in a file for --names, or give the port the reference's layers; a mistake of the port is not excluded"
    )


def _parameters(side: Description, model: Module) -> int:
    """How many numbers a model's parameters hold, each tensor once, however many names it has."""
    sizes = {id(tensor): prod(entry.shape) for entry, tensor in side.described(model) if entry.role == "parameter"}
    return sum(sizes.values())


def _listed(entries: Sequence[Entry]) -> str:
    """Some tensors by the names that their model gives them, with their shapes."""
    names = [f"{one.own} {one.shape}" for one in entries[:MOST_NAMED]]
    return f"{', '.join(names)}{f' and {len(entries) - MOST_NAMED} more' if len(entries) > MOST_NAMED else ''} ({_total(entries)})"


def _total(entries: Sequence[Entry]) -> str:
    return counted(sum(prod(one.shape) for one in entries), "number")
