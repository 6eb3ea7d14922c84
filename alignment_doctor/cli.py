"""The doctor's command: one sub-command for each kind of subject."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Sequence

from alignment_doctor import report
from mobilenetv3_common.config_file import Parser
from mobilenetv3_common.errors import UserError, exit_on_user_error, shown
from mobilenetv3_common.json_output import add_output_flags, outputs_of, writable
from mobilenetv3_common.terminal import show

DESCRIPTION = """Examine a training run and its data.

    python tools/doctor.py output/lite
    python tools/doctor.py data lite_data
    python tools/doctor.py check --config configs/lite.yaml --data-path lite_data

Exit status: 0 no problem found, 1 a problem found, 2 input that cannot be used, 3 the
doctor itself failed, which says nothing about the run.
"""

# Sub-command -> its module, which has HELP, add_flags(parser) and run(flags) -> Examination; imported when it is asked for.
COMMANDS = {
    name: f"alignment_doctor.{name}.command" for name in ("run", "data", "weights", "compare", "equal", "check", "watch", "profile")
}


def parser() -> argparse.ArgumentParser:
    """The flags of all sub-commands."""
    whole = Parser(description=DESCRIPTION)
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module_name in COMMANDS.items():
        module = importlib.import_module(module_name)
        one = commands.add_parser(name, help=module.HELP, description=module.__doc__)
        module.add_flags(one)
        one.add_argument("--html", metavar="FILE", help="write one self-contained page here")
        add_output_flags(one, "everything that was found")
        one.set_defaults(run=module.run)
    return whole


def with_command(argv: Sequence[str]) -> Sequence[str]:
    """The arguments; where the first is a path and no sub-command, or a folder and nothing else is given, that is ``run``.

    Raises:
        UserError: it is neither.
    """
    first = argv[0] if argv else "-"
    if first.startswith("-") or (first in COMMANDS and not (len(argv) == 1 and os.path.isdir(first))):
        return argv
    if os.sep in first or os.path.exists(first):
        return ["run", *argv]
    near = difflib.get_close_matches(first, COMMANDS, 1)
    raise UserError(
        f"{first!r} is neither the folder of a run nor a command: {f'did you mean {near[0]}? ' if near else ''}"
        f"use one of {', '.join(COMMANDS)}"
    )


@exit_on_user_error
def main(argv: Sequence[str] | None = None) -> int:
    """Examine as the flags say; returns the exit status."""
    flags = parser().parse_args(with_command(sys.argv[1:] if argv is None else argv))
    outputs, page = outputs_of(vars(flags)), writable(flags.html, "--html")
    with outputs.for_people():
        examination = flags.run(flags)
        if int(os.environ.get("PADDLE_TRAINER_ID") or os.environ.get("RANK") or 0):
            return examination.status  # the first rank says it for all of them
        show(shown(report.text(examination)))
    report.write(examination, page, outputs)
    return examination.status


if __name__ == "__main__":
    sys.exit(main())
