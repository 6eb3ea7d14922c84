"""Step 1, model structure: logits and every block's output, in evaluation and training mode; variants; initialisation."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import IN_EXACT_MODE, Lanes, Leeway, Quantity, judge_equal, judge_measured, summation32
from alignment.comparisons.comparison import Searched, compare
from alignment.comparisons.context import Context
from alignment.comparisons.model import explain, initialisation, variants
from alignment.comparisons.model.dropouts import Dropouts
from alignment.comparisons.model.embeddings import Paddings
from alignment.comparisons.model.events import Events
from alignment.comparisons.model.one_ulp import ULP_DRAWS, farthest, judge_again, just_missed, near_zero, wholes
from alignment.comparisons.result import StepResult
from alignment.finding import Finding
from alignment.frameworks.base import Framework, Module, leaves
from alignment.models.links import plain
from alignment.models.observe import traced_outputs
from alignment.models.tracing import Network, held_otherwise
from alignment.models.weights import renamed
from alignment.project import ModelSpec
from alignment.strangers import strangers

SHOWN = 3  # names of modules in a line
LANES = ("port32", "reference32", "ulp32", "port64", "reference64")
NamedOutputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class PassCase:
    """One forward pass: its name, the inputs (samples are their first axis) and the mode."""

    name: str
    inputs: tuple[Any, ...]
    training: bool

    def __len__(self) -> int:
        return len(leaves(self.inputs, np.ndarray)[0])


def cases(context: Context) -> list[PassCase]:
    """Photographs, where there are some, and fake data; several batch sizes, unless rows are no samples; both modes."""
    fake = [
        PassCase("eval.fake.b2", context.fake_inputs(2), False),
        PassCase("train.fake.b4", context.fake_inputs(4), True),
    ]
    if context.spec.whole_inputs:
        return [PassCase("eval.given", context.fake_inputs(1), False), PassCase("train.given", context.fake_inputs(1), True)]
    if not context.material.has_pictures:
        return [
            PassCase("eval.fake.b1", context.fake_inputs(1), False),
            PassCase("eval.fake.b8", context.fake_inputs(8), False),
            *fake,
        ]
    photos = context.material.samples(16)[0][0]
    return [
        PassCase("eval.photos.b1", (photos[:1],), False),
        PassCase("eval.photos.b3", (photos[1:4],), False),
        PassCase("eval.photos.b16", (photos,), False),
        fake[0],
        PassCase("train.photos.b8", (photos[::2],), True),
        fake[1],
    ]


def run(context: Context, chosen: list[PassCase] | None = None) -> StepResult:
    """Compare every case (or the chosen ones); in training mode the running statistics that the pass leaves behind too.

    Without a choice of cases the variants of the model and its fresh weights are compared, too, where nothing has failed yet.
    """
    result = StepResult(1, "forward")
    lanes = [context.networks.of(name) for name in LANES]
    plain = {"reference": context.networks.build("reference")}
    blocks = block_names(context.spec, context.reference.framework, plain["reference"])
    elsewhere = lying_elsewhere(context, blocks)
    if elsewhere:
        result.evidence["blocks_without_counterpart"] = len(elsewhere)
    elsewhere |= held_otherwise(lanes[0], lanes[1]) | unheld(context)
    result.not_run = context.unshared_randomness
    wanted = context.suspects_first(cases(context) if chosen is None else chosen, lambda case: case.name)
    context.progress.expect(len(wanted))
    for case in wanted:
        context.progress.done()
        if case.training and context.unshared_randomness:
            continue
        runs = {lane.name: forward(lane, case, blocks) for lane in lanes}
        moved = functools.partial(farthest, _changed(context, case, blocks), runs["reference64"])
        judge_case(context, result, case, runs, blocks, elsewhere, moved)
        if context.in_haste and result.differs:
            return result
    plain["port"] = context.networks.build("port")
    compare(context, result, Dropouts(plain))
    compare(context, result, Events(dict(zip(("port", "reference"), lanes[:2], strict=True))))
    compare(context, result, Paddings(plain))
    plain.clear()  # the comparisons are kept, these models are not
    if chosen is None and not result.problems and all(quantity.passed for quantity in result.quantities):
        searches: list[Callable[[], Finding | None]] = []
        for words, other in variants.judge_on_other_inputs(context, result):
            searches.append(functools.partial(explain.on_other_inputs, words, other))
        for options, row in variants.judge(context, result):
            searches.append(functools.partial(explain.in_variant, context, options, row))
        result.compared += [Searched(search, late=True) for search in searches]
        initialisation.judge(context, result)
    return result


def _changed(context: Context, case: PassCase, blocks: list[str]) -> Iterator[NamedOutputs]:
    """The reference's pass in exact mode with one-ulp changes, once for every draw; each is made when it is asked for."""
    for draw in ULP_DRAWS:
        yield forward(context.networks.of(draw), case, blocks)


