"""Decode every picture of a data set and look for what spoils a training run.

python tools/doctor.py data lite_data --html data.html
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from alignment_doctor.data import checks, manifest, near
from alignment_doctor.data.checks.values import channel_statistics
from alignment_doctor.data.scan import scan
from alignment_doctor.data.sheet import sheet
from alignment_doctor.data.subject import DataSubject, Expected, find_splits
from alignment_doctor.data.subset import write_subset
from alignment_doctor.findings import examine
from alignment_doctor.report import Examination, Section
from mobilenetv3_common.config_file import make_config
from mobilenetv3_common.dataset_index import elsewhere
from mobilenetv3_common.drawing import bars, escape, table
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_config import TrainConfig

LABELS = "data.labels"  # where it finds a problem, the contact sheet comes first
HELP = "decode every picture and look for what spoils a run"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The sub-command's flags."""
    parser.add_argument("data_path", metavar="DIR", help="ImageNet layout or list files")
    parser.add_argument("--config", metavar="FILE", help="a recipe of configs/: its sizes, normalisation and transforms are used")
    parser.add_argument("--framework", choices=("paddle", "ref"), help="whose training transforms the contact sheet shows")
    parser.add_argument("--mean", metavar="R,G,B", help="configured mean of pictures in 0..1 (default: ImageNet's)")
    parser.add_argument("--std", metavar="R,G,B", help="configured standard deviation (default: ImageNet's)")
    default = os.cpu_count() or 1
    parser.add_argument("--processes", type=int, default=default, metavar="N", help=f"decoding processes (default: {default})")
    parser.add_argument("--dask", metavar="ADDRESS", help="scheduler of a Dask cluster that decodes instead of these processes")
    parser.add_argument("--scan", metavar="FILE", help="store the measurements here, so that an interrupted scan can continue")
    parser.add_argument(
        "--near", type=float, default=near.LIMIT, metavar="X",
        help=f"largest relative difference of pictures that count as the same, 0 for equal files only (default: {near.LIMIT})",
    )  # fmt: skip
    parser.add_argument("--write-manifest", metavar="FILE", help="write digest, label and path of every picture here")
    parser.add_argument("--compare-manifest", metavar="FILE", help="compare with a manifest of a correct copy")
    parser.add_argument("--subset", type=int, metavar="N", help="copy N pictures of each split, evenly from all classes")
    parser.add_argument("--subset-dir", metavar="DIR", help="where --subset copies to; a new folder")


def run(flags: argparse.Namespace) -> Examination:
    """Examine a data set.

    Raises:
        UserError: something given cannot be used.
    """
    given = {"framework": flags.framework} if flags.framework else {}
    config = make_config(TrainConfig, flags.config, given)
    expected = _expected(flags, config)
    if (flags.subset is None) != (flags.subset_dir is None):
        raise UserError("--subset N and --subset-dir DIR belong together: give both")
    if flags.processes < 1:
        raise UserError(f"--processes must be at least 1, found {flags.processes}")
    subject = measured(flags.data_path, expected, flags.processes, Path(flags.scan) if flags.scan else None, flags.dask)
    notes = [line for index in subject.indices.values() for line in index.notes()]
    if "val" not in subject.indices and (other := elsewhere(subject.root, "val")):
        notes.append(f"{subject.root} has no val/, so training pictures alone were examined{other}")
    if flags.write_manifest:
        manifest.write(flags.write_manifest, subject)
        notes.append(f"manifest: {flags.write_manifest}")
    if flags.subset is not None:
        notes.append(f"subset: {write_subset(subject, flags.subset, flags.subset_dir)}")
    facts = _facts(subject)
    findings = examine(checks, subject)
    sections = _sections(facts) if flags.html else []
    top: list[Section] = []
    if flags.html and subject.good.any():
        doubtful = any(one.is_problem and one.check.id == LABELS for one in findings)
        (top if doubtful else sections).append(sheet(subject.indices, subject.good, config)[0])
    return Examination("data", str(subject.root), findings, facts, sections, notes, top)


def measured(
    data_path: str, expected: Expected, processes: int = 1, kept: Path | None = None, dask: str | None = None
) -> DataSubject:
    """A data set, every picture of which has been decoded; arguments as of ``scan.scan``.

    Raises:
        UserError: it cannot be indexed.
    """
    indices = find_splits(data_path)
    names = [name for index in indices.values() for name in index.names]
    place = {name: number for number, name in enumerate(dict.fromkeys(names))}
    rows, errors = scan(Path(data_path), list(place), processes, kept, dask)
    if len(place) == len(names):
        return DataSubject(Path(data_path), indices, rows, errors, expected)
    numbers = [place[name] for name in names]
    every = {sample: errors[number] for sample, number in enumerate(numbers) if number in errors}
    return DataSubject(Path(data_path), indices, rows[numbers], every, expected)


def _expected(flags: argparse.Namespace, config: TrainConfig) -> Expected:
    preset = config.train_preset
    expected = Expected(preset.mean, preset.std, config.crop_size if flags.config else None)
    if flags.mean:
        expected = replace(expected, mean=_three(flags.mean, "--mean"))
    if flags.std:
        expected = replace(expected, std=_three(flags.std, "--std"))
        if min(expected.std) <= 0:
            raise UserError(f"--std must be above 0, found {flags.std}")
    if not 0 <= flags.near < 1:
        raise UserError(f"--near must be from 0 to below 1, found {flags.near:g}")
    given = manifest.read(flags.compare_manifest) if flags.compare_manifest else None
    return replace(expected, near=flags.near, manifest=given)


def _three(text: str, flag: str) -> tuple[float, ...]:
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) != 3 or not np.isfinite(values).all():
        raise UserError(f"{flag} must be three numbers such as 0.485,0.456,0.406, found {text!r}")
    return values


def _facts(subject: DataSubject) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "pictures": {split: len(index) for split, index in subject.indices.items()},
        "classes": {split: index.num_classes for split, index in subject.indices.items()},
        "per_class": {
            split: {index.classes[c]: count for c, count in sorted(subject.counts(split).items())}
            for split, index in subject.indices.items()
        },
        "modes": _counted(subject.rows["mode"][subject.good]),
        "formats": _counted(subject.rows["format"][subject.good]),
        "manifest_digest": manifest.digest(subject),
    }
    if subject.good.any():
        mean, std = channel_statistics(subject)
        facts |= {"mean": mean.round(6).tolist(), "std": std.round(6).tolist()}
        sides = [subject.rows[side][subject.good] for side in ("width", "height")]
        sizes = Counter(zip(*(side.tolist() for side in sides), strict=True))
        facts["sizes"] = {f"{width} x {height}": count for (width, height), count in sizes.most_common(100)}
    return facts


def _counted(values: np.ndarray) -> dict[str, int]:
    return {value.decode(): count for value, count in Counter(values.tolist()).most_common()}


def _sections(facts: dict[str, Any]) -> list[Section]:
    rows = [[f"<td>{escape(name)}</td>", f"<td>{escape(facts[name])}</td>"] for name in facts if name not in ("per_class", "sizes")]
    sections = [Section("What was counted", table(("", ""), rows, "Counts"))]
    classes = "".join(
        bars(f"{split}: pictures of each class", list(counts.items())) for split, counts in facts["per_class"].items()
    )
    sections.insert(0, Section("Pictures of each class", classes))
    if "sizes" in facts:
        sizes = [[f"<td>{escape(size)}</td>", f'<td class="n">{count}</td>'] for size, count in list(facts["sizes"].items())[:20]]
        sections.append(Section("Sizes (width x height)", table(("size", "pictures"), sizes, "Sizes")))
    return sections
