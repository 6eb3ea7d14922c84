"""``python -m bench real``: audits of real bugs, broken and fixed."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench.flags import real_parser
from bench.real import audited, scored
from bench.real.cases import Case, load_cases, versions
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open, ensure_writable_dir


def real(argv: Sequence[str]) -> int:
    """Run the cases; 0 where all are detected and no fixed version fails, 1 otherwise.

    Raises:
        UserError: there is no such case, or the results cannot be written.
    """
    args = real_parser().parse_args(argv)
    half = {"held_out": True, "open": False}
    cases = load_cases(args.only, half["held_out"] if args.held_out else half["open"] if args.open else None)
    if not cases:
        raise UserError("no case is left: --only names cases of the other half")
    if args.list:
        print("\n".join(f"{case.id:30} {case.date} {'held out' if case.held_out else 'open':8} {case.link}" for case in cases))
        return 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads do not survive a fork
    if args.check:
        return _checked(cases)
    ensure_writable_dir(args.result_dir)
    log = args.result_dir / "real.jsonl"
    found = read(log, cases) if args.resume else {}
    if not args.resume:
        log.write_text("", encoding="utf-8")
    missing = [case for case in cases if case.id not in found]
    if missing:
        audited.warm()
    for number, case in enumerate(missing, len(found) + 1):
        found[case.id] = one(case)
        with log.open("a", encoding="utf-8") as out:
            out.write(json.dumps(asdict(found[case.id]) | {"pair": case.digest}) + "\n")
        print(f"{number:3}/{len(cases)} {line(found[case.id])}", flush=True)
    outcomes = [found[case.id] for case in cases]
    text = f"{scored.summary(outcomes)}\n\n{scored.table(cases, outcomes)}\n"
    with atomic_open(args.result_dir / "real.md", "w") as out:
        out.write(text)
    print(f"\n{scored.summary(outcomes)}\nresults: {args.result_dir / 'real.md'}, real.jsonl")
    return 0 if all(o.detected and o.silent for o in outcomes) else 1


def one(case: Case) -> scored.Outcome:
    """Audit both versions of a case, and compare the outputs plainly."""
    broken, fixed, wrong = versions(case.marked)
    with tempfile.TemporaryDirectory() as folder:
        audits = [audited.audit(source, Path(folder) / name) for name, source in (("broken", broken), ("fixed", fixed))]
    return scored.outcome(case, wrong, audits[0], audits[1], _plain(case, broken))


def line(o: scored.Outcome) -> str:
    """An outcome as a line."""
    if not o.detected:
        return f"{o.id}: NOT DETECTED: {o.verdicts[0]}"
    alarm = "" if o.silent else f" ALARM on the fixed version: {o.alarm}"
    return f"{o.id}: located {o.located or 'no'}, named {o.named or 'no'}: {o.first}{alarm} ({o.seconds:.0f} s)"


def read(log: Path, cases: Sequence[Case]) -> dict[str, scored.Outcome]:
    """The outcomes of an earlier run of these cases; lines that were cut off, or are of another pair or version, are left out."""
    digests = {case.id: case.digest for case in cases}
    found = {}
    for text in log.read_text(encoding="utf-8").splitlines() if log.exists() else []:
        with contextlib.suppress(json.JSONDecodeError, TypeError, KeyError, AttributeError):
            entry = json.loads(text)
            if entry.pop("pair") == digests[entry["id"]]:
                found[entry["id"]] = scored.Outcome(**entry | {"verdicts": tuple(entry["verdicts"])})
    return found


def _plain(case: Case, broken: str) -> bool:
    """The plain comparison in a child: what it computes must not run before the next fork."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            from bench.real.check import plain

            os.write(writing, b"1" if plain(case, broken) else b"0")
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as out:
        answer = out.read()
    os.waitpid(pid, 0)
    if not answer:
        raise RuntimeError(f"{case.id}: the plain comparison failed")
    return answer == b"1"


def _checked(cases: Sequence[Case]) -> int:
    """Hold the pairs to what they say, without the engine."""
    from bench.real.check import check

    wrong = 0
    for case in cases:
        problems = check(case)
        wrong += bool(problems)
        print(f"{case.id}: {'; '.join(problems) or 'the fixed version equals the reference, the broken one does not'}", flush=True)
    print(f"{len(cases) - wrong} of {len(cases)} pairs are as they say")
    return 1 if wrong else 0
