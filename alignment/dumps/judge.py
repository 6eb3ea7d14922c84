"""The audit of two dumps: the same comparisons, bounds and search as of two models, on what the dumps hold."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np

from alignment.audit.pair import title_of
from alignment.comparisons.comparison import Searched
from alignment.comparisons.context import Context
from alignment.comparisons.material import Weights
from alignment.comparisons.model import forward
from alignment.comparisons.model.dropouts import BY_FUNCTION, LAYER, Dropouts
from alignment.comparisons.result import StepResult
from alignment.comparisons.update.gradients import judge_gradients
from alignment.comparisons.update.runs import Iteration
from alignment.dumps.make import GRADIENT_LANES, MODES, PORT_LANES, REFERENCE_LANES, recorded_calls
from alignment.dumps.store import Reader
from alignment.dumps.stored import StoredModule, StoredSide, model_of
from alignment.finding import Finding
from alignment.frameworks.base import Framework, leaves
from alignment.kinds import Kind
from alignment.localize import compare_states
from alignment.localize.blame import Pair
from alignment.localize.search import search
from alignment.localize.structure import structure_finding
from alignment.models.matching import matched
from alignment.models.tracing import Answer, Network, Stored
from alignment.project import ModelSpec, Project, Side
from mobilenetv3_common.counted import counted
from mobilenetv3_common.errors import UserError

PHASES = ("forward", "backward")
NOT_COMPARED = (
    "the conversion of a file of weights (the engine itself loaded them into both sides)",
    "padding numbers of embeddings, where the input does not hold them",
    "fresh weights, low precision and inputs of other sizes or larger values",
    "hypotheses that need the models to run again: a mistake may be located without being named",
    "normalisations that the port computes by its own formula may differ by 1e-10 (eps is compared as float32 holds it)",
)


@dataclass
class Dumps:
    """Two dumps that belong together.

    Attributes:
        port, reference: the dumps.
        sides: what they tell of their models.
        models: of the port and of the reference.
        context: of both.
    """

    port: Reader
    reference: Reader
    sides: tuple[StoredSide, StoredSide]
    models: tuple[StoredModule, StoredModule]
    context: Context


def opened(port: Reader, reference: Reader) -> Dumps:
    """Two dumps as the two sides of an alignment.

    Raises:
        UserError: the port was dumped with another dump of the reference.
    """
    if port.content["dump_of_reference"] != reference.digest:
        raise UserError(
            f"--port-dump {port.folder}: it was made with another --reference-dump than {reference.folder} "
            "(other inputs or weights): dump the port again with this one"
        )
    mine, theirs = StoredSide(port), StoredSide(reference)
    models = model_of(port), model_of(reference)
    state, name = theirs.state(models[1]), reference.content["weights"]["name"]
    first = leaves(reference.value(reference.content["cases"][0]["inputs"]), np.ndarray)
    spec = ModelSpec(lambda: models[0], lambda: models[1], input_shape=first[0].shape[1:])
    title = title_of(reference.content["model"], theirs.layer(models[1]).title)
    project = Project(title, Side(_described(mine)), Side(_described(theirs)), {title: spec})
    given = {"seed": reference.content["seed"], "device": port.content["device"], "not_held": NOT_COMPARED}
    context = Context(project, given_state=state, **given)
    found = matched(*models, port.content["names"], (mine, theirs), lambda: ())
    found.name(models[0], 0)
    found.name(models[1], 1)
    context = context.knowing(weights=Weights(state, name, {}, name == "calibrated"), matched=found)
    return Dumps(port, reference, (mine, theirs), models, context)


def _described(side: StoredSide) -> Framework:
    """As a project's side: a step that is stored asks nothing but descriptions of it."""
    return cast(Framework, side)


