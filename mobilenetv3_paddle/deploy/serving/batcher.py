"""Dynamic batching: requests that wait at the same time share one run of the engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np


class TooLate(Exception):
    """A picture waited longer than it may."""


@dataclass
class _Waiting:
    image: np.ndarray
    since: float
    result: asyncio.Future = field(repr=False)


class Batcher:
    """Collects pictures into batches and runs the engine on one after the other, in a thread of its own.

    While a batch runs, pictures gather; so batches grow with the load by themselves, and a lone picture waits for nobody.

    Args:
        engine: float32 (N, 3, H, W) to logits (N, classes).
        max_batch: most pictures in a batch.
        timeout: seconds that a picture may wait for its turn.
        on_batch: told the size of each batch and the seconds it took.
    """

    def __init__(
        self,
        engine: Callable[[np.ndarray], np.ndarray],
        max_batch: int,
        timeout: float,
        on_batch: Callable[[int, float], None] = lambda size, seconds: None,
    ) -> None:
        self.engine, self.max_batch, self.timeout, self.on_batch = engine, max_batch, timeout, on_batch
        self._running = False
        self._waiting: list[_Waiting] = []
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "engine")
        self._task: asyncio.Task | None = None

    def start(self) -> None:
        """Begin to serve; inside a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._serve())

    async def stop(self) -> None:
        """Serve all that waits, and what the engine has in hand, then end."""
        while self._waiting or self._running:
            await asyncio.sleep(0.01)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._thread.shutdown()

    @property
    def alive(self) -> bool:
        """Whether batches are being served."""
        return self._task is not None and not self._task.done()

    def __len__(self) -> int:
        """Pictures that wait."""
        return len(self._waiting)

    async def __call__(self, image: np.ndarray) -> np.ndarray:
        """The logits of one picture, float32 (3, H, W).

        Raises:
            TooLate: it waited longer than it may.
            RuntimeError: the engine failed on its batch.
        """
        waiting = _Waiting(image, time.monotonic(), asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._arrived.set()
        return await waiting.result

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            batch, self._waiting = self._waiting[: self.max_batch], self._waiting[self.max_batch :]
            if not self._waiting:
                self._arrived.clear()
            batch = [w for w in batch if self._in_time(w)]
            if batch:
                self._running = True
                await self._answer(loop, batch)
                self._running = False

    async def _answer(self, loop: asyncio.AbstractEventLoop, batch: list[_Waiting]) -> None:
        start = time.perf_counter()
        try:
            logits = await loop.run_in_executor(self._thread, self.engine, np.stack([w.image for w in batch]))
        except Exception as error:  # the requests of this batch fail; the service goes on
            for w in batch:
                if not w.result.done():
                    w.result.set_exception(RuntimeError(f"the engine failed: {error}"))
            return
        self.on_batch(len(batch), time.perf_counter() - start)
        for w, row in zip(batch, logits, strict=True):
            if not w.result.done():
                w.result.set_result(row)

    def _in_time(self, waiting: _Waiting) -> bool:
        if waiting.result.done():  # its client has gone
            return False
        if time.monotonic() - waiting.since > self.timeout:
            waiting.result.set_exception(TooLate())
            return False
        return True
