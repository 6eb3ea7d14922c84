"""A run that is compared with a finished one while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from alignment_doctor.compare import checks
from alignment_doctor.compare.logs import RunLog, read_run
from alignment_doctor.compare.subject import RunsSubject
from alignment_doctor.findings import Finding, examine
from mobilenetv3_common.errors import UserError


def follow(
    subject_of: Callable[[RunLog], RunsSubject], path: str | Path, pattern: str | None, interval: float, patience: float
) -> tuple[RunsSubject, Sequence[Finding], str]:
    """Compare again after each new line, until a problem shows, the trusted run's last update is reached, or no line comes.

    Args:
        subject_of: the trusted run beside the live one.
        path: of the live run: a folder or a log, which may not be there yet.
        pattern: of its log, where it is of another form.
        interval: seconds between two looks.
        patience: seconds without a new line after which the run is taken as ended.

    Returns:
        What was compared last, the outcomes, and why it ended.

    Raises:
        UserError: the log cannot be used, or is not there within ``patience``.
    """
    last, since = (-1, -1), time.monotonic()
    while True:
        live = _read(path, pattern, patience - (time.monotonic() - since))
        if live is not None and (now := (len(live.entries), len(live.evaluations))) != last:
            last, since = now, time.monotonic()
            subject = subject_of(live)
            findings = examine(checks, subject)
            at = live.entries[-1].update if live.entries else 0
            if any(one.is_problem for one in findings):
                return subject, findings, f"followed to update {at}, where a problem showed"
            if _is_over(subject):
                return subject, findings, f"followed to update {at}, the last one of {subject.first.path}"
        if live is not None and time.monotonic() - since > patience:
            return subject, findings, f"followed to update {at}; no new line came for {patience:g} s"
        time.sleep(interval)


def _read(path: str | Path, pattern: str | None, left: float) -> RunLog | None:
    """The live run's whole lines; None while it has none and there is time left."""
    try:
        return read_run(path, pattern, growing=True)
    except UserError:
        if left <= 0:
            raise
        return None


def _is_over(subject: RunsSubject) -> bool:
    """Whether the live run has everything that the trusted one has."""
    one, two = subject.first, subject.second
    updates = not one.entries or (bool(two.entries) and two.entries[-1].update >= one.entries[-1].update)
    epochs = not one.evaluations or (bool(two.evaluations) and two.evaluations[-1].epoch >= one.evaluations[-1].epoch)
    return updates and epochs
