"""Pictures that are broken, empty, or stored in another way than training expects."""

from __future__ import annotations

from collections import Counter

import numpy as np

from alignment_doctor.data.measure import DAMAGED, DEEP_MODES, NOT_A_PICTURE, UNREADABLE
from alignment_doctor.data.subject import DataSubject, places
from alignment_doctor.findings import Outcome, check, found, judged, not_applicable, nothing
from mobilenetv3_common.terminal import printable

EMPTY_CONTRAST = 0.5  # levels of 255: standard deviation of every channel
SAME_SIZE = 0.95  # share of pictures that make a size the data set's own
ASPECT = 8.0
TURNED = 0.001  # share of the pictures; published data sets have a few


def _broken(subject: DataSubject, *states: int) -> list[str]:
    return [
        f"{printable(subject.names[sample])} {subject.errors[sample]}" for sample in places(np.isin(subject.rows["state"], states))
    ]


@check(
    "data.unreadable",
    "002 ds.01",
    "001 data 5",
    measures="files that cannot be read or are no pictures",
    fix="remove the file or replace it; training with --on-bad-image skip puts another picture in its place",
)
def unreadable(subject: DataSubject) -> Outcome:
    where = _broken(subject, UNREADABLE, NOT_A_PICTURE)
    return judged(where, f"{len(where)} of {len(subject.rows)} files", f"{len(subject.rows)} files are pictures")


@check(
    "data.truncated",
    "002 ds.01",
    "001 data 5",
    measures="pictures that are damaged or cut short",
    fix="copy the file again from its source, or remove it",
)
def truncated(subject: DataSubject) -> Outcome:
    where = _broken(subject, DAMAGED)
    return judged(where, f"{len(where)} of {len(subject.rows)} pictures", f"{int(subject.good.sum())} pictures decode to the end")


@check(
    "data.constant",
    "002 ds.01",
    measures="pictures with one colour everywhere",
    fix="remove the picture: it tells nothing of its class, and is often what a failed download or mask left",
)
def constant(subject: DataSubject) -> Outcome:
    flat = subject.good & (subject.rows["std"].max(1) < EMPTY_CONTRAST)
    where = [subject.shown(sample) for sample in places(flat)]
    return judged(where, f"{len(where)} of {len(subject.rows)} pictures", "every picture has some contrast")


@check(
    "data.not_finite",
    "002 ds.01",
    measures="NaN and infinity in floating-point pictures",
    fix="replace the missing values before training: decoding to 8 bits turns them into arbitrary levels without a word",
)
def not_finite(subject: DataSubject) -> Outcome:
    floating = int(np.isin(subject.rows["mode"], [b"F"]).sum())
    if not floating:
        return not_applicable("no picture is stored in floating point")
    where = [subject.shown(sample) for sample in places(~subject.rows["finite"])]
    return judged(where, f"{len(where)} of {floating} floating-point pictures", f"{floating} floating-point pictures are finite")


@check(
    "data.depth",
    "002 dp.01",
    "004 data",
    measures="pictures with more than 8 bits a channel, which decoding to RGB clips and does not scale",
    fix="convert the picture to 8 bits beforehand, scaled by its own range",
)
def depth(subject: DataSubject) -> Outcome:
    deep = subject.good & np.isin(subject.rows["mode"], [mode.encode() for mode in DEEP_MODES])
    where = [f"{subject.shown(sample)} (mode {subject.rows['mode'][sample].decode()})" for sample in places(deep)]
    return judged(where, f"{len(where)} of {len(subject.rows)} pictures", "every picture has 8 bits a channel")


@check(
    "data.orientation",
    "002 dp.02",
    "004 data",
    measures="pictures that a camera's tag (EXIF) turns: training reads them lying, prediction and viewers upright",
    fix="turn the pixels as the tag says and remove it (Pillow's ImageOps.exif_transpose), in training and validation alike",
)
def turned(subject: DataSubject) -> Outcome:
    if not subject.good.any():
        return not_applicable("no picture can be decoded")
    where = [subject.shown(sample) for sample in places(subject.good & subject.rows["turned"])]
    said = f"{len(where)} of {int(subject.good.sum())} pictures"
    if len(where) < TURNED * subject.good.sum():
        return nothing(f"{said}, too few to matter" if where else "no tag turns a picture")
    return found(said, where) if where else nothing("no tag turns a picture")


@check(
    "data.size",
    "002 dp.04",
    "004 data",
    measures="pictures whose size is not that of nearly all others, very long ones, and ones far below the crop",
    fix="look at the picture: thumbnails, banners and wrong exports differ in size; remove or export it again",
)
def size(subject: DataSubject) -> Outcome:
    rows, good = subject.rows, subject.good
    if not good.any():
        return not_applicable("no picture can be decoded")
    sizes = Counter(zip(rows["width"][good].tolist(), rows["height"][good].tolist(), strict=True))
    (width, height), most = sizes.most_common(1)[0]
    where = []
    if most >= SAME_SIZE * good.sum() and len(sizes) > 1:
        other = good & ((rows["width"] != width) | (rows["height"] != height))
        where += [f"{_size(subject, sample)}, the others {width} x {height}" for sample in places(other)]
    sides = np.stack([rows["width"], rows["height"]], 1).astype(np.int64)
    long = good & (sides.max(1) >= ASPECT * np.maximum(sides.min(1), 1))
    where += [f"{_size(subject, sample)}, {ASPECT:g} times longer than wide or more" for sample in places(long)]
    crop = subject.expected.crop_size
    if crop is not None:
        tiny = good & (sides.min(1) * 4 < crop) & ~long
        share = tiny.sum() / good.sum()
        if share < 0.5:  # a data set of small pictures is enlarged on purpose
            where += [f"{_size(subject, sample)}, less than a quarter of the crop of {crop}" for sample in places(tiny)]
    sound = f"sizes: {len(sizes)}, {width} x {height} most often; shortest side {sides[good].min()}"
    return judged(where, f"{len(where)} pictures", sound)


def _size(subject: DataSubject, sample: int) -> str:
    return f"{printable(subject.names[sample])}: {subject.rows['width'][sample]} x {subject.rows['height'][sample]}"


@check(
    "data.ignored",
    "002 ds.04",
    measures="files in the class folders that training passes over, since their kind is not among those that it lists",
    fix="convert the files to JPEG or PNG, or remove them: their class has fewer pictures than it seems",
)
def ignored(subject: DataSubject) -> Outcome:
    folders = [subject.root / split for split in subject.indices if not (subject.root / f"{split}_list.txt").is_file()]
    if not folders:
        return not_applicable("list files say what belongs to the data")
    where, total = [], 0
    for index in subject.indices.values():
        passed = index.passed
        where += [f"{printable(path)}: {_unread(path)}" for path in passed.unread]
        where += [f"{printable(path)}: lies beside the class folders" for path in passed.loose]
        total += passed.counts.get("unread", 0) + passed.counts.get("loose", 0)
    return judged(where, f"{total} files", "no picture lies where training does not look")


def _unread(path: str) -> str:
    _, dot, ending = path.rpartition("/")[2].rpartition(".")
    return f".{ending.lower()} files are not listed" if dot else "a picture whose name has no ending (.jpg, .png) is not listed"
