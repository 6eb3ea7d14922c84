"""What the ranks recorded against what they should have: rows by rank and tensor, and the first mistake."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity, distance, norm, relative
from alignment.comparisons.context import Context
from alignment.comparisons.ranks import hints
from alignment.comparisons.ranks.expected import Expected, RightUpdate, Simulation
from alignment.comparisons.ranks.plan import RankCase, metric_counts, read_records, sizes
from alignment.comparisons.result import StepResult
from alignment.finding import NO_HINT, Finding, Hint
from alignment.kinds import Kind
from mobilenetv3_common.dataset_index import index_dataset
from mobilenetv3_common.weights import State

Record = dict[str, State]
SHOWN = 5  # tensors of a rank that get a row of their own where they are wrong


def differences(found: State, expected: State, scale: State) -> dict[str, float]:
    """The relative L2 difference of every expected tensor; infinity where it is missing or has another shape."""
    sizes = {name: norm(scale[name]) for name in expected}
    floor = tolerance.RANKS_LEAST * max(sizes.values(), default=0.0)

    def one(name: str, array: np.ndarray) -> float:
        if name not in found or found[name].shape != array.shape:
            return float("inf")
        error = distance(found[name], array)
        return relative(error, max(sizes[name], floor)) if np.isfinite(error) else float("inf")

    return {name: one(name, array) for name, array in expected.items()}


def on_ranks(ranks: Sequence[int], count: int) -> str:
    """``"every rank"``, ``"rank 1"`` or ``"ranks 1, 2"``."""
    if len(ranks) == count:
        return "every rank"
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def of_tensors(wrong: Mapping[int, Sequence[str]], expected: State) -> str:
    """``"every tensor"`` (that is not zero), the one that is wrong, or the first and how many more."""
    names = [name for name in expected if any(name in of_rank for of_rank in wrong.values())]
    largest = max(norm(array) for array in expected.values())
    if len(names) > 1 and all(name in names for name, array in expected.items() if norm(array) > 1e-6 * largest):
        return "every tensor"
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


class Judge:
    """Compares one case.

    Args:
        context: the two sides.
        result: gets the rows.
        case: what was run.
        expected: what should come of it.
        folder: where the ranks wrote.
        ranks: how many.

    Attributes:
        first: the first mistake; None where there is none.
        complete: whether every rank has recorded everything.
    """

    def __init__(self, context: Context, result: StepResult, case: RankCase, expected: Expected, folder: Path, ranks: int) -> None:
        self.context, self.result, self.case, self.expected = context, result, case, expected
        self.folder, self.ranks = folder, ranks
        self.rtol = tolerance.RANKS_SYNC_RTOL if case.config.sync_bn else tolerance.RANKS_RTOL
        self.first: Finding | None = None
        self.complete = False

    def __call__(self) -> Judge:
        """Compare what there is."""
        records = self._read("start")
        if records is None:
            return self
        states = [record["state"] for record in records]
        first = {name: states[0][name] for name in self.expected.start if name in states[0]}
        self._states("start.weights", "starting weights", states, [first] * self.ranks, 0.0, self._not_broadcast)
        for number, update in enumerate(self.expected.updates):
            records = self._read(number)
            if records is None:
                return self
            self._update(number, update, records)
        if self.case.evaluates:
            pictures, records = self._read("pictures"), self._read("evaluation")
            if pictures is not None:
                self._evaluated([record["pictures"]["labels"] for record in pictures])
            if pictures is None or records is None:
                return self
            self._evaluation(records, [record["pictures"]["labels"] for record in pictures])
        self.complete = True
        return self

    def _read(self, number: int | str) -> list[Record] | None:
        return read_records(self.folder, self.case, number, range(self.ranks))

    # --- rows and the first finding ----------------------------------------------------------------------------------------

    def _row(self, name: str, rank: int, shape: Sequence[int] = ()) -> Quantity:
        row = Quantity(f"{self.case.name}.{name}.rank{rank}", list(shape))
        self.result.quantities.append(row)
        return row

    def _blame(self, location: str, hint: Hint, measured: str) -> None:
        if self.first is None:
            self.first = Finding("ranks", location, hint[0], hint[1], measured)

    def _states(
        self,
        name: str,
        what: str,
        found: Sequence[State],
        expected: Sequence[State],
        rtol: float,
        hint: Callable[[hints.Misses], tuple[str, Hint]],
        scale: State | None = None,
        forgiven: bool = False,
    ) -> None:
        """Rows of every rank's tensors; the first mistake is blamed on the tensors and ranks that are wrong.

        Args:
            name, what: of the rows, and of the place.
            found, expected: by rank.
            rtol: relative L2.
            hint: place (``""`` for the usual one) and hint for what is wrong.
            scale: what differences are relative to; the expected tensors where None.
            forgiven: note a difference without failing.
        """
        wrong: dict[int, list[str]] = {}
        worst = 0.0, ""
        for rank, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            by_name = differences(ours, theirs, scale or theirs)
            largest = max(by_name, key=lambda n: by_name[n])
            row = self._row(name, rank, [len(by_name)])
            if rtol == tolerance.RANKS_AVERAGE_RTOL:
                row.max_abs_diff = by_name[largest]  # in float32
            else:
                row.float64_diff = by_name[largest]
            bad = [tensor for tensor, difference in by_name.items() if not difference <= rtol]
            if bad and forgiven:
                row.note("another scale, which the weights after the update do not show").float64_diff = None
            elif bad:
                wrong[rank] = bad
                row.fail(f"{len(bad)} of {len(by_name)} tensors differ, first {bad[0]} by {by_name[bad[0]]:.1e} (bound {rtol:.0e})")
                worst = max(worst, (by_name[largest], f"{largest} on rank {rank}"))
                for tensor in bad[:SHOWN]:
                    own = self._row(f"{name}.{tensor}", rank, theirs[tensor].shape)
                    own.float64_diff = by_name[tensor]
                    own.fail(f"differs by {by_name[tensor]:.1e} (bound {rtol:.0e})")
        if wrong and self.first is None:
            place, told = hint(wrong)
            place = place or of_tensors(wrong, expected[next(iter(wrong))])
            measured = f"{self.case.kind} {name}: {worst[1]} differs by {worst[0]:.1e} (bound {rtol:.0e})"
            self._blame(f"{what} of {place} on {on_ranks(list(wrong), self.ranks)}", told, measured)

    def _not_broadcast(self, wrong: hints.Misses) -> tuple[str, Hint]:
        return "", (Kind.NOT_BROADCAST, "these ranks begin from other weights than rank 0")

    # --- one update --------------------------------------------------------------------------------------------------------

    def _update(self, number: int, update: RightUpdate, records: list[Record]) -> None:
        name = f"update{number}"
        if not self._pictures(number, update, records):
            return
        found = [{n: record["state"][n] for n in update.statistics[0] if n in record["state"]} for record in records]
        if update.statistics[0]:
            self._states(
                f"{name}.statistics",
                "statistics",
                found,
                update.statistics,
                self.rtol,
                lambda wrong: self._statistics_hint(number, update, found, wrong),
            )
        self._losses(number, update, [float(record["figures"]["loss"]) for record in records])
        before = self.expected.updates[number - 1].weights if number else self.expected.start
        moved = {n: array - before[n] for n, array in update.weights.items()}
        weights = [record["state"] for record in records]
        right = all(
            max(differences(state, update.weights, moved).values()) <= 10 * self.rtol for state in weights
        )  # rounding of the weights, relative to the little that they move
        gradients = [record.get("gradients", {}) for record in records]
        if all(gradients):
            self._states(
                f"{name}.gradients",
                "gradient",
                gradients,
                [update.gradients] * self.ranks,
                self.rtol,
                lambda wrong: ("", hints.gradient_hint(self.case, update, gradients, wrong)),
                forgiven=right,
            )
        self._rates(number, update, [float(record["figures"]["rate"]) for record in records])
        self._states(
            f"{name}.weights", "weights", weights, [update.weights] * self.ranks, 10 * self.rtol, lambda wrong: ("", NO_HINT), moved
        )
        if update.averages[0]:
            averages = [record.get("average", {}) for record in records]
            self._states(
                f"{name}.average",
                "moving average",
                averages,
                update.averages,
                tolerance.RANKS_AVERAGE_RTOL,
                lambda wrong: ("", hints.average_hint(self.expected, number, averages, wrong)),
            )

    def _statistics_hint(self, number: int, update: RightUpdate, found: Sequence[State], wrong: hints.Misses) -> tuple[str, Hint]:
        if not self.case.config.sync_bn:
            return "", hints.statistics_hint(update.statistics, found, wrong)
        return hints.synchronised_hint(self.expected, found, wrong) if number == 0 else ("", NO_HINT)

    def _pictures(self, number: int, update: RightUpdate, records: list[Record]) -> bool:
        """Which pictures each rank saw, and with which pixels; whether they are right."""
        parts = [str(part) for part in range(len(update.labels))]
        labels = [np.stack([record["labels"][part] for part in parts]) for record in records]
        wrong, unlike = [], []
        for rank in range(self.ranks):
            row = self._row(f"update{number}.pictures", rank, labels[rank].shape)
            right = np.stack([of_ranks[rank] for of_ranks in update.labels])
            if not np.array_equal(labels[rank], right):
                wrong.append(rank)
                row.fail(f"pictures {labels[rank].ravel().tolist()}, expected {right.ravel().tolist()}")
                continue
            row = self._row(f"update{number}.pixels", rank, [len(parts), *update.pixels[0][rank].shape])
            if not all(np.array_equal(records[rank]["pixels"][p], update.pixels[int(p)][rank]) for p in parts):
                unlike.append(rank)
                row.fail("the right pictures, other pixels")
        if wrong and self.first is None:
            hint = hints.pictures_hint(self.expected, number, labels, wrong)
            measured = f"update {number}: {labels[wrong[0]].ravel().tolist()[:8]} on rank {wrong[0]}"
            self._blame(f"pictures on {on_ranks(wrong, self.ranks)}", hint, measured)
        elif unlike and self.first is None:
            data, config = self.context.reference.data, self.case.config
            assert data is not None
            index = index_dataset(config.data_path, "train", config.num_classes)
            found = [[record["pixels"][part] for part in parts] for record in records]
            hint = hints.pixels_hint(data, self.case, index, update, found, unlike)
            what = "augmentation" if hint[0] is Kind.SAME_SEED else "pixels"
            self._blame(f"{what} on {on_ranks(unlike, self.ranks)}", hint, f"update {number}: the pixels differ")
        return not (wrong or unlike)

    def _losses(self, number: int, update: RightUpdate, found: Sequence[float]) -> None:
        self.result.record(f"{self.case.name}.update{number}.losses", np.array(found), np.array(update.losses))
        wrong = []
        for rank, (ours, theirs) in enumerate(zip(found, update.losses, strict=True)):
            row = self._row(f"update{number}.loss", rank)
            row.float64_diff = relative(abs(ours - theirs), abs(theirs))
            if not row.float64_diff <= self.rtol:
                wrong.append(rank)
                row.fail(f"loss {ours:.9g}, expected {theirs:.9g}")
        if not wrong or self.first is not None:
            return
        hint = self._dropout_hint(found, wrong) if number == 0 and not self.case.config.sync_bn else NO_HINT
        what = "dropout" if hint[0] is Kind.SAME_SEED else "loss"
        measured = f"update {number}: loss {found[wrong[0]]:.9g} on rank {wrong[0]}, expected {update.losses[wrong[0]]:.9g}"
        self._blame(f"{what} on {on_ranks(wrong, self.ranks)}", hint, measured)

    def _dropout_hint(self, found: Sequence[float], wrong: Sequence[int]) -> Hint:
        for source in range(self.ranks):
            if source in wrong:
                continue
            simulated = Simulation(self.context, self.case, self.ranks, self.expected.start, lambda rank, q=source: q)(1)  # type: ignore[misc]
            losses = simulated.updates[0].losses
            if all(abs(found[rank] - losses[rank]) <= self.rtol * abs(losses[rank]) for rank in wrong):
                return Kind.SAME_SEED, f"the dropout masks are those of rank {source}"
        return NO_HINT

    def _rates(self, number: int, update: RightUpdate, found: Sequence[float]) -> None:
        wrong = []
        for rank, rate in enumerate(found):
            row = self._row(f"update{number}.rate", rank)
            row.float64_diff = relative(abs(rate - update.rate), update.rate)
            if not row.float64_diff <= tolerance.EXACT_RTOL:
                wrong.append(rank)
                row.fail(f"learning rate {rate:.9g}, expected {update.rate:.9g}")
        if wrong:
            factors = {found[rank] / update.rate for rank in wrong}
            hint = (Kind.LR_SCALED, f"{factors.pop():.6g} x the learning rate") if len(factors) == 1 else NO_HINT
            measured = f"update {number}: {found[wrong[0]]:.9g}, expected {update.rate:.9g}"
            self._blame(f"learning rate on {on_ranks(wrong, self.ranks)}", hint, measured)

    # --- the evaluation ----------------------------------------------------------------------------------------------------

    def _evaluated(self, found: Sequence[np.ndarray]) -> None:
        size = sizes(self.ranks)[1]
        wrong, hint = hints.evaluated_hint(found, size)
        for rank, labels in enumerate(found):
            row = self._row("evaluation.pictures", rank, labels.shape)
            if rank in wrong:
                row.fail(f"pictures {labels.tolist()}: each of 0 to {size - 1} once, over all ranks")
        if wrong:
            self._blame(
                f"evaluated pictures on {on_ranks(wrong, self.ranks)}", hint, f"rank {wrong[0]}: {found[wrong[0]].tolist()}"
            )

    def _evaluation(self, records: list[Record], labels: Sequence[np.ndarray]) -> None:
        last, expected = self.expected.updates[-1], self.expected
        if expected.statistics:
            found = [{n: record["state"][n] for n in expected.statistics if n in record["state"]} for record in records]
            self._states(
                "evaluation.statistics",
                "evaluated statistics",
                found,
                [expected.statistics] * self.ranks,
                self.rtol,
                lambda wrong: ("", hints.merged_hint(last.statistics, found, wrong, "statistics")),
            )
        if expected.average:
            averages = [record.get("average", {}) for record in records]
            self._states(
                "evaluation.average",
                "evaluated moving average",
                averages,
                [expected.average] * self.ranks,
                tolerance.RANKS_AVERAGE_RTOL,
                lambda wrong: (
                    "the statistics" if all({*names} <= {*expected.statistics} for names in wrong.values()) else "",
                    hints.merged_hint(last.averages, averages, wrong, "averages"),
                ),
            )
        figures = [record["figures"] for record in records]
        self._figures(figures, labels)
        self._counts(figures)

    def _counts(self, found: Sequence[State]) -> None:
        """The metric's own counts, added up over the ranks; a metric that cannot add them up has none."""
        right = np.sum([metric_counts(rank) for rank in range(self.ranks)], axis=0)
        wrong = []
        for rank, figures in enumerate(found):
            counts = figures.get("counts")
            if counts is None:
                continue
            row = self._row("evaluation.counts", rank, right.shape)
            if not np.array_equal(counts, right):
                row.fail(f"counts {counts.tolist()}, expected {right.tolist()}")
                wrong.append((rank, counts.tolist()))
        if wrong:
            own = all(counts == metric_counts(rank) for rank, counts in wrong)
            hint = (Kind.RANKS_NOT_MERGED, "each rank keeps its own counts: they are not added up") if own else NO_HINT
            where = f"TopKAccuracy.all_reduce on {on_ranks([rank for rank, _ in wrong], self.ranks)}"
            self._blame(where, hint, f"rank {wrong[0][0]}: {wrong[0][1]}, expected {right.tolist()}")

    def _figures(self, found: Sequence[State], labels: Sequence[np.ndarray]) -> None:
        expected, wrong = self.expected.figures, []
        for rank, figures in enumerate(found):
            for name, right in expected.items():
                row = self._row(f"evaluation.{name}", rank, right.shape)
                row.max_abs_diff = float(np.abs(figures[name].astype(np.float64) - right).max())
                bound = tolerance.RANKS_AVERAGE_RTOL * abs(float(right)) if name == "loss" else 0.0
                if not row.max_abs_diff <= bound:
                    row.fail(
                        f"{name} {figures[name].tolist()}, expected {right.tolist()}" if right.ndim == 0 else f"{name} differs"
                    )
                    if rank not in wrong:
                        wrong.append(rank)
        if not wrong:
            return
        alone = all(
            np.array_equal(found[rank]["confusion"].sum(1), np.bincount(labels[rank], minlength=len(found[rank]["confusion"])))
            for rank in wrong
        )
        hint = (Kind.RANKS_NOT_MERGED, "each rank counts its own pictures only: the counts are not added up") if alone else NO_HINT
        shown = {rank: int(found[rank]["samples"]) for rank in wrong}
        measured = f"pictures counted by rank: {shown}, expected {int(expected['samples'])}"
        self._blame(f"evaluation on {on_ranks(wrong, self.ranks)}", hint, measured)
