"""Step 5, backward: losses, learning rates, gradients, weights and BatchNorm statistics over ten updates.

Each optimizer runs in evaluation mode, as the guide asks, and in training mode with shared dropout masks, which alone
sees BatchNorm's momentum, dropout and the gradients through batch statistics. The float32 runs are judged tensor by
tensor at the first update, and by their losses until a kink flip parts them; the exact runs are judged throughout.
An update is judged as soon as all lanes have made it: the weights and gradients of whole runs are not kept. Where a run differs,
what lies between the labels and the next weights is measured part by part, each part once on both sides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import Lanes, Leeway, judge_measured, relative
from alignment.comparisons.comparison import measured, wrong
from alignment.comparisons.context import Context
from alignment.comparisons.loss.step import plain_losses
from alignment.comparisons.model.dropouts import Dropouts
from alignment.comparisons.result import Explainable, StepResult, guarded
from alignment.comparisons.update.accumulation import Accumulation
from alignment.comparisons.update.gradients import compare_gradients
from alignment.comparisons.update.groups import compare_groups, update_topics
from alignment.comparisons.update.optimizers import optimizers
from alignment.comparisons.update.runs import RUNS, Iteration, Run, fitted, iterate
from alignment.comparisons.update.schedules import Schedules, compare_schedules
from alignment.comparisons.update.tensors import (
    PORT_LANES,
    REFERENCE_LANES,
    History,
    changes_of,
    flips_of,
    judge_tensors,
    mean_relative,
    norm_of,
    unsteady,
)
from alignment.frameworks.base import leaves
from alignment.models.tracing import Network
from mobilenetv3_common.counted import counted
from mobilenetv3_common.weights import State


@dataclass
class Beginning:
    """What the evidence needs of a run's first update: the reference's gradients, and how many kink inputs flipped of all."""

    gradients: State
    flips: int
    kinks: int

    @classmethod
    def of(cls, now: dict[str, Iteration]) -> Beginning:
        truth = now["reference64"]
        return cls(truth.gradients, flips_of(now), sum(sides.size for sides in truth.kinks.values()))


def run(context: Context, runs: tuple[Run, ...] = RUNS) -> StepResult:
    """Make every run on all lanes in lockstep and compare after each update.

    A project without losses or optimizers has its gradients compared, and no updates. Where something differs, what lies between
    the logits and the next weights is measured part by part, but not in haste.
    """
    result = guarded(5, lambda: _compared(context, runs))
    if result.differs and not context.in_haste:
        result.compared = [measured(context, Dropouts())] if lacks_updates(context) else list(_parts(context, result))
    return result


def _parts(context: Context, result: StepResult) -> Iterator[Explainable]:
    """The loss, accumulation, schedules, optimizers, in the order in which data flows, as far as the first that is wrong."""
    schedules = list(result.compared)
    for comparison in (plain_losses(context.seed), Accumulation()):
        yield (part := measured(context, comparison))
        if wrong(part):
            return
    if not schedules:  # the step ended before
        networks = {role: context.networks.of(f"{role}64", share_dropout=False).model for role in context.sides}
        schedules = [measured(context, Schedules(context.recipe, networks))]
    yield from schedules
    # Where gradients differ before the first update, and neither the loss nor accumulation makes them, the model does.
    model = any(not row.passed and ".iter0.gradients" in row.name for row in result.quantities)
    if not model and not any(map(wrong, schedules)):
        for optimizer in optimizers(context):
            if wrong(part := measured(context, optimizer)):
                yield part
                return


def _compared(context: Context, runs: tuple[Run, ...]) -> StepResult:
    result = StepResult(5, "backward")
    if not any(_trains(context.networks.of(name)) for name in ("port64", "reference64")):
        result.not_run = "gradients: neither side has a parameter that is trained"
        return result
    lacking, random = lacks_updates(context), context.unshared_randomness
    dropouts = {name: context.networks.of(name).dropouts for name in ("port32", "reference32")}
    result.evidence["dropout_layers"] = dropouts["reference32"]
    differ = dropouts["port32"] != dropouts["reference32"] and not context.drops_by_function
    if differ and measured(context, Dropouts()).explain() is not None:  # one layer may be called in several places
        result.problems.append(
            f"the port has {counted(dropouts['port32'], 'dropout layer')}, the reference {dropouts['reference32']}"
        )
    if lacking:
        result.not_run = "; ".join(filter(None, ["" if context.updates else f"updates: {lacking}", random]))
        for training in (False,) if random else (False, True):
            compare_gradients(context, result, training)
        return result
    lanes = {name: context.networks.of(name) for name in (*PORT_LANES, *REFERENCE_LANES)}
    result.not_run = random
    runs = tuple(one for one in runs if not (one.training and random))
    data = context.material.labelled(32, small=True)
    runs = tuple(replace(one, iterations=min(one.iterations, context.spec.updates)) for one in runs)
    runs = tuple(context.suspects_first(runs, lambda one: one.name))
    exact_first = context.in_haste and not any(context.suspect.startswith(f"{one.name}.") for one in runs)
    sizes: dict[tuple, tuple[float, float, int]] = {}
    with context.reference.framework.threads(1), beside(context) as submit:
        if exact_first:
            compare_exact_updates(context, result, lanes)
        for one in runs:
            if context.in_haste and result.differs:
                return result
            key = (one.training, one.accumulate, one.batch_size)
            if key not in sizes:
                first = next(iterate(lanes["reference64"], replace(one, iterations=1), *data)).gradients
                trained = [context.material.weights.state[name] for name in first]
                sizes[key] = norm_of(first.values()), norm_of(trained), sum(array.size for array in trained)
            _compare_run(context, result, fitted(one, *sizes[key]), lanes, data, submit)
            result.cover(*topics(one))
        if not exact_first:
            compare_exact_updates(context, result, lanes)
    return result


def compare_exact_updates(context: Context, result: StepResult, lanes: Mapping[str, Network]) -> None:
    """Schedules and optimizers' groups, on the networks of the exact lanes, which are left as they were."""
    compare_schedules(context, result, lanes)
    compare_groups(context, result, lanes)


