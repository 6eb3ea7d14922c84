"""``python -m projects.zoo.public``: audit every public pair, and say whether what is found is what is known."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mobilenetv3_common.config_file import Parser
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.files import atomic_open, ensure_writable_dir
from projects.zoo.public.judge import row, table
from projects.zoo.public.pair import PublicPair
from projects.zoo.public.pairs import PAIRS
from projects.zoo.public.repository import check_reference

RESULT = Path("result/zoo-public")


def parser() -> argparse.ArgumentParser:
    """The flags."""
    p = Parser(
        prog="python -m projects.zoo.public",
        description="Audit ports of public repositories. Exit status: 0 what is found is what is known, 1 it is not, "
        "2 the input cannot be used.",
    )
    p.add_argument("names", nargs="*", metavar="NAME", help=f"pairs (default: all): {', '.join(PAIRS)}")
    p.add_argument("--checkouts", type=Path, metavar="DIR", help="a folder with a check-out of each repository, by its name")
    p.add_argument("--budget", type=float, default=200, metavar="SECONDS", help="how long mistakes of one pair are searched for")
    p.add_argument("--result-dir", type=Path, default=RESULT, metavar="DIR", help="where results go")
    p.add_argument("--resume", action="store_true", help="keep the verdicts that the folder has")
    return p


@exit_on_user_error
def main(argv: Sequence[str] | None = None) -> int:
    """Audit the pairs, each in a process of its own, and write the table."""
    args = parser().parse_args(argv)
    for name in args.names:
        if name not in PAIRS:
            raise UserError(f"unknown pair {name!r}: use one of {', '.join(PAIRS)}")
    pairs = [PAIRS[name] for name in args.names or PAIRS]
    folders = [pair.repository.found(args.checkouts) for pair in pairs]
    for pair, folder in zip(pairs, folders, strict=True):
        check_reference(pair.package)
        for difference in pair.known:
            difference.line(folder)
    ensure_writable_dir(args.result_dir)
    rows = []
    for pair, folder in zip(pairs, folders, strict=True):
        rows.append(row(pair, _record(pair, args), folder))
        print(f"{pair.name}: agreement {rows[-1]['agreement']}; {rows[-1]['what the audit said']}", flush=True)
    with atomic_open(args.result_dir / "table.md", "w") as out:
        out.write(table(rows))
    print(f"table: {args.result_dir / 'table.md'}")
    return 0 if all(one["agreement"] == "yes" for one in rows) else 1


def _record(pair: PublicPair, args: argparse.Namespace) -> dict[str, Any]:
    """What the audit of a pair found, kept in a file."""
    file = args.result_dir / f"{pair.name}.json"
    if args.resume and file.is_file():
        kept = json.loads(file.read_text(encoding="utf-8"))
        if not kept["failed"]:
            return kept
    report = args.result_dir / pair.name
    ensure_writable_dir(report)
    start = time.perf_counter()
    with open(report / "audit.log", "w", encoding="utf-8") as log:
        status = subprocess.run(command(pair, args.checkouts, args.budget, report), stdout=log, stderr=log, check=False).returncode
    record = {"failed": "", "verdict": "", "mistakes": [], "seconds": time.perf_counter() - start}
    if status in (0, 1):
        said = json.loads((report / "alignment.json").read_text(encoding="utf-8"))
        record |= {"verdict": said["verdict"], "mistakes": said["mistakes"]}
    else:
        last = (report / "audit.log").read_text(encoding="utf-8").strip().rpartition("\n")[2]
        record["failed"] = f"exit status {status}: {last}"
    with atomic_open(file, "w") as out:
        json.dump(record, out, indent=1)
    return record


def command(pair: PublicPair, checkouts: Path | None, budget: float, report: Path) -> list[str]:
    """The command that audits a pair, as anybody may give it."""
    port_args = json.dumps({"checkouts": str(checkouts.resolve())} if checkouts else {})
    of = {name: f"{made.__module__}:{made.__name__}" for name, made in vars(pair).items() if callable(made)}
    made = ["--port", of["port"], "--port-args", port_args, "--reference", of["reference"], "--input", of["inputs"]]
    return [sys.executable, "-W", "ignore", "-m", "alignment", "audit", *made, "--budget", f"{budget:g}", "--report", str(report)]


if __name__ == "__main__":
    sys.exit(main())
