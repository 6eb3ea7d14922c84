"""The audit from Python: ``from alignment import audit, assert_aligned``. What it does is ``alignment.audit.command``'s."""

from __future__ import annotations

import atexit
import contextlib
import difflib
import html
import json
import re
import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ACCEPT = "accept="


@dataclass(frozen=True)
class Place:
    """A mistake, or a difference that is known.

    Attributes:
        place: module path in the reference's names; ``""`` for the whole model.
        also: further places of the same.
        kind: as ``--accept`` takes it, e.g. ``"padding"``.
        words: what it is, with what was measured.
        measured: the size of the difference.
        source: the line of the port to change, ``file.py:31``; ``""`` where it is not known.
        confirmed: whether the same mistake, put into the reference, gives what the port gives.
        lines: the port's own lines, and the correction as a diff where it is known.
        own: what the port itself calls the place; ``""`` where it is the same name.
        via: lines of helpers between the line to change and the layer, with commas between them.
    """

    place: str
    kind: str
    words: str
    measured: str
    source: str = ""
    also: tuple[str, ...] = ()
    confirmed: bool = False
    lines: tuple[str, ...] = ()
    own: str = ""
    via: str = ""

    def accepting(self) -> str:
        """What ``accept`` is given where the difference is meant to be."""
        return self.kind if (self.also or not self.place) and self.kind != "unknown" else f"{self.kind}@{self.place}"

    def card(self) -> str:
        """A few lines for a person: kind, place, source, words and figure."""
        from alignment.kinds import Kind
        from alignment.report.table import also

        own = f" ({self.own} in the port)" if self.own else ""
        title = Kind("" if self.kind == "unknown" else self.kind).words
        lines = [f"{title} at {self.place or '(the whole model)'}{own}{also(self.also)}"]
        via = f" (via {self.via})" if self.via else ""
        lines += [f"  line: {self.source}{via}"] if self.source else []
        words = self.words.replace(f"{self.source}: ", "", 1) if self.source else self.words  # the line has said it
        lines += [f"  what: {words or 'no known mistake matches'}", f"  measured: {self.measured}"]
        return "\n".join([*lines, *(f"    {line}" for line in self.lines)])


@dataclass(frozen=True)
class Result:
    """What an audit found.

    Attributes:
        passed: whether there is no mistake; differences that are known do not count.
        verdict: the same in one line.
        mistakes: of the port.
        differences: of the frameworks, and those that were accepted.
        not_checked: what the verdict says nothing of, a line each.
        notes: how far the search came, how layers were paired, and what was given in ``accept`` that fits no difference.
        folder: where the page ``report.html``, ``report.md`` and ``alignment.json`` lie; a temporary one is removed where the port
            passes: by ``assert_aligned`` at once, by ``audit`` at the end of the process.
        rows: every quantity that was compared, a dictionary each: its name, its differences and the tolerance.
    """

    passed: bool
    verdict: str
    mistakes: list[Place]
    differences: list[Place]
    not_checked: list[str]
    folder: Path = field(repr=False)
    rows: list[dict[str, Any]] = field(default_factory=list, repr=False)
    notes: list[str] = field(default_factory=list)
    _markdown: str = field(default="", repr=False)

    @property
    def quantities(self) -> Any:
        """The rows: a pandas frame where pandas is installed, else a list of dictionaries."""
        try:
            import pandas
        except ImportError:
            return self.rows
        return pandas.DataFrame(self.rows)

    def cards(self) -> str:
        """The mistakes, a card each."""
        return "\n\n".join(f"{number}. {one.card()}" for number, one in enumerate(self.mistakes, start=1))

    def to_markdown(self) -> str:
        """The block for a pull request, as ``report.md`` has it."""
        return self._markdown

    def __str__(self) -> str:
        notes = "" if self.passed else "\n".join(f"note: {line}" for line in self.notes)
        return "\n\n".join(filter(None, [self.verdict, self.cards(), notes]))

    def _repr_html_(self) -> str:
        cards = "".join(f"<pre>{html.escape(one.card())}</pre>" for one in self.mistakes)
        known = "".join(f"<li>{html.escape(f'{one.kind}: {one.words}')}</li>" for one in self.differences)
        notes = "".join(f"<li>{html.escape(line)}</li>" for line in self.notes)
        unchecked = "".join(f"<li>{html.escape(line)}</li>" for line in self.not_checked)
        parts = [
            ("Mistakes", cards),
            ("Notes", notes and f"<ul>{notes}</ul>"),
            ("Known differences", known and f"<ul>{known}</ul>"),
            ("Not checked", f"<ul>{unchecked}</ul>"),
        ]
        return f"<p><b>{html.escape(self.verdict)}</b></p>" + "".join(f"<h4>{title}</h4>{text}" for title, text in parts if text)


