"""One process that decodes for the service: python -m mobilenetv3_paddle.deploy.serving.decoder SETTINGS DESCRIPTOR

It says when it is ready. Then it reads from standard input what it is to decode: a picture, or a request with tensors as JSON
(1 byte), the place for a picture's pixels (1 byte) and the number of bytes (8 bytes). It writes to standard output a status
(1 byte) and what came of it (after its length, 8 bytes), and so on. The bytes to decode lie in memory that it shares with the
service, which DESCRIPTOR names; too many for that follow in standard input. Pixels always lie in that memory, since a pipe holds
less than a picture. A process, unlike a thread, can be killed when a picture takes too long, and limited in memory. It ends when
its input ends, or with the process that started it.
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
ASKED, HEAD = 10, 9  # bytes before the data, and before the answer
SHARED_BYTES = 2**18  # of what is to be decoded
NOEXEC_SEAL = 8  # of memfd_create, since Linux 6.3, where some machines require it: linux/memfd.h
PLACES = 16  # for pixels of pictures that wait for the engine, or are in its hands
BYTES_A_PIXEL = 9  # RGB in Pillow takes 4, and conversion or turning makes a second copy
LEAST_MEMORY = 128 * 2**20
NICENESS = 10  # the engine and the event loop, which finish pictures, go before decoders, which begin them


def main(settings: str, descriptor: str) -> int:
    """Serve until the input ends.

    Args:
        settings: JSON with ``resize``, ``crop``, ``backend``, the fields of ``Rules``, and ``batch`` and ``classes``.
        descriptor: of the memory that it shares.
    """
    os.nice(NICENESS)
    for number in (signal.SIGINT, signal.SIGTERM):  # the service ends its decoders itself, after the last answer
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    incoming, outgoing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    _quiet()
    made = json.loads(settings)
    shared = Shared(int(descriptor), made["crop"])
    rules = Rules(tuple(made["formats"]), made["orient"], made["pixels"], made["scans"])
    prepared(b"", made, rules, shared.pixels[0])  # imports what the first picture would import
    _limit_memory(max(LEAST_MEMORY, rules.pixels * BYTES_A_PIXEL))
    signature = tensors.Signature(made["crop"], made["batch"], made["classes"])
    _answer(outgoing, READY, b"")
    while head := incoming.read(ASKED):
        size = int.from_bytes(head[2:], "big")
        data = shared.given(size) or incoming.read(size)
        status, content = parsed(data, signature) if head[0] == JSON else prepared(data, made, rules, shared.pixels[head[1]])
        _answer(outgoing, status, content)
    return 0


class Shared:
    """Memory that the service shares with one decoder.

    Args:
        descriptor: of the memory, from ``open_shared``.
        size: of a picture.

    Attributes:
        pixels: of pictures, uint8 (PLACES, 3, size, size).
    """

    def __init__(self, descriptor: int, size: int) -> None:
        memory = mmap.mmap(descriptor, _shared_bytes(size))
        self._data = memoryview(memory)[:SHARED_BYTES]
        self.pixels = np.frombuffer(memory, np.uint8, offset=SHARED_BYTES).reshape(PLACES, 3, size, size)

    def take(self, data: bytes) -> bool:
        """Put bytes there that are to be decoded, unless they are too many."""
        if len(data) > SHARED_BYTES:
            return False
        self._data[: len(data)] = data
        return True

    def given(self, size: int) -> bytes:
        """The bytes that ``take`` has put there; none where they were too many."""
        return bytes(self._data[:size]) if size <= SHARED_BYTES else b""


@contextlib.contextmanager
def open_shared(size: int) -> Iterator[int]:
    """A descriptor of new memory to share, which lives on where it is mapped when the block ends."""
    with _memory() as memory:
        memory.truncate(_shared_bytes(size))
        with contextlib.suppress(AttributeError):  # macOS has none
            os.posix_fallocate(memory.fileno(), 0, _shared_bytes(size))  # or whoever writes there without room is killed
        with contextlib.suppress(OSError, AttributeError):
            # A decoder that a picture took over could otherwise shorten it, and whoever reads behind its end is killed.
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        yield memory.fileno()


def _shared_bytes(size: int) -> int:
    return SHARED_BYTES + PLACES * 3 * size * size


def _memory() -> Any:
    """A file that lies in memory, or where the system has none a temporary one."""
    for flags in (NOEXEC_SEAL, 0):
        with contextlib.suppress(OSError, AttributeError):
            return os.fdopen(os.memfd_create("pictures", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags), "wb")
    return tempfile.TemporaryFile()


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


def _quiet() -> None:
    """Let Python alone print: libtiff reports each damaged row of a picture, which a kilobyte can have millions of."""
    sys.stderr = os.fdopen(os.dup(2), "w")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.close(null)


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
