"""Keeps what the doctor says in a process of the tests, for the pages of docs/checks (failing_runs.py). A plugin of pytest."""

from __future__ import annotations

import functools
import json
import os
import re
from pathlib import Path
from typing import Any

from alignment_doctor import findings, report
from alignment_doctor.watch import journal

FOLDER = "FAILING_RUNS"  # the variable with the folder to keep it in; without it nothing is kept
OF_THIS_MACHINE = re.compile(r"/\S*?/(?:pytest-\d+|tmp\w+)/(?:\w+/)?")


def pytest_configure() -> None:
    record()


@functools.cache
def record() -> None:
    """Keep every problem that is found in this process, where the variable asks for it."""
    if FOLDER not in os.environ:
        return
    find, tell = findings.Finding.__init__, journal.Event.__init__

    def found(self: findings.Finding, *given: Any, **named: Any) -> None:
        find(self, *given, **named)
        if self.is_problem:
            _keep(self.check.id, "\n".join(report.problem(self)))

    def told(self: journal.Event, *given: Any, **named: Any) -> None:
        tell(self, *given, **named)
        _keep(self.check, self.line())

    findings.Finding.__init__, journal.Event.__init__ = found, told  # type: ignore[method-assign]


def _keep(check: str, text: str) -> None:
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    with open(Path(os.environ[FOLDER]) / f"{os.getpid()}.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps([test, check, OF_THIS_MACHINE.sub("", text)]) + "\n")
