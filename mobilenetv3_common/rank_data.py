"""Whether all ranks list the same pictures, asked when a run begins.

A rank that lists other pictures makes another number of batches, so that the ranks wait for one another without end; or as many,
and trains on pictures that the others count as their own.
"""

from __future__ import annotations

import hashlib

import numpy as np

from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.parts import Ranks

COMPARED = ("training pictures", "validation pictures", "classes")
WORDS = 8  # of 32 bits that a digest is sent as, which float64 holds exactly
SHOWN = 3  # groups of ranks that a message tells of


def refuse_unlike_ranks(train_index: DatasetIndex, val_index: DatasetIndex, ranks: Ranks) -> None:
    """Compare what every rank lists. Every rank has to call it; nothing is sent where there is one.

    Args:
        train_index, val_index: what this rank lists.
        ranks: all of them.

    Raises:
        UserError: on every rank alike, where two of them list other pictures, labels or classes.
    """
    if ranks.world_size == 1:
        return
    digests = (train_index.digest(), val_index.digest(), _digest_of_classes(train_index))
    rows = np.zeros((ranks.world_size, len(COMPARED), 1 + WORDS))
    for part, (count, digest) in enumerate(zip((len(train_index), len(val_index), train_index.num_classes), digests, strict=True)):
        rows[ranks.rank, part] = [count, *np.frombuffer(bytes.fromhex(digest), dtype=">u4")]
    rows = ranks.sum(rows)
    unlike = [name for part, name in enumerate(COMPARED) if (rows[:, part] != rows[0, part]).any()]
    if unlike:
        raise UserError(
            f"the ranks do not list the same {' and '.join(unlike)}: {_groups(rows)} (training, validation); give every machine "
            "the same pictures, and compare them with tools/doctor.py data --write-manifest and --compare-manifest"
        )


def _digest_of_classes(index: DatasetIndex) -> str:
    return hashlib.sha256("\n".join(index.classes).encode(errors="surrogateescape")).hexdigest()


def _groups(rows: np.ndarray) -> str:
    """``"rank 0 has 16 and 16 pictures of 8 classes, ranks 1-3 have ..."``."""
    alike: dict[bytes, list[int]] = {}
    for rank, row in enumerate(rows):
        alike.setdefault(row.tobytes(), []).append(rank)
    told = []
    for members in list(alike.values())[:SHOWN]:
        training, validation, classes = (int(count) for count in rows[members[0], :, 0])
        who = f"rank {members[0]} has" if len(members) == 1 else f"ranks {_spans(members)} have"
        told.append(f"{who} {training} and {validation} pictures of {classes} classes")
    counts = {tuple(rows[members[0], :, 0]) for members in alike.values()}
    same = [] if len(counts) == len(alike) else ["of equal numbers the names or labels differ"]
    more = [f"{len(alike) - SHOWN} more groups"] if len(alike) > SHOWN else []
    return ", ".join([*told, *more, *same])


def _spans(numbers: list[int]) -> str:
    """``[0, 1, 2, 5]`` as ``"0-2, 5"``."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
