"""Classes: their numbers, how many pictures they have, and what is published of known data sets."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from alignment_doctor.data.subject import DataSubject
from alignment_doctor.findings import Outcome, check, found, judged, not_applicable, nothing
from mobilenetv3_common.terminal import printable

IMBALANCE = 10.0
CIFAR10 = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}
# Name -> split -> (pictures in all, fewest and most of a class).
# ILSVRC 2012, Russakovsky et al. 2015, table 2; CIFAR-10, Krizhevsky 2009.
PUBLISHED = {
    "ImageNet-1k": {"train": (1_281_167, 732, 1300), "val": (50_000, 50, 50)},
    "CIFAR-10": {"train": (50_000, 5000, 5000), "val": (10_000, 1000, 1000)},
}


@check(
    "data.class_numbers",
    "002 ds.02",
    "004 data",
    measures="whether a class has the same number in training and in validation",
    fix="give both splits the same class folders, or use list files: class numbers follow the sorted folders of each split",
)
def class_numbers(subject: DataSubject) -> Outcome:
    if len(subject.indices) < 2:
        return not_applicable("there is one split alone")
    train, val = subject.indices["train"].classes, subject.indices["val"].classes
    if train == val:
        return nothing(f"{len(train)} classes, numbered alike")
    numbers = {name: number for number, name in enumerate(train)}
    where = [
        f"{name}: {numbers[name]} in train, {number} in val"
        for number, name in enumerate(val)
        if name in numbers and numbers[name] != number
    ]
    unknown = [f"{name}: in val, not in train" for name in val if name not in numbers]
    if not where and not unknown:
        return nothing(f"{len(val)} of {len(train)} classes are in validation, numbered alike")
    return found(f"{len(where)} classes have another number, {len(unknown)} are not in training", [*where, *unknown])


@check(
    "data.folders",
    "002 ds.02",
    "004 data",
    measures="names of classes that a program left behind, and names that differ in case, spaces and hyphens alone",
    fix="remove what is no class, and put the pictures of one class into one folder: every folder has an output of its own",
)
def folders(subject: DataSubject) -> Outcome:
    where = []
    for split, index in subject.indices.items():
        where += [
            f"{split}: {printable(os.path.basename(path))} is no class"
            for path in index.passed.hidden
            if _is_class_level(subject.root / path, index.source)
        ]
        spelt: dict[str, str] = {}
        for name in index.classes:
            if (first := spelt.setdefault(re.sub(r"[\s_-]+", "", name.casefold()) or name, name)) != name:
                where.append(f"{split}: {printable(first)} and {printable(name)} are one class")
    return judged(where, f"{len(where)} folders are no class", "every class has a name of its own")


def _is_class_level(path: Path, classes: Path) -> bool:
    """Whether what was skipped is a folder beside the class folders; other loaders than this project's make a class of it."""
    return path.parent == classes and path.is_dir()


@check(
    "data.empty_classes",
    "002 ds.03",
    measures="class numbers that have no picture",
    fix="add pictures, or number the classes without gaps: the network has an output that never is right",
)
def empty_classes(subject: DataSubject) -> Outcome:
    where = []
    known = {label for split in subject.indices for label in subject.counts(split)}
    for split, index in subject.indices.items():
        counts = subject.counts(split)
        wanted = set(range(index.num_classes)) | (known if split == "train" else set())
        where += [f"{split}: class {index.classes[c] if c < index.num_classes else c}" for c in sorted(wanted) if not counts[c]]
    return judged(where, f"{len(where)} classes are without a picture", "every class has pictures")


@check(
    "data.imbalance",
    "002 ds.03",
    measures="pictures of each class in training",
    fix="add pictures of the rare classes, sample them more often, or weight the loss",
)
def imbalance(subject: DataSubject) -> Outcome:
    if "train" not in subject.indices:
        return not_applicable("there is no split train")
    index = subject.indices["train"]
    counts = np.array([subject.counts("train")[c] for c in range(index.num_classes)])
    counts = counts[counts > 0]
    ratio = counts.max() / counts.min()
    said = f"{counts.min()} to {counts.max()} pictures a class, {counts.mean():.1f} +- {counts.std():.1f}"
    if ratio < IMBALANCE:
        return nothing(said)
    by_class = subject.counts("train")
    rare = [c for c in sorted(by_class, key=lambda c: by_class[c]) if by_class[c] * IMBALANCE <= counts.max()]
    return found(f"{said}: a factor of {ratio:.0f}", [f"{index.classes[c]}: {by_class[c]} pictures" for c in rare])


@check(
    "data.published",
    "002 ds.04",
    "000 step 2",
    measures="counts of a known data set, recognised by its class names, against the published ones",
    fix="copy the data set again, or compare it with a sound copy by --compare-manifest",
)
def published(subject: DataSubject) -> Outcome:
    name = _known(subject)
    if name is None:
        return not_applicable("the class names are of no data set with published counts (ImageNet-1k, CIFAR-10)")
    where = []
    for split, index in subject.indices.items():
        total, fewest, most = PUBLISHED[name][split]
        if len(index) != total:
            where.append(f"{split}: {len(index)} pictures, published {total}")
        counts = subject.counts(split)
        wanted = str(fewest) if fewest == most else f"{fewest} to {most}"
        for c, class_name in enumerate(index.classes):
            if not fewest <= counts[c] <= most:
                where.append(f"{split}: class {class_name} has {counts[c]} pictures, published {wanted}")
    return judged(where, f"not the counts of {name}", f"the counts of {name}")


def _known(subject: DataSubject) -> str | None:
    classes = set().union(*(index.classes for index in subject.indices.values()))
    if classes == CIFAR10:
        return "CIFAR-10"
    if len(classes) >= 990 and all(re.fullmatch(r"n\d{8}", name) for name in classes):
        return "ImageNet-1k"
    return None
