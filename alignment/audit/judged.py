"""The end of an audit whose steps are judged already: of two dumps, and of exported models."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence

from alignment.aligned import Aligned
from alignment.audit import markdown
from alignment.comparisons.context import Context
from alignment.comparisons.explain import locate
from alignment.comparisons.result import StepResult
from alignment.coverage import Coverage
from alignment.finding import Finding
from alignment.flags import audit_name, shown
from alignment.report import results, table
from alignment.report.results import print_json
from mobilenetv3_common.files import atomic_open
from mobilenetv3_common.terminal import show


def reported(
    args: argparse.Namespace,
    flags: Sequence[str],
    context: Context,
    said: Sequence[str],
    run: Callable[[], list[StepResult]],
    about: Mapping[str, str],
    every: Sequence[int],
    mistakes: Callable[[], list[Finding]] = lambda: [],
) -> tuple[Aligned, str]:
    """Print and write what judged steps say; returns what was found, and the verdict in one line.

    Args:
        args, flags: of the command.
        context: of both sides.
        said: lines that are printed first.
        run: gives the steps.
        about: rows of the report's environment.
        every: the numbers of all steps.
        mistakes: every mistake, where more than the first is known.
    """
    command = [*audit_name().split(), *flags]
    with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext():
        show("\n".join(said))
        steps = run()
        for one in steps:
            print(f"step {one.step} {one.name} ... {one.verdict} in {one.seconds:.1f} s")
        localization = locate(context, steps, with_table=False)
        failed = any(one.failed for one in steps)
        localization.every = mistakes() if failed else []
        covered = Coverage(list(dict.fromkeys(topic for one in steps for topic in one.covers)))
        results.write_results(args.report, context, steps, localization, covered, every, flags, command)
        print(f"\n{table.table(steps)}\n")
        lines = table.explanation(steps, localization) or [table.verdict(context, steps, every), *covered.lines()]
        show("\n".join([*lines, *(f"note: {note}" for note in table.notes(context, audited=False))]))
        joined, aligned = shlex.join(command), Aligned(steps, localization, covered)
        with atomic_open(args.report / "report.md", "w") as file:
            file.write(markdown.block(context, aligned, every, joined, about))
        summary = json.loads((args.report / "alignment.json").read_text(encoding="utf-8"))
        with atomic_open(args.report / "alignment.json", "w") as file:
            json.dump(summary | {"audit": {"command": joined, **about}}, file, indent=1)
            file.write("\n")
        print(f"{shown(args.report / 'report.md')}: to paste into a pull request")
    print_json(args, args.report)
    return aligned, table.verdict(context, steps, every)
