"""One alignment: the steps in order, localisation, the results on disk, and what is printed of it all."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from alignment import coverage
from alignment.accepted import UNNAMED, Accept, marked
from alignment.comparisons import NAMES, STEPS, guarded, lacks, run_step
from alignment.comparisons.checked import check
from alignment.comparisons.context import Context
from alignment.comparisons.data.data import check_pictures
from alignment.comparisons.every import EveryMistake, every_mistake
from alignment.comparisons.explain import locate, quantity_finding
from alignment.comparisons.lines import describe
from alignment.comparisons.model import converted, known
from alignment.comparisons.model.decoding import left_out
from alignment.comparisons.model.forward import float32_alone
from alignment.comparisons.precision import decoding
from alignment.comparisons.ranks import ranks
from alignment.comparisons.result import StepResult, only_nothing_real
from alignment.comparisons.rows import failed_rows
from alignment.comparisons.update import updates
from alignment.coverage import Coverage
from alignment.finding import OF_LINES, Finding, Localization
from alignment.flags import shown
from alignment.kinds import Kind
from alignment.localize.watch import Watch
from alignment.models.tracing import Unfit
from alignment.repair.regions import named_in_source
from alignment.report import picture, results, table
from alignment.report.kept import Kept, kept_of
from alignment.report.sections import Sections, outcome, sections_of
from alignment.strangers import engine, strangers
from mobilenetv3_common.counted import counted, numbered
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.terminal import Progress, paint, show, verdict

UNFIT = "cannot be run again: the reference's own part does not take what the port gives it"
TO_EXPLAIN = "differences, examined below,"  # they may be no mistakes: the verdict says what they are
FURTHER = 5  # mistakes, each seen once those before it are put right


@dataclass(frozen=True)
class Request:
    """What is asked of an alignment.

    Attributes:
        steps: to run, in this order.
        every: the numbers of all steps; the verdict says so where one of them was not run.
        result_dir: where results go.
        flags: of the command, for the page.
        searched: whether that takes long, because corrections are searched for.
        command: that makes this again, word by word; empty where it was not asked for by one.
        localize: make the table over all modules even where every step passes.
        on_ranks: runs step 7, where it is asked for.
        injected: the fault with which the port was broken on purpose; none where empty.
        onward: search behind the first mistake, too: every mistake of the model, with those before it put right in memory.
        accepts: differences that are known, and accepted where they are found; heeded with ``onward``.
        strict: differences of the frameworks themselves fail, too; heeded with ``onward``.
        keep: go on with the steps that ``result_dir`` has of an earlier run of the same models and flags.
        budget: seconds that the search behind the first mistake may last; what it left out is said.
        covered: print what was covered, which ``covered.txt`` has.
        cards: makes a card of each mistake, says what came of corrections, what to do next and whether a corrected copy passed, of
            the two sides and the mistakes; heeded with ``onward``.
    """

    steps: Sequence[int]
    every: Sequence[int]
    result_dir: Path
    flags: Sequence[str] = ()
    localize: bool = False
    on_ranks: Callable[[Context], StepResult] | None = None
    injected: str = ""
    onward: bool = False
    accepts: Sequence[Accept] = ()
    strict: bool = False
    keep: bool = False
    budget: float = math.inf
    covered: bool = False
    cards: Callable[[Context, Sequence[Finding]], tuple[list[list[str]], list[str], str, bool]] | None = None
    searched: bool = False
    command: Sequence[str] = ()


@dataclass(frozen=True)
class Aligned:
    """What came of it.

    Attributes:
        results: of the steps, that of a converted file first.
        localization: the first mistake, and the table over modules.
        covered: what the verdict rests on.
        sections: what is said of it; None where the search does not go on behind the first mistake.
    """

    results: list[StepResult]
    localization: Localization
    covered: Coverage
    sections: Sections | None = None

    @property
    def status(self) -> int:
        """The command's exit status: 1 where a step failed."""
        return 1 if any(result.failed for result in self.results) else 0


