"""What somebody who is to help needs, as one zip: outcomes, config, versions, logs, and the smallest data that shows it."""

from __future__ import annotations

import itertools
import json
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from alignment.report.environment import commit, machine, versions
from alignment_doctor.check.subject import RunSubject
from alignment_doctor.report import Examination, as_json, page, text
from mobilenetv3_common.checkpoint import CONFIG, OTHER_CONFIG
from mobilenetv3_common.class_list import text_of
from mobilenetv3_common.config_file import recipe_text
from mobilenetv3_common.dataset_index import CLASSES_FILE, SPLITS, DatasetIndex
from mobilenetv3_common.errors import UserError, shown
from mobilenetv3_common.files import atomic_open
from mobilenetv3_common.image import read_picture
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.train_log import EVENTS, JSON_LINES, TABLES, TEXT_LOG

BATCHES = (1, 4)  # updates whose pictures are tried, the fewest first
EVALUATED = 16  # pictures of evaluation
LONGEST_LOG = 20_000_000  # bytes, of whose end a log's copy consists
HEAVIEST = 200_000_000  # bytes of weights
README = """{verdict}

report.txt, report.html, report.json   what every check said
config.yaml                            every setting of the run
environment.json                       versions and machine
logs/                                  of the run, where --run gave one
data/                                  {pictures}

Unpack it and repeat the examination:

    python tools/doctor.py check --config config.yaml --data-path data

{shows}
"""


def write_bundle(
    path: Path, examination: Examination, subject: RunSubject, run: str | None, again: Callable[[TrainConfig], set[str]]
) -> str:
    """Write the bundle.

    Args:
        path: of the zip.
        examination: of the run.
        subject: of it.
        run: folder of a run that was made; None where there is none.
        again: examines a run and gives the ids of the problems, so that it is known whether the small data show them.

    Returns:
        What was written, in one line.

    Raises:
        UserError: a picture cannot be read, or the zip cannot be written.
    """
    meant = {one.check.id for one in examination.problems}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        config, held = _start(replace(subject.config, workers=subject.workers), folder), []
        for count in BATCHES:
            held = _pictures(subject, count, folder / "data")
            seen = again(replace(config, data_path=str(folder / "data"), **_inside(config, folder)))
            if meant <= seen:
                break
        shows = _said(meant, seen)
        pictures = f"{held[0]} training and {held[1]} validation pictures, list files and classes"
        (folder / "config.yaml").write_text(recipe_text(replace(config, data_path="data"), "Of the run that was examined."))
        told = {"versions": versions(), "machine": machine(), "commit": commit(Path(__file__).parent)}
        (folder / "environment.json").write_text(json.dumps(told, indent=1))
        (folder / "report.txt").write_text(shown(text(examination)) + "\n")
        (folder / "report.html").write_text(shown(page(examination)))
        (folder / "report.json").write_text(json.dumps(as_json(examination), indent=1))
        (folder / "README.txt").write_text(shown(README.format(verdict=examination.verdict(), pictures=pictures, shows=shows)))
        _logs(run, folder / "logs")
        with atomic_open(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
            for one in sorted(folder.rglob("*")):
                zipped.write(one, one.relative_to(folder))
    return f"{path}: {pictures}; {shows}"


def _said(meant: set[str], seen: set[str]) -> str:
    if not meant:
        return "No problem was found."
    lost = sorted(meant - seen)
    if not lost:
        return "Every problem that was found shows on these pictures, too."
    return f"On these pictures alone {', '.join(lost)} does not show."


def _pictures(subject: RunSubject, updates: int, target: Path) -> list[int]:
    """Copy the pictures of the first updates and some of evaluation; returns how many of each."""
    run, config = subject.run, subject.config
    run.plan.set_epoch(0)
    first = [key.sample for keys in itertools.islice(run.plan, updates * config.accumulate) for key in keys]
    chosen = (sorted(set(first)), list(range(min(EVALUATED, len(run.val_index)))))
    for split, index, samples in zip(SPLITS, (run.train_index, run.val_index), chosen, strict=True):
        lines = [f"{_copied(index, sample, split, target)} {index.labels[sample]}\n" for sample in samples]
        (target / f"{split}_list.txt").write_text("".join(lines), encoding="utf-8")
    (target / CLASSES_FILE).write_text(text_of(run.train_index.classes), encoding="utf-8")
    return [len(samples) for samples in chosen]


def _copied(index: DatasetIndex, sample: int, split: str, target: Path) -> str:
    """Copy a picture under a name that any system can hold; returns it."""
    name = f"{split}/{sample}{Path(index.names[sample]).suffix.lower()}"
    (target / split).mkdir(parents=True, exist_ok=True)
    (target / name).write_bytes(read_picture(index.path(sample)))
    return name


def _start(config: TrainConfig, folder: Path) -> TrainConfig:
    """The config with its weights beside it, where they are files that are not too large."""
    changed: dict[str, Any] = {}
    for key in ("pretrained", "teacher"):
        file = Path(getattr(config, key) or "")
        if file.is_file() and file.stat().st_size <= HEAVIEST:
            (folder / "weights").mkdir(exist_ok=True)
            changed[key] = f"weights/{key}{file.suffix}"
            (folder / changed[key]).write_bytes(file.read_bytes())
    return replace(config, resume=None, val_share=None, picture_cache=None, output_dir="output", **changed)


def _inside(config: TrainConfig, folder: Path) -> dict[str, Any]:
    given = {key: getattr(config, key) for key in ("pretrained", "teacher")}
    return {key: str(folder / value) for key, value in given.items() if value and value.startswith("weights/")}


def _logs(run: str | None, target: Path) -> None:
    names: Sequence[str] = (JSON_LINES, TEXT_LOG, EVENTS, CONFIG, OTHER_CONFIG, *TABLES)
    for name in names if run is not None else ():
        source = Path(str(run)) / name
        if not source.is_file():
            continue
        target.mkdir(exist_ok=True)
        try:
            (target / name).write_bytes(source.read_bytes()[-LONGEST_LOG:])
        except OSError as error:
            raise UserError(f"cannot read {source}: {error.strerror}") from error
