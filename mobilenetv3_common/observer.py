"""What is told of a run while it trains. This one does nothing."""

from __future__ import annotations

import contextlib
from typing import Any


class Observer:
    """Base of what watches or measures a run; it changes nothing of it. Every rank has one and makes the same calls."""

    def observing(self, run: Any, log: Any) -> contextlib.AbstractContextManager[None]:
        """Around the whole loop.

        Args:
            run: a ``mobilenetv3_common.run.Run``, put together and restored.
            log: its ``TrainLog``.
        """
        return contextlib.nullcontext()

    def before_update(self, run: Any, loss: Any) -> None:
        """After the last backward pass of an update, before its gradients are looked at and used; ``loss`` is a scalar tensor."""

    def after_update(self, run: Any) -> None:
        """After the optimizer's step; ``run.update`` counts it, and the schedule has not stepped yet."""

    def evaluating(self, run: Any) -> contextlib.AbstractContextManager[None]:
        """Around an evaluation."""
        return contextlib.nullcontext()
