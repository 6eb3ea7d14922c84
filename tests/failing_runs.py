"""What docs/checks shows of failing runs: each page names the test that plants its problem, and shows what the doctor says there.

python -m tests.failing_runs [--write] [ID ...]: runs these tests, and compares the pages with what is said, or writes it there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.conftest import ROOT
from tests.documents import without_figures
from tests.recorder import FOLDER

PAGES = ROOT / "docs" / "checks"
PLANTED = re.compile(r"`(tests/test_\w+\.py::\w+(?:\[[^`]+\])?)`")
BLOCK = re.compile(r"^```text\n(.*?)^```$", re.M | re.S)


def pages() -> dict[str, tuple[Path, Path]]:
    """Check -> its page in English and in Chinese."""
    return {page.stem: (page, PAGES / "zh" / page.name) for page in sorted(PAGES.glob("*.md"))}


def planted(page: Path) -> str:
    """The test that a page names."""
    (test,) = PLANTED.findall(page.read_text(encoding="utf-8"))
    return str(test)


def shown(page: Path) -> str:
    """What a page shows."""
    (block,) = BLOCK.findall(page.read_text(encoding="utf-8"))
    return str(block)


def said(tests: list[str]) -> dict[tuple[str, str], str]:
    """Test and check -> what is said there first; an event in place of the finding that it comes from.

    Raises:
        RuntimeError: a test does not pass.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "", "-p", "tests.recorder", *tests],
            cwd=ROOT, env={**os.environ, FOLDER: folder}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if run.returncode:
            raise RuntimeError(run.stdout[-3000:] + run.stderr[-1000:])
        lines = [json.loads(line) for file in sorted(Path(folder).iterdir()) for line in file.read_text("utf-8").splitlines()]
    lines.sort(key=lambda line: not line[2].startswith("[watch "))
    kept: dict[tuple[str, str], str] = {}
    for test, check, text in lines:
        kept.setdefault((test, check), text + "\n")
    return kept


def same(one: str, other: str) -> bool:
    """But for numbers, which are the processor's."""
    return without_figures(one) == without_figures(other)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("checks", nargs="*", metavar="ID")
    flags = parser.parse_args()
    chosen = {check: both for check, both in pages().items() if not flags.checks or check in flags.checks}
    told = said(sorted({planted(page) for page, _ in chosen.values()}))
    wrong = 0
    for check, both in chosen.items():
        for page in both:
            text = told.get((planted(page), check))
            if text is None:
                print(f"{page.name}: {planted(page)} does not make {check} find a problem")
            elif flags.write:
                page.write_text(BLOCK.sub(lambda _, text=text: f"```text\n{text}```", page.read_text("utf-8")), "utf-8")
            elif not same(shown(page), text):
                print(f"{page.name} shows\n{shown(page)}and the doctor says\n{text}")
            else:
                continue
            wrong += text is None or not flags.write
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
