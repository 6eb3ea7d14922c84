"""A data set as the checks see it."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from alignment_doctor.data import near
from alignment_doctor.data.measure import GOOD
from alignment_doctor.data.near import Recognisable
from alignment_doctor.relation import Relation, relate
from mobilenetv3_common.dataset_index import SPLITS, DatasetIndex, elsewhere, has_split, index_dataset, index_folder
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.presets import IMAGENET_MEAN, IMAGENET_STD
from mobilenetv3_common.terminal import printable


@dataclass(frozen=True)
class Expected:
    """What the data set is held against.

    Attributes:
        mean, std: of each channel, in the unit in which training normalises.
        crop_size: pixels of the network's input; None where unknown.
        near: largest relative difference of two pictures that count as the same one; 0 looks for equal files only.
        manifest: (split and path, (digest, label, split)) of each sample of a copy that is right; None where none was given.
    """

    mean: Sequence[float] = IMAGENET_MEAN
    std: Sequence[float] = IMAGENET_STD
    crop_size: int | None = None
    near: float = near.LIMIT
    manifest: Sequence[tuple[str, tuple[str, int, str]]] | None = None


@dataclass
class DataSubject:
    """A data set whose pictures have been measured.

    Attributes:
        indices: by split, those that the data path has.
        rows: of type ``measure.ROW``, one a sample, split after split; a file that is listed twice has two.
        errors: what is wrong with a sample that cannot be decoded, by its number.
    """

    root: Path
    indices: dict[str, DatasetIndex]
    rows: np.ndarray
    errors: dict[int, str]
    expected: Expected = field(default_factory=Expected)

    @functools.cached_property
    def names(self) -> list[str]:
        """File name of each sample."""
        return [name for index in self.indices.values() for name in index.names]

    @functools.cached_property
    def splits(self) -> list[str]:
        """Split of each sample."""
        return [name for split, index in self.indices.items() for name in [split] * len(index)]

    @functools.cached_property
    def labels(self) -> list[int]:
        """Class number of each sample."""
        return [label for index in self.indices.values() for label in index.labels]

    @functools.cached_property
    def good(self) -> np.ndarray:
        """Whether each sample can be decoded, bool (N,)."""
        return self.rows["state"] == GOOD

    @functools.cached_property
    def relation(self) -> Relation:
        """Whether labels can be told from pictures."""
        return relate(self.indices)

    def class_name(self, sample: int) -> str:
        """The class of a sample by name."""
        return self.indices[self.splits[sample]].classes[self.labels[sample]]

    def shown(self, sample: int) -> str:
        """A sample as a place: its file, and its class where the path does not say it."""
        name, class_name = printable(self.names[sample]), printable(self.class_name(sample))
        return name if f"/{class_name}/" in f"/{name}" else f"{name} (class {class_name})"

    @functools.cached_property
    def same_files(self) -> list[list[int]]:
        """Groups of samples whose files are equal byte for byte, or that are the same file; empty files left out."""
        samples = np.flatnonzero(self.rows["bytes"] > 0)
        digests = np.ascontiguousarray(self.rows["digest"][samples])
        _, same, times = np.unique(digests.view(np.uint64)[:, 0], return_inverse=True, return_counts=True)
        groups: dict[bytes, list[int]] = defaultdict(list)
        for place in np.flatnonzero(times[same] > 1).tolist():  # the others differ in their first bytes
            groups[digests[place].tobytes()].append(int(samples[place]))
        return [group for group in groups.values() if len(group) > 1]

    @functools.cached_property
    def near(self) -> near.Pairs:
        """Pairs of good samples that show the same picture in different files."""
        return near.pairs(self.rows["thumb"], self._recognisable, self.expected.near)

    @functools.cached_property
    def _recognisable(self) -> Recognisable:
        return near.recognisable(self.rows["thumb"], self._once())

    def _once(self) -> np.ndarray:
        """Good samples, of equal files the first alone, int64."""
        once = self.good.copy()
        once[[sample for group in self.same_files for sample in group[1:]]] = False
        return np.flatnonzero(once)

    @functools.cached_property
    def mirrored(self) -> list[tuple[int, int, float]]:
        """Pairs of a training picture and one of validation that is the same from right to left, with their difference."""
        held_out = self.of_split("val")
        thumbs = self.rows["thumb"].copy()
        thumbs[held_out] = thumbs[held_out][:, :, ::-1]
        made = near.pairs(thumbs, self._recognisable, self.expected.near)
        known = {*zip(self.near.first.tolist(), self.near.second.tolist(), strict=True)}  # symmetric ones
        pairs = zip(made.first.tolist(), made.second.tolist(), made.difference.tolist(), strict=True)
        return [(a, b, apart) for a, b, apart in pairs if held_out[a] != held_out[b] and (a, b) not in known]

    def same_pictures(self) -> list[tuple[int, int, str]]:
        """Pairs of samples with the same picture, and how they are the same: the second of each with the first of its group."""
        exact = [(group[0], other, "equal files") for group in self.same_files for other in group[1:]]
        pairs = zip(self.near.first.tolist(), self.near.second.tolist(), self.near.difference.tolist(), strict=True)
        return exact + [(a, b, f"difference {difference:.1%}") for a, b, difference in pairs]

    def of_split(self, split: str) -> np.ndarray:
        """Whether each sample is of a split, bool (N,)."""
        return np.repeat([name == split for name in self.indices], [len(index) for index in self.indices.values()])

    def counts(self, split: str) -> Counter[int]:
        """Samples of each class number."""
        return self._counts[split]

    @functools.cached_property
    def _counts(self) -> dict[str, Counter[int]]:
        return {split: Counter(np.asarray(index.labels).tolist()) for split, index in self.indices.items()}


def places(chosen: np.ndarray) -> list[int]:
    """Numbers of the samples at which a bool array (N,) is True."""
    return np.flatnonzero(chosen).tolist()


def find_splits(data_path: str) -> dict[str, DatasetIndex]:
    """The splits that a data path has, as training finds them; a folder of classes alone is one split, ``"train"``.

    Raises:
        UserError: it has none, one cannot be indexed, or its pictures are no files.
    """
    root = Path(data_path)
    if not root.is_dir():
        raise UserError(f"data path {root} is not a folder: give one with train/ and val/ or train_list.txt and val_list.txt")
    present = [split for split in SPLITS if has_split(root, split)]
    if not present:
        with contextlib.suppress(UserError):  # that it is no folder of classes is said below
            index = index_folder(root, root)  # as --val-share takes it
            if len(set(index.labels)) > 1:
                return {"train": index}
        raise UserError(
            f"data path {root} has neither train/ nor val/, no list files, and no two class folders"
            f"{elsewhere(root) or ': give one in ImageNet layout'}"
        )
    found = {split: index_dataset(root, split) for split in present}
    for index in found.values():
        if index.places is not None or index.rows is not None:
            raise UserError(
                f"the pictures of {index.source} lie together in an archive, which this examination does not read: give the folder "
                "of picture files (doctor check decodes archives)"
            )
    return found
