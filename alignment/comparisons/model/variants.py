"""The model with other options of its builders, on pictures of another size, and on larger values: a forward pass in exact mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from alignment.compare import Lanes, Quantity, judge_equal, judge_measured, norm
from alignment.comparisons.checked import refusal
from alignment.comparisons.comparison import of_both
from alignment.comparisons.context import Context
from alignment.comparisons.model.dropouts import Dropouts
from alignment.comparisons.model.one_ulp import ULP_DRAWS, farthest, judge_again, just_missed
from alignment.comparisons.result import StepResult
from alignment.frameworks.base import Module, in_precision, leaves, mapped
from alignment.models.calibration import randomised_state
from alignment.project import ModelSpec, Side
from alignment.strangers import strangers
from mobilenetv3_common.counted import agreed
from mobilenetv3_common.errors import UserError

SAMPLES = 4
LARGE = 8
CONTRAST = 1 / 16  # of every second large input
MORE = (33, 65)  # pixels that pictures of another size have more than the model's, at even sides
Options = Mapping[str, Any]


def compared(context: Context) -> list[Options]:
    """The options to compare: those that the project names, and none at all where the weights brought some."""
    spec = context.spec
    given = dict(context.material.weights.options) != {**spec.options, **context.options}
    return [*([{}] if given and not refusal(context, {}) else []), *spec.compared_options]


def title(options: Options) -> str:
    """``"dilated=True"``, for names of rows and for people."""
    return ",".join(f"{name}={value}" for name, value in options.items()) or "defaults"


def judge(context: Context, result: StepResult) -> list[tuple[Options, Quantity]]:
    """Add the rows of every variant; returns those variants that fail, with the first row that does."""
    failed = []
    for options in compared(context):
        rows = rows_of(context, options)
        result.quantities += rows
        failed += [(options, row) for row in rows if not row.passed][:1]
        if failed and context.in_haste:
            return failed
        if any(row.float64_diff is not None for row in rows):
            result.cover(title(options))
    for options in context.spec.compared_structures:
        result.quantities.append(row := structure_of(context, options))
        failed += [] if row.passed else [(options, row)]
        result.cover(f"{title(options)} (shapes)")
    return failed


def structure_of(context: Context, options: Options) -> Quantity:
    """``variant.NAME=VALUE.structure``: whether both models have the same tensors.

    Raises:
        UserError: the reference has no such variant.
    """

    def shapes(role: str) -> dict[str, tuple[int, ...]]:
        described = context.sides[role].framework.described(context.paired.unfilled(role, options))
        return {entry.canonical: tuple(entry.shape) for entry, _ in described}

    with strangers("reference") as raised:
        theirs = shapes("reference")
    if raised.error is not None:
        named = f"{context.project.name}: the reference of {context.model} with {title(options)}"
        raise UserError(f"{named} cannot be built: {raised.whole}") from raised.error
    row = Quantity(f"variant.{title(options)}.structure", [len(theirs)])
    with strangers("port") as raised:  # whatever the port raises
        ours = shapes("port")
    if raised.error is not None:
        return row.fail(raised.whole)
    apart = [name for name in [*theirs, *(ours.keys() - theirs)] if ours.get(name) != theirs.get(name)]
    if not apart:
        return row
    first, found, expected = apart[0], ours.get(apart[0]), theirs.get(apart[0])
    words = f"shape {found}, expected {expected}" if found and expected else "is missing" if expected else "is not the reference's"
    return row.fail(f"{first}: {words}; {agreed(f'{len(apart)} tensors differ')}")


def of(context: Context, options: Options) -> tuple[Context, Module]:
    """The context of a variant, with randomised weights, and a model of the reference, in float64.

    Raises:
        UserError: the reference has no such variant, or cannot run.
    """
    other = replace(context, given_state={}, weights_from=None, options={**context.options, **options} if options else {})
    framework = context.reference.framework
    framework.seed(context.seed)
    with strangers("reference") as raised:
        network = other.networks.fresh("reference")
        rng = np.random.default_rng(context.seed)
        state = randomised_state(framework, network, context.spec, rng, lambda: inputs_of(other))
    if raised.error is not None:
        named = f"{context.project.name}: the reference of {context.model} with {title(options)}"
        raise UserError(f"{named} cannot be built or run: {raised.whole}") from raised.error
    other = replace(other, given_state=state).knowing(roundings=context.networks.roundings)  # a layer's own, whatever the options
    return other, network


def inputs_of(context: Context) -> tuple[np.ndarray, ...]:
    """Numbers drawn at random in the model's smaller shape; floating ones in float64."""
    return in_precision(context.fake_inputs(SAMPLES, small=True))


