"""Executes the notebooks of docs/notebooks and stores what they print and show.

    python scripts/run_notebooks.py [--check] [NOTEBOOK ...]

Each runs in a process of its own, in its own folder, as a notebook's server runs it: the value of a cell's last line is shown, as
HTML or a picture where it has one. --check executes, compares with what is stored, and writes nothing; numbers may differ.
Exit status: 0; 1 where a cell raises or, with --check, something else is shown; 2 where a file cannot be used.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from mobilenetv3_common.errors import UserError, exit_on_user_error  # noqa: E402
from mobilenetv3_common.files import atomic_open  # noqa: E402

NOTEBOOKS = ROOT / "docs" / "notebooks"
FORMS = (("text/html", "_repr_html_"), ("image/png", "_repr_png_"))


def outputs_of(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Run a cell; returns its outputs as the notebook's format has them.

    Args:
        source: of the cell.
        names: of all cells, which it changes.
        count: of cells that were run, from 1.
    """
    tree, said, value = ast.parse(source), io.StringIO(), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(said):
        exec(compile(tree, f"<cell {count}>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"<cell {count}>", "eval"), names)
    made: list[dict[str, Any]] = []
    if said.getvalue():
        made.append({"name": "stdout", "output_type": "stream", "text": said.getvalue().splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        for form, method in FORMS:
            shown = getattr(value, method, lambda: None)()
            if shown is not None:
                data[form] = base64.b64encode(shown).decode() if isinstance(shown, bytes) else shown.splitlines(keepends=True)
        made.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return made


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of a run; stops at a cell that raises, which its outputs then say."""
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        count += 1
        cell["execution_count"] = count
        cell["outputs"] = outputs_of("".join(cell["source"]), names, count)
    return notebook


def read(path: Path) -> dict[str, Any]:
    """A notebook.

    Raises:
        UserError: it is none.
    """
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        cells = notebook["cells"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{path} is no notebook: {error}") from error
    if notebook.get("nbformat") != 4 or not isinstance(cells, list):
        raise UserError(f"{path} is no notebook of format 4")
    return notebook


def shown(notebook: dict[str, Any]) -> list[str]:
    """What the outputs say, without figures: what must be the same on every machine; pictures count by their presence."""
    lines: list[str] = []
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            text = "".join(output.get("text", []) or data.get("text/html", []) or data.get("text/plain", []))
            words = re.sub(r"#+", "#", re.sub(r"\d[\d.,]*(?:e[+-]?\d+)?", "#", text))
            lines += [" ".join(line.replace("-", "").split()) for line in words.splitlines()]
            lines += ["picture"] if "image/png" in data else []
    return [line for line in lines if line]


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="NOTEBOOK", help="(default: all of docs/notebooks)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a notebook shows something else")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    paths = [path.resolve() for path in args.notebooks] or sorted(NOTEBOOKS.glob("*.ipynb"))
    if args.inside:
        return _inside(paths[0])
    status = 0
    for path in paths:
        before = read(path)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
        command = [sys.executable, __file__, "--inside", str(path)]
        done = subprocess.run(command, cwd=path.parent, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{path.name}: a cell raises\n{done.stderr}", file=sys.stderr)
            status = 1
            continue
        made = json.loads(done.stdout.rpartition("\n---\n")[2])
        if args.check and shown(made) != shown(before):
            changed = [line for line in shown(made) if line not in shown(before)] or ["(fewer lines)"]
            print(f"{path.name} shows something else today: {changed[0]}", file=sys.stderr)
            status = 1
        if not args.check:
            with atomic_open(path, "w") as file:
                json.dump(made, file, indent=1, ensure_ascii=False)
                file.write("\n")
        print(f"{path.name}: {sum(cell['cell_type'] == 'code' for cell in made['cells'])} cells")
    return status


def _inside(path: Path) -> int:
    """Execute a notebook in this process, whose folder is the notebook's, and print it."""
    warnings.simplefilter("ignore")
    sys.path[0] = str(path.parent)
    try:
        made = executed(read(path))
    except Exception:  # noqa: BLE001 - whatever a cell raises is told
        traceback.print_exc()
        return 1
    print(f"\n---\n{json.dumps(made)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
