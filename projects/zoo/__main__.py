"""``python -m projects.zoo``: every pair as it is, and with its known differences mended; a table of what was found."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mobilenetv3_common.config_file import Parser
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.files import atomic_open, ensure_writable_dir
from projects.zoo import paddleclas
from projects.zoo.backbones import BACKBONES
from projects.zoo.pairs import PAIRS

RESULT = Path("result/zoo")


def parser() -> argparse.ArgumentParser:
    """The flags."""
    p = Parser(
        prog="python -m projects.zoo",
        description="Audit other people's ports. Exit status: 0 every difference is a known one, 1 something is unexplained, "
        "2 the input cannot be used.",
    )
    p.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"pairs (default: all of paddle.vision, the first {len(PAIRS)}): {', '.join([*PAIRS, *BACKBONES])}",
    )
    p.add_argument("--backbones", action="store_true", help="all of PaddleClas, in place of all of paddle.vision")
    p.add_argument("--paddleclas", type=Path, metavar="DIR", help="a clone of PaddleClas (default: the package that pip installed)")
    p.add_argument("--result-dir", type=Path, default=RESULT, metavar="DIR", help=f"where results go (default: {RESULT})")
    p.add_argument("--resume", action="store_true", help="keep the results that the folder has")
    p.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # in this process, of the one pair
    return p


@exit_on_user_error
def main(argv: Sequence[str] | None = None) -> int:
    """Audit the pairs, each in a process of its own, and write the table."""
    args = parser().parse_args(argv)
    for name in args.names:
        if name not in PAIRS and name not in BACKBONES:
            raise UserError(f"unknown pair {name!r}: use one of {', '.join([*PAIRS, *BACKBONES])}")
    names = args.names or list(BACKBONES if args.backbones else PAIRS)
    found = None
    if any(name in BACKBONES for name in names):
        found = paddleclas.find(args.paddleclas)
        paddleclas.check_timm()
    ensure_writable_dir(args.result_dir)
    if args.here:
        from projects.zoo import examine

        if found is not None:
            paddleclas.make_importable(found)
        name = names[0]
        row = (
            examine.examined_backbone(BACKBONES[name], args.result_dir) if found else examine.examined(PAIRS[name], args.result_dir)
        )
        with atomic_open(args.result_dir / f"{name}.json", "w") as file:
            json.dump(row, file, indent=1)
        return 0
    rows = []
    for name in names:
        file = args.result_dir / f"{name}.json"
        if not (args.resume and file.is_file()):
            file.unlink(missing_ok=True)
            command = [sys.executable, "-W", "ignore", "-m", "projects.zoo", name, "--here", "--result-dir", str(args.result_dir)]
            command += ["--paddleclas", str(found)] if name in BACKBONES else []
            with open(args.result_dir / f"{name}.log", "w", encoding="utf-8") as log:
                status = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
            if not file.is_file():
                rows.append({"name": name, "verdict": f"not run: exit status {status}, see {name}.log", "explained": False})
                print(f"{name}: {rows[-1]['verdict']}", flush=True)
                continue
        rows.append(json.loads(file.read_text(encoding="utf-8")))
        print(f"{name}: {rows[-1]['verdict']}", flush=True)
    with atomic_open(args.result_dir / "table.md", "w") as out:
        out.write(table(rows))
    print(f"table: {args.result_dir / 'table.md'}")
    return 0 if all(row["explained"] for row in rows) else 1


def table(rows: Sequence[dict]) -> str:
    """The rows as Markdown."""
    titles = ("pair", "input", "as it is: evaluation, gradients", "known differences", "mended: both modes, gradients")
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for row in rows:
        if "as_it_is" not in row:
            lines.append(f"| {row['name']} | - | {row['verdict']} | - | - |")
            continue
        cells = (row["name"], row["shape"], row["as_it_is"], ", ".join(row["differences"]) or "none", row["mended"])
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
