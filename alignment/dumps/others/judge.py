"""The verdict on two dumps of other tools: every value that both hold, and the first module behind which they part."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from alignment import tolerance
from alignment.compare import Quantity
from alignment.comparisons.comparison import Searched
from alignment.comparisons.result import StepResult
from alignment.dumps.others.differing import Apart, apart
from alignment.dumps.others.pairing import DumpPairs, named, paired, plain
from alignment.dumps.others.recording import GIVEN, MADE, Dumped, DumpOfOthers, Recorded
from alignment.finding import Finding
from alignment.kinds import Kind
from mobilenetv3_common.counted import counted
from mobilenetv3_common.errors import UserError

WITHOUT_GRADIENTS = "not both dumps hold gradients of parameters"


@dataclass
class JudgedValue:
    """One judged value."""

    value: Recorded
    apart: Apart
    bound: float
    quantity: Quantity


@dataclass
class Comparing:
    """Two dumps and what is known of their names.

    Attributes:
        port, reference: the dumps.
        names: port path -> reference path, where they differ.
    """

    port: DumpOfOthers
    reference: DumpOfOthers
    names: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pairs: DumpPairs = paired(self.port, self.reference, self.names)
        if not self.pairs.values:
            theirs, ours = self.pairs.alone
            raise UserError(
                f"the two dumps have no module in common: the port has {ours[0]}, the reference {theirs[0]}; "
                "say which is which with --names (lines 'port path: reference path')"
            )
        self.turned = self.port.framework != self.reference.framework
        self.first: Finding | None = None

    # --- step 1 ---------------------------------------------------------------------------------------------------------------

    def forward(self) -> StepResult:
        """What modules were given and what they returned, and the weights where both dumps have them.

        Raises:
            UserError: the two sides were given other inputs, or a file is damaged.
        """
        start, result = time.perf_counter(), StepResult(1, "forward", not_run=self.not_shown())
        weights = self._weights()
        result.extend(weights)
        rows = self._rows()
        result.extend(row.quantity for row in rows)
        failed = [row.name for row in weights if not row.passed]
        if failed:
            self.first = Finding(
                "weights", failed[0].removeprefix("weights."), Kind.UNKNOWN, "another value", _measured(weights, failed[0])
            )
        else:
            self.first = self._parted(rows)
        result.require("values", len(rows), any(row.value.role == MADE for row in rows), "outputs of modules that both dumps hold")
        result.evidence["paired by order"] = self.pairs.by_order
        return self._done(result, start)

    def _done(self, result: StepResult, start: float) -> StepResult:
        result.stored, result.compared = True, [Searched(partial(getattr, self, "first"))]
        result.seconds = time.perf_counter() - start
        return result

    def not_shown(self) -> str:
        """What these dumps cannot show, in words."""
        lacks = list(dict.fromkeys([*self.reference.lacks, *self.port.lacks]))
        if not (self.port.weights and self.reference.weights):
            lacks.append("the weights (not both dumps hold them)")
        alone = [f"{counted(len(one), 'value')} that the {role} alone has (first {one[0]})" for role, one in
                 zip(("reference", "port"), self.pairs.alone, strict=True) if one]  # fmt: skip
        return "not checked: " + "; ".join([*lacks, *alone])

    def _weights(self) -> list[Quantity]:
        ours = {named(name, {**self.names, **self._renamed}): value for name, value in self.port.weights.items()}
        shared = [name for name in self.reference.weights if name in ours]
        rows = []
        for name in shared:
            found = apart(ours[name], self.reference.weights[name], self.turned)
            rows.append(_judged(f"weights.{name}", found, tolerance.RECORDS_RTOL))
        return rows

    @property
    def _renamed(self) -> dict[str, str]:
        return dict(line.split(": ", 1) for line in self.pairs.by_order)

    def _rows(self) -> list[JudgedValue]:
        rows: list[JudgedValue] = []
        agreed = 0.0
        for ours, theirs in self.pairs.values:
            found = apart(ours.value, theirs.value)
            least = _least(ours.value, theirs.value)
            bound = max(least, min(tolerance.FLOOR_FACTOR * agreed, tolerance.DUMPED_MOST))
            quantity = _judged(theirs.title, found, bound)
            if quantity.passed:
                agreed = max(agreed, found.share)
            if not rows and theirs.path == "" and theirs.role == GIVEN and not quantity.passed:
                raise UserError(
                    f"the two dumps were made with other inputs ({quantity.reason}): give both sides the same input and dump again"
                )
            rows.append(JudgedValue(theirs, found, bound, quantity))
        return rows

    def _parted(self, rows: list[JudgedValue]) -> Finding | None:
        """The first value that differs, and the module that is to blame for it."""
        number = next((n for n, row in enumerate(rows) if not row.quantity.passed), None)
        if number is None:
            return None
        row = rows[number]
        measured = row.quantity.reason
        agreeing = [one.value for one in rows[:number] if one.value.role == MADE]
        if not self.pairs.ordered:
            others = sum(not one.quantity.passed for one in rows)
            hint = f"the first by name of {others} values that differ; the dumps do not say in which order they were computed"
            return Finding("forward", row.value.path or "model", Kind.UNKNOWN, hint, measured)
        if row.value.role == GIVEN:
            return self._before(row.value, agreeing, measured)
        given = {(one.value.path, one.value.call) for one in rows[:number] if one.value.role == GIVEN}
        inside = [one for one in agreeing if row.value.path == "" or one.path.startswith(f"{row.value.path}.")]
        if inside:
            hint = f"all modules in it agree, the last is {inside[-1].path}: its own operations differ"
        elif (row.value.path, row.value.call) in given:
            hint = "it was given the same input, and returns another output: other settings, or another computation"
        elif agreeing:
            hint = f"the first module whose output differs; {agreeing[-1].path or 'the model'} before it agrees"
        else:
            hint = "the first module already: its settings differ, or the two sides were not given the same input"
        return Finding("forward", row.value.path or "model", Kind.UNKNOWN, hint, measured)

    @staticmethod
    def _before(value: Recorded, agreeing: list[Recorded], measured: str) -> Finding:
        """A module that is given something else although all modules before it agree: what lies between them differs."""
        parent = value.path.rpartition(".")[0] or "model"
        if not agreeing:
            hint = f"the input of {value.path} differs: the operations before it, or the two sides were not given the same input"
        else:
            last = agreeing[-1].path or "the model"
            hint = f"the operations between {last}, which agrees, and {value.path}, which is given another input"
        return Finding("forward", parent, Kind.UNKNOWN, hint, measured)

    # --- step 5 ---------------------------------------------------------------------------------------------------------------

    def backward(self, forward: StepResult) -> StepResult:
        """Gradients of parameters, where both dumps have them and the forward pass agrees."""
        start = time.perf_counter()
        ours = {named(name, {**self.names, **self._renamed}): value for name, value in self.port.gradients.items()}
        shared = [name for name in self.reference.gradients if name in ours]
        result = StepResult(5, "backward", not_run="not checked: updates and gradients of activations")
        if not shared or forward.failed:
            result.not_run = WITHOUT_GRADIENTS if not shared else "gradients follow from the forward pass, which differs"
            return result
        found = {name: apart(ours[name], self.reference.gradients[name], self.turned) for name in shared}
        largest = max((one.scale for one in found.values()), default=0.0)
        bound = tolerance.FLOOR_FACTOR * max(_least(value.value, value.value) for pair in self.pairs.values for value in pair)
        rows = []
        for name, one in found.items():
            if one.scale and not one.problem:
                one.share *= one.scale / max(one.scale, tolerance.DUMPED_LEAST * largest)
            rows.append(_judged(f"grad.{name}", one, bound))
        result.extend(rows)
        failed = [row.name.removeprefix("grad.") for row in rows if not row.passed]
        if failed:
            place = max(failed, key=self._depth)
            count = f"{len(failed)} of {len(rows)} parameters"
            hint = f"the gradients of {count} differ though the forward pass agrees; this is the last of them"
            self.first = Finding("backward", place, Kind.UNKNOWN, hint, _measured(rows, f"grad.{place}"))
        return self._done(result, start)

    def _depth(self, name: str) -> int:
        """When the module of a parameter was called last: the backward pass comes to the last one first."""
        path = plain(name.rpartition(".")[0])
        return max((n for n, (_, one) in enumerate(self.pairs.values) if plain(one.path) == path), default=-1)


def _least(*values: Dumped) -> float:
    """The bound of the type that a tensor had, the coarsest of both sides; what is not known counts as float32."""
    return max(tolerance.DUMPED_RTOL.get(one.dtype, tolerance.RECORDS_RTOL) for one in values)


def _measured(rows: list[Quantity], name: str) -> str:
    return next(row.reason for row in rows if row.name == name)


def _judged(name: str, found: Apart, bound: float) -> Quantity:
    """A row."""
    row = Quantity(name, list(found.shape), found.mean, found.largest)
    if found.by:
        row.note(found.by)
    if found.problem:
        return row.fail(found.problem)
    if found.whole and found.share:
        return row.fail("whole numbers that differ")
    if not found.share <= bound:
        return row.fail(f"relative difference {found.share:.1e} (bound {bound:.0e})")
    return row
