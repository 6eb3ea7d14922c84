"""What mistake a difference looks like.

Each known mistake is tried as a hypothesis: the reference's module is computed again with that mistake in it, and where
Paddle's result is that to rounding, the mistake is named with what was measured. A hint is never a guess from a size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from alignment.compare import distance, norm, relative
from alignment.localize.tracing import Call, leaves

if TYPE_CHECKING:
    from alignment.localize.modules import Blame, Pair

CLOSE = 1e-6  # relative L2 at which a hypothesis counts as met; kernels' float32 constants stay below it
Hint = tuple[str, str]

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "identity": lambda x: x,
    "ReLU": F.relu,
    "ReLU6": F.relu6,
    "Hardswish": F.hardswish,
    "Hardsigmoid": F.hardsigmoid,
    "Sigmoid": torch.sigmoid,
    "Swish": F.silu,
    "GELU": F.gelu,
    "GELU (tanh)": lambda x: F.gelu(x, approximate="tanh"),
    "Tanh": torch.tanh,
    "LeakyReLU": F.leaky_relu,
    "ELU": F.elu,
    "Hardsigmoid of slope 0.2": lambda x: (0.2 * x + 0.5).clip(0, 1),
}
_ACTIVATION_CLASSES = (
    "relu",
    "relu6",
    "hardswish",
    "hardsigmoid",
    "torchhardsigmoid",
    "sigmoid",
    "silu",
    "gelu",
    "tanh",
    "leakyrelu",
)


@dataclass
class Subject:
    """One module that is to blame, with what it was given and what both sides made of it."""

    pair: Pair
    path: str
    call: Call
    phase: str
    blame: Blame

    @property
    def module(self) -> torch.nn.Module:
        return self.pair.ref.modules[self.path]

    @property
    def layer(self) -> Any:
        return self.pair.paddle.modules[self.path]

    @property
    def input(self) -> np.ndarray | None:
        arrays = leaves((self.call.args, self.call.kwargs), np.ndarray)
        return arrays[0] if arrays else None

    @property
    def output(self) -> np.ndarray | None:
        return self.blame.ours.outputs[0] if self.blame.ours.outputs else None

    @property
    def expected(self) -> np.ndarray | None:
        return self.blame.theirs.outputs[0] if self.blame.theirs.outputs else None


def close(a: np.ndarray | None, b: np.ndarray | None, rtol: float = CLOSE) -> bool:
    """Whether two arrays are equal to rounding, relative to the larger norm."""
    if a is None or b is None or a.shape != b.shape or a.size == 0:
        return False
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return False
    return float(np.linalg.norm(a - b)) <= rtol * max(float(np.linalg.norm(b)), float(np.linalg.norm(a)), 1e-300)


def hint(subject: Subject) -> Hint:
    """Kind and words of the likeliest mistake; two empty strings where none fits."""
    for hypotheses in (_backward,) if subject.phase == "backward" else (_buffers, _specific, _general):
        with torch.no_grad():
            for kind, words in hypotheses(subject):
                return kind, words
    return "", ""


# --- forward ---------------------------------------------------------------------------------------------------------------


def _buffers(s: Subject) -> Iterator[Hint]:
    """Statistics that differ after a pass whose output is right."""
    what = s.blame.what
    if what not in s.blame.theirs.buffers:
        return
    start = s.pair.ref.start[s.pair.ref.below(s.path)[what]]
    ours, theirs = s.blame.ours.buffers[what], s.blame.theirs.buffers[what]
    momentum = float(getattr(s.module, "momentum", None) or 0.1)
    batch = start + (theirs - start) / momentum
    moved = np.abs(batch - start) > 1e-3 * np.abs(batch).max()
    if not moved.any() or ours.shape != theirs.shape:
        return
    seen = float(np.median((ours - start)[moved] / (batch - start)[moved]))
    if close(ours, start, 1e-9):
        yield "statistics_frozen", f"{what} is not updated in training: frozen, or the layer is in evaluation mode"
    if close(ours, start + (1 - momentum) * (batch - start)):
        yield (
            "momentum_inverted",
            f"momentum inverted: the new batch has the share {seen:.4g} where torch's momentum gives it {momentum:g} "
            "(Paddle's momentum is the share of the old value)",
        )
    x = s.input
    if what.endswith("running_var") and x is not None and x.ndim >= 2:
        n = x.size // x.shape[1]
        biased = start + momentum * (batch * (n - 1) / n - start)
        if close(ours, biased, 1e-5) and not close(ours, theirs, 1e-9):
            yield "biased_variance", f"biased variance: the batch variance lacks the factor n/(n-1) = {n}/{n - 1}"
        flipped = start + (1 - momentum) * (batch * (n - 1) / n - start)
        if close(ours, flipped, 1e-5):
            yield "momentum_inverted", "momentum inverted, and the variance is the biased one"
    if close(ours, start + seen * (batch - start), 1e-5):
        yield "momentum", f"momentum {seen:.4g} in torch's sense, expected {momentum:g}"


def _specific(s: Subject) -> Iterator[Hint]:
    """Mistakes of one kind of layer."""
    name = type(s.module).__name__.lower()
    x = None if s.input is None else torch.from_numpy(np.asarray(s.input))
    if x is None:
        return
    if "dropout" in name:
        yield from _dropout(s, x)
    elif isinstance(s.module, torch.nn.modules.batchnorm._BatchNorm):
        yield from _batch_norm(s, x)
    elif name in _ACTIVATION_CLASSES:
        for other, function in ACTIVATIONS.items():
            if close(s.output, function(x).numpy()):
                yield "activation", f"activation swapped: it computes {other}, expected {type(s.module).__name__}"
    elif hasattr(s.module, "weight") and hasattr(s.module, "stride") and s.module.weight.ndim == 4:
        yield from _convolution(s, x)
    elif isinstance(s.module, torch.nn.Linear):
        yield from _linear(s, x)
    elif "pool" in name:
        yield from _pooling(s, x)
    elif "squeeze" in name and close(s.output, s.input):
        yield "no_squeeze_excitation", "squeeze-excitation missing: the block gives its input back"
    elif list(s.module.children()):
        yield from _wiring(s)


def _dropout(s: Subject, x: torch.Tensor) -> Iterator[Hint]:
    out, given = s.output, s.input
    p = float(getattr(s.module, "p", 0.0))
    if out is None or given is None or out.shape != given.shape:
        return
    dropped = float(((out == 0) & (given != 0)).mean())
    if not s.pair.training:
        if dropped > 0:
            yield "dropout_on", f"dropout left on in evaluation mode: {dropped:.0%} of the values are zero"
        ratio = common_factor(out, given)
        if ratio is not None:
            yield "dropout_scale", f"dropout scales by {ratio:.4g} in evaluation mode (downscale_in_infer?)"
        return
    if dropped == 0:
        ratio = common_factor(out, given)
        if ratio is not None and abs(ratio - 1) < 1e-9:
            yield "dropout_missing", f"dropout does nothing in training: missing, or evaluation mode; expected p = {p:g}"
    kept = out != 0
    scale = common_factor(out[kept], given[kept]) if kept.any() else None
    wanted = 1 / (1 - p) if p < 1 else 0.0
    if scale is not None and abs(scale - 1) < 1e-9 and p > 0 and dropped > 0:
        yield "dropout_scale", f"dropout keeps values unscaled in training, expected the factor {wanted:.4g}"
    if scale is not None and scale > 1:
        yield (
            "dropout_rate",
            f"dropout rate: it drops {dropped:.0%} and scales by {scale:.4g}, which is p = {1 - 1 / scale:.3g}, expected {p:g}",
        )


def _batch_norm(s: Subject, x: torch.Tensor) -> Iterator[Hint]:
    bn, given, out = s.module, s.input, s.output
    if out is None or given is None or out.shape != given.shape:
        return
    start = {name: s.pair.ref.start[full] for name, full in s.pair.ref.below(s.path).items()}
    weight, bias = bn.weight.numpy(), bn.bias.numpy()
    shape = (1, -1, *(1,) * (given.ndim - 2))
    axes = tuple(i for i in range(given.ndim) if i != 1)
    batch = given.mean(axes, dtype=np.float64), given.var(axes, dtype=np.float64)
    kept = start["running_mean"].astype(np.float64), start["running_var"].astype(np.float64)

    def normal(mean: np.ndarray, var: np.ndarray, eps: float) -> np.ndarray:
        centred = (given - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + eps)
        return centred * weight.reshape(shape) + bias.reshape(shape)

    right, wrong = (batch, kept) if s.pair.training else (kept, batch)
    if close(out, normal(wrong[0], wrong[1], bn.eps), 1e-5):
        if s.pair.training:
            yield "evaluation_mode", "evaluation mode in training: it normalises by the running statistics"
        else:
            yield "training_mode", "evaluation mode forgotten: it normalises by the statistics of the batch"
    if close(out, given):
        yield "does_nothing", "batch normalisation is missing: it gives its input back"
    with np.errstate(divide="ignore", invalid="ignore"):
        centred = given - right[0].reshape(shape)
        slope = np.abs((out - bias.reshape(shape)) * centred).sum(axes) / (centred**2).sum(axes)
        eps = (weight / slope) ** 2 - right[1]
    eps = eps[np.isfinite(eps)]
    if eps.size:
        # Weighted to the channels whose variance is small, where eps shows.
        measured = float(np.median(eps))
        for candidate in (measured, 1e-3, 1e-5, 1e-6, 1e-12, 0.1):
            if (
                abs(candidate - bn.eps) > 0.01 * bn.eps
                and candidate >= 0
                and close(out, normal(right[0], right[1], candidate), 1e-5)
            ):
                yield "batch_norm_eps", f"wrong eps: {candidate:.3g}, expected {bn.eps:.3g}"


def _convolution(s: Subject, x: torch.Tensor) -> Iterator[Hint]:
    conv: Any = s.module
    weight, bias = conv.weight.detach(), getattr(conv, "bias", None)
    padding, dilation, stride = conv.padding, conv.dilation, conv.stride
    groups = getattr(conv, "groups", x.shape[1] // weight.shape[1])
    out = s.output
    if out is None:
        return

    def run(**changes: Any) -> np.ndarray | None:
        given = {"weight": weight, "bias": bias, "padding": padding, "dilation": dilation, "stride": stride, "groups": groups}
        given |= changes
        try:
            return F.conv2d(x, **given).numpy()
        except (RuntimeError, ValueError):
            return None

    if bias is not None and close(out, run(bias=None)):
        yield "bias_missing", "the bias is not added"
    if weight.shape[2] == weight.shape[3] and weight.shape[2] > 1:
        for kind, words, turned in (
            ("weight_transposed", "kernel transposed: height and width are swapped", weight.transpose(2, 3)),
            ("weight_flipped", "kernel flipped: a true convolution, expected a correlation", weight.flip(2, 3)),
        ):
            if close(out, run(weight=turned)):
                yield kind, words
    if weight.shape[0] == weight.shape[1] and close(out, run(weight=weight.transpose(0, 1))):
        yield "weight_transposed", "weight transposed: input and output channels are swapped"
    for p in range(4):
        if (p, p) != tuple(padding) and close(out, run(padding=(p, p))):
            yield "padding", f"padding {p}, expected {tuple(padding)}"
    for d in (1, 2):
        reach = tuple(d * (k - 1) // 2 for k in weight.shape[2:])
        if (d, d) != tuple(dilation) and (close(out, run(dilation=(d, d))) or close(out, run(dilation=(d, d), padding=reach))):
            yield "dilation", f"dilation {d}, expected {tuple(dilation)}"
    for n in (1, 2):
        if (n, n) != tuple(stride) and close(out, run(stride=(n, n))):
            yield "stride", f"stride {n}, expected {tuple(stride)}"
    for top, left in ((0, 1), (1, 0), (1, 1), (0, -1), (-1, 0), (-1, -1)):
        moved = (padding[1] - left, padding[1] + left, padding[0] - top, padding[0] + top)
        if min(moved) >= 0 and close(out, F.conv2d(F.pad(x, moved), weight, bias, stride, 0, dilation, groups).numpy()):
            yield (
                "padding",
                f"padding off by one: it lies {moved} (left, right, top, bottom), expected {tuple(padding)} on both sides",
            )
    for mode in ("reflect", "replicate", "circular"):
        try:
            around = F.pad(x, (padding[1], padding[1], padding[0], padding[0]), mode=mode)
        except (RuntimeError, ValueError, NotImplementedError):
            continue
        if any(padding) and close(out, F.conv2d(around, weight, bias, stride, 0, dilation, groups).numpy()):
            yield "padding", f"padding mode {mode}, expected zeros"


def _linear(s: Subject, x: torch.Tensor) -> Iterator[Hint]:
    linear: Any = s.module
    weight, bias = linear.weight.detach(), linear.bias
    if bias is not None and close(s.output, F.linear(x, weight).numpy()):
        yield "bias_missing", "the bias is not added"
    if weight.shape[0] == weight.shape[1] and close(s.output, F.linear(x, weight.T, bias).numpy()):
        yield "weight_transposed", "weight transposed: a square one fits either way round"


def _pooling(s: Subject, x: torch.Tensor) -> Iterator[Hint]:
    expected = type(s.module).__name__
    size = getattr(s.module, "output_size", 1)
    for words, function in (("max", F.adaptive_max_pool2d), ("average", F.adaptive_avg_pool2d)):
        if x.ndim == 4 and close(s.output, function(x, size).numpy()):
            yield "pooling", f"{words} pooling, expected {expected}"
    kernel = getattr(s.module, "kernel_size", None)
    if kernel is not None:
        stride, padding = s.module.stride, s.module.padding
        for words, result in (
            ("max pooling", lambda: F.max_pool2d(x, kernel, stride, padding)),
            ("average pooling that counts the padding", lambda: F.avg_pool2d(x, kernel, stride, padding)),
            (
                "average pooling that leaves the padding out (Paddle's exclusive=True)",
                lambda: F.avg_pool2d(x, kernel, stride, padding, count_include_pad=False),
            ),
        ):
            if close(s.output, result().numpy()):
                yield "pooling", f"{words}, expected {expected}"


def _wiring(s: Subject) -> Iterator[Hint]:
    """A container whose children are all right: something between them is missing, or too much."""
    given, out, expected = s.input, s.output, s.expected
    if given is None or out is None or expected is None:
        return
    if out.shape == expected.shape == given.shape:
        if close(out, given):
            yield "does_nothing", "it gives its input back"
        if close(out, expected - given):
            yield "no_residual", "residual missing: the input is not added to the output"
        if close(out, expected + given):
            yield "residual_extra", "residual too much: the input is added to the output"
        if close(out, expected * given):
            yield "extra_scaling", "the output is multiplied by the input once more"
    children = [f"{s.path}.{name}" if s.path else name for name, _ in s.module.named_children()]
    ours, theirs = (side.called(s.path, s.call, children) for side in (s.pair.paddle, s.pair.ref))
    for child in children:
        if ours.count(child) != theirs.count(child):
            yield (
                "layer_not_called",
                f"{child} is called {ours.count(child)} times in Paddle's forward, expected {theirs.count(child)}",
            )
    if ours != theirs:
        place = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
        yield "call_order", f"Paddle's forward calls {ours[place]} where the reference calls {theirs[place]}"


def _general(s: Subject) -> Iterator[Hint]:
    """Shapes that a mistake can have in any module."""
    out, expected, given = s.output, s.expected, s.input
    if s.blame.ours.error:
        yield "raises", f"Paddle's layer cannot take the reference's input: {s.blame.ours.error}"
    if out is None or expected is None:
        return
    if not np.isfinite(out).all():
        yield "not_finite", f"{out.size - int(np.isfinite(out).sum())} of {out.size} values are NaN or infinite"
        return
    if out.shape != expected.shape:
        yield "shape", f"shape {out.shape}, expected {expected.shape}"
        return
    if not out.any():
        yield "zero", "all zero"
    if given is not None and close(out, given):
        yield "does_nothing", "it gives its input back"
    yield from array_hint(out, expected)


def array_hint(out: np.ndarray, expected: np.ndarray) -> Iterator[Hint]:
    """Scale, permutation, rounding to half precision, single wrong elements."""
    ratio = common_factor(out, expected)
    if ratio is not None and abs(ratio - 1) > CLOSE:
        yield "scaled", f"every value times {ratio:.6g}"
    for axis in range(1, out.ndim):
        if close(np.sort(out, axis=axis), np.sort(expected, axis=axis), 1e-9) and not close(out, expected, 1e-9):
            yield "permuted", f"the right values in another order along axis {axis}"
    different = ~np.isclose(out, expected, rtol=1e-9, atol=1e-12 * float(np.abs(expected).max(initial=0)))
    where = [tuple(map(int, place)) for place in zip(*np.nonzero(different), strict=True)]
    columns = {place[-1] for place in where} if out.ndim > 1 else set()
    if 0 < len(where) <= max(1, out.size // 100):
        yield "few_elements", f"{len(where)} of {out.size} values differ, first at {where[0]}"
    if len(columns) == 1 and out.shape[-1] > 8:
        yield "few_elements", f"only index {columns.pop()} of the last axis differs"
    error = relative(distance(out, expected), norm(expected))
    low = np.asarray(expected, np.float32)
    truncated = (low.view(np.uint32) + 0x8000 & 0xFFFF0000).astype(np.uint32).view(np.float32)
    if 1e-5 < error < 1e-2:
        if close(out, truncated, 3e-4):
            yield "half_precision", f"rounded to bfloat16: relative L2 {error:.1e}"
        if close(out, low.astype(np.float16), 3e-5):
            yield "half_precision", f"rounded to float16: relative L2 {error:.1e}"


def common_factor(a: np.ndarray, b: np.ndarray) -> float | None:
    """The number that a is b times, where there is one."""
    a, b = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    if a.shape != b.shape or not b.any() or not np.isfinite(a).all():
        return None
    ratio = float(a @ b / (b @ b))
    return ratio if ratio != 0 and close(a, ratio * b, CLOSE) else None


# --- backward --------------------------------------------------------------------------------------------------------------


def _backward(s: Subject) -> Iterator[Hint]:
    what, ours, theirs = s.blame.what, s.blame.ours, s.blame.theirs
    if what.startswith("gradient of its input"):
        a, b = ours.input_gradients[0], theirs.input_gradients[0]
    else:
        name = what.removeprefix("gradient of ")
        a, b = ours.gradients.get(name), theirs.gradients.get(name)
        if a is None and b is not None:
            yield "frozen", f"{name} gets no gradient in Paddle: frozen (stop_gradient), or not used"
        if a is not None and b is None:
            yield "not_frozen", f"{name} gets a gradient in Paddle alone: it is frozen in the reference"
    if a is None and b is not None:
        yield "detached", "no gradient flows back through it in Paddle: detached, or computed without a graph"
    if a is None or b is None or a.shape != b.shape:
        return
    if b.any() and not a.any():
        yield "detached", "the gradient is all zero in Paddle"
    ratio = common_factor(a, b)
    if ratio is not None:
        yield "gradient_scaled", f"the gradient is {ratio:.6g} times the reference's"
    yield from array_hint(a, b)
