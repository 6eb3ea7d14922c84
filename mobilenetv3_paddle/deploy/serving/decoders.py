"""The decoder processes of the service: pictures, and tensors as JSON, wait for one of them; one that takes too long is killed
and replaced."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import math
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.picture_format import NotAPicture, Rules, TooLarge, format_of, pixel_work, quick_size
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.streams import tell
from mobilenetv3_paddle.deploy.serving.batcher import EngineDown, TooLate
from mobilenetv3_paddle.deploy.serving.decoder import (
    HEAD,
    JSON,
    NOT_A_PICTURE,
    PICTURE,
    PIXELS,
    PLACES,
    READY,
    REFUSED,
    TENSORS,
    TOO_LARGE,
    Shared,
    open_shared,
)
from mobilenetv3_paddle.deploy.serving.tensors import Asked, Refused, Signature

ROOT = Path(__file__).resolve().parents[3]
LARGE = 13_000_000  # pixels, times a quarter of the scans: only one such picture is decoded at a time, so that others go on
LARGE_JSON = 2**21  # bytes of JSON, likewise
LEAST_TIME = 0.05  # seconds before the deadline: less is not enough for a picture, and only costs a process
START = 60.0  # seconds that a process may take to start
_KINDS = {PIXELS: PICTURE, TENSORS: JSON}  # what an answer is an answer to
_ERRORS = {NOT_A_PICTURE: NotAPicture, TOO_LARGE: TooLarge, REFUSED: Refused}


@dataclass(eq=False, repr=False)
class _Job:
    """What is to be decoded.

    Attributes:
        kind: ``PICTURE`` or ``JSON``.
        data: its bytes.
        large: whether it holds up what is decoded after it.
        result: what came of it.
        process: that has it in hand; None while it waits.
        timer: gives it up at its deadline.
        again: whether a process has ended on it already.
    """

    kind: int
    data: bytes
    large: bool
    result: asyncio.Future
    process: _Process | None = None
    timer: asyncio.TimerHandle | None = None
    again: bool = False

    def settle(self, result: Any) -> None:
        """Set the result, or the exception, unless nobody waits for it any more."""
        if not self.result.done():
            if isinstance(result, Exception):
                self.result.set_exception(result)
            else:
                self.result.set_result(result)


class _Process(asyncio.SubprocessProtocol):
    """One decoder process, which has at most one job in hand.

    Args:
        shared: memory that it shares.
        on_answer: told of each answer: its status and content.
        on_end: told when it has ended.
    """

    transport: asyncio.SubprocessTransport
    started = False  # it has been ready for work
    given_up = False  # it is being killed, or has ended

    def __init__(
        self, shared: Shared, on_answer: Callable[[_Process, int, bytes], None], on_end: Callable[[_Process], None]
    ) -> None:  # fmt: skip
        self._shared, self._on_answer, self._on_end = shared, on_answer, on_end
        self._place, *self._free = range(PLACES)
        self._lent: dict[int, weakref.ref[np.ndarray]] = {}
        self.job: _Job | None = None
        self.ready: asyncio.Future = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.SubprocessTransport, transport)

    def begin(self, job: _Job) -> None:
        """Take a job in hand."""
        self.job, job.process = job, self
        into = cast(asyncio.WriteTransport, self.transport.get_pipe_transport(0))
        head = bytes([job.kind, self._place]) + len(job.data).to_bytes(8, "big")
        into.write(head if self._shared.take(job.data) else head + job.data)

    def pixels(self) -> np.ndarray:
        """Pixels of the picture that it has just decoded, uint8 (3, crop, crop).

        They lie in the place where the process has put them. The place is free again when nobody holds this array any more; views
        of it do not keep the place. The next picture gets another place; where none is free, the pixels are copied.

        The process could still write there. If a picture took it over, pictures that it decoded before and that wait for the
        engine could be answered wrongly, as the next ones could; it also runs as the same user as the service.
        """
        pixels = self._shared.pixels[self._place]
        if not self._free:
            return pixels.copy()
        place, self._place = self._place, self._free.pop()
        self._lent[place] = weakref.ref(pixels, lambda _: self._free.append(place))
        return pixels

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._received += data
        if len(self._received) >= HEAD and len(self._received) == HEAD + int.from_bytes(self._received[1:HEAD], "big"):
            status, content = self._received[0], bytes(self._received[HEAD:])
            self._received.clear()
            if status != READY:
                self._on_answer(self, status, content)
            elif not self.ready.done():
                self.ready.set_result(None)

    def process_exited(self) -> None:
        self.given_up = True
        self.ended.set()
        if not self.ready.done():
            self.ready.set_exception(OSError("it ended"))
            self.ready.exception()  # nobody may be waiting for it
        self._on_end(self)
        self.transport.close()
        del self._shared  # and with it the memory, once nobody holds a picture in it

    def kill(self) -> None:
        """End it, whatever it does."""
        self.given_up = True
        with contextlib.suppress(ProcessLookupError):
            self.transport.kill()


class Decoders:
    """A picture's bytes to uint8 (3, crop, crop), and a request with tensors as JSON to arrays, in processes of their own.

    Args:
        count: processes; with one alone a large picture delays the small ones behind it.
        preset: sizes.
        backend: ``pil`` or ``cv2``.
        rules: what is decoded.
        signature: of the model.
        on_killed: told of each process that was killed or died.

    Attributes:
        at_work: how many processes have something in hand.
    """

    def __init__(
        self, count: int, preset: EvalPreset, backend: str, rules: Rules, signature: Signature,
        on_killed: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.count, self.rules, self.size, self.on_killed = count, rules, preset.crop_size, on_killed
        made = {"resize": preset.resize_size, "crop": preset.crop_size, "backend": backend, **dataclasses.asdict(rules)}
        made |= dataclasses.asdict(signature)
        self._command = [sys.executable, "-m", "mobilenetv3_paddle.deploy.serving.decoder", json.dumps(made)]
        self._idle: list[_Process] = []
        self._jobs: deque[_Job] = deque()
        self._large = self.at_work = 0
        self._tasks: set[asyncio.Task] = set()
        self._processes: set[_Process] = set()
        self._stopping = False

    async def start(self) -> None:
        """Start the processes; inside a running event loop."""
        await asyncio.gather(*(self._spawn() for _ in range(self.count)))

    async def stop(self) -> None:
        """Kill the processes; what they have in hand is lost."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for process in list(self._processes):
            process.kill()
            await process.ended.wait()

    @property
    def alive(self) -> bool:
        """Whether there is a process that decodes."""
        return bool(self._processes)

    def __len__(self) -> int:
        """Pictures that wait."""
        return len(self._jobs)

    async def __call__(self, data: bytes, deadline: float) -> np.ndarray:
        """Decode, resize and crop a picture.

        Args:
            data: bytes of its file.
            deadline: in ``time.monotonic``'s seconds; then it is given up, and the process that decodes it killed.

        Raises:
            NotAPicture, TooLarge, UserError: the picture cannot be used.
            TooLate: it is not decoded by then.
            EngineDown: two processes ended on it.
        """
        format_of(data, "the picture", self.rules)
        return await self._done(PICTURE, data, _work(data) > LARGE, deadline)

    async def parse(self, data: bytes, deadline: float) -> Asked:
        """Read a request with tensors as JSON.

        Raises:
            Refused: it cannot be answered.
            EngineDown: two processes ended on it.
            TooLate: it is not read by then.
        """
        return await self._done(JSON, data, len(data) > LARGE_JSON, deadline)

    async def _done(self, kind: int, data: bytes, large: bool, deadline: float) -> Any:
        if deadline - time.monotonic() < LEAST_TIME:
            raise TooLate()
        loop = asyncio.get_running_loop()
        job = _Job(kind, data, large, loop.create_future())
        job.timer = loop.call_later(deadline - time.monotonic(), self._late, job)
        self._jobs.append(job)
        self._dispatch()
        try:
            return await job.result
        finally:
            if job in self._jobs:  # nobody waits for it any more; one in hand is decoded to its end, or its deadline
                self._jobs.remove(job)
                job.timer.cancel()
            del job  # an exception that is raised here would keep it, and its data, until the garbage collector comes

    def _late(self, job: _Job) -> None:
        job.settle(TooLate())
        if job.process is None:
            self._jobs.remove(job)
        else:
            job.process.kill()

    def _dispatch(self) -> None:
        """Give waiting pictures to idle processes, the earliest first, but only one large one at a time."""
        while self._idle:
            job = next((job for job in self._jobs if not (job.large and self._large)), None)
            if job is None:
                return
            self._jobs.remove(job)
            self._large += job.large
            self.at_work += 1
            self._idle.pop().begin(job)

    def _released(self, process: _Process, ended: bool = False) -> _Job | None:
        """The job that a process had in hand; where the process has ended on it, another takes it, once."""
        job, process.job = process.job, None
        if job is not None:
            job.process = None
            self._large -= job.large
            self.at_work -= 1
            if ended and not job.again and not job.result.done() and not self._stopping:
                job.again = True
                self._jobs.appendleft(job)
                return job
            if job.timer is not None:
                job.timer.cancel()
            if ended:
                job.settle(EngineDown("two decoders ended on this request"))
        return job

    def _answered(self, process: _Process, status: int, content: bytes) -> None:
        job = self._released(process)
        if job is None:  # the process had been given up
            return
        try:
            if _KINDS.get(status, job.kind) != job.kind:
                raise ValueError("it answers something else")
            if status == PIXELS:
                job.settle(process.pixels())
            elif status == TENSORS:
                job.settle(Asked.unpacked(content))
            else:
                job.settle(_ERRORS.get(status, UserError)(content.decode()))
        except Exception as error:
            job.settle(UserError(f"a decoder's answer cannot be read: {type(error).__name__}"))
            process.kill()
        if not process.given_up:  # as where its answer came just too late
            self._idle.append(process)
        self._dispatch()

    def _ended(self, process: _Process) -> None:
        self._processes.discard(process)
        self._released(process, ended=True)
        if process in self._idle:
            self._idle.remove(process)
        if self._stopping or not process.started:
            return
        self.on_killed()
        self._dispatch()  # another process may take the large picture that waited for this one
        task = asyncio.get_running_loop().create_task(self._spawn())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _spawn(self) -> None:
        """Start a process and give it work, however often that fails."""
        while True:
            try:
                process = await self._begun()
                try:
                    await asyncio.wait_for(process.ready, START)  # it has imported all it needs
                    if process.given_up:
                        raise OSError("it ended")
                    process.started = True
                    self._idle.append(process)
                    self._dispatch()
                    return
                except BaseException:
                    process.kill()
                    raise
            except Exception as error:
                tell(f"warning: cannot start a decoder: {error or type(error).__name__}")
                await asyncio.sleep(1)

    async def _begun(self) -> _Process:
        """A process that imports what it needs."""
        with open_shared(self.size) as descriptor:
            process = _Process(Shared(descriptor, self.size), self._answered, self._ended)
            command = [*self._command, str(descriptor)]
            await asyncio.get_running_loop().subprocess_exec(
                lambda: process, *command, stderr=None, cwd=ROOT, pass_fds=(descriptor,)
            )
        if not process.ended.is_set():
            self._processes.add(process)
        return process


def _work(data: bytes) -> float:
    """How long a picture may take to decode, in pixels; the decoder itself refuses what is too much."""
    size = quick_size(data)
    if size is None or len(data) > 2**20 + 4 * size[0] * size[1]:  # more of something than of pixels
        return math.inf
    # numpy would count in a quarter of the time, but after each step the event loop would wait for Python's lock again.
    return size[0] * size[1] * max(1, pixel_work(data) // 4, data.count(b"\xff\xda") // 4)
