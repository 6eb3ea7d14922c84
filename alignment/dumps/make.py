"""Dumps of a reference and of its port: each side computes in a process of its own, by the engine's own lanes.

The reference goes first. Its dump holds its structure, the weights, the inputs, and what it computes of them. The port's process
is given that folder: it loads the weights, and runs on the inputs, and each of its modules on what the reference's was given.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.audit.inputs import Inputs, numbered
from alignment.audit.pair import ModelMaker, digest
from alignment.compare import distance, norm, relative, without_masked
from alignment.comparisons.checked import check
from alignment.comparisons.context import Context
from alignment.comparisons.model import forward
from alignment.comparisons.model.dropouts import dropout_profile_of
from alignment.comparisons.model.one_ulp import ULP_DRAWS, farthest
from alignment.comparisons.update.gradients import cotangents_of, gradients_of
from alignment.comparisons.update.runs import Iteration
from alignment.dumps.store import NotHeld, Reader, Writer
from alignment.dumps.stored import StoredSide, model_of, structure
from alignment.frameworks.base import Call, Framework, Module, leaves, mapped
from alignment.localize.blame import Pair, backward_quantities, forward_quantities, one_ulp_call
from alignment.localize.search import random_cotangents
from alignment.models.matching import matched, order_of_use
from alignment.models.names import check_names
from alignment.models.rounding import BETTER
from alignment.models.tracing import Answer, Network, training_mode
from alignment.project import ModelSpec, Project, Side
from alignment.strangers import strangers
from mobilenetv3_common.errors import UserError

REFERENCE_LANES = ("reference32", "ulp32", "reference64")
PORT_LANES = ("port32", "port64")
GRADIENT_LANES = (*REFERENCE_LANES, *ULP_DRAWS)
SAMPLES = 2  # of the passes in which every module is looked at: a dump holds the input and output of each
MODES = {"eval": False, "train": True}


@dataclass(frozen=True)
class DumpSubject:
    """What is dumped.

    Attributes:
        maker: makes the model.
        framework: its own.
        network: a model that was made.
        training: whether training mode is dumped, too.
    """

    maker: ModelMaker
    framework: Framework
    network: Module
    training: bool

    def context(self, shape: tuple[int, ...], **more: Any) -> Context:
        """Both roles are this one side; which one is used, the lanes say."""
        inputs = more.pop("inputs", None)
        spec = ModelSpec(
            self.maker.function,
            self.maker.function,
            input_shape=shape,
            small_shape=None if inputs is None else inputs.small,
            inputs=None if inputs is None else inputs.make,
            whole_inputs=inputs is not None and inputs.whole,
        )
        name = self.maker.text.rpartition(":")[2]
        project = Project(name, Side(self.framework), Side(self.framework), {name: spec})
        return Context(project, without_training="" if self.training else "not asked for (--training)", **more)


def reference(subject: DumpSubject, inputs: Inputs, **given: Any) -> tuple[Writer, dict[str, Any]]:
    """What the reference computes.

    Args:
        subject: of the reference.
        inputs: on what it runs.
        given: ``weights_from``, ``seed`` and ``device`` of a context.

    Returns:
        The arrays, and the content of the table.

    Raises:
        UserError: it cannot be built, run, or take the weights.
    """
    writer, context = Writer(), subject.context(inputs.shape, inputs=inputs, **given)
    check(context)
    random = context.unshared_randomness
    network, framework = context.networks.build("reference"), subject.framework
    small = context.material.samples(4, small=True)[0]
    lanes = {name: context.networks.of(name) for name in GRADIENT_LANES}
    cases = forward.cases(context)
    blocks = forward.block_names(context.spec, framework, network)
    content: dict[str, Any] = {
        "role": "reference",
        "weights": {"name": context.material.weights.name, "sha256": digest(context.material.weights.state)},
        "shape": list(inputs.shape),
        "small": None if inputs.small is None else list(inputs.small),
        "input": {"words": inputs.words, "sha256": digest(numbered(context.fake_inputs(2)))},
        "random": random,
        "structure": structure(framework, network, writer),
        "order": order_of_use(framework, network, context.fake_inputs(2, small=True)),
        "orders": context.paired.orders,
        "blocks": blocks,
        "dropouts": writer.value(dropout_profile_of(framework, network)),
        "dropout_layers": lanes["reference32"].dropouts,
        "dropout_functions": lanes["reference32"].drops_by_function(small),
        "cases": [],
        "gradients": {},
        "calls": {},
    }
    content["cases"] = [_case(writer, lanes, case, blocks) for case in cases if not (case.training and random)]
    for mode, on in MODES.items():
        if not (on and random):
            cotangents = cotangents_of(context, lanes["reference64"], small, on)
            made = {name: _iteration(writer, gradients_of(lane, small, cotangents, on)) for name, lane in lanes.items()}
            one = {"inputs": writer.value(small), "cotangents": writer.value(cotangents), "lanes": made}
            content["gradients"][mode] = one
            content["calls"][mode] = _calls(context, writer, on)
    return writer, content


def _case(writer: Writer, lanes: Mapping[str, Network], case: forward.PassCase, blocks: list[str]) -> dict[str, Any]:
    """One forward pass of the reference in all lanes."""
    traces = {name: forward.forward(lanes[name], case, blocks) for name in REFERENCE_LANES}
    held = {name: writer.value(trace) for name, trace in traces.items()}
    moved = _moved([lanes[name] for name in ULP_DRAWS], case, blocks, traces["reference64"])
    return {"name": case.name, "training": case.training, "inputs": writer.value(case.inputs), "lanes": held, "moved": moved}


def _moved(draws: list[Network], case: forward.PassCase, blocks: list[str], truth: forward.NamedOutputs) -> dict[str, float]:
    """How far one ulp moves a pass in exact mode (L2); one draw where that is far below what any verdict asks for."""
    sizes = {name: norm(without_masked(array)[0]) for name, array in truth.items() if array.dtype.kind == "f"}
    names = [name for name, size in sizes.items() if np.isfinite(size)]
    moved = farthest([forward.forward(draws[0], case, blocks)], truth, names)
    if any(100 * relative(far, sizes[name]) > tolerance.EXACT_RTOL for name, far in moved.items()):
        others = farthest((forward.forward(lane, case, blocks) for lane in draws[1:]), truth, names)
        moved = {name: max(far, others[name]) for name, far in moved.items()}
    return moved


def _iteration(writer: Writer, made: Iteration) -> dict[str, Any]:
    return {"loss": writer.value(made.loss), "gradients": writer.value(made.gradients), "kinks": writer.value(made.kinks)}


def _calls(context: Context, writer: Writer, training: bool) -> dict[str, Any]:
    """Every call of a module in one pass in float64: what it was given and gave, with gradients, and how far one ulp moves that."""
    network = context.networks.of("reference64")
    inputs = network.inputs(context.fake_inputs(SAMPLES, small=True))
    pair = Pair(network, network, context.paired.matched.matching, inputs, training=training)
    pair.cotangents = random_cotangents(pair)
    found = []
    with training_mode([network], training):
        for key, call in network.trace(inputs, pair.cotangents).items():
            path = key.partition("#")[0]
            gradients = pair.cotangents if path == "" else call.gradients
            try:
                one = {"args": writer.value(call.args), "kwargs": writer.value(call.kwargs)}
            except NotHeld as error:
                found.append({"key": key, "not_held": str(error)})
                continue
            one |= {"key": key, "output": writer.value(leaves(call.output, np.ndarray)), "gradients": writer.value(gradients)}
            for phase, cotangents in _phases(gradients):
                right = network.answer(path, call, cotangents)
                shaken = network.answer(path, one_ulp_call(call), cotangents)
                one[phase] = answered(writer, right) | {"floors": _floors(phase, shaken, right)}
            found.append(one)
    return {"cotangents": writer.value(pair.cotangents), "inputs": writer.value(inputs), "calls": found}


def _phases(gradients: Sequence[np.ndarray | None]) -> list[tuple[str, Sequence[np.ndarray | None] | None]]:
    reached = any(gradient is not None for gradient in gradients)
    return [("forward", None), *([("backward", gradients)] if reached else [])]


def _floors(phase: str, shaken: Answer, right: Answer) -> dict[str, float]:
    named = backward_quantities if phase == "backward" else forward_quantities
    moved, still = named(shaken), named(right)
    pairs = {name: (moved.get(name), array) for name, array in still.items()}
    return {n: distance(a, b) for n, (a, b) in pairs.items() if a is not None and b is not None and a.shape == b.shape}


def answered(writer: Writer, answer: Answer) -> dict[str, Any]:
    """An answer as JSON."""
    fields = ("outputs", "buffers", "input_gradients", "gradients")
    return {name: writer.value(getattr(answer, name)) for name in fields} | {"error": answer.error, "place": answer.place}


def port(subject: DumpSubject, dump: Reader, names: Mapping[str, str], device: str) -> tuple[Writer, dict[str, Any]]:
    """What the port computes, given the dump of its reference.

    Args:
        subject: of the port.
        dump: of the reference.
        names: port path -> reference path, for modules that are called otherwise.
        device: to compute on.

    Returns:
        The arrays, and the content of the table. Where the port cannot take the weights or raises, the table says so.

    Raises:
        UserError: a name is wrong.
    """
    writer, framework = Writer(), subject.framework
    other, theirs = StoredSide(dump), model_of(dump)
    check_names(names, framework.modules(subject.network), other.modules(theirs))
    first = leaves(dump.value(dump.content["cases"][0]["inputs"]), np.ndarray)
    small = dump.value(dump.content["gradients"]["eval"]["inputs"])
    two = mapped(small, np.ndarray, lambda array: array[:2])
    found = matched(subject.network, theirs, names, (framework, other), lambda: two)
    state = other.state(theirs)
    context = subject.context(first[0].shape[1:], given_state=state, seed=dump.content["seed"], device=device)
    context = context.knowing(matched=found, orders=dump.content.get("orders", {}))
    content: dict[str, Any] = {
        "role": "port",
        "dump_of_reference": dump.digest,
        "names": {**found.paired, **names},
        "order": order_of_use(framework, subject.network, two),
        "structure": structure(framework, subject.network, writer),
        "problem": None,
        "cases": [],
        "gradients": {},
        "calls": {},
    }
    with strangers("port") as raised:  # the weights do not fit, or whatever the port raises
        network = context.networks.build("port")
        context = context.knowing(roundings={"port": _roundings(context, dump), "reference": {}})
        lanes = {name: context.networks.of(name) for name in PORT_LANES}
    if raised.error is not None:
        content["problem"] = _problem(raised)
        return writer, content
    content["dropouts"] = writer.value(dropout_profile_of(framework, network))
    content["structure"] = structure(framework, _with_own_names(network), writer)
    content["dropout_layers"] = lanes["port32"].dropouts
    content["dropout_functions"] = lanes["port32"].drops_by_function(small)
    _measure_port(context, dump, writer, lanes, subject.training, content)
    return writer, content


def _measure_port(
    context: Context, dump: Reader, writer: Writer, lanes: Mapping[str, Network], training: bool, content: dict[str, Any]
) -> None:
    """Add the passes, gradients and calls of a port that can be built."""
    for one in dump.content["cases"]:
        case = forward.PassCase(one["name"], dump.value(one["inputs"]), one["training"])
        if not case.training or training:
            run = functools.partial(_traces, writer, lanes, case, dump.content["blocks"])
            content["cases"].append({"name": case.name, "lanes": _guarded(run)})
    for mode, one in dump.content["gradients"].items():
        if mode == "eval" or training:
            inputs, cotangents = dump.value(one["inputs"]), dump.value(one["cotangents"])
            run = functools.partial(_gradients, writer, lanes, inputs, cotangents, MODES[mode])
            content["gradients"][mode] = _guarded(run)
            content["calls"][mode] = _answers(context, dump, writer, mode)


def _problem(raised: strangers) -> dict[str, str]:
    return {"words": raised.error.line if isinstance(raised.error, UserError) else raised.words, "place": raised.place}


def _guarded(run: Any) -> dict[str, Any]:
    """What a run gives, or what it raised: that is a finding of the audit."""
    with strangers("port") as raised:  # whatever the port raises
        return run()
    return {"problem": _problem(raised)}


def _traces(writer: Writer, lanes: Mapping[str, Network], case: forward.PassCase, blocks: list[str]) -> dict[str, Any]:
    return {name: writer.value(forward.forward(lane, case, blocks)) for name, lane in lanes.items()}


def _gradients(writer: Writer, lanes: Mapping[str, Network], inputs: tuple, cotangents: list, training: bool) -> dict[str, Any]:
    made = {name: gradients_of(lane, inputs, cotangents, training) for name, lane in lanes.items()}
    return {name: _iteration(writer, one) for name, one in made.items()}


def _with_own_names(network: Module) -> Module:
    """The model under its own paths again."""
    if "paths_in_reference" in vars(network):
        del network.paths_in_reference
    return network


def recorded_calls(dump: Reader, mode: str) -> dict[str, tuple[Call, dict[str, Any]]]:
    """The calls of a reference's dump by key, with their entry in the table; those that it does not hold are left out."""
    found = {}
    for one in dump.content["calls"][mode]["calls"]:
        if "args" in one:
            call = Call(dump.value(one["args"]), dump.value(one["kwargs"]), dump.value(one["output"]), dump.value(one["gradients"]))
            found[one["key"]] = call, one
    return found


