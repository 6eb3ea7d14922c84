"""Step 6, training: both sides' engines train on real pictures, and their curves are held against the reference's noise.

Training curves diverge after a change of one bit of one weight, even in a correct port. So the reference is run again from
weights moved by one ulp, several times, and the port has to stay within a multiple of the envelope of those curves, in
float32 and in exact mode. Final accuracies are compared over several seeds. What a run does besides updates stands in
``alignment.comparisons.run.runs``.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity, judge_equal, relative
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.comparisons.run import runs
from alignment.comparisons.run.engine import cast, each_update, engine, fresh_weights, next_epoch, start_run
from alignment.comparisons.run.recipe import recipe, topics
from alignment.comparisons.update.backward import beside
from mobilenetv3_common.dataset_index import index_dataset
from mobilenetv3_common.digits import write_digits
from mobilenetv3_common.files import atomic_open
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.weights import State


@dataclass(frozen=True)
class Plan:
    """How long and how often.

    Attributes:
        iterations: updates of each curve.
        draws: curves of the reference from weights moved by one ulp, in each precision.
        seeds: whole trainings in each framework, for the final accuracy.
        epochs: of each whole training.
        train_per_class, val_per_class: pictures a digit; all of them where None.
        lag: updates by which the port may diverge before every draw does. In a chaotic network a curve jumps when a kink input
            changes sides, at a random time; more draws and a lag keep that from being taken for a mistake.
    """

    iterations: int = 100
    draws: int = 3
    seeds: int = 3
    epochs: int = 2
    train_per_class: int | None = 60
    val_per_class: int | None = None
    lag: int = 0


Curve = np.ndarray


def run(context: Context, plan: Plan | None = None) -> StepResult:
    """Train on the digits on both sides, the reference beside the port where it can be; then what a run does besides."""
    plan = plan or Plan(**context.project.train_plan)
    result = StepResult(6, "train")
    if context.in_haste:
        runs.compare(context, result)
        if result.differs:
            return result
    with tempfile.TemporaryDirectory() as folder:
        write_digits(folder, plan.train_per_class, plan.val_per_class)
        trial = RunTrial(context, plan, folder)
        context.progress.expect(trial.updates() / (1 - runs.SHARE))
        start_run(context, "port", trial.config, "32", trial.start[0])  # one that cannot start fails before the reference trains
        with context.reference.framework.threads(1), beside(context) as submit:
            theirs = submit(trial.kept_reference)
            ours = trial.port()
            judge(result, plan, ours, theirs.result(), trial.config if context.recipe is not None else None)
    result.cover(*topics(trial.config))
    if not context.in_haste:
        runs.compare(context, result)
    return result


@dataclass
class Outcome:
    """What one side's runs gave.

    Attributes:
        curves: losses of each lane, ``"32"``, ``"64"``, and ``"ulp32.0"`` and so on for the reference.
        rates: learning rates of the float32 curve.
        batches: pictures and labels of the first updates, as the side's own loader made them.
        accuracies: final top-1 of each seed.
        start: top-1 before training, of the first seed.
        whole: losses of the first whole training.
    """

    curves: dict[str, Curve]
    rates: Curve
    batches: tuple[np.ndarray, np.ndarray]
    accuracies: list[float]
    start: float
    whole: Curve

    def write(self, file: Path) -> None:
        """Keep it in an .npz, which appears whole."""
        images, labels = self.batches
        arrays = {"rates": self.rates, "images": images, "labels": labels, "accuracies": np.array(self.accuracies)}
        arrays |= {"start": np.array(self.start), "whole": self.whole} | {f"curve.{n}": c for n, c in self.curves.items()}
        with atomic_open(file, "wb") as out:
            np.savez(out, allow_pickle=False, **arrays)

    @classmethod
    def read(cls, file: Path) -> Outcome:
        """The reverse."""
        with np.load(file) as kept:
            curves = {name.removeprefix("curve."): kept[name] for name in kept.files if name.startswith("curve.")}
            batches, accuracies = (kept["images"], kept["labels"]), kept["accuracies"].tolist()
            return cls(curves, kept["rates"], batches, accuracies, float(kept["start"]), kept["whole"])


class RunTrial:
    """The runs of both sides on one folder of digits.

    Args:
        context: the two sides, and the model's name.
        plan: how long and how often.
        folder: from ``mobilenetv3_common.digits.write_digits``.
    """

    def __init__(self, context: Context, plan: Plan, folder: str) -> None:
        self.context, self.plan = context, plan
        self.config = replace(recipe(context, plan.epochs), data_path=folder)
        self.start = [fresh_weights(context, replace(self.config, seed=seed)) for seed in range(plan.seeds)]

    def updates(self) -> int:
        """Updates of both sides together."""
        pictures = len(index_dataset(self.config.data_path, "train"))
        whole = self.config.epochs * (pictures // (self.config.batch_size * self.config.accumulate))
        return self.plan.iterations * 2 * (2 + self.plan.draws) + 2 * self.plan.seeds * whole

    def port(self) -> Outcome:
        return self._outcome("port", ulps=0)

    def reference(self) -> Outcome:
        return self._outcome("reference", ulps=self.plan.draws)

    def kept_reference(self) -> Outcome:
        """The same, read from the context's folder where an earlier attempt has left it there."""
        file = self.context.kept / f"reference.{self.context.model}.npz" if self.context.kept else None
        if file is not None and file.is_file():
            return Outcome.read(file)
        made = self.reference()
        if file is not None:
            made.write(file)
        return made

    def _outcome(self, role: str, ulps: int) -> Outcome:
        weights = self.start[0]
        curves: dict[str, Curve] = {}
        for bits in ("64", "32"):
            curves[bits], rates, batches = self._curve(role, weights, bits)
            for draw in range(ulps):
                moved = self.context.material.ulp_changed(weights, f"float{bits}", draw)
                curves[f"ulp{bits}.{draw}"] = self._curve(role, moved, bits)[0]
        wholes = [self._whole(role, seed) for seed in range(self.plan.seeds)]
        return Outcome(curves, rates, batches, [w[0] for w in wholes], wholes[0][1], wholes[0][2])

    def _curve(self, role: str, weights: State, bits: str) -> tuple[Curve, Curve, tuple[np.ndarray, np.ndarray]]:
        framework, train = self.context.sides[role].framework, engine(self.context, role)
        run = start_run(self.context, role, self.config, bits, weights)
        losses: list[float] = []
        rates: list[float] = []
        images: list[np.ndarray] = []
        labels: list[np.ndarray] = []
        for gathered in each_update(train.micro_batches(run), self.config.accumulate):
            if len(losses) < 3:
                images += [framework.array(pixels) for (pixels, _), _ in gathered]
                labels += [framework.array(targets) for (_, targets), _ in gathered]
            with framework.precision(f"float{bits}"):
                train.update(run, [cast(framework, batch, f"float{bits}") for batch in gathered])
            losses.append(float(framework.array(run.meter.loss)))
            self.context.progress.done()
            rates.append(run.rate)
            run.meter = type(run.meter)()
            if len(losses) == self.plan.iterations:
                break
            next_epoch(run)
        return np.array(losses), np.array(rates), (np.stack(images), np.stack(labels))

    def _whole(self, role: str, seed: int) -> tuple[float, float, Curve]:
        framework, train = self.context.sides[role].framework, engine(self.context, role)
        run = start_run(self.context, role, replace(self.config, seed=seed), "32", self.start[seed])
        loader = train.evaluation_loader(run)
        before = train.evaluate_run(run, loader).top1 if seed == 0 else 0.0
        run.train_mode()
        losses: list[float] = []
        for gathered in each_update(train.micro_batches(run), self.config.accumulate):
            train.update(run, gathered)
            losses.append(float(framework.array(run.meter.loss)))
            self.context.progress.done()
            run.meter = type(run.meter)()
            next_epoch(run)
        return train.evaluate_run(run, loader).top1, before, np.array(losses)


