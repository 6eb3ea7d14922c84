"""One process that decodes for the service: python -m mobilenetv3_paddle.deploy.serving.decoder SETTINGS DESCRIPTOR

It says when it is ready, reads what is to be decoded, a picture or a request with tensors as JSON (1 byte), and its bytes (after
their number, 8 bytes) from standard input, writes a status (1 byte) and what came of it (after its length, 8 bytes) to standard
output, and so on. Pixels do not go through the pipe, which holds less than a picture, but into memory that the service shares,
which DESCRIPTOR names. A process, unlike a thread, can be killed when a picture takes too long, and limited in memory. It ends
when its input ends, or with the process that started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import decode_bytes
from mobilenetv3_common.picture_format import NotAPicture, Rules, TooLarge
from mobilenetv3_common.preprocess import center_crop, in_planes, resize
from mobilenetv3_paddle.deploy.serving import tensors

PICTURE, JSON = range(2)  # what is to be decoded
READY, PIXELS, NOT_A_PICTURE, TOO_LARGE, DAMAGED, TENSORS, REFUSED = range(7)  # what came of it; first, that it takes work
HEAD = 9  # bytes before the data, or the answer
BYTES_A_PIXEL = 9  # RGB in Pillow takes 4, and conversion or turning makes a second copy
LEAST_MEMORY = 128 * 2**20
NICENESS = 10  # the engine and the event loop, which finish pictures, go before decoders, which begin them


def main(settings: str, descriptor: str) -> int:
    """Serve until the input ends.

    Args:
        settings: JSON with ``resize``, ``crop``, ``backend``, the fields of ``Rules``, and ``batch`` and ``classes``.
        descriptor: of the memory for the pixels of one picture, uint8 (3, crop, crop).
    """
    os.nice(NICENESS)
    for number in (signal.SIGINT, signal.SIGTERM):  # the service ends its decoders itself, after the last answer
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    incoming, outgoing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    made = json.loads(settings)
    pixels = shared_pixels(int(descriptor), made["crop"])
    rules = Rules(tuple(made["formats"]), made["orient"], made["pixels"], made["scans"])
    prepared(b"", made, rules, pixels)  # imports what the first picture would import
    _limit_memory(max(LEAST_MEMORY, rules.pixels * BYTES_A_PIXEL))
    signature = tensors.Signature(made["crop"], made["batch"], made["classes"])
    _answer(outgoing, READY, b"")
    while head := incoming.read(HEAD):
        data = incoming.read(int.from_bytes(head[1:], "big"))
        status, content = parsed(data, signature) if head[0] == JSON else prepared(data, made, rules, pixels)
        _answer(outgoing, status, content)
    return 0


@contextlib.contextmanager
def open_shared(size: int) -> Iterator[int]:
    """A descriptor of new memory for one picture, which lives on where it is mapped when the block ends."""
    with _memory() as memory:
        memory.truncate(3 * size * size)
        with contextlib.suppress(OSError, AttributeError):
            # A decoder that a picture took over could otherwise shorten it, and whoever reads behind its end is killed.
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        yield memory.fileno()


def _memory() -> Any:
    """A file that lies in memory, or where the system has none a temporary one."""
    with contextlib.suppress(OSError, AttributeError):
        return os.fdopen(os.memfd_create("pixels", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "wb")
    return tempfile.TemporaryFile()


def shared_pixels(descriptor: int, size: int) -> np.ndarray:
    """Memory that two processes share, uint8 (3, size, size)."""
    return np.frombuffer(mmap.mmap(descriptor, 3 * size * size), np.uint8).reshape(3, size, size)


def prepared(data: bytes, made: dict[str, Any], rules: Rules, pixels: np.ndarray) -> tuple[int, bytes]:
    """What a picture's bytes become: ``PIXELS``, and ``pixels`` holds them, or another status and a line that says why."""
    try:
        image = decode_bytes(data, "the picture", made["backend"], rules)
        in_planes(center_crop(resize(image, made["resize"]), made["crop"]), pixels)
        return PIXELS, b""
    except NotAPicture as error:
        return NOT_A_PICTURE, error.line.encode()
    except (TooLarge, MemoryError) as error:
        return TOO_LARGE, (error.line if isinstance(error, TooLarge) else "the picture does not fit into memory").encode()
    except UserError as error:
        return DAMAGED, error.line.encode()


def parsed(data: bytes, signature: tensors.Signature) -> tuple[int, bytes]:
    """What a request with tensors as JSON becomes: ``TENSORS`` and ``tensors.Asked`` packed, or a line that says why not."""
    try:
        return TENSORS, tensors.parse(data, b"", signature).packed()
    except MemoryError:
        return REFUSED, b"the request does not fit into memory: send tensors as binary data"
    except tensors.Refused as error:
        return REFUSED, error.line.encode()


def _answer(outgoing: BinaryIO, status: int, content: bytes) -> None:
    outgoing.write(bytes([status]) + len(content).to_bytes(8, "big") + content)
    outgoing.flush()


def _limit_memory(more: int) -> None:
    """Let this process take ``more`` bytes beyond what it has now; where the system can limit that."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        with open("/proc/self/status", encoding="ascii") as file:
            held = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData"))
        resource.setrlimit(resource.RLIMIT_DATA, (held + more, held + more))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
