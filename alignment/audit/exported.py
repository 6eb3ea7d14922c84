"""``audit`` where a side is an ``.onnx`` file: an export against the model that it was made of, or against another file."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from alignment.audit.inputs import chosen_inputs
from alignment.audit.judged import reported
from alignment.audit.pair import ModelMaker, arguments, digest
from alignment.comparisons.comparison import Searched
from alignment.comparisons.context import Context
from alignment.comparisons.material import Weights
from alignment.comparisons.model.exported import ONNX, Exported
from alignment.comparisons.result import StepResult
from alignment.frameworks import framework_of, load_first
from alignment.frameworks._onnx_files import read
from alignment.frameworks._onnx_graph import OnnxGraph
from alignment.frameworks.base import Framework, Module, in_precision, leaves
from alignment.localize.blame import one_ulp
from alignment.models.counterparts import Matching
from alignment.models.exported import with_operations
from alignment.models.matching import Matched
from alignment.models.quantised import Unquantised
from alignment.models.tracing import Network
from alignment.project import ModelSpec, Project, Side
from alignment.report.environment import commit, machine
from alignment.strangers import strangers
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import ensure_writable_dir
from mobilenetv3_common.json_output import writable
from mobilenetv3_common.pretrained import under_names
from mobilenetv3_common.weights import State, read_state
from mobilenetv3_common.weights_file import say

HEEDED = (
    "port", "reference", "port_args", "reference_args", "input", "weights", "checkpoint_weights", "training", "device", "seed",
    "report", "json", "json_file", "float_layers",
)  # fmt: skip
STEPS = (1,)
NOT_RUN = "an exported model has inference alone: no training mode, gradients or fresh weights"
SAMPLES = 2
SIDE = 64  # pixels, where a graph takes pictures of any size


@dataclass
class ModulesSide:
    """The side that the graph is held against: a model, or another graph.

    Attributes:
        flag: ``"--port"`` or ``"--reference"``.
        framework, model: with its weights, in evaluation mode, float32.
        weights: the name of its weights.
    """

    flag: str
    framework: Framework
    model: Module
    weights: str

    def network(self, exact: bool = False, moved: bool = False) -> Network:
        """A copy in one precision; moved: with every weight moved by one ulp."""
        model = self.framework.copy(self.model)
        if moved:
            self.framework.load(model, {name: one_ulp(array) for name, array in self.framework.state(model).items()})
        return Network(self.framework, self.framework.make_exact(model) if exact else model)


def audit(args: argparse.Namespace, flags: Sequence[str], files: Sequence[str]) -> int:
    """Compare; exit status 0 where nothing differs, else 1.

    Args:
        args, flags: of the command.
        files: the roles whose side is a file: ``"port"``, ``"reference"`` or both.

    Raises:
        UserError: what was given cannot be used.
    """
    if args.seed < 0:
        raise UserError(f"--seed must be 0 or more, found {args.seed}")
    if args.training:
        raise UserError(f"--training: {NOT_RUN}")
    ONNX.use(args.device)
    graphs = {role: read(f"--{role}", Path(getattr(args, role))) for role in files}
    role = next((one for one in files if graphs[one].quantised), files[0])
    other, graph = "reference" if role == "port" else "port", graphs[role]
    kept = _kept(args.float_layers, graph)
    side = _file_side(args, other, graphs[other]) if len(files) > 1 else _model_side(args, other)
    ensure_writable_dir(args.report)
    writable(args.json_file, "--json-file")
    inputs, words = _inputs(args, graph, side, getattr(args, role))
    _check_runs(graph, inputs, f"--{role} {getattr(args, role)}")
    context = _context(args, graph, side, role)
    drawn = args.input is None or args.input[0].isdigit()
    made = measured(graph, side, inputs, kept, drawn)
    _check_kept(kept, made)
    said = [f"port {args.port}, reference {args.reference}", f"input: {words}; {side.weights} weights"]
    said += made.cost()
    about = {
        **machine(),
        "commit": commit(),
        "weights": f"{side.weights}, SHA-256 {digest(context.material.weights.state)}",
        "input": f"{words}; SHA-256 {digest({str(n): one for n, one in enumerate(inputs)})}",
        "seed": str(args.seed),
    }
    return reported(args, flags, context, said, lambda: [step_of(made)], about, STEPS, made.findings)[0].status


def _kept(names: str | None, graph: OnnxGraph) -> list[str]:
    if names is not None and not graph.quantised:
        raise UserError("--float-layers goes with a quantised .onnx file, and nothing in this one is quantised: leave it out")
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def _check_kept(kept: Sequence[str], made: Exported) -> None:
    known = {*made.modules.modules, *(node.proto.name for node in made.graph.nodes)}
    if missing := [name for name in kept if name not in known]:
        raise UserError(f"--float-layers: neither a module nor a node is called {missing[0]!r}")


def _file_side(args: argparse.Namespace, role: str, graph: OnnxGraph) -> ModulesSide:
    if args.weights is not None:
        raise UserError("--weights: an .onnx file has its own weights, and both sides are files: leave it out")
    return ModulesSide(f"--{role}", ONNX, graph, f"{Path(getattr(args, role)).name}'s own")


def _model_side(args: argparse.Namespace, role: str) -> ModulesSide:
    """The model with the weights of ``--weights``, or with those that its callable gives it."""
    flag = f"--{role}"
    maker = ModelMaker(flag, getattr(args, role), arguments(f"{flag}-args", getattr(args, f"{role}_args")))
    load_first((maker.text,))
    model = maker.made()
    framework = framework_of(model)
    framework.use(args.device)
    name = f"{maker.text}'s own"
    if args.weights is not None:
        state, notes = under_names(read_state(args.weights, args.checkpoint_weights), {one.own for one in framework.entries(model)})
        say(args.weights, notes)
        framework.load(model, framework.canonical(model, state, args.weights), args.weights)
        name = args.weights
    framework.set_training(model, False)
    return ModulesSide(flag, framework, model, name)


def _inputs(args: argparse.Namespace, graph: OnnxGraph, side: ModulesSide, named: str) -> tuple[tuple[np.ndarray, ...], str]:
    """What both are given, and the same in words."""
    rng = np.random.default_rng(args.seed)
    known = list(graph.inputs.values())
    if args.input is None and all(dtype == "float32" and sizes is not None for dtype, sizes in known):
        shapes = [_filled(sizes or []) for _, sizes in known]
        arrays = tuple(rng.standard_normal(shape).astype(np.float32) for shape in shapes)
        return arrays, f"standard normal numbers of shape {' and '.join('x'.join(map(str, shape)) for shape in shapes)}"
    if args.input is None and isinstance(side.model, OnnxGraph):
        raise UserError(f"--input: {named} does not say what shape it takes, or takes no float32; give e.g. --input 2x3x64x64")
    chosen = chosen_inputs(args.input, side.framework, side.model)
    fixed = known[0][1][0] if known and known[0][1] else None
    count = fixed or (int(args.input.split("x")[0]) if args.input and args.input[0].isdigit() else SAMPLES)
    made = (
        chosen.make(count, chosen.shape, rng) if chosen.make else (rng.standard_normal((count, *chosen.shape)).astype(np.float32),)
    )
    return tuple(leaves(made, np.ndarray)), chosen.words


def _filled(sizes: Sequence[int | None]) -> tuple[int, ...]:
    """A shape in which sizes that vary are chosen: two samples, and 64 pixels a side."""
    return tuple(size or (SAMPLES if place == 0 else SIDE) for place, size in enumerate(sizes))


def _check_runs(graph: OnnxGraph, inputs: Sequence[np.ndarray], named: str) -> None:
    """See that ONNX Runtime computes the graph for these inputs, or for one sample of them, if it says that it takes any number.

    Raises:
        UserError: neither.
    """
    any_batch = all(sizes is not None and sizes[:1] == [None] for _, sizes in graph.inputs.values())
    for given in (inputs, [one[:1] for one in inputs])[: 1 + any_batch]:
        with strangers("ONNX Runtime", alone=True) as raised:
            graph.deployed(given)
        if raised.error is None:
            return
    if raised.error is not None:
        shapes = " and ".join("x".join(map(str, one.shape)) for one in inputs)
        raise UserError(f"{named}: ONNX Runtime does not compute it on inputs of shape {shapes}: {raised.words}; give --input")


def _context(args: argparse.Namespace, graph: OnnxGraph, side: ModulesSide, role: str) -> Context:
    sides = Side(ONNX), Side(side.framework)
    builders = (lambda: graph), (lambda: side.model)
    if role == "reference":
        sides, builders = sides[::-1], builders[::-1]
    title = Path(getattr(args, role)).stem
    shape = next(iter(graph.inputs.values()), ("", None))[1] or [1, 1]
    spec = ModelSpec(*builders, input_shape=tuple(size or 1 for size in shape[1:]) or (1,))
    state: State = side.framework.state(side.model)
    context = Context(Project(title, *sides, {title: spec}), given_state=state, seed=args.seed, device=args.device)
    return context.knowing(weights=Weights(state, side.weights, {}, False), matched=Matched(Matching(), {}))


def measured(
    graph: OnnxGraph, side: ModulesSide, inputs: tuple[np.ndarray, ...], kept: Sequence[str] = (), drawn: bool = True
) -> Exported:
    """Run both sides.

    Args:
        graph, side: the two.
        inputs: of both.
        kept: of a quantised graph: modules or nodes that are meant to stay in float32.
        drawn: whether the inputs are drawn numbers.

    Raises:
        UserError: the model does not run on the inputs, or returns another number of tensors.
    """
    networks = {"reference64": side.network(exact=True), "reference32": side.network(), "ulp32": side.network(moved=True)}
    calls = {}
    with strangers("model", alone=True) as raised:
        for name, network in networks.items():
            given = in_precision(inputs, network.dtype) if name == "reference64" else inputs
            made = network.trace(tuple(map(one_ulp, given)) if name == "ulp32" else given)
            calls[name] = with_operations(network, made)
    if raised.error is not None:
        raise UserError(f"{side.flag}: the model does not run on the inputs of the graph: {raised.words}; give --input")
    theirs = len(leaves(calls["reference64"][""].output, np.ndarray))
    if theirs != len(graph.made):
        raise UserError(f"the graph gives {len(graph.made)} tensors ({', '.join(graph.made)}), the model of {side.flag} {theirs}")
    tensors: dict[str, Any] = {}
    outputs: list[np.ndarray] = []
    with strangers("ONNX Runtime", alone=True) as raised:
        tensors, outputs = graph.values(inputs), graph.deployed(inputs)
    exact = ONNX.in_float64(ONNX.copy(graph))
    assert isinstance(exact, OnnxGraph)
    plain = Unquantised(exact, networks["reference64"], calls["reference64"])
    refused = raised.words if raised.error else ""
    return Exported(plain, networks["reference64"], inputs, calls, tensors, outputs, refused, kept, drawn)


def step_of(made: Exported) -> StepResult:
    start = time.perf_counter()
    result = StepResult(1, "forward", not_run=NOT_RUN)
    result.cover("evaluation mode")
    result.extend(made.rows())
    if made.others is None:
        result.require("nodes", len(made.graph.nodes), bool(made.stretches), "nodes that stand for modules")
    if made.refused:
        result.problems.append(f"ONNX Runtime does not compute it: {made.refused}")
    left = [node.title for node in made.pairing.left] if made.others is None else []
    if left:
        result.problems.append(f"{len(left)} nodes stand for nothing that the other side computes, the first is {left[0]}")
    result.stored = True
    result.compared = [Searched(lambda: next(iter(made.findings()), None))]
    result.seconds = time.perf_counter() - start
    return result