def judge(result: StepResult, plan: Plan, ours: Outcome, theirs: Outcome, given: TrainConfig | None = None) -> None:
    """Hold one side's runs against the other's; a recipe that somebody has ``given`` need not learn digits in small."""
    for name, own, other in zip(("images", "labels"), ours.batches, theirs.batches, strict=True):
        result.quantities.append(judge_equal(f"batches.{name}", own, other))
    rates = Quantity("learning_rates", [plan.iterations], max_abs_diff=float(np.abs(ours.rates - theirs.rates).max()))
    rates.float64_diff = relative(rates.max_abs_diff or 0.0, float(theirs.rates.max()))
    if not rates.float64_diff <= tolerance.EXACT_RTOL:
        first = int(np.argmax(ours.rates != theirs.rates))
        rates.fail(f"the learning rates diverge at iteration {first}")
    result.quantities.append(rates)
    for bits in ("32", "64"):
        draws = [curve for name, curve in theirs.curves.items() if name.startswith(f"ulp{bits}.")]
        judge_curve(result, f"curve.float{bits}", ours.curves[bits], theirs.curves[bits], draws, exact=bits == "64", lag=plan.lag)
    loss = theirs.whole
    fallen = float(loss[-20:].mean() / loss[:20].mean())
    gained = float(np.mean(theirs.accuracies)) - theirs.start
    if given is None or gained > 0.3:  # the accuracy of what has not learnt is chance
        _judge_accuracies(result, ours.accuracies, theirs.accuracies)
    result.require("loss_fell_to", round(fallen, 3), fallen < 0.8 or given is not None, "below 0.8 of the first updates' mean")
    result.require("accuracy_gained", round(gained, 3), gained > 0.3 or given is not None, "above 0.3")
    moves = len(set(theirs.rates)) > 1 or (given is not None and given.lr_schedule == "constant")
    result.require("learning_rate_values", len(set(theirs.rates)), moves, "more than 1")
    for (role, records), outcome in zip(result.records.items(), (ours, theirs), strict=True):
        records["losses_float32"] = outcome.curves["32"].astype(np.float32)
        records["losses_whole"] = outcome.whole.astype(np.float32)
        records["accuracies"] = np.array(outcome.accuracies)
        result.evidence[f"top1.{role}"] = [round(value, 4) for value in outcome.accuracies]
        result.curves[role] = {"float32": outcome.curves["32"], "float64": outcome.curves["64"]}
    for bits in ("32", "64"):
        draws = [curve for name, curve in theirs.curves.items() if name.startswith(f"ulp{bits}.")]
        result.curves.setdefault("envelope", {})[f"float{bits}"] = envelope(theirs.curves[bits], draws)


