"""Steps 1, 4 and 5 in bfloat16 and float16: a sound port stays silent, a broken one is found, mixed precision included."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import paddle
import pytest
import torch

from alignment.comparisons import guarded
from alignment.comparisons.comparison import explained
from alignment.comparisons.context import Context
from alignment.comparisons.model import forward
from alignment.comparisons.precision import low_precision, mixed_precision
from alignment.comparisons.result import StepResult
from alignment.faults import injected
from alignment.frameworks._low import Low, kind_of, narrowed, rounded_at_random
from alignment.frameworks.base import Wanted
from alignment.frameworks.paddle import MIXED_PRECISION, Paddle
from alignment.frameworks.torch import Torch
from alignment.localize.search import search
from bench import low_precision as bench
from bench.false_alarms import context_of, runs
from mobilenetv3_paddle import train
from mobilenetv3_paddle.models import BatchNorm2D
from projects.mobilenetv3.faults.base import with_model
from projects.mobilenetv3.project import PROJECT

pytestmark = pytest.mark.slow  # make test-slow

BF16 = Low("bfloat16")


# --- the arithmetic --------------------------------------------------------------------------------------------------------


def test_narrowed_is_torchs_bfloat16():
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [rng.standard_normal(10_000) * 10.0 ** rng.integers(-30, 30, 10_000), [0, -0.0, 1 + 2**-8, 1 + 3 * 2**-8]]
    )
    values = values.astype(np.float32)
    expected = torch.from_numpy(values).bfloat16().float().numpy()
    assert np.array_equal(narrowed(values, "bfloat16"), expected) and kind_of(narrowed(values, "bfloat16")) == "bfloat16"
    assert kind_of(narrowed(values, "bfloat16") + 1) == "float32", "what is computed from them is an ordinary array"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rounding_at_random_is_right_in_the_mean(dtype):
    rng = np.random.default_rng(0)
    value = np.full(100_000, 1 + 0.3 * 2.0 ** -(7 if dtype == "bfloat16" else 10))
    drawn = rounded_at_random(value, dtype, rng)
    assert len(np.unique(drawn)) == 2 and drawn.mean(dtype=np.float64) == pytest.approx(value[0], abs=2e-5)
    exact = narrowed(rng.standard_normal(1000), dtype).astype(np.float32)
    assert np.array_equal(rounded_at_random(exact, dtype, rng), exact)


def test_a_tensor_keeps_its_type_as_an_array():
    for framework in (Paddle(), Torch()):
        array = framework.array(framework.tensor(narrowed(np.arange(4) / 3, "bfloat16")))
        assert kind_of(array) == "bfloat16" and np.array_equal(array, narrowed(np.arange(4) / 3, "bfloat16"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("port", "reference", "shape"),
    [
        (lambda: paddle.nn.Conv2D(8, 16, 3, bias_attr=False), lambda: torch.nn.Conv2d(8, 16, 3, bias=False), (4, 8, 12, 12)),
        (lambda: paddle.nn.Linear(32, 24), lambda: torch.nn.Linear(32, 24), (8, 32)),
    ],
    ids=["conv", "linear"],
)
def test_operators_on_a_cpu_give_what_half_precision_kernels_give(dtype, port, reference, shape):
    """Held against torch's real kernels: the same elements but for the last digit of a few."""
    paddles, torchs = Paddle().in_low_precision(Low(dtype)), Torch().in_low_precision(Low(dtype))
    ours, theirs = port(), reference()
    paddles.load(ours, torchs.state(theirs))
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    made = [framework.vjp(model, (x,), None, Wanted()) for framework, model in ((paddles, ours), (torchs, theirs))]
    with torch.autocast("cpu", getattr(torch, dtype)):
        given = torch.from_numpy(x).requires_grad_()
        output = theirs(given)
    output.sum().backward()
    digit = 2.0 ** (-7 if dtype == "bfloat16" else -10)
    for one in made:
        assert kind_of(one.outputs[0]) == dtype == str(output.dtype)[6:]
        right = output.detach().float().numpy()
        assert (one.outputs[0] != right).mean() < 0.01 and np.abs(one.outputs[0] - right).max() <= digit * np.abs(right).max()
        gradient = given.grad.numpy()  # torch's kernel rounds sums on the way
        assert np.linalg.norm(one.inputs[0] - gradient) <= digit * np.linalg.norm(gradient)


