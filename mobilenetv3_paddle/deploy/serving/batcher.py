"""Dynamic batching: requests that wait at the same time share one run of the engine."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

MOST_FAILURES = 3  # runs of the engine that fail one after the other before the service calls itself unready


class TooLate(Exception):
    """A picture waited longer than it may."""


class EngineDown(RuntimeError):
    """The engine failed, or does not come back from a run."""


@dataclass(eq=False)
class _Waiting:
    picture: Any
    deadline: float
    result: asyncio.Future = field(repr=False)


class Batcher:
    """Collects pictures into batches and runs the engine on one batch after the other, in a thread of its own.

    While a batch runs, pictures gather; so batches grow with the load by themselves, and a lone picture waits for nobody.

    Args:
        engine: a list of pictures to as many answers; an answer that is an exception is raised for its picture alone.
        max_batch: most pictures in a batch.
        timeout: seconds that a picture may wait for its turn and its run, where no deadline is given.
        on_batch: told the size of each batch and the seconds it took.
    """

    def __init__(
        self,
        engine: Callable[[list[Any]], Sequence[Any]],
        max_batch: int,
        timeout: float,
        on_batch: Callable[[int, float], None] = lambda size, seconds: None,
    ) -> None:
        self.engine, self.max_batch, self.timeout, self.on_batch = engine, max_batch, timeout, on_batch
        self._running_since = self._given_up = math.inf
        self._failures = 0
        self._waiting: list[_Waiting] = []
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "engine")
        self._task: asyncio.Task | None = None

    def start(self) -> None:
        """Begin to serve; inside a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._serve())

    async def stop(self) -> None:
        """Serve all that waits, and what the engine has in hand, then end; a hung engine is not waited for."""
        while (self._waiting or self._running_since < math.inf) and not self.hung:
            await asyncio.sleep(0.01)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._thread.shutdown(wait=not self.hung, cancel_futures=True)

    @property
    def hung(self) -> bool:
        """Whether the engine is in a run whose pictures are all too late, and has been for a second (or half
        of what a picture may take)."""
        return time.monotonic() > self._given_up

    @property
    def alive(self) -> bool:
        """Whether batches are being served."""
        return self._task is not None and not self._task.done() and not self.hung

    @property
    def ready(self) -> bool:
        """Whether the engine also answers: its last three runs did not all fail."""
        return self.alive and self._failures < MOST_FAILURES

    def __len__(self) -> int:
        """Pictures that wait."""
        return len(self._waiting)

    async def __call__(self, picture: Any, deadline: float = math.inf) -> Any:
        """The engine's answer to one picture.

        Args:
            picture: as the engine takes it.
            deadline: in ``time.monotonic``'s seconds.

        Raises:
            TooLate: it was not answered by then.
            EngineDown: the engine failed on its batch, or hangs.
        """
        if self.hung:
            raise EngineDown("the engine does not come back from a run")
        now, loop = time.monotonic(), asyncio.get_running_loop()
        waiting = _Waiting(picture, min(deadline, now + self.timeout), loop.create_future())
        timer = loop.call_later(max(0.0, waiting.deadline - now), _late, waiting.result)
        self._waiting.append(waiting)
        self._arrived.set()
        try:
            return await waiting.result
        except BaseException:  # nobody waits for it any more: its picture is not kept until its turn
            with contextlib.suppress(ValueError):
                self._waiting.remove(waiting)
            raise
        finally:
            timer.cancel()
            del waiting  # an exception that is raised here would keep it, and its picture, until the garbage collector comes

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            batch, self._waiting = self._waiting[: self.max_batch], self._waiting[self.max_batch :]
            if not self._waiting:
                self._arrived.clear()
            batch = [w for w in batch if not w.result.done()]  # its client has gone, or it is too late
            if batch:
                self._running_since = time.monotonic()
                self._given_up = max(self._running_since + min(1.0, self.timeout / 2), *(w.deadline for w in batch))
                await self._answer(loop, batch)
                self._running_since = self._given_up = math.inf

    async def _answer(self, loop: asyncio.AbstractEventLoop, batch: list[_Waiting]) -> None:
        start = time.perf_counter()
        try:
            answers = await loop.run_in_executor(self._thread, self.engine, [w.picture for w in batch])
            if len(answers) != len(batch):
                raise ValueError(f"{len(answers)} answers to {len(batch)} pictures")
        except Exception as error:  # the requests of this batch fail; the service goes on
            self._failures += 1
            for w in batch:
                if not w.result.done():
                    w.result.set_exception(EngineDown(f"the engine failed: {error}"))
            return
        self._failures = 0
        self.on_batch(len(batch), time.perf_counter() - start)
        for w, answer in zip(batch, answers, strict=True):
            if w.result.done():
                continue
            if isinstance(answer, Exception):
                w.result.set_exception(answer)
            else:
                w.result.set_result(answer)


def _late(result: asyncio.Future) -> None:
    if not result.done():
        result.set_exception(TooLate())
