"""MindSpore as the doctor sees it, to profile its runs; ``alignment_doctor.frameworks.base.Probe`` says what each method does."""

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import mindspore
import mindspore.dataset
import numpy as np
from mindspore import profiler as profiling
from mindspore.common.api import _pynative_executor

from alignment_doctor.frameworks.base import SAMPLED, Fullness, Held
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.parts import Ranks


class MindSpore:
    """MindSpore on a CPU."""

    def norms(self, tensors: Sequence[mindspore.Tensor]) -> np.ndarray:
        return np.array([float(np.linalg.norm(t.asnumpy().astype(np.float64))) for t in tensors])

    def samples(self, tensors: Sequence[mindspore.Tensor]) -> list[np.ndarray]:
        flat = [t.asnumpy().reshape(-1) for t in tensors]
        return [one[:: max(1, one.size // SAMPLED)][:SAMPLED].astype(np.float64) for one in flat]

    def numbers(self, scalars: Sequence[mindspore.Tensor]) -> np.ndarray:
        return np.array([float(s.asnumpy()) for s in scalars])

    def detached(self, tensor: mindspore.Tensor) -> mindspore.Tensor:
        return mindspore.Tensor(tensor.asnumpy().copy())

    def held(self, optimizer: Any) -> Held:
        return _not_watched()

    def watchable(self, model: Any) -> Any:
        return _not_watched()

    def compiling(self) -> bool:
        return mindspore.get_context("mode") == mindspore.GRAPH_MODE

    def ranks(self) -> Ranks | None:
        return None

    def wait(self) -> None:
        _pynative_executor.sync()  # mindspore.runtime.synchronize waits for nothing on a CPU, and logs an error

    @contextlib.contextmanager
    def profiled(self, trace: Path) -> Iterator[None]:
        """MindSpore's profiler writes a folder, and says so on standard output; its trace names neither categories nor shapes."""
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            written = profiling.tensorboard_trace_handler(folder)
            with profiling.profile(activities=[profiling.ProfilerActivity.CPU], on_trace_ready=written) as profiler:
                yield
                self.wait()
                profiler.step()
            trace.write_text(json.dumps({"traceEvents": events_of(Path(folder))}), encoding="utf-8")

    def loader(self) -> contextlib.AbstractContextManager[Fullness]:
        return _Counted()

    def device_mib(self) -> float:
        return 0.0


class _Counted:
    """Counts the rows that a ``GeneratorDataset`` makes and gives, which MindSpore tells nobody.

    The one that is iterated last counts. One behind which other operations stand in the pipeline is not counted.
    """

    def __init__(self) -> None:
        self.made = self.given = self.room = 0
        self.counting = False

    def __enter__(self) -> Fullness:
        counts, kind, lock = self, mindspore.dataset.GeneratorDataset, threading.Lock()
        self._kind, self._begin = kind, kind.__init__

        class Source:
            def __init__(self, own: Any) -> None:
                self.own = own

            def __len__(self) -> int:
                return len(self.own)

            def __getitem__(self, number: int) -> Any:
                row = self.own[number]
                with lock:
                    counts.made += 1
                return row

        def begin(dataset: Any, source: Any, *args: Any, **kwargs: Any) -> None:
            indexed = hasattr(source, "__getitem__") and hasattr(source, "__len__")
            self._begin(dataset, Source(source) if indexed else source, *args, **kwargs)

        def rows(dataset: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            self.made = self.given = 0
            self.counting = isinstance(dataset.source, Source)
            self.room = mindspore.dataset.config.get_prefetch_size() * (dataset.num_parallel_workers or 1)
            for row in mindspore.dataset.Dataset.create_tuple_iterator(dataset, *args, **kwargs):
                self.given += 1
                yield row

        kind.__init__, kind.create_tuple_iterator = begin, rows
        return self.fullness

    def __exit__(self, *_error: object) -> None:
        self._kind.__init__ = self._begin
        del self._kind.create_tuple_iterator

    def fullness(self) -> tuple[int, int] | None:
        return (max(0, min(self.made - self.given, self.room)), self.room) if self.counting else None


def events_of(folder: Path) -> list[dict[str, Any]]:
    """The operators of a profile, as events of a Chrome trace with their shapes.

    Args:
        folder: which ``tensorboard_trace_handler`` was given.

    Raises:
        UserError: the profiler has written none.
    """
    traces = [*folder.rglob("trace_view.json")]
    if not traces:
        raise UserError("MindSpore's profiler has written no trace: is there room in the folder for temporary files?")
    shapes: dict[str, list[list[int]]] = {}
    for file in folder.rglob("cpu_framework_*.txt"):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            _kind, name, _, *inputs = line.split(";")
            found = [re.findall(r"\d+", one.partition(":[")[2]) for one in inputs if ":[" in one]
            shapes[name] = [[int(size) for size in one] for one in found]
    events = json.loads(traces[0].read_text(encoding="utf-8"))
    made = []
    for event in events if isinstance(events, list) else events["traceEvents"]:
        name = str(event["name"]).rpartition("/")[2]
        if event.get("ph") == "X" and name != "Default":  # the whole graph
            times = {key: float(event[key]) for key in ("ts", "dur")}
            dims = {"Input Dims": shapes.get(name, [])}
            made.append({**event, **times, "name": re.sub(r"-op\d+$", "", name), "cat": "cpu_op", "args": dims})
    return made


def _not_watched() -> NoReturn:
    raise UserError("runs in MindSpore can be profiled and not watched yet: leave the watching out")


PROBE = MindSpore
