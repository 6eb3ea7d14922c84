"""Two runs as the checks see them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from alignment_doctor.compare.entries import MEAN, OWN, WHOLE, Entry, RunLog, epoch_means, whole_epochs

# A forward pass in float32 differs between frameworks by 2e-6, one in half precision by up to 1e-2 (docs/benchmarks.md).
SAME_LOSS, SAME_LOSS_HALF = 1e-4, 2e-2
SECOND_LOSS = 10.0  # times what the first loss may differ by: the update passes rounding on
ABOVE_THE_SPREAD = 2.0  # a few repeats show less than the whole spread


@dataclass
class RunsSubject:
    """Two runs, and runs that repeat the first.

    Attributes:
        first, second: the run that is trusted, and the one in question.
        second_repeats: of the second, each of the same seed as the repeat of the first at its place.
        repeats: of the first, under other seeds or on other machines; what they differ by is no problem.
        said_same_start: whether the user says that both begin from the same weights and see the same batches; None where not said.
    """

    first: RunLog
    second: RunLog
    repeats: Sequence[RunLog] = ()
    said_same_start: bool | None = None
    second_repeats: Sequence[RunLog] = ()

    @property
    def same_start(self) -> bool:
        """Whether both runs begin from the same weights and see the same batches in the same order.

        This project's runs do where seed and starting weights are the same; fresh weights differ between frameworks.
        """
        if self.said_same_start is not None:
            return self.said_same_start
        one, two = self.first.settings, self.second.settings
        if not one or not two or one.get("seed") != two.get("seed") or one.get("pretrained") != two.get("pretrained"):
            return False
        return one.get("framework") == two.get("framework") or bool(one.get("pretrained"))

    @property
    def half_precision(self) -> bool:
        """Whether one of the runs computes in mixed precision, as far as its settings tell."""
        return any(run.settings.get("amp_level", "O0") != "O0" for run in (self.first, self.second))

    @property
    def limit(self) -> float:
        """Relative difference of equal losses on equal weights that rounding alone makes."""
        return SAME_LOSS_HALF if self.half_precision else SAME_LOSS

    @property
    def whole(self) -> bool:
        """Whether epochs are compared and not updates."""
        return any(one.averaged == WHOLE for one in (self.first, self.second))

    @property
    def comparable(self) -> bool:
        """Whether the runs have anything in common: an update with a loss or a rate in both, or an evaluation."""
        epochs = [{(one.unit, one.epoch) for one in run.evaluations} for run in (self.first, self.second)]
        return bool(self.losses or self.rates or epochs[0] & epochs[1])

    @functools.cached_property
    def rates(self) -> list[tuple[Entry, Entry]]:
        """The lines of both runs at the same updates, where both have a learning rate."""
        if (self.first.averaged == WHOLE) != (self.second.averaged == WHOLE):
            return []  # an epoch has the rates of many updates
        two = {entry.update: entry for entry in self.second.entries}
        pairs = [(entry, two[entry.update]) for entry in self.first.entries if entry.update in two]
        return [(a, b) for a, b in pairs if a.lr is not None and b.lr is not None]

    def series(self, run: RunLog) -> dict[int, Entry]:
        """The lines of a run by update; where one of the runs logs the mean of the epoch so far, or of whole epochs, all do."""
        if any(one.averaged == WHOLE for one in (self.first, self.second, *self.repeats)):
            whole = run.entries if run.averaged == WHOLE else whole_epochs(run.entries, run.averaged)
            return {entry.update: entry for entry in whole}
        mean = any(one.averaged == MEAN for one in (self.first, self.second, *self.repeats))
        entries = epoch_means(run.entries) if mean and run.averaged == OWN else run.entries
        return {entry.update: entry for entry in entries}

    @functools.cached_property
    def losses(self) -> list[tuple[Entry, Entry]]:
        """The lines of both runs at the same updates, where both have a loss."""
        one, two = self.series(self.first), self.series(self.second)
        common = [(one[u], two[u]) for u in sorted(one.keys() & two.keys())]
        return [(a, b) for a, b in common if a.loss is not None and b.loss is not None]

    @functools.cached_property
    def spread(self) -> dict[int, float]:
        """By update: the largest relative difference of the loss between the first run and its repeats, until then."""
        one = self.series(self.first)
        others = [self.series(run) for run in self.repeats]
        found: dict[int, float] = {}
        largest = 0.0
        for update, entry in one.items():
            values = [other[update].loss for other in others if update in other]
            apart = [relative(entry.loss, value) for value in values if value is not None and entry.loss is not None]
            if apart:
                largest = max(largest, *apart)
                found[update] = largest
        return found


def relative(a: float | None, b: float | None) -> float:
    """Difference over the larger of the two; infinite where one is missing or not a number and the other is not."""
    if a is None or b is None:
        return float("inf")
    if a != a or b != b:
        return 0.0 if a != a and b != b else float("inf")
    if a == b:
        return 0.0
    return abs(a - b) / max(abs(a), abs(b))


def rounding(a: Entry, b: Entry) -> float:
    """The relative difference that the writing of two losses alone can make."""
    size = max(abs(a.loss or 0.0), abs(b.loss or 0.0))
    return (a.rounding + b.rounding) / size if size else 0.0