def _rows(
    case: PassCase,
    values: Mapping[str, Lanes],
    truth: NamedOutputs,
    moved: Callable[[list[str]], Mapping[str, float]],
    across: bool,
) -> dict[str, Quantity]:
    """The rows of one case by value; those that have just missed their bound are judged again by what one-ulp changes do.

    What a sum leaves of float32 is in all that is computed behind it.
    """
    rows = {}
    leeway = Leeway(summation32=summation32((array.shape for array in leaves(case.inputs, np.ndarray)), across))
    for name, lanes in values.items():
        row = f"{case.name}.{name}"
        if lanes.reference32 is not None:
            leeway.summation32 = max(leeway.summation32, summation32([lanes.reference32.shape], across))
        floating = lanes.reference32 is None or lanes.reference32.dtype.kind == "f"
        rows[name] = judge_measured(row, lanes, leeway) if floating else judge_equal(row, lanes.port32, lanes.reference32)
    failed = [name for name, row in rows.items() if not row.passed]
    whole = wholes(truth) if failed else {}
    narrow = [name for name in failed if just_missed(rows[name]) or near_zero(rows[name], values[name], whole.get(name, 0.0))]
    for name, far in moved(narrow).items():
        rows[name] = judge_again(rows[name], values[name], far, whole[name], leeway)
    return rows


def judge_case(
    context: Context,
    result: StepResult,
    case: PassCase,
    runs: Mapping[str, NamedOutputs],
    blocks: list[str],
    elsewhere: set[str],
    moved: Callable[[list[str]], Mapping[str, float]],
) -> None:
    """Compare one case as all lanes computed it.

    Args:
        context, result: of the step.
        case: that was run.
        runs: by lane, what ``forward`` gave.
        blocks: whose outputs are compared.
        elsewhere: those of them that the port has no module for.
        moved: how far (L2) one-ulp changes move values of the reference; it is asked only where some have just missed their bound.
    """
    result.cover("training mode" if case.training else "evaluation mode")
    called = {role: {name for name in blocks if name in runs[f"{role}32"]} for role in context.sides}
    if context.spec.blocks is not None:
        missing = [name for name in blocks if name not in called["reference"]]
        result.require("blocks", len(called["reference"]), not missing, f"all {len(blocks)} that the project names")
        left_out = elsewhere
    else:  # either side may call a function in place of a layer, and leave a layer uncalled
        left_out = elsewhere | (called["port"] ^ called["reference"])
        result.evidence["blocks"] = len(called["port"] & called["reference"])
    uneven = called_unevenly(runs["port32"], runs["reference32"])
    if uneven:  # one ReLU for all on one side, one for each place on the other: the parts around them are compared
        result.evidence["blocks_called_another_number_of_times"] = len(uneven)
    every = dict.fromkeys([*runs["reference32"], *runs["port32"]])
    names = [name for name in every if name.partition("#")[0] not in left_out | uneven]
    lanes = {name: Lanes(**{lane: trace.get(name) for lane, trace in runs.items()}) for name in names}
    lanes |= {name: _in_one_shape(lanes[name]) for name in names if name.partition("#")[0] in blocks}
    rows = _rows(case, lanes, runs["reference64"], moved, case.training or context.spec.whole_inputs)
    # Of blocks that the project names, a port may compute some by functions; where it calls one, that has to be right.
    free = blocks if context.spec.blocks is None else sorted(called["reference"] - called["port"])
    if other := of_another_form(rows, free):
        result.evidence["blocks_of_another_form"] = len(other)
        names = [name for name in names if name not in other]
    for name in names:
        result.quantities.append(rows[name])
    _record(context, result, case, {name: lanes[name] for name in names})
    if not case.training and len(case) > 1 and (case.name.startswith("eval.photos") or not context.material.has_pictures):
        _spread(context, result, runs["reference32"]["logits"])
        if flat := [name for name in names if name in blocks and _one_number(runs["reference64"].get(name))]:
            words = f"what goes into {', '.join(flat[:SHOWN])}, which gives one number everywhere with these weights and inputs"
            result.not_run = "; ".join(filter(None, [result.not_run, f"{words} (give --weights of a trained model)"]))


