"""What the ranks have against what the reference has of the same batches: rows by rank and tensor, and the first mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity, distance, norm, relative
from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.comparisons.ranks import mistakes
from alignment.comparisons.ranks.expected import Reduction, Simulation, Spread, drawn_as, mean_gradient, shares_of
from alignment.comparisons.ranks.mistakes import WrongTensors
from alignment.comparisons.ranks.plan import RankCase, Record, by_rank, metric_counts, read_records, sizes
from alignment.finding import NO_HINT, Finding, Hint
from alignment.kinds import Kind
from alignment.localize.hypotheses.hypothesis import Family
from mobilenetv3_common.weights import State

REFUSED = "refused"
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


@dataclass
class RowsOfRanks:
    """Rows that are judged together, a row a rank.

    Attributes:
        rows: of all ranks.
        explain: place and cause; asked only where one of the rows has failed.
    """

    rows: list[Quantity]
    explain: Callable[[], Finding]

    @property
    def failed(self) -> bool:
        return not all(row.passed for row in self.rows)


class OnRanks:
    """One case as the port's ranks run it, against the reference in one process.

    Args:
        context: the two sides.
        case: what is run.
        ranks: how many.
        expected: what the reference was measured to give, once for all launches.
        folder: where the ranks wrote.
    """

    def __init__(self, context: Context, case: RankCase, ranks: int, expected: State, folder: Path) -> None:
        self.context, self.case, self.ranks, self.expected, self.folder = context, case, ranks, expected, folder
        self.rtol = tolerance.RANKS_SYNC_RTOL if case.config.sync_bn else tolerance.RANKS_RTOL
        self.order = ["start", *map(str, range(case.updates)), *(("pictures", "evaluation") if case.evaluates else ())]

    def measure(self, context: Context, role: str) -> Measurement:
        """What the ranks recorded, or the words by which the port refuses the case."""
        if role == "reference":
            return self.expected
        refused = self.folder / f"{self.case.name}.{REFUSED}"
        return {REFUSED: refused.read_text()} if refused.exists() else read_records(self.folder, self.case, self.ranks)

    def complete(self, port: Measurement) -> bool:
        """Whether every rank has recorded everything."""
        return REFUSED not in port and set(self.order) <= set(by_rank(port, self.ranks))

    def losses(self, port: Measurement) -> dict[str, list[np.ndarray]]:
        """For the records: the losses of both sides, by rank, of each update whose pictures are right."""
        sides = [by_rank({} if REFUSED in side else side, self.ranks) for side in (port, self.expected)]
        numbers = [number for number in self.order[1:] if number.isdigit() and number in sides[0]]
        right = [n for n in numbers if not self._pictures(int(n), sides[0][n], sides[1]).failed]
        losses = lambda side, n: np.array([float(record["figures"]["loss"]) for record in side[n]])  # noqa: E731
        return {f"{self.case.name}.update{n}.losses": [losses(side, n) for side in sides] for n in right}

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        return [] if REFUSED in port else [row for one in self._compared(port, reference) for row in one.rows]

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        if REFUSED in port:
            if self.case.optional:
                return None
            words = f"{self.case.name}: the port refuses to train: {port[REFUSED]}"
            return Finding("ranks", on_ranks(range(self.ranks), self.ranks), Kind.RAISES, words, str(port[REFUSED]))
        return next((one.explain() for one in self._compared(port, reference) if one.failed), None)

    def _compared(self, port: Measurement, reference: Measurement) -> Iterator[RowsOfRanks]:
        """All rows in the order of computation, as far as every rank has recorded."""
        ours, theirs = by_rank(port, self.ranks), by_rank(reference, self.ranks)
        there = next((place for place, number in enumerate(self.order) if number not in ours), len(self.order))
        for number in self.order[:there]:
            records, right = ours[number], theirs.get(number, [])
            if number == "start":
                yield self._start(records, right)
            elif number == "pictures":
                yield self._evaluated(_labels_evaluated(records))
            elif number == "evaluation":
                yield from self._evaluation(records, right, theirs[str(self.case.updates - 1)], _labels_evaluated(ours["pictures"]))
            else:
                yield from self._update(int(number), records, theirs)

    def _row(self, name: str, rank: int, shape: Sequence[int] = ()) -> Quantity:
        return Quantity(f"{self.case.name}.{name}.rank{rank}", list(shape))

    def _found(self, what: str, wrong: Sequence[int], hint: Hint, measured: str) -> Finding:
        return Finding("ranks", f"{what} on {on_ranks(wrong, self.ranks)}", *hint, measured)

    def _states(
        self,
        name: str,
        what: str,
        found: Sequence[State],
        expected: Sequence[State],
        hint: Callable[[WrongTensors], tuple[str, Hint]],
        rtol: float | None = None,
        scale: State | None = None,
        forgiven: bool = False,
    ) -> RowsOfRanks:
        """Rows of every rank's tensors; the mistake is blamed on the tensors and ranks that are wrong.

        Args:
            name, what: of the rows, and of the place.
            found, expected: by rank.
            hint: place (``""`` for the usual one) and hint for what is wrong.
            rtol: relative L2; that of the case where None.
            scale: what differences are relative to; the expected tensors where None.
            forgiven: note a difference without failing.
        """
        bound = self.rtol if rtol is None else rtol
        wrong: dict[int, list[str]] = {}
        worst, rows = (0.0, ""), []
        for rank, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            by_name = differences(ours, theirs, scale or theirs)
            largest = max(by_name, key=lambda n: by_name[n])
            rows.append(row := self._row(name, rank, [len(by_name)]))
            in_float32 = bound == tolerance.RANKS_AVERAGE_RTOL
            setattr(row, "max_abs_diff" if in_float32 else "float64_diff", by_name[largest])
            bad = [tensor for tensor, difference in by_name.items() if not difference <= bound]
            if bad and forgiven:
                row.note("another scale, which the weights after the update do not show").float64_diff = None
            elif bad:
                wrong[rank] = bad
                first = f"first {bad[0]} by {by_name[bad[0]]:.1e} (bound {bound:.0e})"
                row.fail(f"{len(bad)} of {len(by_name)} tensors differ, {first}")
                worst = max(worst, (by_name[largest], f"{largest} on rank {rank}"))
                for tensor in bad[:SHOWN]:
                    rows.append(own := self._row(f"{name}.{tensor}", rank, theirs[tensor].shape))
                    own.float64_diff = by_name[tensor]
                    own.fail(f"differs by {by_name[tensor]:.1e} (bound {bound:.0e})")

        def explain() -> Finding:
            place, told = hint(WrongTensors(found, expected, wrong))
            place = place or of_tensors(wrong, expected[next(iter(wrong))])
            measured = f"{self.case.kind} {name}: {worst[1]} differs by {worst[0]:.1e} (bound {bound:.0e})"
            return self._found(f"{what} of {place}", [*wrong], told, measured)

        return RowsOfRanks(rows, explain)

    def _start(self, records: Sequence[Record], right: Sequence[Record]) -> RowsOfRanks:
        states = [record["state"] for record in records]
        first = {name: states[0][name] for name in right[0]["state"] if name in states[0]}
        hint = "", (Kind.NOT_BROADCAST, "these ranks begin from other weights than rank 0")
        return self._states("start.weights", "starting weights", states, [first] * self.ranks, lambda wrong: hint, 0.0)

    # --- one update --------------------------------------------------------------------------------------------------------

    def _update(self, number: int, records: Sequence[Record], theirs: Mapping[str, Sequence[Record]]) -> Iterator[RowsOfRanks]:
        name, right = f"update{number}", theirs[str(number)]
        before = theirs[str(number - 1)] if number else []
        pictures = self._pictures(number, records, theirs)
        yield pictures
        if pictures.failed:
            return
        if right[0].get("statistics"):
            of_case = _among([r["state"] for r in records], right[0]["statistics"]), [r["statistics"] for r in right]
            hint = lambda wrong: self._statistics_hint(number, wrong, theirs)  # noqa: E731
            yield self._states(f"{name}.statistics", "statistics", *of_case, hint)
        yield self._losses(number, records, right)
        weights = right[0]["state"]
        since = before[0]["state"] if number else theirs["start"][0]["state"]
        moved = {n: array - since[n] for n, array in weights.items()}
        states = [record["state"] for record in records]
        # Rounding of the weights, relative to the little that they move.
        settled = all(max(differences(state, weights, moved).values()) <= 10 * self.rtol for state in states)
        if all(record.get("gradients") for record in records):
            of_case = [r["gradients"] for r in records], [r["gradients"] for r in right]
            hint = _named(mistakes.GRADIENTS, lambda: self._reduction(right))
            yield self._states(f"{name}.gradients", "gradient", *of_case, hint, forgiven=settled)
        yield self._rates(number, records, right)
        of_case = states, [weights] * self.ranks
        yield self._states(f"{name}.weights", "weights", *of_case, lambda wrong: ("", NO_HINT), 10 * self.rtol, moved)
        if right[0].get("average"):
            known = [{**r["state"], **r.get("statistics", {})} for r in right], [r.get("average", {}) for r in before]
            of_case = [r.get("average", {}) for r in records], [r["average"] for r in right]
            hint = _named(mistakes.AVERAGE_OF_RANKS, lambda: known)
            yield self._states(f"{name}.average", "moving average", *of_case, hint, tolerance.RANKS_AVERAGE_RTOL)

    def _reduction(self, right: Sequence[Record]) -> Reduction:
        return Reduction(self.ranks, mean_gradient(right), shares_of(right), self.case.config.clip_norm)

    def _statistics_hint(self, number: int, wrong: WrongTensors, theirs: Mapping[str, Sequence[Record]]) -> tuple[str, Hint]:
        """With synchronised BatchNorm also the first layer, in the order of computation, whose statistics are wrong."""
        if not self.case.config.sync_bn:
            return "", mistakes.STATISTICS_OF_RANKS.hint(wrong)
        bad = {name.rpartition(".")[0] for names in wrong.wrong.values() for name in names}
        given = [record.get("spread", {}) for record in theirs[str(number)]]
        layer = next((path for key in given[0] if (path := key.rpartition(".")[0]) in bad), "")
        if not layer:
            return "", NO_HINT
        parts = {n: np.stack([record[f"{layer}.{n}"] for record in given]) for n in ("means", "variances")}
        mean, variance, momentum, count = (given[0][f"{layer}.{n}"] for n in ("mean", "variance", "momentum", "count"))
        start = _of_layer(layer, theirs["start"][0]["state"])
        spread = Spread(parts["means"], parts["variances"], mean, variance, int(count), float(momentum), start)
        found, right = ([_of_layer(layer, state) for state in states] for states in (wrong.found, wrong.right))
        names = {rank: [*_of_layer(layer, dict.fromkeys(of_rank))] for rank, of_rank in wrong.wrong.items()}  # type: ignore[arg-type]
        own = WrongTensors(found, right, {rank: of_rank for rank, of_rank in names.items() if of_rank}, spread)
        return layer, mistakes.SYNCHRONISED.hint(own)

    def _pictures(self, number: int, records: Sequence[Record], theirs: Mapping[str, Sequence[Record]]) -> RowsOfRanks:
        """Which pictures each rank saw, and with which pixels."""
        right = theirs[str(number)]
        parts = [*right[0]["labels"]]
        ours, labels = ([np.stack([r["labels"][part] for part in parts]) for r in side] for side in (records, right))
        rows, wrong, unlike = [], [], []
        for rank in range(self.ranks):
            rows.append(row := self._row(f"update{number}.pictures", rank, ours[rank].shape))
            if not np.array_equal(ours[rank], labels[rank]):
                wrong.append(rank)
                row.fail(f"pictures {ours[rank].ravel().tolist()}, expected {labels[rank].ravel().tolist()}")
                continue
            rows.append(row := self._row(f"update{number}.pixels", rank, [len(parts), *right[rank]["pixels"]["0"].shape]))
            if not all(np.array_equal(records[rank]["pixels"][p], right[rank]["pixels"][p]) for p in parts):
                unlike.append(rank)
                row.fail("the right pictures, other pixels")

        def explain() -> Finding:
            if wrong:
                first = [np.stack([r["labels"][part] for part in parts]) for r in theirs["0"]] if number else []
                measured = f"update {number}: {ours[wrong[0]].ravel().tolist()[:8]} on rank {wrong[0]}"
                return self._found("pictures", wrong, mistakes.PICTURES.hint(ours, labels, wrong, first), measured)
            found, made = ([np.stack([r["pixels"][part] for part in parts]) for r in side] for side in (records, right))
            drawn = lambda rank, source: drawn_as(self.context, self.case, right[rank], right[source])  # noqa: E731
            hint = mistakes.AUGMENTED.hint(found, made, unlike, drawn)
            what = "augmentation" if hint[0] is Kind.SAME_SEED else "pixels"
            return self._found(what, unlike, hint, f"update {number}: the pixels differ")

        return RowsOfRanks(rows, explain)

    def _losses(self, number: int, records: Sequence[Record], right: Sequence[Record]) -> RowsOfRanks:
        found, losses = ([float(record["figures"]["loss"]) for record in side] for side in (records, right))
        rows = [self._row(f"update{number}.loss", rank) for rank in range(self.ranks)]
        for row, ours, theirs in zip(rows, found, losses, strict=True):
            row.float64_diff = relative(abs(ours - theirs), abs(theirs))
            if not row.float64_diff <= self.rtol:
                row.fail(f"loss {ours:.9g}, expected {theirs:.9g}")
        wrong = [rank for rank, row in enumerate(rows) if not row.passed]

        def explain() -> Finding:
            hint = NO_HINT
            if number == 0 and not self.case.config.sync_bn:
                hint = mistakes.DROPPED.hint(*(np.array(side) for side in (found, losses)), wrong, self._losses_with_masks_of)
            measured = f"update {number}: loss {found[wrong[0]]:.9g} on rank {wrong[0]}, expected {losses[wrong[0]]:.9g}"
            return self._found("dropout" if hint[0] is Kind.SAME_SEED else "loss", wrong, hint, measured)

        return RowsOfRanks(rows, explain)

    def _losses_with_masks_of(self, source: int) -> list[float]:
        """The losses of the first update, by rank, where every rank has the dropout masks of one: the reference computes them."""
        start = by_rank(self.expected, self.ranks)["start"][0]["state"]
        made = Simulation(self.context, self.case, self.ranks, start, lambda rank: source)(1)
        return [float(record["figures"]["loss"]) for record in by_rank(made, self.ranks)["0"]]

    def _rates(self, number: int, records: Sequence[Record], right: Sequence[Record]) -> RowsOfRanks:
        expected, found = float(right[0]["figures"]["rate"]), [float(record["figures"]["rate"]) for record in records]
        rows = [self._row(f"update{number}.rate", rank) for rank in range(self.ranks)]
        for row, rate in zip(rows, found, strict=True):
            row.float64_diff = relative(abs(rate - expected), expected)
            if not row.float64_diff <= tolerance.EXACT_RTOL:
                row.fail(f"learning rate {rate:.9g}, expected {expected:.9g}")
        wrong = [rank for rank, row in enumerate(rows) if not row.passed]

        def explain() -> Finding:
            hint = mistakes.RATES.hint(np.array(found), np.full(self.ranks, expected), wrong)
            return self._found("learning rate", wrong, hint, f"update {number}: {found[wrong[0]]:.9g}, expected {expected:.9g}")

        return RowsOfRanks(rows, explain)

    # --- the evaluation ----------------------------------------------------------------------------------------------------

    def _evaluated(self, found: Sequence[np.ndarray]) -> RowsOfRanks:
        size = sizes(self.ranks)[1]
        one = next(mistakes.EVALUATED.confirmed(found, size), None)
        wrong = [] if one is None else one.about
        rows = [self._row("evaluation.pictures", rank, labels.shape) for rank, labels in enumerate(found)]
        for rank in wrong:
            rows[rank].fail(f"pictures {found[rank].tolist()}: each of 0 to {size - 1} once, over all ranks")

        def explain() -> Finding:
            assert one is not None
            return self._found("evaluated pictures", wrong, one.hint, f"rank {wrong[0]}: {found[wrong[0]].tolist()}")

        return RowsOfRanks(rows, explain)

    def _evaluation(
        self, records: Sequence[Record], right: Sequence[Record], last: Sequence[Record], labels: Sequence[np.ndarray]
    ) -> Iterator[RowsOfRanks]:
        for part, family in (("statistics", mistakes.MERGED_STATISTICS), ("average", mistakes.MERGED_AVERAGES)):
            expected, own = right[0].get(part, {}), [record.get(part, {}) for record in last]
            if not expected:
                continue
            averages = part == "average"
            found = [r.get(part, {}) for r in records] if averages else _among([r["state"] for r in records], expected)

            def hint(wrong: WrongTensors, own: list[State] = own, family: Family = family) -> tuple[str, Hint]:
                alone = family is mistakes.MERGED_AVERAGES
                alone = alone and all({*names} <= {*right[0].get("statistics", {})} for names in wrong.wrong.values())
                return "the statistics" if alone else "", family.hint(replace(wrong, known=own))

            place = f"evaluated {'moving average' if averages else part}"
            rtol = tolerance.RANKS_AVERAGE_RTOL if averages else None
            yield self._states(f"evaluation.{part}", place, found, [expected] * self.ranks, hint, rtol)
        figures = [record["figures"] for record in records]
        yield self._figures(figures, right[0]["figures"], labels)
        yield self._counts(figures)

    def _counts(self, found: Sequence[State]) -> RowsOfRanks:
        """The metric's own counts, added up over the ranks; a metric that cannot add them up has none."""
        counts = {rank: figures["counts"] for rank, figures in enumerate(found) if "counts" in figures}
        own = [np.array(metric_counts(rank)) for rank in range(self.ranks)]
        right = np.sum(own, axis=0)
        rows = [self._row("evaluation.counts", rank, right.shape) for rank in counts]
        wrong = []
        for row, (rank, ours) in zip(rows, counts.items(), strict=True):
            if not np.array_equal(ours, right):
                row.fail(f"counts {ours.tolist()}, expected {right.tolist()}")
                wrong.append(rank)

        def explain() -> Finding:
            hint = mistakes.COUNTS.hint(counts, [right] * self.ranks, wrong, own)
            measured = f"rank {wrong[0]}: {counts[wrong[0]].tolist()}, expected {right.tolist()}"
            return self._found("TopKAccuracy.all_reduce", wrong, hint, measured)

        return RowsOfRanks(rows, explain)

    def _figures(self, found: Sequence[State], expected: State, labels: Sequence[np.ndarray]) -> RowsOfRanks:
        rows, wrong = [], []
        for rank, figures in enumerate(found):
            for name, right in expected.items():
                rows.append(row := self._row(f"evaluation.{name}", rank, right.shape))
                row.max_abs_diff = float(np.abs(figures[name].astype(np.float64) - right).max())
                bound = tolerance.RANKS_AVERAGE_RTOL * abs(float(right)) if name == "loss" else 0.0
                if not row.max_abs_diff <= bound:
                    words = f"{name} {figures[name].tolist()}, expected {right.tolist()}"
                    row.fail(words if right.ndim == 0 else f"{name} differs")
                    wrong += [] if rank in wrong else [rank]

        def explain() -> Finding:
            classes = [figures["confusion"].sum(1) for figures in found]
            own = [np.bincount(of_rank, minlength=len(expected["confusion"])) for of_rank in labels]
            hint = mistakes.FIGURES_OF_RANKS.hint(classes, [expected["confusion"].sum(1)] * self.ranks, wrong, own)
            shown = {rank: int(found[rank]["samples"]) for rank in wrong}
            measured = f"pictures counted by rank: {shown}, expected {int(expected['samples'])}"
            return self._found("evaluation", wrong, hint, measured)

        return RowsOfRanks(rows, explain)


def _named(family: Family, known: Callable[[], Any]) -> Callable[[WrongTensors], tuple[str, Hint]]:
    return lambda wrong: ("", family.hint(replace(wrong, known=known())))


def _labels_evaluated(records: Sequence[Record]) -> list[np.ndarray]:
    return [record["pictures"]["labels"] for record in records]


def _among(states: Sequence[State], names: Mapping[str, Any]) -> list[State]:
    return [{name: state[name] for name in names if name in state} for state in states]


def _of_layer(layer: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """What a layer itself holds, by last name."""
    return {last: array for name, array in state.items() for path, _, last in [name.rpartition(".")] if path == layer}
