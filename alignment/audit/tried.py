"""``audit --try-patch``: the corrections are applied to a copy of the port's source, and the copy is audited with other weights."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from alignment.audit.named import title
from alignment.audit.pair import arguments
from alignment.audit.trial import Job
from alignment.comparisons.context import Context
from alignment.comparisons.model.known import VARIANCES
from alignment.finding import Finding
from alignment.repair.copies import copied
from alignment.repair.edits import Fix, applied
from alignment.scratch import scratch

LIMIT = 1800  # seconds
# In the user's working folder, where the models may read files, and whose own modules come behind those of the copy.
AUDIT = "import sys; sys.path = [one for one in sys.path if one]; from alignment.cli import main; sys.exit(main(sys.argv[1:]))"
HANDED_ON = ("port_args", "reference_args", "input", "names", "precision", "device")  # flags that the second audit has, too


@dataclass(frozen=True)
class Verified:
    """What an audit of the corrected copy says.

    Attributes:
        passed: whether it passes; None where it was not made.
        words: the same in one line.
    """

    passed: bool | None
    words: str


def verified(args: argparse.Namespace, fixes: Sequence[Fix]) -> Verified:
    """Whether the audit of the corrected copy passes. The user's own files stay as they are.

    Args:
        args: of the audit.
        fixes: at least one correction.
    """
    changed = applied(fixes)
    installed = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    if any(file.is_relative_to(folder) for file in changed for folder in installed):
        return Verified(None, "patch not verified: not tried, the port's source belongs to an installed package")
    with scratch() as made:
        port, _ = copied(args.port, changed, made)
        return _audited(args, port, made)


def job_of(args: argparse.Namespace, context: Context, mistakes: Sequence[Finding]) -> Job:
    """How candidates of corrections are tried: on the audit's own input, in its smaller shape.

    The variance of the frameworks' own statistics, which differs in every right port, fails none where it is no mistake.
    """
    reference = args.reference
    name, _, maker = reference.rpartition(":")
    if name.endswith(".py"):
        reference = f"{Path(name).resolve()}:{maker}"
    given = arguments("--port-args", args.port_args), arguments("--reference-args", args.reference_args)
    training = args.training is not False and not context.unshared_randomness
    sides = (args.port, dict(given[0])), (reference, dict(given[1]))
    ignored = frozenset(map(str, VARIANCES)) - {str(one.kind) for one in mistakes}
    return Job(*sides, tuple(context.fake_inputs(2, small=True)), training, ignored=ignored)


def _audited(args: argparse.Namespace, port: str, folder: Path) -> Verified:
    """Audit the copy in a process of its own."""
    reference = args.reference
    name, _, maker = reference.rpartition(":")
    if name.endswith(".py"):
        reference = f"{Path(name).resolve()}:{maker}"
    command = [sys.executable, "-c", AUDIT, "audit", "--port", port, "--reference", reference, "--report", str(folder / "r")]
    for flag in HANDED_ON:
        value = getattr(args, flag)
        if value is not None:
            command += [f"--{flag.replace('_', '-')}", title(value) if callable(value) else str(value)]
    command += [] if args.training is not False else ["--eval-only"]
    command += ["--seed", str(args.seed + 1), *(f"--accept={one}" for one in args.accept), *(["--strict"] if args.strict else [])]
    paths = [str(folder), str(Path.cwd()), *(path for path in sys.path if path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode == 0:
        return Verified(True, "patch verified: the corrected copy passes an audit with other weights")
    if done.returncode == 1:
        record = json.loads((folder / "r" / "alignment.json").read_text(encoding="utf-8"))
        return Verified(False, f"patch not verified: the corrected copy still fails: {record['verdict']}")
    why = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return Verified(False, f"patch not verified: the corrected copy cannot be audited: {why}")
