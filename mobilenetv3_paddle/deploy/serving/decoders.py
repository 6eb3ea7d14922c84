"""The decoder processes of the service: pictures, and tensors as JSON, wait for one of them; one that takes too long is killed
and replaced."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import msgspec
import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.picture_format import Rules, format_of, pixel_work, quick_size
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.streams import tell
from mobilenetv3_paddle.deploy.serving.batcher import EngineDown, Line, TooLate, Waiting
from mobilenetv3_paddle.deploy.serving.decoder import ERRORS, HEAD, JSON, PICTURE, PIXELS, TENSORS
from mobilenetv3_paddle.deploy.serving.tensors import Asked, Signature

ROOT = Path(__file__).resolve().parents[3]
LARGE = 13_000_000  # pixels, times a quarter of the scans: only one such picture is decoded at a time, so that others go on
LARGE_JSON = 2**21  # bytes of JSON, likewise
LEAST_TIME = 0.05  # seconds before the deadline: less is not enough for a picture, and only costs a process
START = 60.0  # seconds that a process may take to start
_KINDS = {PIXELS: PICTURE, TENSORS: JSON}  # what an answer is an answer to


@dataclass(eq=False, repr=False)
class _Job(Waiting):
    """What is to be decoded; its kind, whether it holds up what comes after it, and whether a process has ended on it already."""

    kind: int = PICTURE
    large: bool = False
    again: bool = False


class Decoders(Line):
    """A picture's bytes to uint8 (3, crop, crop), and a request with tensors as JSON to arrays, in so many processes of their own:
    with one alone a large picture delays the small ones behind it. ``on_killed`` is told of each that was killed or died, and
    ``at_work`` is how many have something in hand."""

    def __init__(
        self, count: int, preset: EvalPreset, backend: str, rules: Rules, signature: Signature,
        on_killed: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.count, self.rules, self.shape, self.on_killed = count, rules, signature.picture, on_killed
        made = msgspec.json.encode((preset.resize_size, backend, rules, signature)).decode()
        self._command = [sys.executable, "-m", "mobilenetv3_paddle.deploy.serving.decoder", made]
        self._most = signature.most_bytes  # of an answer
        self._large = self.at_work = 0
        self._tasks: list[asyncio.Task] = []
        self._processes: set[Process] = set()

    async def start(self) -> None:
        """Start the processes; inside a running event loop."""
        self._tasks = [asyncio.create_task(self._keep()) for _ in range(self.count)]
        while len(self._processes) < self.count:
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Kill the processes; what they have in hand is lost."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def alive(self) -> bool:
        """Whether there is a process that decodes."""
        return bool(self._processes)

    async def __call__(self, data: bytes, deadline: float, kind: int = PICTURE) -> Any:
        """Decode, resize and crop a picture's file, or read a request with tensors as JSON (to ``Asked``), before a deadline in
        ``time.monotonic``'s seconds; then it is given up, and the process that has it in hand is killed.

        Raises:
            NotAPicture, TooLarge, UserError: the picture cannot be used.
            Refused: the request cannot be answered.
            TooLate: it is not decoded by then.
            EngineDown: two processes ended on it.
        """
        if kind == PICTURE:
            format_of(data, "the picture", self.rules)
        if deadline - time.monotonic() < LEAST_TIME:
            raise TooLate()
        large = _work(data) > LARGE if kind == PICTURE else len(data) > LARGE_JSON
        return await self.answer(_Job(data, deadline, kind=kind, large=large))

    async def _keep(self) -> None:
        """Keep one process at work: start it, and another when it has ended."""
        while True:
            try:
                process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE, cwd=ROOT, limit=2**20)
                ended = asyncio.create_task(process.wait())
                ended.add_done_callback(lambda _: self.changed.set())  # one that is idle is replaced
                try:
                    with anyio.fail_after(START):
                        await self._answer(process)  # it has imported all it needs
                    self._processes.add(process)
                    with contextlib.suppress(EOFError, OSError):
                        while True:
                            await self._decode(process)
                    self.on_killed()
                finally:
                    self._processes.discard(process)
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                    await process.communicate(b"")  # which closes its pipes
            except Exception as error:
                said = "it ended" if isinstance(error, EOFError) else error or type(error).__name__
                tell(f"warning: cannot start a decoder: {said}")
                await asyncio.sleep(1)

    async def _decode(self, process: Process) -> None:
        """Give a process the next job; ``EOFError`` or ``OSError`` where it ends."""
        job = await self._next(process)
        self._large += job.large
        self.at_work += 1
        try:
            assert process.stdin is not None
            process.stdin.write(bytes([job.kind]) + len(job.what).to_bytes(8, "big") + job.what)
            with anyio.fail_after(job.deadline - time.monotonic()):  # whoever waits; a ``TimeoutError`` is an ``OSError``
                status, content = await self._answer(process)
            try:
                if _KINDS.get(status, job.kind) != job.kind:
                    raise ValueError("it answers something else")
                if status == PIXELS:
                    job.settle(np.frombuffer(content, np.uint8).reshape(self.shape))
                else:
                    job.settle(Asked.unpacked(content) if status == TENSORS else ERRORS.get(status, UserError)(content.decode()))
            except Exception as error:
                job.settle(EngineDown(f"a decoder's answer cannot be read: {type(error).__name__}"))
                raise EOFError from error
        except (EOFError, OSError):
            if not job.result.done() and time.monotonic() < job.deadline:  # at the deadline ``answer`` itself gives it up
                if job.again:
                    job.settle(EngineDown("two decoders ended on this request"))
                else:
                    job.again = True
                    self.waiting.appendleft(job)
            raise
        finally:
            self._large -= job.large
            self.at_work -= 1
            self.changed.set()

    async def _next(self, process: Process) -> _Job:
        """The earliest job that a process may take: of the large ones only one is in hand at a time."""
        while not _gone(process):
            for job in self.waiting:
                if not (job.large and self._large):
                    self.waiting.remove(job)
                    return job
            self.changed.clear()
            await self.changed.wait()
        raise EOFError

    async def _answer(self, process: Process) -> tuple[int, bytes]:
        assert process.stdout is not None
        head = await process.stdout.readexactly(HEAD)
        if (size := int.from_bytes(head[1:], "big")) > self._most:
            raise EOFError(f"an answer of {size} bytes")
        return head[0], await process.stdout.readexactly(size)


def _gone(process: Process) -> bool:
    """Whether a process has ended, though the event loop may not know it yet: a job that it was given would lose its retry."""
    try:
        return process.returncode is not None or os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _work(data: bytes) -> float:
    """How long a picture may take to decode, in pixels; the decoder itself refuses what is too much."""
    size = quick_size(data)
    if size is None or len(data) > 2**20 + 4 * size[0] * size[1]:  # more of something than of pixels
        return math.inf
    # numpy would count in a quarter of the time, but after each step the event loop would wait for Python's lock again.
    return size[0] * size[1] * max(1, pixel_work(data) // 4, data.count(b"\xff\xda") // 4)