def topics(run: Run) -> list[str]:
    """What a run covers."""
    more = {"gradient clipping": run.clip_norm is not None, "accumulation": run.accumulate > 1}
    also = [topic for topic, holds in more.items() if holds]
    return [*update_topics(run.optimizer), f"{run.schedule.name} schedule", "label smoothing", *also]


def _trains(network: Network) -> bool:
    return any(
        entry.role == "parameter" and network.framework.trainable(one) for entry, one in network.framework.described(network.model)
    )


def lacks_updates(context: Context) -> str:
    """Why step 5 makes no updates of a network; ``""`` where it makes some."""
    lacking = context.project.lacks("train") or context.project.lacks("loss")
    if lacking:
        return lacking
    inputs, framework = context.fake_inputs(2, small=True), context.reference.framework
    outputs = framework.call(context.networks.build("reference"), inputs).outputs
    counts = {"input": len(leaves(inputs, np.ndarray)), "output": len(outputs)}
    many = [f"{count} {what}s" for what, count in counts.items() if count != 1]
    return f"the network has {' and '.join(many)}, and the train part takes one" if many else ""


Submit = Callable[..., "Future[Any]"]


@contextlib.contextmanager
def beside(context: Context) -> Iterator[Submit]:
    """Something that runs the reference beside the port, one thread each; two sides of one framework take turns."""
    # Both threads ask for these, which are made by building both sides; and a framework has one default type for all threads.
    _ = context.networks.roundings
    if context.port.framework.name != context.reference.framework.name:
        with ThreadPoolExecutor(1) as executor:
            yield executor.submit
        return

    def at_once(function: Callable, *args: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(function(*args))
        return done

    yield at_once


def _compare_run(context: Context, result: StepResult, run: Run, lanes: dict[str, Network], data: tuple, submit: Submit) -> None:
    iterators = {name: iterate(lane, run, *data) for name, lane in lanes.items()}
    history = History(losses={n: [] for n in lanes}, rates={n: [] for n in lanes})
    beginning: Beginning | None = None

    def reference(number: int) -> dict[str, Iteration]:
        return {name: next(iterators[name]) for name in REFERENCE_LANES if takes_part(name, number)}

    def takes_part(name: str, number: int) -> bool:
        return "64" in name or number < (1 if name == "ulp32" else run.float32_iterations)

    ahead = submit(reference, 0)
    for number in range(run.iterations):
        now = {name: next(iterators[name]) for name in PORT_LANES if takes_part(name, number)} | ahead.result()
        if number + 1 < run.iterations:
            ahead = submit(reference, number + 1)  # while this iteration is being judged
        if words := next(filter(None, (unsteady(run, now, kind) for kind in ("gradients", "state"))), ""):
            result.not_run = "; ".join(filter(None, [result.not_run, words]))
            return
        for lane, iteration in now.items():
            history.losses[lane].append(iteration.loss)
            history.rates[lane].append(iteration.lr)
        flips = flips_of(now)
        history.flips += flips
        for kind in ("gradients", "state"):
            judge_tensors(result, run, number, now, kind, flips, history)
        _judge_loss(result, run, number, now, history)
        if context.in_haste and result.differs:
            ahead.cancel()
            return
        beginning = beginning or Beginning.of(now)
    assert beginning is not None
    _judge_rates(result, run, history)
    _evidence(context, result, run, beginning, now["reference64"].state, history)


def _judge_loss(result: StepResult, run: Run, number: int, now: dict[str, Iteration], history: History) -> None:
    truth = float(now["reference64"].loss)
    if "reference32" in now:
        history.floor32 = max(history.floor32, relative(abs(float(now["reference32"].loss) - truth), abs(truth)))
    if number == 0:
        # One number can be right by luck; the mean noise of the gradients tells what float32 gives in this network.
        history.floor32 = max(history.floor32, mean_relative(changes_of(now["reference32"], now["reference64"], "gradients")))
    leeway = Leeway(
        pooled32=history.floor32,
        pooled64=history.pooled64["gradients"],
        float32=history.flips == 0 or number == 0,
    )
    lanes = Lanes(**{lane: iteration.loss for lane, iteration in now.items() if "#" not in lane})
    quantity = judge_measured(f"{run.name}.iter{number}.loss", lanes, leeway)
    if "port32" in now and not leeway.float32:
        quantity.flips = history.flips
        quantity.note(f"float32 diverged by {counted(history.flips, 'kink flip')}: judged in exact mode")
    result.quantities.append(quantity)


def _judge_rates(result: StepResult, run: Run, history: History) -> None:
    for port, reference in (("port64", "reference64"), ("port32", "reference32")):
        lanes = Lanes(port64=np.array(history.rates[port]), reference64=np.array(history.rates[reference]))
        result.quantities.append(judge_measured(f"{run.name}.learning_rates.{port[-2:]}", lanes))


def _evidence(context: Context, result: StepResult, run: Run, beginning: Beginning, last: State, history: History) -> None:
    rates = history.rates["reference64"]
    if run.iterations > run.schedule.step_size:
        result.require(f"{run.name}.learning_rate_values", len(set(rates)), len(set(rates)) > 1, "more than 1")
    start = {k: v for k, v in context.material.weights.state.items() if k in beginning.gradients}
    share = norm_of(last[k] - v for k, v in start.items()) / norm_of(start.values())
    result.require(f"{run.name}.weights_moved_by", float(f"{share:.2g}"), share > 1e-6, "above 1e-6 of their norm")
    size = norm_of(beginning.gradients.values())
    result.require(f"{run.name}.gradient_norm", float(f"{size:.4g}"), size > 1e-9, "above 1e-9")
    if run.clip_norm is not None:
        result.require(f"{run.name}.clipped", size > run.clip_norm, size > run.clip_norm, "a norm above the clip")
    for role, records in result.records.items():
        records[f"{run.name}.losses"] = np.array(history.losses[f"{role}32"], dtype=np.float32)
        records[f"{run.name}.learning_rates"] = np.array(history.rates[f"{role}32"])
    flips, kinks = beginning.flips, beginning.kinks
    result.evidence[f"{run.name}.kink_flips"] = flips
    if flips > max(3, tolerance.FLIP_SHARE * kinks):
        result.problems.append(f"{run.name}: float32 put {flips} of {kinks} kink inputs on the other side: more than rounding does")
