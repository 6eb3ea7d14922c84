"""What an audit says: one line, then the port's mistakes, the known differences of the frameworks, and what was not checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from alignment.accepted import UNNAMED
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult, nothing_real, only_nothing_real
from alignment.comparisons.rows import failed_rows
from alignment.comparisons.update.tensors import OWN
from alignment.coverage import Coverage, options_of
from alignment.finding import Finding, Localization
from alignment.kinds import Kind
from alignment.report import table
from alignment.report.table import also
from mobilenetv3_common.counted import counted

KNOWN = {
    Kind.BIASED_VARIANCE: "running variance: {port} keeps the biased variance of a batch, {reference} the unbiased one",
    Kind.UNBIASED_VARIANCE: "running variance: {port} keeps the unbiased variance of a batch, {reference} the biased one",
    Kind.FLOAT32_CONSTANT: "rounding: in float64 the sides differ by less than the rounding of float32, for no known cause",
    Kind.INITIALISATION: "fresh weights: other distributions than the reference's; to train from scratch, set its initialisers",
}
LEFT_OUT = "left out (--eval-only)"  # why training mode is not compared, where that was asked for
PROJECT = "a project file (python -m alignment run PROJECT)"
FLAGS = {  # of topics that an audit does not compare by itself
    "bfloat16": "--precision bfloat16",
    "float16": "--precision float16",
    "GPU": "--device gpu",
    "converted file": "python -m alignment run PROJECT --weights ORIGINAL --port-weights CONVERTED",
    "automatic mixed precision": PROJECT,
    "ranks": PROJECT,
}
IN_TRAINING = ("training mode", "initialisation")
BUILT = "give the class or function that makes the model, not a model: the weights of a model are not drawn anew"
FIRST = "fix the mistakes above, then run the audit again"


@dataclass(frozen=True)
class Unchecked:
    """What a verdict says nothing of.

    Attributes:
        what: in words.
        flag: what would check it; empty where nothing does.
    """

    what: str
    flag: str = ""

    def line(self) -> str:
        """For people."""
        return f"{self.what}: {self.flag}" if self.flag else self.what


@dataclass(frozen=True)
class Sections:
    """A verdict and what it consists of.

    Attributes:
        passed: whether the exit status is 0.
        verdict: the same in one line.
        mistakes: of the port.
        known: differences of the frameworks themselves; with ``--strict`` they fail.
        accepted: differences that ``--accept`` names.
        known_lines: one line for each kind of the known differences.
        unchecked: what was not checked, with the flag that would check it.
        remarks: how far the search came.
        rows: where nothing was located: the rows that fail.
        cards: for each mistake the port's own lines, and the correction as a diff where it is known; or a sentence.
        patch: what came of the corrections: whether they are verified, and why there is none of a mistake.
        next: what to do about the mistakes, in words; empty where there is nothing to be done, or it is not known.
    """

    passed: bool
    verdict: str
    mistakes: list[Finding]
    known: list[Finding]
    accepted: list[Finding]
    known_lines: list[str]
    unchecked: list[Unchecked]
    remarks: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    cards: list[list[str]] = field(default_factory=list)
    patch: list[str] = field(default_factory=list)
    next: str = ""

    def lines(self) -> list[str]:
        """All of it for a terminal, the verdict first."""
        return [
            self.verdict,
            "",
            *self.mistake_lines(),
            "",
            self.known_title(),
            *[f"  {line}" for line in self.known_lines],
            *[f"accepted: {one.line()}{also(one.also)} [--accept {one.kind or UNNAMED}]" for one in self.accepted],
            "",
            "Not checked, and the flag that would check it:",
            *[f"  {one.line()}" for one in self.unchecked],
        ]

    def known_title(self) -> str:
        """The heading of the second section, which says what they do to the exit status."""
        if not self.known_lines:
            return "Known differences of the frameworks: none"
        fails = any(not one.accepted for one in self.known)
        words = "--strict: they fail" if fails else "no mistakes of yours; --strict lets them fail"
        return f"Known differences of the frameworks ({words}):"

    def mistake_title(self) -> str:
        """The heading of the first section."""
        if not self.mistakes:
            return "Your mistakes: not located:" if self.rows else "Your mistakes: none"
        several = ", each found with the earlier ones fixed in memory" if len(self.mistakes) > 1 else ""
        return f"Your mistakes: {counted(len(self.mistakes), 'mistake')}{several}:"

    def card(self, number: int) -> list[str]:
        """The card of a mistake; empty where it has none."""
        return self.cards[number] if number < len(self.cards) else []

    def mistake_lines(self) -> list[str]:
        """The first section."""
        lines: list[str] = []
        for number, one in enumerate(self.mistakes, start=1):
            lines.append(f"  {number}. {table.with_kind(one)}")
            lines += [f"       {line}" for line in self.card(number - 1)]
        return [self.mistake_title(), *lines, *(f"  {line}" for line in self.further)]

    @property
    def further(self) -> list[str]:
        """What is said below the mistakes: what came of corrections, what failed, how far the search came, and what to do next."""
        return [*self.patch, *self.rows, *self.remarks, *([f"next: {self.next}"] if self.next else [])]

    def as_json(self) -> dict[str, Any]:
        """What alignment.json has of it."""
        return {
            "verdict": self.verdict,
            "mistakes": [{**vars(one), "card": self.card(number)} for number, one in enumerate(self.mistakes)],
            "known_differences": [vars(one) for one in self.known],
            "not_checked": [vars(one) for one in self.unchecked],
            "patch": self.patch,
        }


def is_sentence(card: Sequence[str]) -> bool:
    """Whether a card says something in words; lines of a source have their mark, or a space, in the first column."""
    return bool(card) and card[0][:1].isalpha()


def sections_of(
    context: Context, results: Sequence[StepResult], localization: Localization, covered: Coverage, extra: Sequence[Unchecked] = ()
) -> Sections:
    """Sort what an audit found."""
    known, accepted, mistakes = _sorted(localization)
    failed = any(result.failed for result in results)
    blind = nothing_real(results)
    unclear = failed and not mistakes and not only_nothing_real(results) and all(one.accepted for one in known)
    lines = _known_lines(context, known)
    return Sections(
        not failed,
        blind if only_nothing_real(results) else _verdict(failed, mistakes, known, accepted, lines) + _in_part(results, failed),
        mistakes,
        known,
        accepted,
        lines,
        [*_unchecked(context, results, covered, failed), *extra],
        [*localization.remarks, *([blind] if blind and not only_nothing_real(results) else [])],
        _failing(context, results) if unclear else [],
    )


def _sorted(localization: Localization) -> tuple[list[Finding], list[Finding], list[Finding]]:
    """What was found: what is known of the frameworks, what else is accepted, and the mistakes."""
    found = list(localization.every)
    first = localization.first
    if first is not None and all(first.location not in one.places for one in found):
        found.append(first)
    known = [one for one in found if one.known]
    accepted = [one for one in found if one.accepted and not one.known]
    return known, accepted, [one for one in found if not one.accepted and not one.known]


def outcome(results: Sequence[StepResult], localization: Localization) -> str:
    """What a search came to, for the line that says how long it lasted: as the verdict below has it; empty where that says more."""
    known, accepted, mistakes = _sorted(localization)
    if mistakes:
        return counted(len(mistakes), "mistake")
    if any(result.failed for result in results) or not (known or accepted):
        return ""
    return "known differences only" if not accepted else "known or accepted differences only"


def _verdict(failed: bool, mistakes: list[Finding], known: list[Finding], accepted: list[Finding], known_lines: list[str]) -> str:
    if mistakes:
        lines = {one.source for one in mistakes}
        where = f", in {counted(len(lines), 'line')}" if "" not in lines and len(lines) < len(mistakes) else ""
        return f"FAIL: {counted(len(mistakes), 'mistake')} found in the port{where}."
    count = counted(len(known_lines), "known difference")
    if failed and any(not one.accepted for one in known):
        return f"FAIL: no mistake found in the port, but {count} of the frameworks, which --strict does not let pass."
    if failed:
        return "FAIL: the port differs from the reference."
    apart = [f"{count} of the frameworks"] if known else []
    apart += [f"{counted(len(accepted), 'difference')} accepted"] if accepted else []
    return f"PASS: no mistake found in the port{f' ({chr(44).join(apart)})' if apart else ''}.".replace(",", ", ")


def _in_part(results: Sequence[StepResult], failed: bool) -> str:
    """What the verdict's line says of what was to be compared and could not be."""
    reasons = [] if failed else [one for result in results for one in result.not_run.split("; ")]
    training = next((one for one in reasons if one.startswith("training mode: ")), LEFT_OUT)
    lost = [] if LEFT_OUT in training else ["Training mode was NOT compared."]
    lost += ["Gradients were NOT compared in full."] if any(one.startswith(OWN) for one in reasons) else []
    return "".join(f" {one}" for one in lost)


