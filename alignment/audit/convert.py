"""Weights of one of two models that somebody can name as weights of the other: ``tools/convert_weights.py --port --reference``."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from alignment.audit.inputs import chosen_inputs
from alignment.audit.pair import ModelMaker
from alignment.frameworks import framework_of, load_first
from alignment.frameworks.base import Framework, Module, Piece
from alignment.models.matching import Matched, matched
from alignment.models.names import NameMap, check_names, read_map
from alignment.models.weights import ANY_FRAMEWORK, second_names, tied
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.pretrained import under_names
from mobilenetv3_common.weights import FORMATS, Entry, State, canonical_state, own_state, read_state, write_state
from mobilenetv3_common.weights_file import say, written_as

ROLES = ("port", "reference")


@dataclass(frozen=True)
class ConvertedSides:
    """Two models whose tensors are paired, every one.

    Attributes:
        frameworks: of the port and of the reference.
        entries: of both, under the canonical names that they share.
        counters: own names and arrays of what the canonical form leaves out, of both.
        models: the port and the reference.
    """

    frameworks: tuple[Framework, Framework]
    entries: tuple[list[Entry], list[Entry]]
    counters: tuple[dict[str, np.ndarray], dict[str, np.ndarray]]
    models: tuple[Module, Module]

    def rows(self) -> list[str]:
        """For people: every tensor of the port, and that of the reference, by the frameworks' own names."""
        theirs: dict[str, list[Entry]] = {}
        for entry in self.entries[1]:
            theirs.setdefault(entry.canonical, []).append(entry)
        shown = []
        for entry in self.entries[0]:
            names = " + ".join(_shown(other) for other in theirs[entry.canonical])
            shown.append(f"{_shown(entry)} <-> {names}  {entry.shape}")
        return shown


def _shown(entry: Entry) -> str:
    return entry.label if isinstance(entry, Piece) else entry.own


def sides_of(port: ModelMaker, reference: ModelMaker, names: Path | None = None, given: str | None = None) -> ConvertedSides:
    """Pair the tensors of two models.

    Args:
        port, reference: what makes them.
        names: a map of names; what it leaves open is found out.
        given: what the models are run on where names differ (``--input``); None to try.

    Raises:
        UserError: a model cannot be built, the map does not hold, or a tensor has no counterpart of its shape.
    """
    load_first((port.text, reference.text))
    models = port.made(), reference.made()
    frameworks = framework_of(models[0]), framework_of(models[1])
    known = NameMap() if names is None else read_map(names)
    modules = [side.modules(model, every_path=True) for side, model in zip(frameworks, models, strict=True)]
    check_names(known.modules, modules[0], modules[1])

    def inputs() -> tuple[np.ndarray, ...]:
        chosen = chosen_inputs(given, frameworks[1], models[1])
        rng, shape = np.random.default_rng(0), chosen.small or chosen.shape
        return chosen.make(2, shape, rng) if chosen.make else (rng.standard_normal((2, *shape)).astype(np.float32),)

    counters = _counters(frameworks[0], models[0]), _counters(frameworks[1], models[1])
    found = matched(*models, known.modules, frameworks, inputs, known.links)
    return ConvertedSides(frameworks, _entries(found, frameworks, models), counters, models)


def _entries(
    found: Matched, frameworks: tuple[Framework, Framework], models: tuple[Module, Module]
) -> tuple[list[Entry], list[Entry]]:
    for number, model in enumerate(models):
        found.name(model, number)
    ours, theirs = (side.entries(model) for side, model in zip(frameworks, models, strict=True))
    shapes = [{entry.canonical: entry.shape for entry in entries} for entries in (ours, theirs)]
    for number, role in enumerate(ROLES):
        for name, shape in shapes[number].items():
            other = shapes[1 - number].get(name)
            if other != shape:
                has = "has none" if other is None else f"has {other}"
                raise UserError(
                    f"the two models do not fit: {name} of the {role} is {shape}, the {ROLES[1 - number]} {has}; "
                    "python -m alignment audit says where they differ, --names pairs by hand"
                )
    return ours, theirs


def _counters(framework: Framework, model: Module) -> dict[str, np.ndarray]:
    found = {}
    for path, module in framework.modules(model, every_path=True).items():
        for name, tensor in framework.own_tensors(module).items():
            if name in framework.layout.counters:
                found[f"{path}.{name}" if path else name] = np.zeros_like(framework.array(tensor))
    return found


def convert(sides: ConvertedSides, source: str, target: str, to: str | None = None, take: str = "auto") -> str:
    """Write a file of the one model's weights as one of the other's; returns what was done.

    Args:
        sides: the two models.
        source, target: files.
        to: ``"port"`` or ``"reference"``, whose weights are written; None to find out from the names in ``source``.
        take: which weights of a training checkpoint, one of ``mobilenetv3_common.weights_file.TAKE``.

    Raises:
        UserError: the file is neither model's, or does not fit, or the target is of a kind that its framework does not have.
    """
    if Path(target).suffix not in FORMATS:
        raise UserError(f"{target}: unknown kind of weights file; use one of {', '.join(FORMATS)}")
    state = _unwrapped(sides, read_state(source, take), source)
    writing = ROLES.index(to) if to is not None else 1 - _owner(sides, source, set(state))
    reading, framework = 1 - writing, sides.frameworks[writing]
    kinds = (*framework.suffixes, ANY_FRAMEWORK)
    if Path(target).suffix not in kinds:
        raise UserError(f"{target}: weights of the {ROLES[writing]} ({framework.title}) are {' or '.join(kinds)}")
    known = {entry.own for entry in sides.entries[reading]}
    state = tied(state, sides.frameworks[reading], sides.models[reading], known, source)
    counters = sides.frameworks[reading].layout.counters
    canonical = canonical_state(state, sides.entries[reading], source, counters)
    own = own_state(canonical, sides.entries[writing], source)
    seconds = {name: own[first] for name, first in second_names(framework, sides.models[writing]).items() if first in own}
    write_state(target, own | seconds | sides.counters[writing])
    added = any(isinstance(entry, Piece) and entry.added for entry in itertools.chain(*sides.entries))
    note = "; two tensors that are added up become one, or one and zeros" if added else ""
    return f"{source} -> {target}: {len(own)} tensors of the {ROLES[writing]} ({framework.title}), all keys and shapes equal{note}"


def _unwrapped(sides: ConvertedSides, state: State, source: str) -> State:
    """The state under the names of the model whose weights it holds, without what a trainer's wrapper puts before them."""
    for entries in sides.entries:
        found, notes = under_names(state, {entry.own for entry in entries})
        if found is not state:
            say(source, notes)
            return found
    return state


def _owner(sides: ConvertedSides, source: str, names: set[str]) -> int:
    """Whose weights a file holds, by its names and kind."""
    fitting = []
    for number, framework in enumerate(sides.frameworks):
        suffix = written_as(source) in (*framework.suffixes, ANY_FRAMEWORK)
        ties = second_names(framework, sides.models[number])
        held = {ties.get(name, name) for name in names}
        if suffix and {ties.get(entry.own, entry.own) for entry in sides.entries[number]} <= held:
            fitting.append(number)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UserError(f"{source} has the names of both models: say with --to port or --to reference which is written")
    raise UserError(f"{source} has neither the port's nor the reference's names: is it another model's, or of another framework?")
