"""Show what a watched run told: the events of tools/train.py --watch, or of a Watch in anyone's loop.

python tools/doctor.py watch output/lite
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from alignment_doctor.findings import Check, Finding, Outcome, Verdict, checks_of, found, not_applicable
from alignment_doctor.report import Examination
from alignment_doctor.watch import checks
from alignment_doctor.watch.journal import Event, entries
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_log import EVENTS

HELP = "what a watched run told: events with update, tensors, rank, cause and fix"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The sub-command's flags."""
    parser.add_argument("watched", metavar="RUN", help=f"a run's folder with {EVENTS}, or such a file; the run may still go on")


def run(flags: argparse.Namespace) -> Examination:
    """Examine a run's events.

    Raises:
        UserError: the run was not watched, or its file cannot be read.
    """
    path = Path(flags.watched) / EVENTS if Path(flags.watched).is_dir() else Path(flags.watched)
    findings, events, last = findings_of(path)
    return Examination(
        "watch", flags.watched, findings, {"events": [vars(event) for event in events]}, (), [f"seen up to update {last}"]
    )


def findings_of(path: Path) -> tuple[list[Finding], list[Event], int]:
    """What a run's file of events says: findings, events and the last update that was seen.

    Raises:
        UserError: the run was not watched, or its file cannot be read.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; train with --watch, or give the journal of a Watch")
    told = entries(path)
    if not told:
        raise UserError(f"{path} is empty: the run has made no update yet")
    events = [event_of(entry, path) for entry in told if entry["kind"] == "event"]
    states: Any = next((entry["checks"] for entry in reversed(told) if entry["kind"] == "checks"), {})
    own = checks_of(checks)
    others = {event.check: event for event in events if event.check not in {check.id for check in own}}  # of another version
    own += [
        Check(event.check, (), "an event of another version of the doctor", event.fix, _of_another_version)
        for event in others.values()
    ]
    findings = [Finding(check, _outcome(check.id, events, states, path)) for check in own]
    return findings, events, max(entry["update"] for entry in told)


def _of_another_version(_seen: Any) -> Outcome:
    return not_applicable("this version cannot look for it")


def event_of(entry: dict[str, Any], path: Path) -> Event:
    """An entry of a journal as an event.

    Raises:
        UserError: it lacks something.
    """
    values = {name: value for name, value in entry.items() if name != "kind"}
    try:
        texts = {name: str(values[name]) for name in ("check", "cause", "fix")}
        event = Event(**{**values, **texts, "where": tuple(map(str, values["where"]))})
    except (TypeError, KeyError) as error:
        raise UserError(f"{path} has an event that cannot be read ({error}): give what --watch wrote") from error
    return event


def _outcome(id: str, events: list[Event], states: Any, path: Path) -> Outcome:
    own = [event for event in events if event.check == id]
    if own:
        where = [f"update {one.update}, rank {one.rank}: {place}" for one in own for place in one.where or (one.cause,)]
        return found(own[0].cause, where)
    try:
        verdict, measured = states.get(id, (Verdict.NOT_APPLICABLE.value, "not looked at yet"))
        return Outcome(Verdict(verdict), str(measured))
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{path} has verdicts that cannot be read ({error}): give what --watch wrote") from error
