"""Step 6, training: both sides' engines train on real pictures, and their curves are held against the reference's noise.

Training curves diverge after a change of one bit of one weight, even in a correct port. So the reference is run again from
weights moved by one ulp, several times, and the port has to stay within a multiple of the envelope of those curves, in
float32 and in exact mode. Final accuracies are compared over several seeds. What a run does besides updates stands in
``alignment.comparisons.run.runs``.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity, judge_equal, relative
from alignment.comparisons.comparison import Measurement, Value, measure
from alignment.comparisons.context import Context
from alignment.comparisons.model.explain import in_float32
from alignment.comparisons.result import StepResult
from alignment.comparisons.run import runs
from alignment.comparisons.run.curves import (
    envelope,
    floor_of,
    judge_accuracies,
    judge_curve,
    show_curve,
    shows_equality,
    spread_of,
)
from alignment.comparisons.run.engine import cast, each_update, engine, fresh_weights, next_epoch, start_run
from alignment.comparisons.run.first_updates import UPDATES, difference, first_updates, observed
from alignment.comparisons.run.mistakes import FIRST_UPDATES, Recipe
from alignment.comparisons.run.recipe import recipe, topics
from alignment.comparisons.run.states import part
from alignment.comparisons.update.backward import beside
from alignment.comparisons.update.mistakes import RateCase
from alignment.comparisons.update.schedules import rate_finding
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.localize.hypotheses.hypothesis import confirmed
from mobilenetv3_common.dataset_index import index_dataset
from mobilenetv3_common.digits import write_digits
from mobilenetv3_common.files import atomic_open
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
            theirs = submit(measure, context, trial, "reference")
            ours = measure(context, trial, "port")
            runs.add(result, trial, ours, theirs.result())
    result.cover(*topics(trial.config))
    if not context.in_haste:
        runs.compare(context, result)
    return result


class RunTrial:
    """Curves in both precisions, learning rates, the first batches and updates, and the final accuracies of several seeds.

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

    # --- measure ----------------------------------------------------------------------------------------------------------

    def measure(self, context: Context, role: str) -> dict[str, Any]:
        """Of the reference, read from the context's folder where an earlier attempt has left it there."""
        file = context.kept / f"reference.{context.model}.npz" if context.kept and role == "reference" else None
        if file is not None and file.is_file():
            with np.load(file) as kept:
                if "losses" in kept.files:  # of an older version otherwise
                    return dict(kept)
        made = self._measure(context, role)
        if file is not None:
            with atomic_open(file, "wb") as out:
                np.savez(out, allow_pickle=False, **made)  # type: ignore[arg-type]
        return made

    def _measure(self, context: Context, role: str) -> dict[str, Value]:
        weights = self.start[0]
        made = first_updates(context, role, self.config, weights)
        for bits in ("64", "32"):
            made |= self._curve(context, role, weights, bits)
            for draw in range(self.plan.draws if role == "reference" else 0):
                moved = context.material.ulp_changed(weights, f"float{bits}", draw)
                made[f"ulp{bits}.{draw}"] = self._curve(context, role, moved, bits)[f"curve.{bits}"]
        wholes = [self._whole(context, role, seed) for seed in range(self.plan.seeds)]
        accuracies = np.array([whole[0] for whole in wholes])
        return {**made, "accuracies": accuracies, "start": np.array(wholes[0][1]), "whole": wholes[0][2]}

    def _curve(self, context: Context, role: str, weights: State, bits: str) -> dict[str, np.ndarray]:
        framework, train = context.sides[role].framework, engine(context, role)
        run = start_run(context, role, self.config, bits, weights)
        losses: list[float] = []
        rates: list[float] = []
        images: list[np.ndarray] = []
        labels: list[np.ndarray] = []
        for gathered in each_update(train.micro_batches(run), self.config.accumulate):
            if len(losses) < UPDATES:
                images += [framework.array(pixels) for (pixels, _), _ in gathered]
                labels += [framework.array(targets) for (_, targets), _ in gathered]
            with framework.precision(f"float{bits}"):
                train.update(run, [cast(framework, batch, f"float{bits}") for batch in gathered])
            losses.append(float(framework.array(run.meter.loss)))
            context.progress.done()
            rates.append(run.rate)
            run.meter = type(run.meter)()
            if len(losses) == self.plan.iterations:
                break
            next_epoch(run)
        made = {f"curve.{bits}": np.array(losses), "rates": np.array(rates), "updates_per_epoch": np.array(run.updates_per_epoch)}
        return {**made, "images": np.stack(images), "labels": np.stack(labels)}

    def _whole(self, context: Context, role: str, seed: int) -> tuple[float, float, np.ndarray]:
        framework, train = context.sides[role].framework, engine(context, role)
        run = start_run(context, role, replace(self.config, seed=seed), "32", self.start[seed])
        loader = train.evaluation_loader(run)
        before = train.evaluate_run(run, loader).top1 if seed == 0 else 0.0
        run.train_mode()
        losses: list[float] = []
        for gathered in each_update(train.micro_batches(run), self.config.accumulate):
            train.update(run, gathered)
            losses.append(float(framework.array(run.meter.loss)))
            context.progress.done()
            run.meter = type(run.meter)()
            next_epoch(run)
        return train.evaluate_run(run, loader).top1, before, np.array(losses)

    # --- judge ------------------------------------------------------------------------------------------------------------

    def _gained(self, reference: Measurement) -> float:
        return float(np.mean(np.asarray(reference["accuracies"])) - np.asarray(reference["start"]))

    def _one_picture(self) -> float:
        """What one picture of the evaluation counts."""
        return 1 / len(index_dataset(self.config.data_path, "val"))

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        """Hold one side's runs against the other's; a recipe that somebody has given need not learn digits in small."""
        both = {name: (np.asarray(port[name]), np.asarray(reference[name])) for name in ("images", "labels", "rates", "accuracies")}
        rows = [judge_equal(f"batches.{name}", *both[name]) for name in ("images", "labels")]
        own, other = both["rates"]
        rates = Quantity("learning_rates", [self.plan.iterations], max_abs_diff=float(np.abs(own - other).max()))
        rates.float64_diff = relative(rates.max_abs_diff or 0.0, float(other.max()))
        if not rates.float64_diff <= tolerance.EXACT_RTOL:
            rates.fail(f"the learning rates diverge at iteration {int(np.argmax(own != other))}")
        rows.append(rates)
        rows += [
            judge_curve(f"curve.float{bits}", *_curves(port, reference, bits), bits == "64", self.plan.lag) for bits in ("32", "64")
        ]
        if self.context.recipe is None or self._gained(reference) > 0.3:  # the accuracy of what has not learnt is chance
            rows.append(judge_accuracies(*both["accuracies"], step=self._one_picture()))
        return rows

    def show(self, result: StepResult, port: Measurement, reference: Measurement) -> None:
        """Note what shows that there was something to compare, the records, and the curves for the picture."""
        for bits in ("32", "64"):
            show_curve(result, f"curve.float{bits}", *_curves(port, reference, bits), bits == "64", self.plan.lag)
        given, gained, losses = self.context.recipe is not None, self._gained(reference), np.asarray(reference["whole"])
        fallen, rates = float(losses[-20:].mean() / losses[:20].mean()), set(np.asarray(reference["rates"]).tolist())
        if not given or gained > 0.3:
            spread = spread_of(np.asarray(port["accuracies"]), np.asarray(reference["accuracies"]))
            result.evidence["top1_spread"] = round(spread, 4)
            if shows_equality(np.asarray(port["accuracies"]), np.asarray(reference["accuracies"]), self._one_picture()):
                result.cover("final accuracies")
        result.require("loss_fell_to", round(fallen, 3), fallen < 0.8 or given, "below 0.8 of the first updates' mean")
        result.require("accuracy_gained", round(gained, 3), gained > 0.3 or given, "above 0.3")
        moves = len(rates) > 1 or (given and self.config.lr_schedule == "constant")
        result.require("learning_rate_values", len(rates), moves, "more than 1")
        for role, side in (("port", port), ("reference", reference)):
            accuracies = np.asarray(side["accuracies"])
            result.further[role]["losses_float32"] = np.asarray(side["curve.32"]).astype(np.float32)
            result.further[role]["losses_whole"] = np.asarray(side["whole"]).astype(np.float32)
            result.records[role]["accuracies"] = accuracies
            result.evidence[f"top1.{role}"] = [round(value, 4) for value in accuracies.tolist()]
            result.curves[role] = {f"float{bits}": np.asarray(side[f"curve.{bits}"]) for bits in ("32", "64")}
        result.curves["envelope"] = {f"float{bits}": envelope(*_curves(port, reference, bits)[1:]) for bits in ("32", "64")}

    # --- explain ----------------------------------------------------------------------------------------------------------

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        """Where two training engines diverge: recipe, batches, schedule, one update from equal weights, float32."""
        made = self.config, int(np.asarray(reference["updates_per_epoch"])), self.config.batch_size * self.config.accumulate
        return (
            _another_setting(port, reference)
            or _another_batch(port, reference)
            or rate_finding("train", "schedule", RateCase(np.asarray(port["rates"]), np.asarray(reference["rates"]), *made))
            or self._explain_updates(port, reference)
            or self._explain_float32(port, reference)
        )

    def _explain_updates(self, port: Measurement, reference: Measurement) -> Finding | None:
        """Which mistake, put into the reference's training, gives the port's updates."""
        finding = difference(port, reference, self.start[0])
        if finding is None:
            return None
        with tempfile.TemporaryDirectory() as folder:
            write_digits(folder, self.plan.train_per_class, self.plan.val_per_class)
            updates = partial(first_updates, self.context, "reference", replace(self.config, data_path=folder), self.start[0])
            dropped = [[*part(side, "dropped").values()] for side in (port, reference)]
            known = FIRST_UPDATES.hypotheses(Recipe(self.config, updates, (dropped[0], dropped[1])))
            cases = observed(port, reference, self.start[0], finding.location)
            for hypothesis in confirmed(known, cases):
                finding.kind, finding.hint = hypothesis.hint
                break
        return finding

    def _explain_float32(self, port: Measurement, reference: Measurement) -> Finding | None:
        """The first losses in float32, for what float64 does not have."""
        ours, theirs, draws = _curves(port, reference, "32")
        bounds = np.maximum(tolerance.RUN_LOSS_32, tolerance.CURVE_FACTOR * floor_of(theirs, draws, exact=False))
        for number, (a, b, bound) in enumerate(zip(ours[:UPDATES], theirs, bounds, strict=False)):
            if not abs(a - b) <= bound * abs(b):
                measured = f"update {number}: loss {a:.9g}, expected {b:.9g}, in float32 alone"
                return in_float32(self.context) or Finding("train", "loss", measured=measured)
        return None


