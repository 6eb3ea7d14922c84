"""One process that decodes for the service: python -m mobilenetv3_paddle.deploy.serving.decoder SETTINGS

It reads from standard input what it is to decode: a picture, or a request with tensors as JSON (1 byte), the number of bytes (8
bytes) and the bytes. It writes to standard output a status (1 byte) and what came of it (after its length, 8 bytes), and so on; the
first status says that it is ready. A process, unlike a thread, can be killed when a picture takes too long, and limited in memory.
It ends when its input ends, or with the process that started it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import sys
from typing import BinaryIO

import msgspec
import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import decode_bytes
from mobilenetv3_common.picture_format import NotAPicture, Rules, TooLarge
from mobilenetv3_common.preprocess import center_crop, in_planes, resize
from mobilenetv3_common.run_control import at_stop, end_with_parent, keep_memory
from mobilenetv3_paddle.deploy.serving import tensors

PICTURE, JSON = range(2)  # what is to be decoded
READY, PIXELS, NOT_A_PICTURE, TOO_LARGE, DAMAGED, TENSORS, REFUSED = range(7)  # what came of it; first, that it takes work
ERRORS = {NOT_A_PICTURE: NotAPicture, TOO_LARGE: TooLarge, REFUSED: tensors.Refused, DAMAGED: UserError}
HEAD = 9  # bytes before what is to be decoded, and before the answer
PIPE = 2**18  # bytes that a pipe holds, so that the pixels of a picture are read as one piece
BYTES_A_PIXEL = 9  # RGB in Pillow takes 4, and conversion or turning makes a second copy
LEAST_MEMORY = 128 * 2**20
Made = tuple[int, str, Rules, tensors.Signature]  # pixels of the shorter side before the crop, decoder, what is refused, what fits
NICENESS = 10  # the engine and the event loop, which finish pictures, go before decoders, which begin them


def main(settings: str) -> int:
    """Serve until the input ends; the settings are ``Made`` as JSON."""
    os.nice(NICENESS)
    at_stop(signal.SIG_IGN)  # the service ends its decoders itself, after the last answer
    end_with_parent(signal.SIGKILL)
    keep_memory()
    incoming, outgoing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb", buffering=0)
    with contextlib.suppress(OSError, AttributeError):  # no such system, or too many large pipes
        fcntl.fcntl(outgoing, fcntl.F_SETPIPE_SZ, PIPE)
    _quiet()
    made = msgspec.json.decode(settings, type=Made)
    result(PICTURE, b"", made)  # imports what the first picture would import
    _limit_memory(max(LEAST_MEMORY, made[2].pixels * BYTES_A_PIXEL))
    _answer(outgoing, READY, b"")
    while head := incoming.read(HEAD):
        _answer(outgoing, *result(head[0], incoming.read(int.from_bytes(head[1:], "big")), made))
    return 0


def result(kind: int, data: bytes, made: Made) -> tuple[int, bytes | memoryview]:
    """What a picture's bytes become (``PIXELS``, uint8 (3, crop, crop)), or a request with tensors as JSON (``TENSORS``, and
    ``tensors.Asked`` packed); or another status and a line that says why not."""
    shorter, backend, rules, signature = made
    try:
        if kind == JSON:
            return TENSORS, tensors.parse(data, b"", signature).packed()
        image = decode_bytes(data, "the picture", backend, rules)
        pixels = np.empty(signature.picture, np.uint8)
        in_planes(center_crop(resize(image, shorter), signature.crop), pixels)
        return PIXELS, pixels.data.cast("B")
    except MemoryError:
        what = "request: send the tensors as binary data" if kind == JSON else "picture: make it smaller"
        return (REFUSED if kind == JSON else TOO_LARGE), f"there is no memory for the {what}".encode()
    except UserError as error:
        return next(status for status, raised in ERRORS.items() if isinstance(error, raised)), error.line.encode()


def _quiet() -> None:
    """Let Python alone print: libtiff reports each damaged row of a picture, which a kilobyte can have millions of."""
    sys.stderr = os.fdopen(os.dup(2), "w")
    with open(os.devnull, "wb") as null:
        os.dup2(null.fileno(), 1)
        os.dup2(null.fileno(), 2)


def _answer(outgoing: BinaryIO, status: int, content: bytes | memoryview) -> None:
    outgoing.write(b"".join((bytes([status]), len(content).to_bytes(8, "big"), content)))


def _limit_memory(more: int) -> None:
    """Let this process take ``more`` bytes beyond what it has now; where the system can limit that."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        with open("/proc/self/status", encoding="ascii") as file:
            held = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData"))
        resource.setrlimit(resource.RLIMIT_DATA, (held + more, held + more))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
