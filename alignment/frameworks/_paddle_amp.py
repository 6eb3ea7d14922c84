"""Paddle's mixed precision on a CPU, where it does nothing by itself. ``paddle.py`` alone uses this, and hands its modules in."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from alignment.frameworks._low import Low, OperatorAutocast, Tensor, patched

ARITHMETIC = {
    **{f"{side}add": "add" for side in ("", "r")},
    **{f"{side}sub": "subtract" for side in ("", "r")},
    **{f"{side}mul": "multiply" for side in ("", "r")},
    **{f"{side}truediv": "divide" for side in ("", "r")},
    **{f"{side}{name}": name for name in ("matmul", "pow") for side in ("", "r")},
}

PLAIN = ("_", "cast", "assign", "full", "gaussian", "uniform")  # operators that compute nothing from what they are given


class MixedPrecisionHere:
    """Inside its blocks ``paddle.amp`` does on a CPU what it does on a GPU: autocast, ``decorate``, ``GradScaler``.

    Args:
        paddle: the framework.
        auto_cast, grad_scaler: its modules of these names, which look for a GPU.
    """

    def __init__(self, paddle: ModuleType, auto_cast: ModuleType, grad_scaler: ModuleType) -> None:
        self.paddle, self.auto_cast, self.grad_scaler = paddle, auto_cast, grad_scaler
        self.unscale = paddle._legacy_C_ops.check_finite_and_unscale
        kinds = {getattr(paddle, name): name for name in ("float32", "float16", "bfloat16")}
        operators = [name for name in paddle._C_ops.__all__ if not name.startswith(PLAIN)]
        self.operators = OperatorAutocast(
            [(paddle._C_ops, name, name) for name in operators]
            + [(paddle.Tensor, f"__{name}__", operator) for name, operator in ARITHMETIC.items()],
            paddle.Tensor,
            lambda tensor: kinds.get(tensor.dtype, ""),
            lambda tensor, dtype: tensor.astype(dtype),
        )

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        yes, no = lambda: True, lambda: False
        place = types.SimpleNamespace(is_gpu_place=yes, is_xpu_place=no, is_custom_place=no)
        tracer = types.SimpleNamespace(_expected_place=place)
        asked = {"_dygraph_tracer": lambda: tracer}  # whether there is a GPU
        supported = {"_is_gpu_float16_supported": yes, "_is_gpu_bfloat16_supported": yes}
        state = self.auto_cast.amp_global_state()
        with (
            patched(self.auto_cast, amp_guard=self._guard, **asked, **supported),
            patched(self.grad_scaler, **asked),
            patched(self.paddle._legacy_C_ops, check_finite_and_unscale=self._unscale),
            patched(state, amp_dtype=state.amp_dtype),
            self.operators(None),  # half precision outside autocast, too
        ):
            yield

    @contextlib.contextmanager
    def _guard(
        self,
        enable: bool = True,
        custom_white_list: Any = None,
        custom_black_list: Any = None,
        level: str = "O1",
        dtype: Any = "float16",
        use_promote: bool = True,
    ) -> Iterator[None]:
        """``paddle.amp.amp_guard`` by operators."""
        name = str(dtype).rpartition(".")[2]
        self.auto_cast.amp_global_state().amp_dtype = name  # and it stays so after the block, as the scaler expects
        white, black = self.auto_cast._update_list(custom_white_list, custom_black_list, level, name)
        low = Low(name, level) if enable and level != "O0" else None
        with self.operators(low, frozenset(white) | {"linear"}, frozenset(black)):  # a CPU's linear is a GPU's linear_v2
            yield

    def _unscale(self, given: list[Tensor], scale: Tensor, into: list[Tensor], found: Tensor) -> Any:
        """Gradients over the scale, in place, computed in float32."""
        wide = [tensor.astype("float32") for tensor in given]
        result = self.unscale(wide, scale, wide, found)
        for tensor, values in zip(into, wide, strict=True):
            tensor.set_value(values.astype(tensor.dtype))
        return result