def _known_lines(context: Context, known: Sequence[Finding]) -> list[str]:
    """One line for each kind."""
    port, reference = context.titles()
    lines = []
    for kind in dict.fromkeys(one.kind for one in known):
        places = [place for one in known if one.kind is kind for place in one.places]
        words = KNOWN[kind].format(port=port, reference=reference)
        lines.append(f"{kind}: {words} ({counted(len(places), 'place')}, first {places[0]})")
    return lines


def _failing(context: Context, results: Sequence[StepResult]) -> list[str]:
    lines = []
    for result in results:
        failed = failed_rows(context, result.quantities)
        lines += failed[:5]
        lines += [f"... and {len(failed) - 5} more in step {result.name}"] if len(failed) > 5 else []
        lines += [f"{result.name}: {problem}" for problem in result.problems]
    return lines


def _unchecked(context: Context, results: Sequence[StepResult], covered: Coverage, failed: bool) -> list[Unchecked]:
    """What was not compared, each thing once."""
    found: list[Unchecked] = []
    reasons = dict.fromkeys(reason for result in results for reason in filter(None, result.not_run.split("; ")))
    for reason in reasons:
        if reason.startswith("training mode: "):
            out = LEFT_OUT in reason
            found.append(Unchecked("training mode and fresh weights", "leave --eval-only out") if out else Unchecked(reason))
        elif not reason.startswith("updates: "):
            found.append(Unchecked(reason))
    if not context.updates:
        found.append(Unchecked("updates of the weights", "--updates 3"))
    without = any(reason.startswith("training mode: ") for reason in reasons)
    options = [topic for topic in covered.not_covered if topic in options_of(context.spec.port)]
    together: dict[str, list[str]] = {}
    for topic in covered.not_covered:
        if topic in FLAGS:
            together.setdefault(FLAGS[topic], []).append(topic)
        elif topic in IN_TRAINING and not (without and (topic == "training mode" or context.without_training)):
            given = topic == "initialisation" and context.spec.initialisation is False
            found.append(Unchecked(topic, BUILT if given else FIRST if failed else ""))
    together[PROJECT] = [*together.pop(PROJECT, []), "data, metric, loss, optimizer, schedule and training"]
    if options:
        together["--port-args and --reference-args"] = [f"other values of {', '.join(options)}"]
    return found + [Unchecked(", ".join(topics), flag) for flag, topics in together.items()]