@engine()
def align(context: Context, wanted: Request) -> Aligned:
    """Run steps, localise where one fails, write the results, and print all of it.

    Raises:
        UserError: the project's description does not hold, its pictures cannot be read, or none of the steps can run.
    """
    check(context)
    if context.material.has_pictures:
        check_pictures(context, splits=("train", "val") if 2 in wanted.steps and not lacks(2, context) else ("val",))
    done = [converted.run(context)] if context.port_weights else []  # first of all: a file that cannot be used ends the command
    compared = len(done)
    show(_headline(context))
    if wanted.injected:
        print(f"injected on purpose: {wanted.injected}")
    for result in done:
        print(f"step {result.step} {result.name} ... {verdict(result.verdict)} in {result.seconds:.1f} s", flush=True)
    with coverage.watched(context) as seen:
        done += _run(context, wanted)
    if context.updates:
        done.append(_updated(context, done))
    done += _decoded(context, done)
    if not any(result.ran for result in done[compared:]):
        raise UserError(f"{numbered('step', wanted.steps)} cannot run on {context.project.name}: {done[compared].not_run}")
    failed = any(result.failed for result in done)
    differs = failed and not only_nothing_real(done)
    if differs:
        print("localising ...", end="", flush=True)
    if differs and wanted.onward and not done[-1].stored:
        done, localization = _onward(context, done, wanted)
    else:
        localization = locate(context, done, always=wanted.localize)
        localization.remarks += _unused([one.text for one in wanted.accepts], localization.every)
        _find_line(context, localization.first)
    if differs:
        _show_first(wanted, done, localization)
    together = (kept := _kept(context, wanted, done, seen)).with_(done)
    covered = coverage.coverage_of(context, together, seen)
    given = context, together, localization, covered, wanted.every, wanted.flags, wanted.command
    write = lambda sections: results.write_results(wanted.result_dir, *given, sections, kept)  # noqa: E731
    sections = _sections(context, wanted, done, localization, covered, write) if wanted.onward else None
    write(sections)
    beside = ", picture alignment.png" if picture.plot(wanted.result_dir / "alignment.png", context, together) else ""
    _print(context, wanted, Aligned(together, localization, covered, sections))
    show(f"results: {shown(wanted.result_dir / 'report.html')}, alignment.json, records and logs beside it{beside}")
    return Aligned(done, localization, covered, sections)


def _show_first(wanted: Request, done: Sequence[StepResult], found: Localization) -> None:
    """How long the search took, what it came to, and the first mistake."""
    came_to = outcome(done, found) if wanted.onward else ""
    print(f" {found.seconds:.1f} s{came_to and f': {came_to}'}", flush=True)
    if wanted.onward and found.first is not None:
        show(f"first divergence: {found.first.line()}")


def _find_line(context: Context, first: Finding | None) -> None:
    """Give the first mistake the line of the port to change, or the one in which the port defines what it names."""
    if first is None or first.source:
        return
    with strangers("port"):  # it may be wrong in a way in which it cannot be built
        told = replace(first)
        if first.stage in OF_LINES and not first.shared:
            describe(context, [told])
        else:
            told.source = named_in_source(context, first)
        first.source, first.via, first.own = told.source, told.via, told.own


def _kept(context: Context, wanted: Request, done: Sequence[StepResult], seen: coverage.Seen) -> Kept:
    """What the folder has of an earlier run, where this one goes on with it; the port's functions that it ran have been called."""
    if not wanted.keep:
        return Kept()
    now = results.summary(context, done, Localization(), Coverage(), flags=wanted.flags)
    kept = kept_of(wanted.result_dir, now, {result.step for result in done})
    if kept.dropped:
        print(kept.dropped)
    elif kept.results:
        print(f"kept from earlier runs: {numbered('step', [result.step for result in kept.results])}")
    seen.called |= kept.functions
    return kept


def _sections(
    context: Context,
    wanted: Request,
    done: Sequence[StepResult],
    localization: Localization,
    covered: Coverage,
    write: Callable[[Sections], None],
) -> Sections:
    """What is said; it is written before a search of corrections begins, which somebody may break off."""
    sections = sections_of(context, done, localization, covered)
    if wanted.cards is None:
        return sections
    if wanted.searched and sections.mistakes:
        write(sections)
    cards, patch, following, whole = wanted.cards(context, sections.mistakes)
    remarks = [one for one in sections.remarks if not (whole and one in localization.doubts)]
    return replace(sections, cards=cards, patch=patch, next=following, remarks=remarks)


def _run(context: Context, wanted: Request) -> list[StepResult]:
    """The chosen steps.

    Raises:
        UserError: a side runs in float32 and not in exact mode.
    """
    done: list[StepResult] = []
    for number in wanted.steps:
        on_ranks = wanted.on_ranks if number == ranks.NUMBER else None
        label = f"step {number} {NAMES.get(number, ranks.NAME)} ..."
        done.append(_told(label, context, on_ranks or (lambda told, number=number: run_step(number, told)), wanted.onward))  # type: ignore[misc]
        if number == 1 and done[-1].raised and (alone := float32_alone(context)):
            raise UserError(alone)
    return done


