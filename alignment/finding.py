"""What localisation says: the place, the mistake it looks like, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from alignment.kinds import Kind
from mobilenetv3_common.counted import agreed

Stage = Literal[
    "structure",
    "weights",
    "forward",
    "backward",
    "update",
    "schedule",
    "data",
    "metric",
    "loss",
    "train",
    "initialisation",
    "ranks",
    "deploy",
]
OF_LINES = ("structure", "weights", "forward", "backward", "initialisation")  # stages of which the very line to change is known
Hint = tuple[Kind, str]


class Argument(TypedDict):
    """An argument of a call of a function in the port's source that should have another value.

    Attributes:
        source: the line, ``package/file.py:31``, where the call is made, or where what it is given is set.
        function: the function's own name.
        name: the argument's own name; ``""`` for an operand of an operator.
        given: whether the source gives it; else the function's default holds.
        found, expected: the value that it has, and the one that it should have.
    """

    source: str
    function: str
    name: str
    given: bool
    found: Any
    expected: Any


NO_HINT: Hint = (Kind.UNKNOWN, "")


@dataclass
class LayerRow:
    """One module in the table over all modules.

    Attributes:
        name: module path in the reference, ``""`` for the whole model.
        kind: class of the reference's module.
        phase: ``"forward"`` (its output) or ``"backward"`` (the gradient of its output).
        difference: relative L2 between the two sides as each ran through the whole model.
        cosine: of the two tensors.
        max_abs: largest absolute difference.
        floor: relative L2 that one-ulp changes of everything cause in the reference.
        own: relative L2 of the port's module fed with the reference's own input; None where that was not tried.
    """

    name: str
    kind: str
    phase: str
    difference: float
    cosine: float
    max_abs: float
    floor: float
    own: float | None = None


SHARED = "both sides share this code"  # what the measure of a finding about it ends with


@dataclass
class Finding:
    """The first place where the port diverges by its own mistake.

    Attributes:
        stage: which stage of the search found it.
        location: module path, parameter, transform or function.
        kind: what the mistake looks like.
        hint: the same in words, with what was measured.
        measured: the size of the difference in words.
        source: the line of the port to change, ``package/file.py:31``; ``""`` where it is not known.
        also: further places of the same mistake.
        confirmed: whether the mistake, put into the reference, gives what the port gives; the reference's part is then the fix.
        accepted: whether the difference was known beforehand.
        known: whether it is one of the frameworks themselves, whoever ports (``alignment.comparisons.model.known``).
        own: what the port itself calls the location; ``""`` where it calls it the same, or it is not known.
        via: lines of helpers, with commas between them, that hand the wrong value on from the line to change to the layer.
        arguments: of calls of functions, where other values of them are all that there is to change.
        layer: the port's path of the framework's layer that makes a call that is to be another one; ``""`` where none does.
    """

    stage: Stage
    location: str
    kind: Kind = Kind.UNKNOWN
    hint: str = ""
    measured: str = ""
    source: str = ""
    also: list[str] = field(default_factory=list)
    confirmed: bool = False
    accepted: bool = False
    known: bool = False
    own: str = ""
    via: str = ""
    arguments: list[Argument] = field(default_factory=list)
    layer: str = ""

    def __post_init__(self) -> None:
        self.hint, self.measured = agreed(self.hint), agreed(self.measured)

    @property
    def shared(self) -> bool:
        """Whether it is of code that both sides share, which a value from outside has told."""
        return self.measured.endswith(SHARED)

    @property
    def places(self) -> list[str]:
        """Every place of the mistake."""
        return [self.location, *self.also]

    def line(self) -> str:
        """One line for a person."""
        likely = self.hint or "no known mistake matches"
        return f"{self.stage}: {self.location}: {likely} ({self.measured})"


@dataclass
class Localization:
    """The outcome: the first finding, or None, the table over all modules, and what is called or nested otherwise in the port.

    Where the search went on behind the first finding, ``every`` has all of them, and ``remarks`` says how far it came. ``doubts``
    are those of them that a corrected port which passes removes.
    """

    first: Finding | None = None
    layers: list[LayerRow] = field(default_factory=list)
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    every: list[Finding] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)

    def verdict(self) -> str:
        """The finding in one line, or that there is none."""
        if self.first is not None:
            return self.first.line()
        compared = len({row.name for row in self.layers})
        return agreed(f"no divergence: {compared} modules agree") if compared else "no divergence"

    def as_json(self) -> dict[str, Any]:
        """The content of ``localization`` in alignment.json."""
        return {
            "first": vars(self.first) if self.first else None,
            "every": [vars(finding) for finding in self.every],
            "remarks": self.remarks,
            "seconds": round(self.seconds, 2),
            "layers": [vars(row) for row in self.layers],
        }

    def table(self, only: str | None = None) -> str:
        """The layers as text, one line each, in the order of computation."""
        lines = [f"{'':8}  {'module':34} {'kind':24} {'rel. L2':>9} {'cosine':>10} {'max':>9} {'floor':>9} {'own':>9}"]
        for row in self.layers:
            if only in (None, row.phase):
                own = "-" if row.own is None else f"{row.own:.1e}"
                lines.append(
                    f"{row.phase:8}  {row.name or '(model)':34} {row.kind:24} {row.difference:9.1e} {row.cosine:10.7f} "
                    f"{row.max_abs:9.1e} {row.floor:9.1e} {own:>9}"
                )
        return "\n".join(lines)