def _record(context: Context, result: StepResult, case: PassCase, values: Mapping[str, Lanes]) -> None:
    """Keep logits, and of one case everything, what was given with it.

    The guide's example has the logits of what it is given. Training mode, outputs of blocks, and the logits of noise that is no
    picture, whose scales are others, go to the further record.
    """
    whole = case.name in ("eval.fake.b2", "eval.given")
    noise = context.material.has_pictures and context.fake is None and "photos" not in case.name
    for name, lanes in values.items():
        if name == "logits" or whole:
            further = case.training or name != "logits" or noise
            result.record(f"{case.name}.{name}", lanes.port32, lanes.reference32, further=further)
    for number, array in enumerate(leaves(case.inputs, np.ndarray) if whole else (), start=1):
        result.record(f"{case.name}.fake_data{number if number > 1 else ''}", array, array)


def _spread(context: Context, result: StepResult, logits: np.ndarray) -> None:
    """Logits that are all alike would agree whatever is wrong."""
    calibrated = context.material.weights.calibrated and context.material.has_pictures and context.spec.last_layer is not None
    if logits.ndim == 0 or logits.dtype.kind != "f":
        return  # one number of a whole batch: there is nothing between the samples
    low, high = tolerance.LOGITS_STD if calibrated else tolerance.GIVEN_LOGITS_STD
    between = tolerance.LOGITS_STD_BETWEEN if calibrated else tolerance.GIVEN_LOGITS_STD_BETWEEN
    finite = np.ma.masked_invalid(logits)  # what is masked with infinity says nothing
    spread, apart = (float(np.ma.filled(found, np.nan)) for found in (finite.std(), finite.std(axis=0).mean()))
    result.require("logits_std", float(f"{spread:.4g}"), low <= spread <= high, f"{low:g} to {high:g}")
    result.require("logits_std_between_pictures", float(f"{apart:.4g}"), apart > between, f"above {between:g}")


def _one_number(array: np.ndarray | None) -> bool:
    """Whether an output is one number everywhere, as of a bounded activation at its bound: it is so whatever is before it."""
    return array is not None and array.dtype.kind == "f" and array.size > 1 and bool((array == array.flat[0]).all())


def _in_one_shape(lanes: Lanes) -> Lanes:
    """The values of a module inside, the port's in the reference's shape where axes of 1 alone differ: a caller takes them away."""
    shape = None if lanes.reference32 is None else lanes.reference32.shape
    arrays = {name: array for name, array in vars(lanes).items() if name.startswith("port") and array is not None}
    if shape is None or any(plain(array.shape) != plain(shape) for array in arrays.values()):
        return lanes
    return replace(lanes, **{name: array.reshape(shape) for name, array in arrays.items()})


def block_names(spec: ModelSpec, framework: Framework, network: Module) -> list[str]:
    """Every block and layer whose output is compared, in forward order, as the reference names them."""
    if spec.blocks is not None:
        return spec.blocks(framework, network)
    names: list[str] = []
    for name, child in framework.children(network):
        inside = framework.children(child)
        numbered = inside and all(part.isdigit() for part, _ in inside)
        names += [f"{name}.{part}" for part, _ in inside] if numbered else [name]
    return names