def _curves(port: Measurement, reference: Measurement, bits: str) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Losses of the port, of the reference, and of the reference from weights moved by one ulp."""
    ours, theirs = (np.asarray(side[f"curve.{bits}"]) for side in (port, reference))
    return ours, theirs, [np.asarray(curve) for curve in part(reference, f"ulp{bits}").values()]


def _another_setting(port: Measurement, reference: Measurement) -> Finding | None:
    """The recipe that each engine really runs with."""
    ours, theirs = (json.loads(str(side["config"])) for side in (port, reference))
    for name, value in theirs.items():
        if ours.get(name) != value:
            words = f"the recipe's {name} is {ours.get(name)} in the port, expected {value}"
            return Finding("train", f"config.{name}", Kind.RECIPE, words, f"{name}: {ours.get(name)} against {value}")
    return None


def _another_batch(port: Measurement, reference: Measurement) -> Finding | None:
    """Pictures and labels that the engines' own loaders make."""
    ours, theirs = (list(zip(np.asarray(side["images"]), np.asarray(side["labels"]), strict=True)) for side in (port, reference))
    for number, (own, other) in enumerate(zip(ours, theirs, strict=False)):
        for what, a, b in zip(("pictures", "labels"), own, other, strict=True):
            if a.shape == b.shape and (a == b).all():
                continue
            same = sorted(own[1].tolist()) == sorted(other[1].tolist())
            hint = "the same labels in another order" if same else "other pictures: another order, seed or epoch"
            return Finding("train", "micro_batches", Kind.ORDER, hint, f"{what} of batch {number} differ")
    return None