def _told(label: str, context: Context, run: Callable[[Context], StepResult], onward: bool = False) -> StepResult:
    """Run a step, and print its name, its progress and its verdict."""
    print(label, end="", flush=True)
    with Progress(label) as progress:
        result = run(context.but(progress=progress))
    seconds = f" in {result.seconds:.1f} s" if result.ran else ""
    again = f"\r{label}" if sys.stdout.isatty() else ""  # progress was shown in its place
    word = TO_EXPLAIN if onward and result.failed else verdict(result.verdict)
    print(f"{again} {word}{seconds}", flush=True)
    return result


def _print(context: Context, wanted: Request, aligned: Aligned) -> None:
    """The tables and the verdict."""
    done, localization, covered, sections = aligned.results, aligned.localization, aligned.covered, aligned.sections
    print(f"\n{table.table(done, reasons=sections is None)}\n")
    if wanted.localize and localization.layers:
        print(f"{localization.table()}\n")
    if sections is not None:
        listed = covered.text() if wanted.covered else f"covered: {counted(len(covered.covered), 'thing')} (--covered lists them)"
        said = [*sections.lines(), "", listed]
        said[0] = paint(said[0], "green" if sections.passed else "red")
    else:
        said = _explained(context, done, localization, covered, wanted.every)
    show("\n".join([*said, *(f"note: {note}" for note in table.notes(context, sections is not None))]))


def _explained(
    context: Context, done: Sequence[StepResult], localization: Localization, covered: Coverage, every: Sequence[int]
) -> list[str]:
    """What is said where the search ends at the first mistake."""
    said = table.explanation(done, localization)
    if table.passed(done):
        said += [table.verdict(context, done, every), *covered.lines()]
    if said and (table.passed(done) or any(result.failed for result in done)):
        said[0] = paint(said[0], "green" if table.passed(done) else "red")
    return said


def _updated(context: Context, done: Sequence[StepResult]) -> StepResult:
    """Updates of an optimizer, where the steps before have found nothing that would make them differ."""
    failed = [one for one in done if one.failed]
    if failed:
        return StepResult(5, "updates", not_run=f"updates of the weights: {failed[0].name} differs, and so would they")
    return _told(f"step 5 updates, {context.updates} ...", context, _updates)


def _decoded(context: Context, done: Sequence[StepResult]) -> list[StepResult]:
    """How the models decode, where they are decoders; it says what they are where the steps before have found a difference."""
    if 1 not in [one.step for one in done] or any(one.failed for one in done):
        return []
    found = decoding.run(context)
    if found is None:
        first = next(one for one in done if one.step == 1)
        first.not_run = "; ".join(filter(None, [first.not_run, left_out(context)]))
        return []
    return [_told(f"step {found.step} {found.name} ...", context, lambda _: found)]


def _add_decoded(context: Context, done: list[StepResult]) -> Finding | None:
    """How the models decode behind the other steps, and what is wrong with it."""
    decoded = _decoded(context, done)
    done += decoded
    return locate(context, done, with_table=False).first if decoded else None


def _updates(context: Context) -> StepResult:
    result = guarded(5, lambda: updates.run(context))
    result.name = "updates"
    return result