def rows_of(context: Context, options: Options) -> list[Quantity]:
    """``variant.NAME=VALUE.structure``, ``.dropout.LAYER`` and ``.logits`` (further outputs are ``.output2``, ...).

    Raises:
        UserError: as ``of``.
    """
    name = f"variant.{title(options)}"
    other, reference = of(context, options)
    structure = Quantity(f"{name}.structure", [len(other.material.weights.state)])
    with strangers("port") as raised:  # whatever the port raises
        port = other.paired.matched_port(other.material.weights.options)
        dropouts = Dropouts({"port": port, "reference": reference})
        profile = dropouts.judge(*of_both(other, dropouts))
        port = context.port.framework.place(other.networks.exact("port", port))
        other.networks.load("port", port, other.material.weights.state)
    if raised.error is not None:
        return [structure.fail(str(raised.error) if isinstance(raised.error, UserError) else raised.whole)]
    rows = [structure, *(replace(row, name=f"{name}.{row.name}") for row in profile)]
    reference = other.networks.exact("reference", reference)
    other.networks.load("reference", reference, other.material.weights.state)
    networks = (context.reference, reference), (context.port, port)
    return [*rows, *outputs_of(name, networks, inputs_of(other), _changed(other, inputs_of(other)))]


def _changed(context: Context, inputs: tuple[np.ndarray, ...]) -> Iterator[list[np.ndarray]]:
    """What the reference gives in evaluation mode, in exact mode, with one-ulp changes: a pass for every draw."""
    for draw in ULP_DRAWS:
        lane = context.networks.of(draw)
        lane.train_mode(False)
        yield lane.outputs(inputs)


def outputs_of(
    name: str,
    networks: Sequence[tuple[Side, Module]],
    inputs: tuple[np.ndarray, ...],
    changed: Iterable[list[np.ndarray]] = (),
) -> list[Quantity]:
    """``NAME.logits`` (further outputs are ``.output2``, ...) in evaluation mode, in float64.

    Args:
        name: of the rows.
        networks: the reference's side and model, then the port's, in exact mode.
        inputs: of the pass.
        changed: the reference's outputs with one-ulp changes; they are asked only where an output has just missed its bound.
    """
    outputs: list[list[np.ndarray]] = []
    for side, network in networks:
        side.framework.set_training(network, False)
        with strangers("port") as raised:
            outputs.append(side.framework.call(network, inputs).outputs)
        if raised.error is not None:
            return [Quantity(f"{name}.logits", []).fail(f"the port raised {raised.whole}")]
    theirs, ours = outputs
    rows = []
    for number in range(max(len(ours), len(theirs))):
        mine, right = (arrays[number] if number < len(arrays) else None for arrays in (ours, theirs))
        label = f"{name}.{'logits' if number == 0 else f'output{number + 1}'}"
        if right is None or right.dtype.kind != "f":
            rows.append(judge_equal(label, mine, right))
            continue
        rows.append(judge_measured(label, Lanes(port64=mine, reference64=right)))
        if norm(right) == 0:
            rows[-1].fail("the reference gives zeros: there was nothing real to compare")
    narrow = [number for number, row in enumerate(rows) if just_missed(row)]
    passes = (dict(enumerate(arrays)) for arrays in changed)
    for number, far in farthest(passes, dict(enumerate(theirs)), narrow).items():
        rows[number] = judge_again(rows[number], Lanes(port64=ours[number], reference64=theirs[number]), far)
    return rows


def _finite(side: Side, network: Module, inputs: tuple[np.ndarray, ...]) -> bool:
    """Whether a network's floating outputs in evaluation mode are numbers; minus infinity masks what has no part."""
    side.framework.set_training(network, False)
    outputs = side.framework.call(network, inputs).outputs
    return all((np.isfinite(one) | np.isneginf(one)).all() for one in outputs if one.dtype.kind == "f")


