"""Defaults that differ between Paddle and torch, of layers, optimizers and schedules: which of them a run relies on.

Measured on the pinned versions; the tests read the defaults from the frameworks themselves and fail where one has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from mobilenetv3_common.errors import UserError


@dataclass(frozen=True)
class Default:
    """One setting whose default is another one in the other framework.

    Attributes:
        paddle, torch: the classes, below ``paddle`` and ``torch``.
        settings: its names in the two; the same class has no such argument where one is empty.
        values: the defaults in the two, as Python writes them.
        do: what a port does about it.
    """

    paddle: str
    torch: str
    settings: tuple[str, str]
    values: tuple[str, str]
    do: str

    def seen_from(self, framework: str) -> tuple[str, str, str]:
        """The setting, its default, and the other framework's, as a user of one framework is told them."""
        sides = [(self.paddle, self.settings[0], self.values[0]), (self.torch, self.settings[1], self.values[1])]
        (own, setting, value), (other, name, there) = sides if framework == "paddle" else sides[::-1]
        return f"{own} {setting}".strip(), value, f"{there} ({other} {name}".rstrip() + ")"


_MOMENTUM = ("momentum", "momentum", "0.9", "0.1", "the same: share of the old value in Paddle, of the new one in torch")
_NO_STATISTICS = ("momentum", "momentum", "0.9", "0.1", "without effect: neither keeps running statistics by default")
_AFFINE = ("weight_attr", "affine", "None", "False", "Paddle's has scale and shift unless weight_attr=False, bias_attr=False")
_PADDING = ("exclusive", "count_include_pad", "True", "True", "opposite meanings: padded zeros count in torch's average alone")
_TIME = ("time_major", "batch_first", "False", "False", "opposite meanings: Paddle has the batch first, torch the time")
_BATCH_FIRST = ("", "batch_first", "always", "False", "give torch batch_first=True, or swap its first two axes")
_AXIS = ("axis", "dim", "-1", "None", "name the axis: torch guesses one, with a warning")
_RATE, _ON_BOTH_SIDES = ("learning_rate", "lr"), "give it on both sides"
_CYCLE = ("", "cycle_momentum", "never", "True", "torch's changes the momentum, too: give cycle_momentum=False")
_SCHEDULES = "optim.lr_scheduler"
DEFAULTS: tuple[Default, ...] = tuple(
    Default(paddle, torch, (own, other), (value, there), do)
    for paddle, torch, (own, other, value, there, do) in (
        *((f"nn.BatchNorm{n}D", f"nn.BatchNorm{n}d", _MOMENTUM) for n in "123"),
        ("nn.SyncBatchNorm", "nn.SyncBatchNorm", _MOMENTUM),
        *((f"nn.InstanceNorm{n}D", f"nn.InstanceNorm{n}d", row) for n in "123" for row in (_AFFINE, _NO_STATISTICS)),
        *((f"nn.AvgPool{n}D", f"nn.AvgPool{n}d", _PADDING) for n in "123"),
        ("nn.LSTM", "nn.LSTM", _TIME),
        ("nn.GRU", "nn.GRU", _TIME),
        ("nn.SimpleRNN", "nn.RNN", _TIME),
        ("nn.MultiHeadAttention", "nn.MultiheadAttention", _BATCH_FIRST),
        ("nn.TransformerEncoderLayer", "nn.TransformerEncoderLayer", _BATCH_FIRST),
        ("nn.TransformerDecoderLayer", "nn.TransformerDecoderLayer", _BATCH_FIRST),
        ("nn.Transformer", "nn.Transformer", _BATCH_FIRST),
        ("nn.Softmax", "nn.Softmax", _AXIS),
        ("nn.LogSoftmax", "nn.LogSoftmax", _AXIS),
        ("optimizer.Momentum", "optim.SGD", ("momentum", "momentum", "0.9", "0", _ON_BOTH_SIDES)),
        ("optimizer.RMSProp", "optim.RMSprop", ("rho", "alpha", "0.95", "0.99", _ON_BOTH_SIDES)),
        (
            "optimizer.RMSProp", "optim.RMSprop",
            ("epsilon", "eps", "1e-06", "1e-08", "inside the root in Paddle, outside it in torch: no value makes the two equal"),
        ),
        ("optimizer.Adagrad", "optim.Adagrad", ("epsilon", "eps", "1e-06", "1e-10", _ON_BOTH_SIDES)),
        ("optimizer.Adadelta", "optim.Adadelta", (*_RATE, "0.001", "1.0", _ON_BOTH_SIDES)),
        ("optimizer.Adadelta", "optim.Adadelta", ("rho", "rho", "0.95", "0.9", _ON_BOTH_SIDES)),
        ("optimizer.Adamax", "optim.Adamax", (*_RATE, "0.001", "0.002", _ON_BOTH_SIDES)),
        ("optimizer.ASGD", "optim.ASGD", (*_RATE, "0.001", "0.01", _ON_BOTH_SIDES)),
        ("optimizer.Rprop", "optim.Rprop", (*_RATE, "0.001", "0.01", _ON_BOTH_SIDES)),
        ("optimizer.lr.OneCycleLR", f"{_SCHEDULES}.OneCycleLR", _CYCLE),
        ("optimizer.lr.CyclicLR", f"{_SCHEDULES}.CyclicLR", _CYCLE),
        ("optimizer.lr.PolynomialDecay", f"{_SCHEDULES}.PolynomialLR", ("end_lr", "", "0.0001", "always 0", "give end_lr=0.0")),
    )
)  # fmt: skip

# First values of weights that a port leaves to its framework: form and standard deviation, for fan_in inputs and fan_out outputs.
_UNIFORM = "uniform, deviation sqrt(2 / (fan_in + fan_out))"
INITIAL: tuple[Default, ...] = tuple(
    Default(paddle, torch, ("weight", "weight"), values, "initialise both sides alike, the bias too")
    for paddle, torch, values in (
        *(
            (f"nn.Conv{n}D", f"nn.Conv{n}d", ("normal, deviation sqrt(2 / fan_in)", "uniform, deviation sqrt(1 / (3 fan_in))"))
            for n in "123"
        ),
        *(
            (f"nn.Conv{n}DTranspose", f"nn.ConvTranspose{n}d", (_UNIFORM, "uniform, deviation sqrt(1 / (3 fan_out))"))
            for n in "123"
        ),
        ("nn.Linear", "nn.Linear", (_UNIFORM, "uniform, deviation sqrt(1 / (3 fan_in))")),
        ("nn.Embedding", "nn.Embedding", ("uniform, deviation sqrt(2 / (entries + features))", "normal, deviation 1")),
    )
)


def relied_on(framework: str, classes: Iterable[type]) -> list[tuple[Default, int]]:
    """The defaults that the classes of a run could rely on, and how many objects are of each class.

    Args:
        framework: ``"paddle"`` or ``"torch"``.
        classes: of every layer, optimizer and schedule, once for each object; a project's own classes have no entry.

    Raises:
        UserError: the framework has no entries.
    """
    if framework not in ("paddle", "torch"):
        raise UserError(f"there is no table of {framework}'s defaults: paddle and torch have one")
    counted = Counter(kind.__name__ for kind in classes if kind.__module__.split(".")[0] == framework)
    found = []
    for default in (*DEFAULTS, *INITIAL):
        name = (default.paddle if framework == "paddle" else default.torch).rsplit(".", 1)[-1]
        if counted[name]:
            found.append((default, counted[name]))
    return found
