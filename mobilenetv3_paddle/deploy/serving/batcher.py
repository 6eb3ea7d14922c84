"""Dynamic batching: requests that wait at the same time share one run of the engine."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from mobilenetv3_common.errors import UserError

MOST_FAILURES = 3  # runs of the engine that fail one after the other before the service calls itself unready


class TooLate(Exception):
    """A picture waited longer than it may."""


class EngineDown(UserError):
    """The engine or a decoder failed, or gives what is no answer, or does not come back."""


@dataclass(eq=False, repr=False)
class Waiting:
    """What waits for its turn and its answer until a deadline in ``time.monotonic``'s seconds."""

    what: Any
    deadline: float
    result: asyncio.Future = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def settle(self, answer: Any) -> None:
        """Set the answer, or the exception, unless nobody waits for it any more."""
        if not self.result.done():
            (self.result.set_exception if isinstance(answer, Exception) else self.result.set_result)(answer)


class Line:
    """What waits, first come first served; ``changed`` is set when something has come."""

    def __init__(self) -> None:
        self.waiting: deque[Any] = deque()
        self.changed = asyncio.Event()

    def __len__(self) -> int:
        """How many wait."""
        return len(self.waiting)

    async def answer(self, one: Waiting) -> Any:
        """What comes of it; ``TooLate`` at its deadline."""
        timer = asyncio.get_running_loop().call_later(max(0.0, one.deadline - time.monotonic()), one.settle, TooLate())
        self.waiting.append(one)
        self.changed.set()
        try:
            return await one.result
        finally:
            timer.cancel()
            if one in self.waiting:  # nobody waits for it any more: it is not kept until its turn
                self.waiting.remove(one)
            del one, timer  # an exception that is raised here would keep it until the garbage collector comes


class Batcher(Line):
    """Collects pictures into batches and runs the engine on one batch after the other, in a thread of its own.

    While a batch runs, pictures gather; so batches grow with the load by themselves, and a lone picture waits for nobody.

    The engine makes of a list of pictures as many answers; one that is an exception is raised for its picture alone. ``timeout`` is
    seconds that a picture may wait for its turn and its run, where no deadline is given. ``on_batch`` is told the size of each
    batch and the seconds it took.
    """

    def __init__(
        self, engine: Callable[[list[Any]], Sequence[Any]], max_batch: int, timeout: float,
        on_batch: Callable[[int, float], None] = lambda size, seconds: None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.engine, self.max_batch, self.timeout, self.on_batch = engine, max_batch, timeout, on_batch
        self._given_up = math.inf  # when the engine counts as hung, in a run
        self._running, self._failures = False, 0
        self._thread = ThreadPoolExecutor(1, "engine")
        self._task: asyncio.Task | None = None

    def start(self) -> None:
        """Begin to serve; inside a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._serve())

    async def stop(self) -> None:
        """Serve all that waits, and what the engine has in hand, then end; a hung engine is not waited for."""
        while (self.waiting or self._running) and not self.hung:
            await asyncio.sleep(0.01)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._thread.shutdown(wait=not self.hung, cancel_futures=True)

    @property
    def hung(self) -> bool:
        """Whether the pictures of a run are all too late, and it has lasted for a second (or half of what a picture may take)."""
        return time.monotonic() > self._given_up

    @property
    def alive(self) -> bool:
        """Whether batches are being served."""
        return self._task is not None and not self._task.done() and not self.hung

    @property
    def ready(self) -> bool:
        """Whether the engine also answers: its last three runs did not all fail."""
        return self.alive and self._failures < MOST_FAILURES

    async def __call__(self, picture: Any, deadline: float = math.inf) -> Any:
        """The engine's answer to one picture, before a deadline in ``time.monotonic``'s seconds.

        Raises:
            TooLate: it was not answered by then.
            EngineDown: the engine failed on its batch, or hangs.
        """
        if self.hung:
            raise EngineDown("the engine does not come back from a run")
        return await self.answer(Waiting(picture, min(deadline, time.monotonic() + self.timeout)))

    async def _serve(self) -> None:
        while True:
            await self.changed.wait()
            batch = [self.waiting.popleft() for _ in range(min(len(self), self.max_batch))]
            if not self.waiting:
                self.changed.clear()
            batch = [w for w in batch if not w.result.done()]  # its client has gone, or it is too late
            if batch:
                self._running = True
                self._given_up = max(time.monotonic() + min(1.0, self.timeout / 2), *(w.deadline for w in batch))
                for w, answer in zip(batch, await self._answers(batch), strict=True):
                    w.settle(answer)
                self._running, self._given_up = False, math.inf

    async def _answers(self, batch: list[Waiting]) -> Sequence[Any]:
        start = time.perf_counter()
        try:
            answers = await asyncio.get_running_loop().run_in_executor(self._thread, self.engine, [w.what for w in batch])
            if len(answers) != len(batch):
                raise ValueError(f"{len(answers)} answers to {len(batch)} pictures")
        except Exception as error:  # the requests of this batch fail; the service goes on
            self._failures += 1
            return [EngineDown(f"the engine failed: {error}") for _ in batch]
        self._failures = 0
        self.on_batch(len(batch), time.perf_counter() - start)
        return answers