def in_another_size(context: Context) -> Context | None:
    """The same models on larger pictures of odd, unequal sides; None where they take no pictures or not of this size.

    A pooling of seven is a global one at 224 pixels, and padding that is wrong can be right where all sides divide evenly.
    """
    spec = context.spec
    if spec.inputs is not None or len(spec.input_shape) != 3:
        return None
    channels, *sides = spec.input_shape
    shape = (channels, *(side + more - side % 2 for side, more in zip(sides, MORE, strict=True)))
    inputs = lambda count, _, rng: (rng.standard_normal((count, *shape)).astype(np.float32),)  # noqa: E731
    other = _with_spec(context, replace(spec, input_shape=shape, small_shape=None, inputs=inputs))
    framework, network = context.reference.framework, context.networks.build("reference")
    framework.set_training(network, False)
    with strangers("reference") as raised:  # a network for pictures of one size alone
        framework.call(network, other.fake_inputs(1))
    if raised.error is not None:
        return None
    return other


def on_large_inputs(context: Context) -> Context | None:
    """The same models on inputs ``LARGE`` times as large; None where nothing that they take is a floating number.

    Behind a normalisation hardly a value reaches 6: with inputs of the usual size, ReLU6 is ReLU. Every second sample has little
    contrast: the maximum of a whole map hides what became of all other values, of one where all are alike it is any of them.
    """
    spec = context.spec
    made = spec.inputs or (lambda count, shape, rng: (rng.standard_normal((count, *shape)).astype(np.float32),))
    if not any(array.dtype.kind == "f" for array in leaves(context.fake_inputs(1, small=True), np.ndarray)):
        return None
    large = _large if spec.whole_inputs else _large_and_flat
    inputs = lambda count, shape, rng: mapped(made(count, shape, rng), np.ndarray, large)  # noqa: E731
    return _with_spec(context, replace(spec, inputs=inputs))


def _large(array: np.ndarray) -> np.ndarray:
    return array * array.dtype.type(LARGE) if array.dtype.kind == "f" else array


def _large_and_flat(array: np.ndarray) -> np.ndarray:
    """Samples are the first axis."""
    made = _large(array)
    if made.dtype.kind == "f" and made.ndim > 1:
        made[1::2] = LARGE + CONTRAST * made[1::2]
    return made


def _with_spec(context: Context, spec: ModelSpec) -> Context:
    """The context with the same weights, and another spec of its model."""
    other = replace(context, project=replace(context.project, models={context.model: spec}))
    same = {name: context.known.get(name) for name in ("matched", "orders")}
    return other.knowing(weights=context.material.weights, roundings=context.networks.roundings, **same)  # whatever the inputs


def on_other_inputs(context: Context) -> list[tuple[str, str, Context]]:
    """The same models on other inputs than the cases': names of rows, words for people, and the context."""
    found = []
    if (larger := in_another_size(context)) is not None:
        size = "x".join(map(str, larger.spec.input_shape[1:]))
        what = "pictures" if context.material.has_pictures else "inputs"
        found.append((f"size.{size}", f"{what} of {size} pixels", larger))
    if (large := on_large_inputs(context)) is not None:
        found.append(("large", f"inputs {LARGE} times as large", large))
    return found


def judge_on_other_inputs(context: Context, result: StepResult) -> list[tuple[str, Context]]:
    """Add ``size.HxW.logits`` where the reference takes pictures of another size, and ``large.logits``.

    Returns:
        Those that fail: words for people, and the context.
    """
    failed = []
    for name, words, other in on_other_inputs(context):
        lanes = [other.networks.of(lane) for lane in ("reference64", "port64")]
        networks = [(lane.side, lane.model) for lane in lanes]
        small = name == "large"
        inputs = lanes[0].inputs(other.fake_inputs(2 if small else 1, small=small))
        if small and not _finite(*networks[0], inputs):
            continue  # outside of the range that the reference's formula has an answer for
        rows = outputs_of(name, networks, inputs, _changed(other, inputs))
        result.quantities += rows
        failed += [] if all(row.passed for row in rows) else [(words, other)]
        result.cover(words)
    return failed
