"""Candidates are tried, each in a process of its own that imports the changed copy of the port's source: does it compute the same?

What is run here is small: the outputs in exact mode with the reference's weights, or, where those agree in the broken port already,
one search. What passes is only then worth a whole audit (``alignment.audit.tried``).
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.distance import distance, norm, relative
from alignment.frameworks import framework_of
from alignment.frameworks.base import Module, mapped
from alignment.localize.blame import Pair, one_ulp
from alignment.localize.search import moved_weights
from alignment.models.tracing import training_mode
from alignment.repair.copies import copied
from alignment.repair.edits import Fix, applied
from alignment.repair.search import QUICK, SEARCHED, Where
from alignment.scratch import scratch
from alignment.strangers import strangers

LIMIT = 60.0  # seconds for one candidate
DRAWS = 3  # of one-ulp changes
STREAMS = (1, 2)  # standard output and standard error


@dataclass(frozen=True)
class Job:
    """Two models and what they are run on.

    Attributes:
        port, reference: ``MODULE:CALLABLE`` or ``FILE.py:CALLABLE``, with their arguments.
        inputs: of both.
        training: whether training mode is compared, too.
        left: mistakes that may stay.
        ignored: kinds that may, because the frameworks themselves differ so.
        how: ``QUICK`` or ``SEARCHED``.
        folders: for the front of the path.
    """

    port: tuple[str, dict[str, Any]]
    reference: tuple[str, dict[str, Any]]
    inputs: tuple[np.ndarray, ...]
    training: bool
    left: frozenset[Where] = frozenset()
    ignored: frozenset[str] = frozenset()
    how: str = QUICK
    folders: tuple[str, ...] = ()


def right(job: Job) -> bool:
    """Whether the port computes what the reference does; runs in a process of its own."""
    from alignment.audit.pair import ModelMaker

    sys.path[:0] = job.folders
    for training in (False, True) if job.training else (False,):
        with strangers("port") as raised:
            port = ModelMaker("--port", *job.port).function()
            reference = ModelMaker("--reference", *job.reference).function()
            if not _right(job, port, reference, training):
                return False
        if raised.error is not None:
            return False
    return True


def _right(job: Job, port: Module, reference: Module, training: bool) -> bool:
    from alignment.localize import localize

    if job.how == SEARCHED:
        found = localize(port, reference, job.inputs, training=training, weights=False).first
        return found is None or (found.location, str(found.kind)) in job.left or str(found.kind) in job.ignored
    return same_outputs(port, reference, job.inputs, training)


def same_outputs(port: Module, reference: Module, inputs: tuple[np.ndarray, ...], training: bool) -> bool:
    """Whether two models give the same in exact mode, with the reference's weights."""
    from alignment import localize as engine

    sides = framework_of(port), framework_of(reference)
    found = engine.matched(port, reference, {}, sides, lambda: inputs)
    found.name(port, 0)
    found.name(reference, 1)
    order = lambda: engine.order_of_use(sides[1], reference, inputs)  # noqa: E731
    if engine.structure_finding(port, reference, found.matching, sides, order):
        return False
    pair = engine._exact_pair((port, reference), found.matching, sides, inputs, training, True)
    with training_mode(pair.networks, training):
        ours, theirs = (one.framework.call(one.model, pair.args).outputs for one in (pair.port, pair.reference))
        if len(ours) != len(theirs) or any(a.shape != b.shape for a, b in zip(ours, theirs, strict=True)):
            return False
        apart = [relative(distance(a, b), norm(b)) for a, b in zip(ours, theirs, strict=True)]
        if all(far <= tolerance.EXACT_RTOL for far in apart):
            return True
        return all(far <= tolerance.MOST_EXACT_RTOL for far in apart) and _is_rounding(pair, theirs, apart)


def _is_rounding(pair: Pair, theirs: Sequence[np.ndarray], apart: Sequence[float]) -> bool:
    """Whether outputs of a deep network differ no more than rounding lets them: as an audit's own step judges them."""
    moved = [0.0] * len(theirs)
    for draw in range(DRAWS):
        with moved_weights(pair.reference, draw):
            given = mapped(pair.args, np.ndarray, functools.partial(one_ulp, draw=draw))
            outputs = pair.reference.framework.call(pair.reference.model, given).outputs
        moved = [max(far, relative(distance(a, b), norm(b))) for far, a, b in zip(moved, outputs, theirs, strict=True)]
    bounds = [max(tolerance.EXACT_RTOL, tolerance.TRAJECTORY_FACTOR * far) for far in moved]
    return all(far <= bound for far, bound in zip(apart, bounds, strict=True))


class Trials:
    """Tries corrections, each in a process of its own that is forked from one that has imported the frameworks.

    Args:
        job: of the port as it is.
        method: of ``multiprocessing``; ``"fork"`` where this process has computed nothing.
    """

    def __init__(self, job: Job, method: str = "forkserver") -> None:
        self.job = job
        self._context: Any = multiprocessing.get_context(method)
        if method == "forkserver":
            names = [name for name in ("mindspore", "paddle", "torch") if name in sys.modules]
            self._context.set_forkserver_preload([*names, __name__, "alignment.localize", "alignment.audit.pair"])

    def __call__(self, fixes: Sequence[Fix], how: str, left: frozenset[Where] = frozenset()) -> bool:
        """Whether the port is right with some corrections."""
        with scratch() as made:
            port, folders = copied(self.job.port[0], applied(fixes), made)
            folders = (*folders, *self.job.folders)
            job = replace(self.job, port=(port, self.job.port[1]), folders=folders, how=how, left=left)
            return bool(answered(self._context, right, (job,), LIMIT))


def answered(context: Any, function: Callable, args: tuple, limit: float) -> Any:
    """What a function gives in a process of its own; None where it raises, ends without an answer or takes too long."""
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(function, args, sender), daemon=True)
    with _without_main(), _silent():  # the server of forks keeps the streams that it starts with
        process.start()
    sender.close()
    try:
        with contextlib.suppress(EOFError):  # it ended without an answer
            return receiver.recv() if receiver.poll(limit) else None
        return None
    finally:  # also where this process is asked to stop
        process.kill()
        process.join()


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """A process that is started here does not run the user's script again, which need not be guarded by its name."""
    main = sys.modules["__main__"]
    held = {name: getattr(main, name) for name in ("__file__", "__spec__") if hasattr(main, name)}
    try:
        for name in held:
            setattr(main, name, None)
        yield
    finally:
        for name, value in held.items():
            setattr(main, name, value)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """What is started here writes nothing: frameworks have much to say when they are imported."""
    if os.environ.get("ALIGNMENT_SHOW_TRIALS"):
        yield
        return
    kept, null = {}, os.open(os.devnull, os.O_WRONLY)
    for one in STREAMS:
        with contextlib.suppress(OSError):  # a process without it
            kept[one] = os.dup(one)
    try:
        for one in kept:
            os.dup2(null, one)
        yield
    finally:
        for one, copy in kept.items():
            os.dup2(copy, one)
        for copy in (*kept.values(), null):
            os.close(copy)


def _answer(function: Callable, args: tuple, sender: Any) -> None:
    try:
        sender.send(function(*args))
    finally:
        os._exit(0)  # what a framework does at the end of a process takes longer than the trial