class Block(paddle.nn.Layer):
    """A convolution, a depthwise one, and their normalisations."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = paddle.nn.Conv2D(3, 8, 3, bias_attr=False), paddle.nn.BatchNorm2D(8)
        self.depthwise, self.last = paddle.nn.Conv2D(8, 8, 3, groups=8, bias_attr=False), paddle.nn.BatchNorm2D(8)

    def forward(self, x):
        return self.last(self.depthwise(self.norm(self.first(x))))


TYPES = {"O1": ("bfloat16", "bfloat16", "float32", "float32"), "O2": ("bfloat16",) * 4}


def types_of_layers(level):
    model = Block()
    if level == "O2":
        model = paddle.amp.decorate(model, level="O2", dtype="bfloat16")
    assert model.norm.weight.dtype == paddle.float32
    framework = Paddle().in_low_precision(Low("bfloat16", level))
    names = ("first", "norm", "depthwise", "last")
    calls = framework.call(model, (np.ones((2, 3, 9, 9), np.float32),), watched={n: getattr(model, n) for n in names}).calls
    return tuple(kind_of(calls[name].output) for name in names)


@pytest.mark.parametrize("level", TYPES)
def test_layers_run_in_the_types_of_their_frameworks_lists(level):
    """As Paddle's autocast decides on a GPU; the next test holds that to a real one."""
    with Paddle().mixed_precision_here():
        assert types_of_layers(level) == TYPES[level]


@pytest.mark.gpu
@pytest.mark.skipif(not paddle.device.is_compiled_with_cuda(), reason="needs a GPU: Paddle's own autocast and kernels")
@pytest.mark.parametrize("level", TYPES)
def test_layers_run_in_these_types_on_a_gpu(level):
    paddle.set_device("gpu")
    try:
        assert types_of_layers(level) == TYPES[level]
    finally:
        paddle.set_device("cpu")


def test_nothing_is_left_of_the_operators_outside_the_block():
    conv = paddle._C_ops.conv2d
    with Paddle().autocast(BF16):
        assert paddle._C_ops.conv2d is not conv
    assert paddle._C_ops.conv2d is conv and MIXED_PRECISION.operators.low is None


# --- a sound port ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "width"), [(100, 0.35), pytest.param(102, 0.5, marks=pytest.mark.weekly)])
def test_no_false_alarm_in_bfloat16(seed, width):
    sound = context_of(PROJECT, "mobilenet_v3_small", {"width_mult": width}, seed, "bfloat16")
    for result in runs(sound, (1, 4, 5)):
        assert result.passed, [f"{q.name}: {q.reason}" for q in result.quantities if not q.passed] + result.problems
        assert "bfloat16" in result.covers
        assert ("automatic mixed precision" in result.covers) == (result.step == 5 and seed % 5 == 0)


def test_nothing_is_located_in_a_sound_port(small_state):
    assert (
        low_precision.in_low_precision(Context(PROJECT, given_state=small_state, options={"width_mult": 0.5}, precision="bfloat16"))
        is None
    )


@pytest.mark.weekly  # bfloat16 has its own on every change
def test_no_false_alarm_in_float16():
    sound = context_of(PROJECT, "mobilenet_v3_small", {"width_mult": 0.35}, 105, "float16")
    for result in runs(sound, (1, 4, 5)):
        assert result.passed, [f"{q.name}: {q.reason}" for q in result.quantities if not q.passed] + result.problems


# --- a broken one ----------------------------------------------------------------------------------------------------------


WEEKLY = ("biased_variance", "graph_detached")


@pytest.mark.parametrize(
    "name",
    ["batch_norm_eps", "dropout_rate", "weights_in_float16", *(pytest.param(name, marks=pytest.mark.weekly) for name in WEEKLY)],
)
def test_a_fault_is_found_in_bfloat16_alone(name, small_state):
    with injected(PROJECT, name) as broken:
        found = list(bench.results(Context(broken, given_state=small_state, options={"width_mult": 0.5}, precision="bfloat16")))
    assert any(result.failed for result in found)


def test_a_norm_in_bfloat16_is_named(small_state):
    """Its results are as rounded as a right one's; the gains and shifts of its channels are not."""

    def low(model):
        for layer in model.sublayers():
            if isinstance(layer, BatchNorm2D):
                layer.forward = computed_low(layer)

    def computed_low(layer):
        def forward(x):
            if x.dtype == paddle.float64:
                return BatchNorm2D.forward(layer, x)
            tensors = (layer._mean, layer._variance, layer.weight, layer.bias)
            own = [tensor.astype("bfloat16").astype("float32") for tensor in tensors]
            return paddle.nn.functional.batch_norm(x, *own, training=False, epsilon=layer.eps)

        return forward

    broken = Context(with_model(PROJECT, low), given_state=small_state, options={"width_mult": 0.5}, precision="bfloat16")
    made = low_precision.pair(broken, False)
    finding = search(made)
    assert (finding.location, finding.kind) == ("features.0.1", "autocast_list"), finding.line()


