"""The decoder processes of the service: pictures, and tensors as JSON, wait for one of them; one that takes too long is killed
and replaced."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import math
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.picture_format import NotAPicture, Rules, TooLarge, format_of, quick_size
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_paddle.deploy.serving.batcher import TooLate
from mobilenetv3_paddle.deploy.serving.decoder import JSON, NOT_A_PICTURE, PICTURE, PIXELS, REFUSED, TENSORS, TOO_LARGE
from mobilenetv3_paddle.deploy.serving.tensors import Asked, Refused, Signature

ROOT = Path(__file__).resolve().parents[3]
LARGE = 13_000_000  # pixels, times a quarter of the scans: only one such picture is decoded at a time, so that others go on
LARGE_JSON = 2**21  # bytes of JSON, likewise
START = 60.0  # seconds that a process may take to start
_ERRORS = {NOT_A_PICTURE: NotAPicture, TOO_LARGE: TooLarge, REFUSED: Refused}


@dataclass(eq=False)
class _Job:
    kind: int
    data: bytes
    large: bool
    deadline: float
    result: asyncio.Future = field(repr=False)


class Decoders:
    """A picture's bytes to uint8 (crop, crop, 3), and a request with tensors as JSON to arrays, in processes of their own.

    Args:
        count: processes; with one alone a large picture delays the small ones behind it.
        preset: sizes.
        backend: ``pil`` or ``cv2``.
        rules: what is decoded.
        signature: of the model.
        on_killed: told of each process that was killed or died.
    """

    def __init__(
        self, count: int, preset: EvalPreset, backend: str, rules: Rules, signature: Signature,
        on_killed: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.count, self.rules, self.size, self.on_killed = count, rules, preset.crop_size, on_killed
        made = {"resize": preset.resize_size, "crop": preset.crop_size, "backend": backend, **dataclasses.asdict(rules)}
        made |= dataclasses.asdict(signature)
        self._command = [sys.executable, "-m", "mobilenetv3_paddle.deploy.serving.decoder", json.dumps(made)]
        self._idle: list[asyncio.subprocess.Process] = []
        self._jobs: deque[_Job] = deque()
        self._large = 0
        self._tasks: set[asyncio.Task] = set()
        self._processes: set[asyncio.subprocess.Process] = set()

    async def start(self) -> None:
        """Start the processes; inside a running event loop."""
        self._idle = list(await asyncio.gather(*(self._spawn() for _ in range(self.count))))

    async def stop(self) -> None:
        """Kill the processes; what they have in hand is lost."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for process in list(self._processes):
            await self._kill(process)

    @property
    def alive(self) -> bool:
        """Whether there is a process that decodes."""
        return any(process.returncode is None for process in self._processes)

    def __len__(self) -> int:
        """Pictures that wait."""
        return len(self._jobs)

    async def __call__(self, data: bytes, deadline: float) -> np.ndarray:
        """Decode, resize and crop a picture.

        Args:
            data: bytes of its file.
            deadline: in the event loop's time; then it is given up, and the process that decodes it killed.

        Raises:
            NotAPicture, TooLarge, UserError: the picture cannot be used.
            TooLate: it is not decoded by then.
        """
        format_of(data, "the picture", self.rules)
        return await self._done(PICTURE, data, _work(data) > LARGE, deadline)

    async def parse(self, data: bytes, deadline: float) -> Asked:
        """Read a request with tensors as JSON.

        Raises:
            Refused: it cannot be answered.
            UserError: it ended its process.
            TooLate: it is not read by then.
        """
        return await self._done(JSON, data, len(data) > LARGE_JSON, deadline)

    async def _done(self, kind: int, data: bytes, large: bool, deadline: float) -> Any:
        loop = asyncio.get_running_loop()
        job = _Job(kind, data, large, deadline, loop.create_future())
        self._jobs.append(job)
        self._dispatch()
        try:
            return await asyncio.wait_for(job.result, max(0.0, deadline - loop.time()))
        except (TimeoutError, asyncio.TimeoutError) as error:
            raise TooLate() from error
        finally:
            if job in self._jobs:  # an exception here would print the picture's bytes into its own text
                self._jobs.remove(job)

    def _dispatch(self) -> None:
        """Give waiting pictures to idle processes, the earliest first, but only one large one at a time."""
        while self._idle:
            job = next((job for job in self._jobs if not (job.large and self._large)), None)
            if job is None:
                return
            self._jobs.remove(job)
            self._large += job.large
            task = asyncio.get_running_loop().create_task(self._decode(self._idle.pop(), job))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _decode(self, process: asyncio.subprocess.Process, job: _Job) -> None:
        left = max(0.0, job.deadline - asyncio.get_running_loop().time())
        try:
            status, content = await asyncio.wait_for(_ask(process, job.kind, job.data), left)
            if not job.result.done():
                if status == PIXELS:
                    job.result.set_result(np.frombuffer(content, np.uint8).reshape(self.size, self.size, 3))
                elif status == TENSORS:
                    job.result.set_result(Asked.unpacked(content))
                else:
                    job.result.set_exception(_ERRORS.get(status, UserError)(content.decode()))
        except (TimeoutError, asyncio.TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            if not job.result.done():
                late = isinstance(error, (TimeoutError, asyncio.TimeoutError))
                ended = Refused("the request ended its decoder: send tensors as binary data")
                damaged = ended if job.kind == JSON else UserError("the picture is damaged: its decoder ended on it")
                job.result.set_exception(TooLate() if late else damaged)
            self._large -= job.large
            job.large = False
            self.on_killed()
            await self._kill(process)
            process = await self._spawn()
        self._large -= job.large
        self._idle.append(process)
        self._dispatch()

    async def _spawn(self) -> asyncio.subprocess.Process:
        while True:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=ROOT, limit=2**20
                )
                self._processes.add(process)
                await asyncio.wait_for(_ask(process, PICTURE, b""), START)  # it has imported all it needs
                return process
            except (OSError, TimeoutError, asyncio.TimeoutError, asyncio.IncompleteReadError) as error:
                print(f"warning: cannot start a decoder: {error or type(error).__name__}", file=sys.stderr, flush=True)
                await asyncio.sleep(1)

    async def _kill(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        self._processes.discard(process)


def _work(data: bytes) -> float:
    """How long a picture may take to decode, in pixels; the decoder itself refuses what is too much."""
    size = quick_size(data)
    if size is None or len(data) > 2**20 + 4 * size[0] * size[1]:  # more of something than of pixels
        return math.inf
    return size[0] * size[1] * max(1, data.count(b"\xff\xda") // 4)


async def _ask(process: asyncio.subprocess.Process, kind: int, data: bytes) -> tuple[int, bytes]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(bytes([kind]) + len(data).to_bytes(8, "big") + data)
    await process.stdin.drain()
    head = await process.stdout.readexactly(9)
    return head[0], await process.stdout.readexactly(int.from_bytes(head[1:], "big"))