def _onward(context: Context, done: list[StepResult], wanted: Request) -> tuple[list[StepResult], Localization]:
    """Every mistake; and the steps once more with all of them put right in memory.

    Returns:
        The results, those of the port put right where every difference is accepted; and what was found.
    """
    found, search = every_mistake(context, Watch(wanted.budget, say=show))
    if not found.every:
        return done, found if search.watch.ended else locate(context, done, always=wanted.localize)
    known.mark_rounding(found.every, done)
    found.every, unused = marked(wanted.accepts, found.every, wanted.strict)
    if all(one.kind is Kind.RAISES for one in found.every):
        found.remarks += _unused(unused, found.every)
        found.first = next((one for one in found.every if not one.accepted), None)
        return done, found
    print(" again with what was found put right ...", end="", flush=True)
    again = _again(done, search, found)
    for _ in range(FURTHER):
        further = _further(search, found, again)
        if further is None:
            break
        every, unfit = marked(wanted.accepts, [further], wanted.strict)
        found.every, unused = found.every + every, [text for text in unused if text in unfit]
        again = _again(done, search, found)
    corrected = search.corrected(found.every)
    found.remarks += _unused(unused, found.every)
    open_ = [one for one in found.every if not one.accepted]
    found.first = open_[0] if open_ else None
    for one, later in zip(done, again, strict=True):
        one.cover(*later.covers)  # behind the mistakes, which are fixed there
    done[0].cover(*search.covers)
    failed = [one for one in again if one.failed and not one.only_blind]
    names, pass_ = _failed_steps(done)
    if not open_ and not failed:  # a line above said that they differ
        found.remarks.append(f"{names} differed at first only by the differences below; the table compares without them")
        if again[-1].name == "updates":
            again[-1] = _updates(corrected)
        found.first = _add_decoded(corrected.but(mended=()) if all(one.known for one in found.every) else corrected, again)
    what = _wrong(corrected, failed[0]) if failed else ""
    if what and found.every:  # else nothing was put right
        how = UNFIT if what.startswith(f"{Unfit.__name__}: ") else f"still fails: {what}"
        found.remarks.append(f"with {_them(found)} fixed in memory, step {failed[0].step} {how}")
    elif open_ and "" not in corrected.mended:
        found.remarks.append(f"with {_them(found)} fixed in memory, {names} {pass_}")
        context.paired.matched.matching.confirm()
    if not open_ and failed:
        found.first = quantity_finding(corrected, failed[0])
    return again if not open_ else done, found


def _failed_steps(done: Sequence[StepResult]) -> tuple[str, str]:
    """The steps that failed, and what is said of them once they do not: ``step 1`` and ``passes``."""
    numbers = [str(one.step) for one in done if one.failed]
    return ("steps " + ", ".join(numbers), "pass") if len(numbers) > 1 else ("step " + "".join(numbers), "passes")


def _wrong(context: Context, result: StepResult) -> str:
    """What of a step failed first."""
    return next(iter(failed_rows(context, result.quantities)), None) or result.problems[0]


def _again(done: Sequence[StepResult], search: EveryMistake, found: Localization) -> list[StepResult]:
    """The steps that failed once more, on sides with the mistakes put right."""
    corrected = search.corrected(found.every)
    results = [run_step(one.step, corrected) if one.failed and one.step in STEPS else one for one in done]
    known.pass_rounding(found.every, results, search.unmendable)
    known.pass_variances(found.every, results, lambda place: not search.nearest(place))
    return results


def _further(search: EveryMistake, found: Localization, again: Sequence[StepResult]) -> Finding | None:
    """A mistake that shows once those found are put right, as one that other inputs alone show; None where none is named elsewhere.

    Of a place that could not be put right, and of what is around it, nothing further can be said.
    """
    if search.unmendable or search.watch.ended or not any(one.failed and not one.only_blind for one in again):
        return None
    corrected = search.corrected(found.every)
    later = locate(corrected, again, with_table=False).first
    if later is None or later.stage not in ("forward", "backward") or later.kind in (Kind.RAISES, Kind.UNKNOWN):
        return None
    if set(later.places) & {*corrected.mended, *(place for one in found.every for place in one.places)}:
        return None
    describe(search.context, [later])
    return later


def _them(found: Localization) -> str:
    if all(one.accepted for one in found.every):
        return "what is accepted"
    mistakes = sum(not (one.accepted or one.known) for one in found.every)
    if not mistakes:
        return "the differences below"
    beside = " and the known differences" if mistakes < len(found.every) else ""
    return f"{'this mistake' if mistakes == 1 else f'these {mistakes} mistakes'}{beside}"


def _unused(unused: Sequence[str], findings: Sequence[Finding]) -> list[str]:
    """What is said of ``--accept`` that nothing fits."""
    kinds = ", ".join(dict.fromkeys(one.kind.value or UNNAMED for one in findings if not one.accepted))
    return [
        f"--accept {text}: no such difference was found" + (f"; the kinds that were found: {kinds}" if kinds else "")
        for text in unused
    ]


def _headline(context: Context) -> str:
    """The model, its size, its weights, the data and the device."""
    framework = context.reference.framework
    entries = framework.entries(context.networks.described)
    parameters = sum(math.prod(entry.shape) for entry in entries if entry.role == "parameter")
    data = f"data {shown(context.data_path)}" if context.material.has_pictures and context.data_path else "no pictures"
    recipe = f", recipe {context.recipe_name}" if context.recipe is not None else ""
    return f"{context.model}, {parameters:,} parameters, {context.material.weights.name} weights, {data}, {context.device}{recipe}"
