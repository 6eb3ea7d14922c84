"""The doctor's command: one sub-command for each kind of subject."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from alignment_doctor import report
from mobilenetv3_common.config_file import Parser
from mobilenetv3_common.errors import UserError, exit_on_user_error, shown

DESCRIPTION = """Examine a training run and its data.

    python tools/doctor.py data lite_data
    python tools/doctor.py check --config configs/lite.yaml --data-path lite_data

Exit status: 0 no problem found, 1 a problem found, 2 input that cannot be used.
"""

# Sub-command -> its module, which has HELP, add_flags(parser) and run(flags) -> Examination; imported when it is asked for.
COMMANDS = {
    name: f"alignment_doctor.{name}.command" for name in ("data", "weights", "compare", "equal", "check", "watch", "profile")
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
        one.add_argument("--json", metavar="FILE", help="write everything that was found here, as JSON")
        one.set_defaults(run=module.run)
    return whole


@exit_on_user_error
def main(argv: Sequence[str] | None = None) -> int:
    """Examine as the flags say; returns the exit status."""
    flags = parser().parse_args(argv)
    targets = {name: _writable(getattr(flags, name), f"--{name}") for name in ("html", "json")}
    examination = flags.run(flags)
    print(shown(report.text(examination)), flush=True)
    report.write(examination, targets["html"], targets["json"])
    return examination.status


def _writable(path: str | None, flag: str) -> Path | None:
    """A file to be written, refused before the work begins where its folder is not there."""
    if path is None:
        return None
    if not Path(path).parent.is_dir():
        raise UserError(f"{flag} {path}: there is no folder {Path(path).parent}; make it first")
    if Path(path).is_dir():
        raise UserError(f"{flag} {path} is a folder: give a file name")
    if Path(path).exists() and not Path(path).is_file():
        raise UserError(f"{flag} {path} is a pipe or a device: give a file name")
    return Path(path)


if __name__ == "__main__":
    sys.exit(main())