def compared(dumps: Dumps, training: bool) -> list[StepResult]:
    """Steps 1 and 5, as far as the dumps hold them.

    Args:
        dumps: of both sides.
        training: whether training mode is compared.

    Raises:
        UserError: training mode is asked for, and a dump was made without.
    """
    if training:
        for flag, one in (("--port-dump", dumps.port), ("--reference-dump", dumps.reference)):
            if not one.content["training"]:
                raise UserError(f"--training: {flag} {one.folder} was made without --training")
    why = dumps.reference.content["random"] if training else "training mode: not asked for (--training)"
    if not dumps.port.content["problem"]:
        _same_outputs(dumps)
    steps = [_timed(_forward, dumps, why), _timed(_backward, dumps, why)]
    return [replace(one, stored=True, compared=[Searched(partial(_first, dumps, training))]) for one in steps]


def _same_outputs(dumps: Dumps) -> None:
    """Raise ``UserError`` where the two sides return another number of tensors: which is which, nobody can tell."""
    ours = dumps.port.content["cases"][0]["lanes"].get("port32")
    theirs = dumps.reference.content["cases"][0]["lanes"]["reference32"]
    counts = [
        sum(re.fullmatch(r"logits|output\d+", name) is not None for name in reader.value(trace))
        for reader, trace in ((dumps.port, ours), (dumps.reference, theirs))
        if trace is not None
    ]
    if len(set(counts)) > 1:
        raise UserError(f"the port returns {counted(counts[0], 'tensor')}, the reference {counts[1]}: let both return the same")


def _timed(step: Any, dumps: Dumps, without_training: str) -> StepResult:
    start = time.perf_counter()
    result: StepResult = step(dumps, without_training)
    result.seconds = time.perf_counter() - start
    return result


def _forward(dumps: Dumps, without_training: str) -> StepResult:
    context, ours, theirs = dumps.context, dumps.port, dumps.reference
    result = StepResult(1, "forward", not_run=without_training)
    if problem := ours.content["problem"]:
        result.problems.append(problem["words"])
        return result
    blocks = theirs.content["blocks"]
    elsewhere = forward.lying_elsewhere(context, blocks)
    made = {one["name"]: one["lanes"] for one in ours.content["cases"]}
    for one in theirs.content["cases"]:
        if one["training"] and without_training:
            continue
        lanes = made[one["name"]]
        if "problem" in lanes:
            result.problems.append(lanes["problem"]["words"])
            continue
        runs = {name: ours.value(lanes[name]) for name in PORT_LANES}
        runs |= {name: theirs.value(one["lanes"][name]) for name in REFERENCE_LANES}
        case = forward.PassCase(one["name"], theirs.value(one["inputs"]), one["training"])
        forward.judge_case(context, result, case, runs, blocks, elsewhere, partial(_moved, one.get("moved", {})))
    result.extend(Dropouts().judge(*(_dropouts(reader) for reader in (ours, theirs))))
    return result


def _moved(moved: Mapping[str, float], names: list[str]) -> dict[str, float]:
    """What the reference's dump says of one-ulp changes; dumps of earlier versions say nothing."""
    return {name: moved[name] for name in names if name in moved}


def _dropouts(reader: Reader) -> dict[str, Any]:
    """What ``Dropouts`` measures of a side, without the calls; dumps of earlier versions do not tell of dropouts as functions."""
    by_function = {BY_FUNCTION: "yes"} if reader.content.get("dropout_functions") else {}
    return by_function | {f"{LAYER}{name}": one for name, one in reader.value(reader.content["dropouts"]).items()}