def _answers(context: Context, dump: Reader, writer: Writer, mode: str) -> dict[str, Any]:
    """What each module of the port gives for what the reference's was given; nothing for one that cannot be called so."""
    network, paths = context.networks.of("port64"), context.paired.matched.matching.paths
    limits = Pair(network, network, context.paired.matched.matching, ())
    known = recorded_calls(dump, mode)
    limits.calls = {key: call for key, (call, _) in known.items()}
    found: dict[str, Any] = {}
    with training_mode([network], MODES[mode]):
        for key, (call, one) in known.items():
            path = key.partition("#")[0]
            if path in paths and path in network.modules:
                found[key] = {}
                for phase in ("forward", "backward"):
                    if phase in one and network.takes(path, call):
                        cotangents = call.gradients if phase == "backward" else None
                        answer = network.answer(path, call, cotangents, limits.limits())
                        found[key][phase] = answered(writer, answer) | {"oversized": answer.oversized}
    return found


def _roundings(context: Context, dump: Reader) -> dict[str, dict[bool, bool]]:
    """Of eps in the port's normalisations, so that each agrees with the reference's: see ``alignment.models.rounding``."""
    framework = context.port.framework
    context = context.knowing(roundings={"port": {}, "reference": {}})
    network = context.networks.build("port", exact=True)
    modules = framework.modules(network, every_path=True)
    found: dict[str, dict[bool, bool]] = {}
    for mode in dump.content["calls"]:
        framework.set_training(network, MODES[mode])
        for key, (call, _) in recorded_calls(dump, mode).items():
            own = context.paired.matched.matching.paths.get(key)
            if own not in modules or not framework.rounds_eps(modules[own]) or not call.output:
                continue
            apart = {}
            for rounded in (True, False):
                framework.round_eps(modules[own], MODES[mode], rounded)
                made = framework.call(modules[own], call.args, call.kwargs).outputs[0]
                same = made.shape == call.output[0].shape
                apart[rounded] = relative(distance(made, call.output[0]), norm(call.output[0])) if same else np.inf
            if apart[True] > max(BETTER * apart[False], tolerance.EPS_SUMMATION):
                found.setdefault(own, {})[MODES[mode]] = False
            framework.round_eps(modules[own], MODES[mode], True)
    return found
