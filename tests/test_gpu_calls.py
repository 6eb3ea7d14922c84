"""What training calls of Paddle only where there is a GPU: the calls are recorded here, since no CPU carries them out."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import paddle
import pytest

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_config import OptimizerConfig
from mobilenetv3_paddle import train
from mobilenetv3_paddle.train import distributed


class Scaler:
    """As much of ``paddle.amp.GradScaler`` as is called, switched on."""

    def __init__(self):
        self.unscaled, self.loaded, self._scale = [], {}, np.ones(1, np.float32)

    def is_enable(self):
        return True

    def unscale_(self, optimizer):
        self.unscaled.append(optimizer)

    def load_state_dict(self, state):
        self.loaded = state


@pytest.fixture
def scaling():
    precision = train.Precision()
    precision.scaler = Scaler()
    return precision


def test_gradients_are_divided_by_the_scale(scaling):
    scaling.unscale("optimizer")
    assert scaling.scaler.unscaled == ["optimizer"]


def test_a_resumed_scale_is_an_array_and_the_counts_are_whole_numbers(scaling):
    """A checkpoint keeps numbers as float64; Paddle compares its counts with ``==`` and multiplies the scale in place."""
    scaling.load({"scale": 1024.0, "incr_count": 5.0, "decr_count": 0.0, "incr_ratio": 2.0, "decr_ratio": 0.5})
    loaded = scaling.scaler.loaded
    assert loaded["scale"].dtype == np.float32 and loaded["scale"].tolist() == [1024.0]
    assert loaded["incr_count"] == 5 and isinstance(loaded["incr_count"], int) and isinstance(loaded["decr_count"], int)
    assert loaded["decr_ratio"] == 0.5 and scaling.scaler._scale.shape == ()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_o2_turns_the_weights_into_the_type_that_was_asked_for(monkeypatch, dtype):
    precision, calls = train.Precision(), []
    precision.level, precision.dtype = "O2", dtype
    monkeypatch.setattr(paddle.amp, "decorate", lambda *given, **named: calls.append((given, named)))
    precision.prepare("model", "optimizer")
    assert calls == [(("model", "optimizer"), {"level": "O2", "dtype": dtype, "master_weight": True})]


@pytest.mark.parametrize(
    ("gpus", "device", "expected"), [(0, "auto", "cpu"), (1, "auto", "gpu"), (1, "cpu", "cpu"), (2, "gpu", "gpu")]
)
def test_one_gpu_is_enough(monkeypatch, gpus, device, expected):
    chosen = []
    monkeypatch.setattr(paddle.device, "is_compiled_with_cuda", lambda: True)
    monkeypatch.setattr(paddle.device.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(paddle, "set_device", chosen.append)
    monkeypatch.setenv("PADDLE_PG_TIMEOUT", "1")
    with train.started(device) as ranks:
        assert ranks.device == expected and chosen == [expected]


def test_no_gpu_is_one_line(monkeypatch):
    monkeypatch.setattr(paddle.device, "is_compiled_with_cuda", lambda: True)
    monkeypatch.setattr(paddle.device.cuda, "device_count", lambda: 0)
    with pytest.raises(UserError, match="finds no GPU"), train.started("gpu"):
        pass


def test_flags_of_determinism_are_put_back(monkeypatch):
    flags = {"FLAGS_cudnn_deterministic": 0, "FLAGS_embedding_deterministic": 0}
    monkeypatch.setattr(paddle, "get_flags", lambda names: {name: flags[name] for name in names})
    monkeypatch.setattr(paddle, "set_flags", flags.update)
    with distributed.repeating(True):
        assert set(flags.values()) == {1}
    assert set(flags.values()) == {0}


def test_a_rank_that_waits_looks_twenty_times_a_second(monkeypatch):
    """A longer pause delays every update; none at all takes the core from the rank that is waited for."""
    pauses, came = [], iter(range(30, 41))
    store = SimpleNamespace(add=lambda name, more: next(came) // 20)  # the other rank comes at the tenth look
    monkeypatch.setattr(distributed.dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(paddle.base.core, "create_or_get_global_tcp_store", lambda: store)
    monkeypatch.setattr(distributed, "_meetings", 0)
    monkeypatch.setattr(distributed.time, "sleep", pauses.append)
    monkeypatch.setitem(os.environ, "PADDLE_PG_TIMEOUT", "1800000")
    distributed.meet()
    assert pauses[0] < 0.001 and max(pauses) == 0.05


@pytest.mark.parametrize("name", ["rmsprop", "lion"])
def test_a_half_precision_parameter_is_a_copy_of_its_master(name):
    """An update of a thousandth has no place in bfloat16, where the next number below 1 is 0.996: the master adds them up."""
    layer = paddle.nn.Linear(2, 1, bias_attr=False)
    layer.weight.set_value(paddle.ones([2, 1]))
    layer.to(dtype="bfloat16")
    optimizer = train.build_optimizer(layer, OptimizerConfig(name, lr=1e-3, momentum=0.0, alpha=0.0, eps=1e-8, weight_decay=0.0))
    optimizer._multi_precision = True  # as paddle.amp.decorate does
    for _ in range(50):
        layer.weight.astype("float32").sum().backward()
        optimizer.step()
        optimizer.clear_grad()
    (master,) = optimizer._master_weights.values()
    assert master.dtype == paddle.float32 and layer.weight.dtype == paddle.bfloat16
    np.testing.assert_allclose(master.numpy(), 0.95, atol=1e-5)
    assert (layer.weight.astype("float32") == master.astype("bfloat16").astype("float32")).all()
