"""What a small file may become in memory: bounds for archives, and for values that refer to each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import IO, Any

from mobilenetv3_common.errors import UserError

HARMLESS = 1 << 27  # bytes that a file's arrays may always take
GROWTH = 16  # times its size that they may take beyond that
MOST_MEMBERS = 1 << 24  # bytes of an archive's table of members; each takes about fifty


def refuse_growth(path: str | os.PathLike, needed: int) -> None:
    """Refuse a file whose arrays take far more memory than the file has bytes: compressed zeros, or one array many times over.

    Args:
        path: of the file.
        needed: bytes of all of its arrays in memory.

    Raises:
        UserError: they are more than ``GROWTH`` times the file's, and more than ``HARMLESS``.
    """
    size = os.stat(path).st_size
    if needed > max(HARMLESS, GROWTH * size):
        raise UserError(
            f"{path} has {size} bytes, but its arrays would take {needed / 2**30:.3g} GiB of memory, more than {GROWTH} times as "
            "much: it is not read; write it without compression, and each array once"
        )


def refuse_long_table(file: IO[bytes]) -> None:
    """Refuse a zip archive of very many members, which zipfile would list in memory.

    Args:
        file: open, and able to seek.

    Raises:
        ValueError: it is one.
    """
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - (1 << 16) - 22))
    tail = file.read()
    place = tail.rfind(b"PK\x05\x06")
    table = int.from_bytes(tail[place + 12 : place + 16], "little") if place >= 0 else 0
    if table == 0xFFFFFFFF and (place := tail.rfind(b"PK\x06\x06")) >= 0:  # the larger number stands before it
        table = int.from_bytes(tail[place + 40 : place + 48], "little")
    if table > MOST_MEMBERS:
        raise ValueError(f"a table of members of {table} bytes")


def written_out(value: Any, parts: Callable[[Any], Iterable[Any]], most: int) -> int:
    """How many values there are where each reference is written out; references to references grow exponentially.

    Args:
        value: the outermost one.
        parts: the values in a value.
        most: more than so many are not counted.

    Returns:
        The number; more than ``most`` where a value holds itself.

    Raises:
        RecursionError: they lie too deep in each other.
    """
    sizes: dict[int, int] = {}  # by identity: a reference is the very value that it stands for

    def size(one: Any) -> int:
        if id(one) not in sizes:
            sizes[id(one)] = most + 1  # as long as it is being counted: a value that holds itself never ends
            inside = list(parts(one))  # kept until they are counted, so that no other value gets their identity
            sizes[id(one)] = min(most + 1, 1 + sum(map(size, inside)))
        return sizes[id(one)]

    return size(value)
