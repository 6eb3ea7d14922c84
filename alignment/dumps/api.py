"""Dumps from Python: ``from alignment import dump, load``. What they do is ``alignment.dumps.command``'s."""

from __future__ import annotations

import contextlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alignment.dumps.store import TABLE, read
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import refuse_special


@dataclass(frozen=True)
class Dump:
    """What one side computes, stored in a folder; two of them are audited where neither framework is.

    Attributes:
        folder: where it lies.
        role: ``"reference"`` or ``"port"``.
        model: what made it, ``MODULE:CALLABLE``.
        framework: its name, e.g. ``"torch"``.
        training: whether training mode is in it.
        seed: of the inputs.
        problem: why the port could not be run; empty where it could.
        environment: machine and versions that made it.
    """

    folder: Path
    role: str
    model: str
    framework: str
    training: bool
    seed: int
    problem: str
    environment: dict[str, str]


def load(folder: str | Path) -> Dump:
    """Open the dump in a folder, of either role. No code in it is run.

    Raises:
        UserError: there is none, or it is damaged, cut short or of another version.
    """
    folder = Path(folder)
    refuse_special(folder / TABLE)
    try:
        role = json.loads((folder / TABLE).read_bytes()).get("role", "reference")
    except (OSError, ValueError, AttributeError):
        role = "reference"  # read says what is wrong
    content = read("load", folder, "port" if role == "port" else "reference").content
    problem = (content.get("problem") or {}).get("words", "")
    known = {name: content[name] for name in ("model", "framework", "training", "seed", "environment")}
    return Dump(folder, role, problem=problem, **known)


def dump(
    model: Any,
    folder: str | Path,
    *,
    inputs: Any = None,
    reference: Dump | str | Path | None = None,
    quiet: bool = True,
    **options: Any,
) -> Dump:
    """Store what a model computes, as ``python -m alignment dump`` does; the reference first, then the port on its inputs.

    Args:
        model: ``"MODULE:CALLABLE"``, a class or function that makes the model, or a model, which is copied.
        folder: where the dump goes.
        inputs: of the reference, as ``audit`` takes them: a shape, e.g. ``"2x3x224x224"``, a file, an array, a tuple or a
            dictionary of arrays, or a function. The port's come from the reference's dump.
        reference: the dump of the reference, where the model is the port.
        quiet: print nothing.
        **options: further flags of the command, with underscores: ``training``, ``weights``, ``names``, ``seed``, ``device``.

    Raises:
        UserError: something that was given cannot be used.
    """
    from alignment.audit.given import Nowhere, given_inputs, maker_of
    from alignment.dumps.command import dumped
    from alignment.flags import dump_parser

    maker = maker_of("dump", model)
    args = dump_parser().parse_args([maker.text, "--out", str(folder)])
    for name, value in options.items():
        if not hasattr(args, name):
            raise UserError(f"dump() has no argument {name!r}: it takes those of python -m alignment dump --help")
        setattr(args, name, Path(value) if name == "names" and value is not None else value)
    if reference is not None:
        args.reference_dump = reference.folder if isinstance(reference, Dump) else Path(reference)
    with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(Nowhere()) if quiet else contextlib.nullcontext():
        args.input = args.input if inputs is None else given_inputs(inputs, Path(scratch))
        dumped(args, maker)
    return load(folder)