def audit(
    port: Any,
    reference: Any,
    *,
    inputs: Any = None,
    training: bool = True,
    accept: str | Sequence[str] = (),
    strict: bool = False,
    report: str | Path | None = None,
    quiet: bool = True,
    **options: Any,
) -> Result:
    """Compare two models layer by layer, as ``python -m alignment audit`` does.

    Args:
        port, reference: ``"MODULE:CALLABLE"``, a class or function that makes the model, or a model, which is copied; or two dumps.
        inputs: as ``--input``, e.g. ``"2x3x224x224"``; or an array, a tensor, a tuple of them, or a dictionary of them by the
            names of the arguments, whose first axis counts samples; or a function of (samples, numpy generator) that returns them;
            a shape that the reference accepts where None.
        training: also compare training mode and fresh weights, as far as the reference can run in it.
        accept: differences that are known, ``KIND`` or ``KIND@PLACE`` each, or one of them.
        strict: differences of the frameworks are mistakes, too.
        report: folder for the report; where None, a temporary one, which stays after the end of the process only if the port fails.
        quiet: print nothing.
        **options: further flags of the command, with underscores: ``weights``, ``names``, ``updates``, ``seed``, ``device``.

    Raises:
        UserError: something that was given cannot be used.
    """
    from alignment.audit.given import as_arguments_of_audit
    from mobilenetv3_common.errors import UserError

    __tracebackhide__ = True
    more = {
        "accept": [accept] if isinstance(accept, str) else list(accept),
        "strict": strict,
        "training": None if training else False,
    }
    try:
        return _audited((port, reference), inputs, more, report, quiet, options)
    except UserError as error:  # one line that names it: the calls of the engine that found it out say no more
        said = str(error) if isinstance(inputs, str | Path) else re.sub(r"--input \S+inputs\.npz", "inputs", str(error))
        error.args = (as_arguments_of_audit(said),)
        raise error.with_traceback(None) from None


def _audited(
    sides: tuple[Any, Any], inputs: Any, more: dict[str, Any], report: str | Path | None, quiet: bool, options: dict[str, Any]
) -> Result:
    from alignment.audit.given import given_inputs
    from alignment.dumps.api import Dump
    from alignment.scratch import report_folder

    with report_folder(report) as folder, _quiet(quiet):
        if any(isinstance(side, Dump) for side in sides):
            result = _of_dumps(*sides, folder, more["training"] is None)
        else:
            result = _of_models(*sides, folder, options, {"input": given_inputs(inputs, folder), **more})
    if report is None and result.passed:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return result


def _quiet(quiet: bool) -> contextlib.AbstractContextManager:
    from alignment.audit.given import Nowhere

    return contextlib.redirect_stdout(Nowhere()) if quiet else contextlib.nullcontext()


def _of_models(port: Any, reference: Any, folder: Path, options: dict[str, Any], more: dict[str, Any]) -> Result:
    """The result of an audit of two models, with further flags of the command, and those that ``audit`` has an argument for."""
    from alignment.audit.command import audited
    from alignment.audit.given import maker_of
    from alignment.flags import audit_parser
    from mobilenetv3_common.errors import UserError

    given = {role: _arguments(f"{role}_args", options.get(f"{role}_args")) for role in ("port", "reference")}
    makers = [maker_of("port", port, given["port"]), maker_of("reference", reference, given["reference"])]
    parser = audit_parser()
    args = parser.parse_args(["--port", makers[0].text, "--reference", makers[1].text])
    for name, value in {**options, **{f"{role}_args": json.dumps(one) for role, one in given.items() if one}}.items():
        if name in more:  # one of audit's own arguments, by the command's name
            raise UserError(f"audit() has no argument {name!r}: what the command calls --input is inputs=")
        if name == "eval_only":
            raise UserError("audit() has no argument 'eval_only': what the command calls --eval-only is training=False")
        if not hasattr(args, name):
            near = difflib.get_close_matches(name, [*vars(args), "inputs", "report", "quiet"], 1)
            meant = f"did you mean {near[0]}?" if near else "it takes those of python -m alignment audit --help"
            raise UserError(f"audit() has no argument {name!r}: {meant}")
        if value is not None and not isinstance(value, str | Path | int | float):
            taken = f"what --{name.replace('_', '-')} takes, a text, a path or a number"
            raise UserError(f"{name}: expected {taken}; found {type(value).__name__}")
        kind = next((one.type for one in parser._actions if one.dest == name), None)
        text = value if value is None or not (kind is Path or isinstance(value, Path)) else str(value)
        setattr(args, name, Path(str(text)) if kind is Path and text is not None else text)  # as the command has it
    vars(args).update(more, report=folder)
    return _result(folder, audited(args, _flags(args, options, folder), makers[0], makers[1]))