def called_unevenly(ours: NamedOutputs, theirs: NamedOutputs) -> set[str]:
    """Modules that both sides call, but not equally often: which call is which, nobody can tell."""
    counts = [Counter(name.partition("#")[0] for name in trace) for trace in (ours, theirs)]
    return {name for name in counts[0].keys() & counts[1].keys() if counts[0][name] != counts[1][name]}


def of_another_form(rows: Mapping[str, Quantity], blocks: list[str]) -> set[str]:
    """Modules that give other values than the reference's of their names, or none, where the models' outputs are all right.

    The same operations then stand in other modules: an activation inside a normalisation, and behind it in the reference. What
    differs in float32 alone counts as ever: rounding that is too coarse inside may not show at the end. A statistic that is wrong
    has a row of its own. Where the outputs differ by no more than float32 rounds, those of another shape are such modules.
    """
    inside = {name for name in rows if name.partition("#")[0] in blocks}
    outputs = [row for name, row in rows.items() if name == "logits" or name.startswith("output")]
    other = {name for name in inside if not rows[name].passed and not _in_float32_alone(rows[name])}
    if all(row.passed and _is_exact(row) for row in outputs):  # what passes by a wider bound may hide what is wrong inside
        return other
    rounded = all(row.is_rounding or (row.passed and _is_exact(row)) for row in outputs)
    return {name for name in other if rounded and rows[name].float64_diff is None}  # of another shape


def _is_exact(row: Quantity) -> bool:
    return row.float64_diff is None or row.float64_diff <= tolerance.EXACT_RTOL


def _in_float32_alone(row: Quantity) -> bool:
    return row.float64_diff is not None and IN_EXACT_MODE not in row.reason


def lying_elsewhere(context: Context, blocks: list[str]) -> set[str]:
    """Blocks of the reference that a port with other nesting has no module for, or has behind another one."""
    moved = {other.path for other in context.paired.matched.matching.unmatched if other.kind == "moved"}
    if not context.paired.matched.shown:
        return set()
    return {name for name in blocks if name not in context.paired.matched.matching.paths or name in moved}


def unheld(context: Context) -> frozenset[str]:
    """Tensors that a side lacks or has in another shape, where that is known and the port takes what fits; none elsewhere."""
    if not context.fitting:
        return frozenset()
    names, sides = context.paired.matched.matching.renaming(), (context.port.framework, context.reference.framework)
    ours = {(renamed(entry, names), entry.shape) for entry in sides[0].entries(context.networks.fresh("port"))}
    theirs = {(entry.canonical, entry.shape) for entry in sides[1].entries(context.networks.described)}
    return frozenset(name for name, _ in ours ^ theirs)


def float32_alone(context: Context) -> str:
    """In words, that a side runs in float32 and not in exact mode, which tells mistakes from rounding; empty where none does."""
    inputs = cases(context)[0].inputs
    for role in context.sides:
        for lane in (f"{role}32", f"{role}64"):
            with strangers(role) as raised:
                context.networks.of(lane).outputs(inputs)
            if raised.error is not None:
                break
        if raised.error is not None and lane.endswith("64"):
            why = f"{raised.place}: " if raised.place else ""
            return (
                f"not compared: the {role} runs in float32, but not in float64, in which mistakes are told from rounding: {why}"
                f"{raised.words}; let this line take the type of what it is given"
            )
    return ""


def forward(lane: Network, case: PassCase, blocks: list[str]) -> NamedOutputs:
    """One pass; returns block outputs (those of a second call as ``name#2``), ``logits`` (further outputs are ``output2``, ...)
    and, in training mode, the running statistics after it."""
    framework, network = lane.framework, lane.model
    lane.train_mode(case.training)
    trace: NamedOutputs = {}
    with traced_outputs(framework, network, blocks, trace):
        outputs = lane.outputs(case.inputs)
    for number, output in enumerate(outputs):
        trace["logits" if number == 0 else f"output{number + 1}"] = output
    if case.training:
        state = framework.state(network)
        buffers = {name: state[entry.canonical] for name, entry in lane.entries.items() if entry.role == "buffer"}
        trace.update({name: array for name, array in buffers.items() if array.dtype.kind == "f"})
        lane.reset()
    return trace