def _backward(dumps: Dumps, without_training: str) -> StepResult:
    ours, theirs = dumps.port, dumps.reference
    result = StepResult(5, "backward", not_run="; ".join(filter(None, ["updates: two dumps hold none", without_training])))
    if problem := ours.content["problem"]:
        result.problems.append(problem["words"])
        return result
    counts = [one.content["dropout_layers"] for one in (ours, theirs)]
    result.evidence["dropout_layers"] = counts[1]
    if counts[0] != counts[1] and not any(one.content.get("dropout_functions") for one in (ours, theirs)):
        result.problems.append(f"the port has {counted(counts[0], 'dropout layer')}, the reference {counts[1]}")
    for mode, one in theirs.content["gradients"].items():
        if MODES[mode] and without_training:
            continue
        made = ours.content["gradients"][mode]
        if "problem" in made:
            result.problems.append(made["problem"]["words"])
            continue
        now = {name: _iteration(theirs, one["lanes"][name]) for name in GRADIENT_LANES}
        now |= {name: _iteration(ours, made[name]) for name in PORT_LANES}
        judge_gradients(result, now, MODES[mode], [array.shape for array in leaves(theirs.value(one["inputs"]), np.ndarray)])
    return result


def _iteration(reader: Reader, made: Mapping[str, Any]) -> Iteration:
    return Iteration(reader.value(made["loss"]), 0.0, reader.value(made["gradients"]), reader.value(made["kinks"]), {})


# --- where ------------------------------------------------------------------------------------------------------------------


def _first(dumps: Dumps, training: bool) -> Finding | None:
    """The first mistake that the two dumps show."""
    matching, order = dumps.context.paired.matched.matching, dumps.reference.content["order"]
    if finding := structure_finding(*dumps.models, matching, dumps.sides, lambda: order):
        return finding
    if problem := dumps.port.content["problem"]:
        return Finding("weights", problem["place"] or "load", Kind.RAISES, "the weights do not load", problem["words"])
    if finding := compare_states(*dumps.models, matching, dumps.sides):
        return finding
    for mode, on in MODES.items():
        if (training or not on) and mode in dumps.reference.content["calls"]:
            pair = pair_of(dumps, mode)
            if finding := search(pair):
                return finding if finding.hint else _with_settings(pair, finding)
    return None


def pair_of(dumps: Dumps, mode: str) -> Pair:
    """Both dumps in one mode."""
    matching, known = dumps.context.paired.matched.matching, recorded_calls(dumps.reference, mode)
    calls = {key: call for key, (call, _) in known.items()}
    held = {key: {phase: one[phase] for phase in PHASES if phase in one} for key, (_, one) in known.items()}
    back = matching.renaming()
    sides = (
        (dumps.port, dumps.models[0], matching.paths, dumps.port.content["calls"][mode]),
        (dumps.reference, dumps.models[1], None, held),
    )
    networks = []
    for side, (reader, model, paths, phases) in zip(dumps.sides, sides, strict=True):
        answers = {(key, phase): _answer(reader, one) for key, made in phases.items() for phase, one in made.items()}
        order = [path if paths is None else back.get(path, path) for path in model.order]
        networks.append(Network(_described(side), model, paths, Stored(calls, answers, order)))
    given = dumps.reference.content["calls"][mode]
    inputs, cotangents = dumps.reference.value(given["inputs"]), dumps.reference.value(given["cotangents"])
    return Pair(networks[0], networks[1], matching, inputs, cotangents, training=MODES[mode])


def _answer(reader: Reader, one: Mapping[str, Any]) -> Answer:
    fields = {name: reader.value(one[name]) for name in ("outputs", "buffers", "input_gradients", "gradients")}
    return Answer(**fields, error=one["error"], place=one["place"], oversized=one.get("oversized", False), floors=one.get("floors"))


def _with_settings(pair: Pair, finding: Finding) -> Finding:
    """Where no hypothesis could be tried: what the two layers themselves say of their settings."""
    if finding.location in pair.reference.modules and finding.location in pair.port.modules:
        ours, theirs = (side.framework.layer(side.modules[finding.location]) for side in (pair.port, pair.reference))
        other = [
            f"{name} {ours.settings[name]}, expected {value}"
            for name, value in theirs.settings.items()
            if name in ours.settings and not np.array_equal(ours.settings[name], value)
        ]
        if ours.kind == theirs.kind and other:
            finding.hint = f"the two layers have other settings, which a dump cannot try: {'; '.join(other)}"
    return finding