def envelope(curve: Curve, draws: list[Curve]) -> Curve:
    """How far the reference diverges from itself by each iteration: the largest relative difference of any draw so far."""
    return np.maximum.accumulate(np.max([np.abs(draw - curve) for draw in draws], axis=0) / np.abs(curve))


def judge_curve(result: StepResult, name: str, ours: Curve, theirs: Curve, draws: list[Curve], exact: bool, lag: int = 0) -> None:
    """Hold a curve of losses against the reference's envelope ``lag`` iterations later, iteration by iteration.

    In exact mode the first ``EXACT_CURVE[0]`` iterations must agree to ``EXACT_CURVE[1]`` besides.
    """
    quantity = Quantity(name, [len(theirs)])
    result.quantities.append(quantity)
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()) or ours.shape != theirs.shape:
        quantity.fail(f"{ours.size} and {theirs.size} losses, not all finite")
        return
    difference = np.abs(ours - theirs) / np.abs(theirs)
    spread = envelope(theirs, draws)
    spread = np.append(spread[lag:], np.full(lag, spread[-1]))
    floor = np.maximum(spread, tolerance.EXACT_RTOL if exact else tolerance.BASE_FLOOR_32)
    quantity.mean_abs_diff, quantity.max_abs_diff = (float(f(np.abs(ours - theirs))) for f in (np.mean, np.max))
    ratio = difference / floor
    worst = int(np.argmax(ratio))
    if exact:
        # A chaotic network leaves the bound by rounding alone: it is held to it as long as the reference keeps it.
        count, bound = tolerance.EXACT_CURVE
        count = int(np.append(tolerance.CURVE_FACTOR * floor[:count] <= bound, False).argmin())
        result.require(f"{name}.iterations_that_rounding_leaves", count, count >= 3, "3 or more")
        quantity.float64_diff = float(difference[: max(count, 1)].max())
        if not quantity.float64_diff <= bound:
            quantity.fail(f"exact mode differs by {quantity.float64_diff:.1e} within {count} iterations (bound {bound:.0e})")
    else:
        quantity.port_error, quantity.reference_error = float(difference[worst]), float(floor[worst])
    if not ratio[worst] <= tolerance.CURVE_FACTOR:
        first = int(np.argmax(ratio > tolerance.CURVE_FACTOR))
        quantity.fail(f"the curve leaves {tolerance.CURVE_FACTOR:g} x the reference's own envelope at iteration {first}")
    result.evidence[f"{name}.largest_multiple_of_the_envelope"] = round(float(ratio[worst]), 2)


def _judge_accuracies(result: StepResult, ours: list[float], theirs: list[float]) -> None:
    """Mean final accuracies within ACCURACY_DIFFERENCE, or within what the seeds themselves spread."""
    gap = abs(float(np.mean(ours)) - float(np.mean(theirs)))
    spread = float(np.ptp(ours) + np.ptp(theirs))
    quantity = Quantity("final_top1", [len(theirs)], mean_abs_diff=gap, max_abs_diff=float(np.abs(np.subtract(ours, theirs)).max()))
    if not gap <= max(tolerance.ACCURACY_DIFFERENCE, spread):
        quantity.fail(
            f"mean top-1 {np.mean(ours):.4f} in the port, {np.mean(theirs):.4f} in the reference; the seeds spread by {spread:.4f}"
        )
    result.evidence["top1_spread"] = round(spread, 4)
    result.quantities.append(quantity)
