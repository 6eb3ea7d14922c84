"""Settings of the optimizer, and the optimizer that the frameworks build from them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.param_groups import FORM, GroupRule
from mobilenetv3_common.train_config.section import BELOW_ONE, SHARE, Section, option

OPTIMIZERS = ("sgd", "rmsprop", "adamw", "adam", "adadelta", "lamb", "lion")


@dataclass(frozen=True)
class OptimizerNumbers:
    """What an optimizer and the settings of a run have in common, under the same names; in torch's terms.

    Attributes:
        momentum: of sgd and rmsprop, 0..1.
        nesterov: whether sgd looks ahead; needs a momentum.
        alpha: smoothing constant of rmsprop and adadelta (there called rho), 0..1.
        beta1, beta2: of adam, adamw, lamb and lion, 0..1.
        eps: of all but sgd and lion, above 0.
        weight_decay: L2 penalty added to the gradient (sgd, rmsprop, adam, adadelta), decoupled for adamw and lion; for lamb
            part of the direction whose length the weights' norm replaces (only where there is a decay).
        norm_weight_decay: the same for BatchNorm's weights and biases; ``weight_decay`` where None.
        bias_weight_decay: the same for the biases of all other layers.
        l1_decay: L1 penalty: this times the sign of each weight is added to its gradient, after clipping; not for norm
            layers and biases that have a weight decay of their own.
        layer_decay: factor of the learning rate from each block to the one before it, above 0 to 1.
    """

    momentum: float = option(0.9, "of sgd and rmsprop", within=BELOW_ONE)
    nesterov: bool = option(False, "sgd with Nesterov momentum")
    alpha: float = option(0.9, "smoothing constant of rmsprop and adadelta (rho)", within=BELOW_ONE)
    beta1: float = option(0.9, "of adam, adamw, lamb and lion", within=BELOW_ONE)
    beta2: float = option(0.999, "of adam, adamw, lamb and lion", within=BELOW_ONE)
    eps: float = option(1e-8, "of all optimizers but sgd and lion", within="(0, 1]")
    weight_decay: float = option(1e-4, "L2 penalty, decoupled for adamw and lion", within=SHARE)
    norm_weight_decay: float | None = option(None, "the same for BatchNorm; by default like all others", within=SHARE)
    bias_weight_decay: float | None = option(
        None, "the same for the biases of other layers; by default like all others", within=SHARE
    )
    l1_decay: float = option(
        0.0,
        "L1 penalty, of the parameters that have --weight-decay: times the sign of a weight, added to its gradient",
        within=SHARE,
    )
    layer_decay: float = option(1.0, "factor of the learning rate from each block to the one before it", within="(0, 1]")


@dataclass(frozen=True)
class NamedOptimizer:
    """Which optimizer, at which rate.

    Attributes:
        name: ``"sgd"`` (with momentum), ``"rmsprop"`` (eps outside the root), ``"adam"``, ``"adamw"``, ``"adadelta"``,
            ``"lamb"`` (You et al., 2020) or ``"lion"`` (Chen et al., 2023).
        lr: initial learning rate, above 0.
    """

    name: str = "sgd"
    lr: float = 0.1


@dataclass(frozen=True)
class OptimizerConfig(OptimizerNumbers, NamedOptimizer):
    """One optimizer, in torch's terms.

    Attributes:
        rules: of parameters by name: factor of the learning rate, weight decay; see ``mobilenetv3_common.param_groups``.
    """

    rules: tuple[GroupRule, ...] = ()

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise UserError(f"unknown optimizer {self.name!r}: use one of {', '.join(OPTIMIZERS)}")
        decays = (self.weight_decay, self.norm_weight_decay or 0.0, self.bias_weight_decay or 0.0, self.l1_decay)
        if not self.lr > 0 or not self.eps > 0 or not min(decays) >= 0:
            raise UserError(f"lr and eps must be above 0 and weight decays not negative, found {self}")
        if self.nesterov and (self.name != "sgd" or not self.momentum > 0):
            raise UserError(f"--nesterov needs --optimizer sgd and --momentum above 0, found {self.name} and {self.momentum:g}")

    def in_float32(self) -> OptimizerConfig:
        """Every number rounded to float32: what Paddle's kernels hold, whatever the type of the parameters."""
        numbers = {f.name: getattr(self, f.name) for f in fields(self)}
        rounded: dict[str, Any] = {k: float(np.float32(v)) for k, v in numbers.items() if isinstance(v, float)}
        return replace(self, **rounded)


@dataclass(frozen=True)
class OptimizerChoice(Section):
    """Which optimizer, and which parameters it treats otherwise."""

    optimizer: str = option("sgd", "optimizer", OPTIMIZERS)
    param_groups: str | None = option(
        None,
        f"rates and weight decays by parameters' names, the first pattern that fits counts: {FORM}",
        metavar="RULES",
    )


@dataclass(frozen=True)
class OptimizerSettings(OptimizerNumbers, OptimizerChoice):
    """The optimizer, its numbers and its weight decays."""

    TITLE = "optimizer"

    @property
    def optimizer_numbers(self) -> dict[str, Any]:
        """The settings that ``OptimizerConfig`` has under the same names."""
        return {entry.name: getattr(self, entry.name) for entry in fields(OptimizerNumbers)}
