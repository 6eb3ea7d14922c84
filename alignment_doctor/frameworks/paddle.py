"""Paddle as the doctor sees it; ``alignment_doctor.frameworks.base.Probe`` says what each method does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.profiler as profiling

from alignment_doctor.frameworks.base import SAMPLED, Fullness, Group, Held, NotedLoader, Treated
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.parts import Ranks

IS_TEST = 3  # argument of Paddle's operation dropout: that it drops nothing
HALF = (paddle.float16, paddle.bfloat16)


class Paddle:
    """PaddlePaddle."""

    def norms(self, tensors: Sequence[paddle.Tensor]) -> np.ndarray:
        if not tensors:
            return np.zeros(0)
        with paddle.no_grad():
            tensors = [_dense(t) for t in tensors]
            flat = [(t.astype("float32") if t.dtype in HALF else t).detach().flatten() for t in tensors]
            found = np.sqrt(paddle.stack([paddle.dot(one, one).astype("float64") for one in flat]).numpy())
        for number in np.flatnonzero(~np.isfinite(found)):  # the squares alone may have overflowed
            found[number] = np.linalg.norm(flat[number].numpy().astype(np.float64))
        return found

    def samples(self, tensors: Sequence[paddle.Tensor]) -> list[np.ndarray]:
        with paddle.no_grad():
            return [self._sample(_dense(tensor).detach()) for tensor in tensors]

    def _sample(self, tensor: paddle.Tensor) -> np.ndarray:
        count = int(np.prod(tensor.shape)) if tensor.shape else 1
        step = max(1, count // SAMPLED)
        if tensor.dtype in HALF:
            tensor = tensor.astype("float32")
        if tensor.place.is_cpu_place():  # a copy of the whole tensor costs less than one of Paddle's operations
            return tensor.numpy().reshape(-1)[::step][:SAMPLED].astype(np.float64)
        return tensor.flatten()[::step][:SAMPLED].numpy().astype(np.float64)

    def numbers(self, scalars: Sequence[paddle.Tensor]) -> np.ndarray:
        if not scalars:
            return np.zeros(0)
        return paddle.stack([s.detach().astype("float64").reshape([]) for s in scalars]).numpy()

    def detached(self, tensor: paddle.Tensor) -> paddle.Tensor:
        return tensor.detach().clone()

    def held(self, optimizer: paddle.optimizer.Optimizer) -> Held:
        optimizer = getattr(optimizer, "_inner_opt", optimizer)
        try:
            rate, own = float(optimizer.get_lr()), optimizer._parameter_list or []
        except AttributeError as error:
            raise UserError(f"{type(optimizer).__name__} is no optimizer of Paddle ({error}): give it or a list of them") from error
        if own and isinstance(own[0], dict):
            own = [parameter for group in own for parameter in group["params"]]
        rates = {id(p): rate * float(p.optimize_attr.get("learning_rate", 1.0)) for p in own}  # a group's rate is a factor
        made = sum(len(tensors) for tensors in optimizer._accumulators.values())
        return Held(rates, made or len(optimizer._accumulators_holder), type(optimizer).__name__ == "LBFGS")

    def treated(self, optimizer: paddle.optimizer.Optimizer) -> dict[int, Treated]:
        optimizer = getattr(optimizer, "_inner_opt", optimizer)
        groups = optimizer._param_groups or []
        if groups and not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        found = {}
        for group in groups:
            told = {**vars(optimizer)["_default_dict"], **group}
            kinds = ("lamb_weight_decay", "weight_decay", "regularization_coeff")  # the last is Momentum's own
            given = next((told[kind] for kind in kinds if told.get(kind) is not None), None)
            for p in group["params"]:
                decays = getattr(optimizer, "_decays", {})  # of an optimizer that takes it itself
                own = decays.get(p.name, p.regularizer if p.regularizer is not None else given)
                decay = float(getattr(own, "_coeff", own) or 0.0)
                found[id(p)] = Treated(float(p.optimize_attr.get("learning_rate", 1.0)), decay)
        return found

    def watchable(self, model: paddle.nn.Layer) -> paddle.nn.Layer:
        return model

    def compiling(self) -> bool:
        return not paddle.in_dynamic_mode()

    @contextlib.contextmanager
    def noting_dropout(self) -> Iterator[list[str]]:
        noted: list[str] = []
        kept = {name: getattr(paddle._C_ops, name) for name in ("dropout", "dropout_", "bernoulli") if hasattr(paddle._C_ops, name)}

        def noting(name: str) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                if name == "bernoulli" or not (len(args) > IS_TEST and args[IS_TEST]):
                    noted.append(name)
                return kept[name](*args, **kwargs)

            return call

        try:
            for name in kept:
                setattr(paddle._C_ops, name, noting(name))
            yield noted
        finally:
            for name, own in kept.items():
                setattr(paddle._C_ops, name, own)

    def noting_layers(self, note: Callable[[Any], None]) -> Callable[[], None]:
        own = paddle.nn.Layer.__call__

        def call(layer: paddle.nn.Layer, *args: Any, **kwargs: Any) -> Any:
            note(layer)
            return own(layer, *args, **kwargs)

        def stop() -> None:
            if paddle.nn.Layer.__call__ is call:
                paddle.nn.Layer.__call__ = own

        paddle.nn.Layer.__call__ = call
        return stop

    def own_parameters(self, layer: paddle.nn.Layer) -> list[tuple[str, paddle.Tensor]]:
        return list(layer._parameters.items())

    def unscaled(self, scaler: Any, optimizer: Any) -> bool:
        states = getattr(scaler, "_optimizer_states", {})
        return id(optimizer) in states and states[id(optimizer)]["state"].name == "UNSCALED"

    def ranks(self) -> Ranks | None:
        if not (dist.is_initialized() and dist.get_world_size() > 1):
            return None

        def add(values: np.ndarray) -> np.ndarray:
            tensor = paddle.to_tensor(values)
            dist.all_reduce(tensor)
            return tensor.numpy()

        device = "gpu" if paddle.device.get_device().startswith("gpu") else "cpu"
        return Group(dist.get_rank(), dist.get_world_size(), device, add)

    def wait(self) -> None:
        if paddle.device.get_device().startswith("gpu"):
            paddle.device.synchronize()

    @contextlib.contextmanager
    def profiled(self, trace: Path) -> Iterator[None]:
        kinds = [profiling.ProfilerTarget.CPU]
        kinds += [profiling.ProfilerTarget.GPU] if paddle.device.get_device().startswith("gpu") else []
        profiler = profiling.Profiler(targets=kinds, record_shapes=True, on_trace_ready=lambda _profiler: None)
        profiler.start()
        yield
        profiler.stop()
        profiler.export(str(trace), format="json")

    def loader(self) -> contextlib.AbstractContextManager[Fullness]:
        return NotedLoader(paddle.io.DataLoader, _queue)

    def device_mib(self) -> float:
        on_gpu = paddle.device.get_device().startswith("gpu")
        return paddle.device.cuda.memory_allocated() / 2**20 if on_gpu else 0.0


def _queue(iterator: Any) -> tuple[int, int]:
    """Batches that were asked for and not given yet, but for those that the workers still have."""
    worked_on = sum(len(task) == 1 for task in list(iterator._task_infos.values())) - iterator._data_queue.qsize()
    return iterator._batches_outstanding - worked_on, iterator._outstanding_capacity


def _dense(tensor: paddle.Tensor) -> paddle.Tensor:
    """The gradient of a sparse embedding, which holds some rows alone, as a whole tensor."""
    if not tensor.is_selected_rows():
        return tensor
    held = tensor.get_selected_rows()
    rows = tensor.numpy()
    whole = np.zeros((held.height(), *rows.shape[1:]), rows.dtype)
    np.add.at(whole, held.rows(), rows)
    return paddle.to_tensor(whole)


PROBE = Paddle
