"""PyTorch as the doctor sees it; ``alignment_doctor.frameworks.base.Probe`` says what each method does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from alignment_doctor.frameworks.base import SAMPLED, Fullness, Group, Held, NotedLoader, Treated
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.parts import Ranks


class Torch:
    """PyTorch."""

    def norms(self, tensors: Sequence[torch.Tensor]) -> np.ndarray:
        if not tensors:
            return np.zeros(0)
        with torch.no_grad():
            tensors = [t.detach().coalesce().values() if t.is_sparse else t.detach() for t in tensors]
            found = torch.stack([torch.linalg.vector_norm(t).double() for t in tensors]).cpu().numpy()
            for number in np.flatnonzero(~np.isfinite(found)):  # the squares alone may have overflowed
                found[number] = float(torch.linalg.vector_norm(tensors[int(number)], dtype=torch.float64))
        return found

    def samples(self, tensors: Sequence[torch.Tensor]) -> list[np.ndarray]:
        if not tensors:
            return []
        with torch.no_grad():
            dense = [_real(t.detach().to_dense() if t.is_sparse else t.detach()) for t in tensors]
            parts = [t.reshape(-1)[:: max(1, t.numel() // SAMPLED)][:SAMPLED].double() for t in dense]
            flat = torch.cat(parts).cpu().numpy()
        return np.split(flat, np.cumsum([part.numel() for part in parts])[:-1])

    def numbers(self, scalars: Sequence[torch.Tensor]) -> np.ndarray:
        return torch.stack([s.detach().reshape(()).double() for s in scalars]).cpu().numpy() if scalars else np.zeros(0)

    def detached(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone()

    def held(self, optimizer: torch.optim.Optimizer) -> Held:
        try:
            rates = {id(p): float(group["lr"]) for group in optimizer.param_groups for p in group["params"]}
            states = list(getattr(optimizer, "state", {}).values())
        except (AttributeError, KeyError, TypeError) as error:
            raise UserError(f"{type(optimizer).__name__} is no optimizer of torch ({error}): give it or a list of them") from error
        tensors = sum(isinstance(v, torch.Tensor) for state in states if isinstance(state, dict) for v in state.values())
        return Held(rates, tensors, isinstance(optimizer, torch.optim.LBFGS))

    def treated(self, optimizer: torch.optim.Optimizer) -> dict[int, Treated]:
        highest = max((float(group["lr"]) for group in optimizer.param_groups), default=0.0) or 1.0
        return {
            id(p): Treated(float(group.get("lr_factor", float(group["lr"]) / highest)), float(group.get("weight_decay") or 0.0))
            for group in optimizer.param_groups
            for p in group["params"]
        }

    def watchable(self, model: torch.nn.Module) -> torch.nn.Module:
        model = getattr(model, "_orig_mod", model)  # torch.compile's wrapper
        if isinstance(model, torch.jit.ScriptModule):
            raise UserError("a model of torch.jit cannot be watched: give Watch the model before it is scripted, and train that")
        fresh = [name for name, tensor in model.named_parameters() if isinstance(tensor, torch.nn.UninitializedParameter)]
        if fresh:
            raise UserError(f"parameter {fresh[0]} has no shape yet: call the model once before Watch and the optimizer are made")
        return model

    def compiling(self) -> bool:
        return torch.compiler.is_compiling()

    def noting_dropout(self) -> contextlib.AbstractContextManager[list[str]]:
        return _NotedDropout()

    def noting_layers(self, note: Callable[[Any], None]) -> Callable[[], None]:
        return torch.nn.modules.module.register_module_forward_pre_hook(lambda layer, _args: note(layer)).remove

    def own_parameters(self, layer: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
        return list(layer.named_parameters(recurse=False))

    def unscaled(self, scaler: Any, optimizer: Any) -> bool:
        states = getattr(scaler, "_per_optimizer_states", {})
        return id(optimizer) in states and states[id(optimizer)]["stage"].name == "UNSCALED"

    def ranks(self) -> Ranks | None:
        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return None
        device = "gpu" if dist.get_backend() == "nccl" else "cpu"

        def add(values: np.ndarray) -> np.ndarray:
            tensor = torch.from_numpy(values.copy()).to("cuda" if device == "gpu" else "cpu")
            dist.all_reduce(tensor)
            return tensor.cpu().numpy()

        return Group(dist.get_rank(), dist.get_world_size(), device, add)

    def wait(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    @contextlib.contextmanager
    def profiled(self, trace: Path) -> Iterator[None]:
        kinds = [torch.profiler.ProfilerActivity.CPU]
        kinds += [torch.profiler.ProfilerActivity.CUDA] if torch.cuda.is_available() else []
        with torch.profiler.profile(activities=kinds, record_shapes=True) as profiler:
            yield
        profiler.export_chrome_trace(str(trace))

    def loader(self) -> contextlib.AbstractContextManager[Fullness]:
        return NotedLoader(torch.utils.data.DataLoader, _queue)

    def device_mib(self) -> float:
        return torch.cuda.memory_allocated() / 2**20 if torch.cuda.is_available() else 0.0


class _NotedDropout(TorchDispatchMode):
    """Notes the operations of dropout, whatever function or layer they come from."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def __enter__(self) -> list[str]:  # type: ignore[override]
        super().__enter__()
        return self.noted

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        if "bernoulli" in name or "dropout" in name:
            self.noted.append(name)
        return func(*args, **(kwargs or {}))


def _queue(iterator: Any) -> tuple[int, int]:
    """Batches that came, in the queue or out of their order."""
    out_of_order = sum(len(task) == 2 for task in list(iterator._task_info.values()))
    return iterator._data_queue.qsize() + out_of_order, iterator._num_workers * iterator._prefetch_factor


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


PROBE = Torch
