"""Every picture decoded once, before anything is trained on them."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.errors import UserError, shown
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.parts import Ranks
from mobilenetv3_common.train_config import TrainConfig


def unreadable(index: DatasetIndex, backend: str, threads: int = 1, rank: int = 0, world_size: int = 1) -> list[str]:
    """What is wrong with each picture of a rank's share that cannot be decoded, a line each, in the index's order.

    Args:
        index: the pictures.
        backend: decoder, ``"pil"`` or ``"cv2"``; both decode outside Python's lock.
        threads: at least 1.
        rank, world_size: rank ``i`` takes every picture whose number has the remainder ``i``.
    """

    def look(number: int) -> str:
        try:
            decode_image(index.path(number), backend)
        except UserError as error:
            return error.line
        return ""

    with ThreadPoolExecutor(threads) as pool:
        return [line for line in pool.map(look, range(rank, len(index), world_size)) if line]


def check_pictures(indices: tuple[DatasetIndex, ...], config: TrainConfig, ranks: Ranks) -> int:
    """Decode every picture, and name on standard error those that cannot be; every rank has to call it.

    Args:
        indices: of the splits.
        config: says the decoder, how many at a time, and whether a bad picture stops the run.
        ranks: which share the pictures.

    Returns:
        How many cannot be decoded, over all ranks.

    Raises:
        UserError: there are some, and they stop the run.
    """
    share = (config.image_backend, max(1, config.workers), ranks.rank, ranks.world_size)
    bad = [line for index in indices for line in unreadable(index, *share)]
    for line in bad:
        print(f"bad picture: {shown(line)}", file=sys.stderr, flush=True)
    total = int(ranks.sum([len(bad)])[0])
    if total and config.on_bad_image == "stop":
        raise UserError(
            f"{total} of {sum(map(len, indices))} pictures cannot be read, each is named above: remove or replace them, "
            "or give --on-bad-image skip"
        )
    return total
