"""Which graphs of earlier updates are still alive.

``total += loss`` keeps one tensor, and with it the graph of every loss that went into it. The framework's memory hardly shows that,
and no list of live tensors does. A hook belongs to a graph, so an object that only the hook holds lives as long as the graph.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

HELD = 12  # graphs of earlier updates: a sum over ten updates, which is then begun anew, is no leak


class Marks:
    """Marks of graphs, each of which goes with its graph."""

    def __init__(self) -> None:
        self._marks: list[weakref.ref[_Mark]] = []

    def put(self, tensor: Any) -> None:
        """Mark the graph of a tensor, which must need a gradient; one that was not computed has no graph.

        In Paddle, whoever has asked for ``grad_fn`` keeps the graph for ever: it is not asked for here.
        """
        if getattr(tensor, "is_leaf", True):
            return
        mark = _Mark()
        tensor.register_hook(functools.partial(_unchanged, mark))
        self._marks.append(weakref.ref(mark))

    def held(self) -> int:
        """How many graphs are alive besides the one that was marked last."""
        last = self._marks[-1:]
        self._marks = [mark for mark in self._marks if mark() is not None]
        return len(self._marks) - len([mark for mark in last if mark() is not None])


class _Mark:
    """Lives as long as the hook that holds it."""


def _unchanged(_mark: _Mark, _gradient: Any) -> None:
    return None