def _flags(args: Any, options: Mapping[str, Any], folder: Path) -> list[str]:
    """The command that audits the same, for the report; arrays lie beside it."""
    from alignment.audit.given import INPUTS
    from alignment.audit.named import title

    given = {"input": args.input, **{name: getattr(args, name) for name in options}}
    if args.input == str(folder / INPUTS):
        given["input"] = INPUTS
    flags = ["--port", args.port, "--reference", args.reference]
    for name, value in given.items():
        if value not in (None, False):
            flags += [f"--{name.replace('_', '-')}", *([] if value is True else [title(value) if callable(value) else str(value)])]
    flags += [*(f"--accept={one}" for one in args.accept), *(["--strict"] if args.strict else [])]
    return [*flags, *(["--eval-only"] if args.training is False else [])]


def _arguments(name: str, given: Any) -> Mapping[str, Any]:
    """Keyword arguments of what makes a model: a dictionary of plain values, or the text of one."""
    from alignment.audit.pair import arguments
    from mobilenetv3_common.errors import UserError

    if given is None or isinstance(given, str):
        return arguments(name, given)
    try:
        return arguments(name, json.dumps(given))
    except TypeError as error:
        raise UserError(f"{name}: {error}; give a dictionary of plain values, or a function that makes the model") from error


def assert_aligned(port: Any, reference: Any, **options: Any) -> Result:
    """``audit``, and an AssertionError with a card for each mistake where there is one.

    Where no ``report`` is given, nothing is left of a port that passes; the error says where the report of one that fails is kept.

    Raises:
        AssertionError: the port has a mistake.
        UserError: as ``audit``.
    """
    __tracebackhide__ = True
    result = audit(port, reference, **options)
    if not result.passed:
        kinds = ", ".join(f'"{one.accepting()}"' for one in result.mistakes)
        meant = f"\n\nIf these differences are intended, accept them: accept=[{kinds}]" if kinds else ""
        raise AssertionError(f"{result}{meant}\n\nThe report is kept: {result.folder / 'report.html'}")
    for note in (one for one in result.notes if one.startswith(ACCEPT)):  # it fits no difference
        warnings.warn(note, stacklevel=2)
    if options.get("report") is None:
        shutil.rmtree(result.folder, ignore_errors=True)
    return result


def _of_dumps(port: Any, reference: Any, folder: Path, training: bool) -> Result:
    """The result of an audit of two dumps, which are searched for the first mistake only."""
    from alignment.dumps.api import Dump
    from alignment.dumps.command import audited
    from alignment.flags import audit_parser
    from mobilenetv3_common.errors import UserError

    if not (isinstance(port, Dump) and isinstance(reference, Dump)):
        raise UserError("a dump is audited against a dump: give two, as alignment.dump or alignment.load returns them")
    flags = ["--port-dump", str(port.folder), "--reference-dump", str(reference.folder)]
    args = audit_parser().parse_args([*flags, "--report", str(folder)])
    args.training = (training and port.training and reference.training) or None
    aligned, verdict = audited(args, flags)
    first, (rows, markdown) = aligned.localization.first, _written(folder)
    unchecked = [f"{topic}: it needs both models in one process" for topic in aligned.covered.not_covered]
    found = [] if first is None else [_place(first)]
    return Result(aligned.status == 0, verdict, found, [], unchecked, folder, rows, aligned.localization.remarks, markdown)


def _written(folder: Path) -> tuple[list[dict[str, Any]], str]:
    """The rows of alignment.json, and the text of report.md."""
    summary = json.loads((folder / "alignment.json").read_text(encoding="utf-8"))
    rows = [{"step": step["step"], **row} for step in summary["steps"] for row in step["quantities"]]
    return rows, (folder / "report.md").read_text(encoding="utf-8")


def _result(folder: Path, aligned: Any) -> Result:
    from alignment.audit.given import as_arguments_of_audit

    said = aligned.sections
    mistakes = [replace(_place(one), lines=tuple(said.card(number))) for number, one in enumerate(said.mistakes)]
    mistakes += [_place(one) for one in said.known if not one.accepted]
    rows, markdown = _written(folder)
    failed = aligned.status != 0
    if failed and not mistakes:  # nothing was located: the rows that fail are what there is to say
        mistakes = [Place(place, "unknown", "", reason) for place, _, reason in (row.partition(": ") for row in said.rows[:1])]
    unchecked = [one.line() for one in said.unchecked]
    known = [_place(one) for one in [*said.known, *said.accepted] if one.accepted]
    unchecked, notes = ([as_arguments_of_audit(line) for line in lines] for lines in (unchecked, said.remarks))
    verdict = as_arguments_of_audit(said.verdict)
    return Result(not failed, verdict, mistakes, known, unchecked, folder, rows, notes, markdown)


def _place(one: Any) -> Place:
    said = one.location, one.kind.value or "unknown", one.hint, one.measured, one.source, tuple(one.also), one.confirmed
    return Place(*said, own=one.own, via=one.via)