def test_an_overflow_is_named_with_its_layer(small_state):
    """Right in float32 and float64; in float16 the squares are beyond its largest number."""

    def square(model):
        model.features[3].register_forward_post_hook(lambda layer, inputs, output: (output * 3e4 + output * 3e4) / 6e4)

    broken = Context(with_model(PROJECT, square), given_state=small_state, options={"width_mult": 0.5}, precision="float16")
    result = guarded(1, lambda: low_precision.add(broken, StepResult(1, "forward"), cases(broken)))
    assert result.failed
    first = low_precision.in_low_precision(broken)
    assert (first.location, first.kind) == ("features.3", "overflow"), first.line()


def cases(context):
    photos, _ = context.material.photographs(4, 96)
    return [forward.PassCase("eval", (photos,), False)]


# --- mixed precision around the kernels ------------------------------------------------------------------------------------


class Unlisted(train.Precision):
    """Convolutions are kept in float32."""

    def autocast(self):
        return paddle.amp.auto_cast(self.enabled, None, {"conv2d"}, level="O1", dtype=self.dtype)


class Off(train.Precision):
    """Autocast is never entered."""

    def autocast(self):
        return contextlib.nullcontext()


class NeverUnscaled(train.Precision):
    def unscale(self, optimizer):
        pass

    def step(self, optimizer):
        optimizer.step()
        self.scaler.update()


class NeverSkipped(train.Precision):
    def step(self, optimizer):
        optimizer.step()
        self.scaler.update()


class OtherScale(train.Precision):
    def __init__(self, level="O0", dtype="float16", device="cpu"):
        super().__init__(level, dtype, device)
        self.scaler = paddle.amp.GradScaler(True, 2.0**16, decr_ratio=0.25, incr_every_n_steps=2000, decr_every_n_nan_or_inf=1)


class WithoutMasters(train.Precision):
    def prepare(self, model, optimizer):
        if self.level == "O2":
            paddle.amp.decorate(model, optimizer, level="O2", dtype=self.dtype, master_weight=False)


def clipped_first(model, optimizer, clip_norm=None, precision=None):
    if clip_norm is not None:
        paddle.nn.utils.clip_grad_norm_([p for p in model.parameters() if not p.stop_gradient], clip_norm)
    precision.unscale(optimizer)
    precision.step(optimizer)
    optimizer.clear_grad()


def chosen(name):
    """The experiments of this name."""
    return tuple(e for e in (*mixed_precision.SCALING, mixed_precision.MASTER) if e.name == name)


MIXED = [
    ("bfloat16", {"Precision": Unlisted}, "", "precision.autocast: features.0.0", "autocast_list"),
    ("bfloat16", {"Precision": Off}, "", "precision.autocast: features.0.0", "autocast_list"),
    ("bfloat16", {"Precision": WithoutMasters}, "master_weights", "precision.prepare", "master_weights_missing"),
    ("float16", {"Precision": NeverUnscaled}, "scaling", "precision.unscale", "unscale_missing"),
    ("float16", {"apply_update": clipped_first}, "clipping", "precision.unscale", "unscale_after_clipping"),
    ("float16", {"Precision": NeverSkipped}, "skipping", "precision.step", "update_not_skipped"),
    ("float16", {"Precision": OtherScale}, "growth", "precision.step", "loss_scale"),
]


@pytest.mark.parametrize(("dtype", "names", "shown", "location", "kind"), MIXED, ids=[f"{row[4]}-{row[0]}" for row in MIXED])
def test_a_mistake_around_the_kernels_is_located(dtype, names, shown, location, kind, small_state, monkeypatch):
    """Of the experiments, that which shows the mistake is made here; the sound port passes all of them above."""
    monkeypatch.setattr(mixed_precision, "experiments", lambda context: chosen(shown))
    port = PROJECT.with_port("train", **names)
    broken = Context(port, given_state=small_state, options={"width_mult": 0.5}, precision=dtype)
    result = StepResult(5, "backward")
    mixed_precision.add(broken, result)
    assert result.failed
    monkeypatch.setattr(mixed_precision, "trace", None)  # a side is measured once
    monkeypatch.setattr(mixed_precision, "kinds_of_layers", None)
    first = explained(result)
    assert (first.location, first.kind) == (location, kind), first.line()


def test_a_train_part_without_precision_is_said_not_to_be_compared(small_state):
    class Bare:
        build_optimizer, build_schedule = train.build_optimizer, train.build_schedule
        accumulate_gradients, apply_update = train.accumulate_gradients, train.apply_update

    port = replace(PROJECT, port=replace(PROJECT.port, train=Bare()))
    result = StepResult(5, "backward")
    mixed_precision.add(Context(port, given_state=small_state, options={"width_mult": 0.5}, precision="bfloat16"), result)
    assert result.not_run == "automatic mixed precision: the train part of the port has no Precision"
    assert not result.ran and result.covers == []
