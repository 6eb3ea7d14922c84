"""What an optimizer's update is, in numpy, with every setting in which mistakes are made; and which of them explains a port.

The formulas are torch's: they must give the reference's own updates first, and only then does a changed one say anything. A
fixed sample of each tensor's elements is enough, as every element moves by itself; norms are those of the whole gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import norm
from alignment.finding import Hint
from alignment.kinds import Kind
from alignment.localize.hypotheses.hypothesis import Family, Hypotheses, Hypothesis, Observed
from mobilenetv3_common.train_config import OptimizerConfig
from mobilenetv3_common.weights import State

SAMPLE = 400  # elements of each tensor
PENALTIES: dict[str, Callable[[np.ndarray], np.ndarray]] = {"l2": lambda weights: weights, "l1": np.sign}  # in the gradient
GROUPS = ("others", "norm", "bias")  # parameters by the weight decay that they may have of their own


@dataclass(frozen=True)
class Form:
    """An optimizer's update of one run.

    Attributes:
        decays: weight decay of each of ``GROUPS``.
        decay: ``"l2"`` or ``"l1"`` (the weight or its sign, added to the gradient), ``"decoupled"`` (times the learning rate) or
            ``"unscaled"`` (not times it).
        rate: which learning rate an update takes: its ``"own"``, that of the ``"first"`` update, of the ``"next"`` or the
            ``"previous"`` one.
        factor: by which the learning rate is multiplied.
        rate_in_buffer: the momentum's buffer holds steps, not gradients.
        eps_at: ``"outside"`` the root, ``"inside"`` it, or ``"before"`` the correction of the second moment.
        corrected: which of AdamW's two moments are corrected.
        clip, clipped: norm, and what is held to it: ``"all"`` gradients together, each ``"tensor"``, each ``"value"``, or
            ``"always"`` all together, smaller ones too; ``"largest"`` and ``"sum"`` take another norm.
        fed: which gradients an update is given: its ``"own"``, the sum of ``"all"`` so far, or ``"none"``.
    """

    config: OptimizerConfig
    decays: tuple[float, float, float]
    decay: str
    rate: str = "own"
    factor: float = 1.0
    nesterov: bool = False
    dampening: float = 0.0
    rate_in_buffer: bool = False
    eps_at: str = "outside"
    centered: bool = False
    amsgrad: bool = False
    corrected: tuple[bool, bool] = (True, True)
    clip: float | None = None
    clipped: str = "all"
    fed: str = "own"

    @classmethod
    def of(cls, config: OptimizerConfig, clip: float | None) -> Form:
        """As the reference has it."""
        own = [config.weight_decay if d is None else d for d in (None, config.norm_weight_decay, config.bias_weight_decay)]
        decay = "decoupled" if config.name == "adamw" else "l2"
        return cls(config, (own[0], own[1], own[2]), decay, nesterov=config.nesterov, clip=clip)


@dataclass
class Material:
    """What the updates are made from, flat over the sampled elements of all tensors.

    Attributes:
        names: of the tensors.
        places: where each tensor's elements begin.
        start: weights before every update.
        gradients: of each update.
        groups: index into ``GROUPS`` of each element.
        rates: learning rate of each update, and of the one after the last.
        norms: by what is summed ("own", "all"), each update's gradient norms of the tensors: L2, L1 and largest.
    """

    names: list[str]
    places: np.ndarray
    start: np.ndarray
    gradients: list[np.ndarray]
    groups: np.ndarray
    rates: list[float]
    norms: dict[str, list[np.ndarray]]

    @classmethod
    def of(
        cls, gradients: Sequence[State], start: Mapping[str, np.ndarray], groups: Mapping[str, int], rates: list[float]
    ) -> Material:
        names = list(gradients[0])
        sums = [{n: np.sum([g[n] for g in gradients[: i + 1]], axis=0) for n in names} for i in range(len(gradients))]
        sampled = {n: sample(gradients[0][n]) for n in names}
        sizes = [sampled[n].size for n in names]
        measure = lambda a: (norm(a), float(np.abs(a).sum()), float(np.abs(a).max(initial=0)))  # noqa: E731
        return cls(
            names,
            np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(int),
            flat(start, names),
            [flat(g, names) for g in gradients],
            np.repeat([groups[n] for n in names], sizes),
            rates,
            {
                what: [np.array([measure(one[n]) for n in names]) for one in given]
                for what, given in (("own", gradients), ("all", sums))
            },
        )

    def by_element(self, by_tensor: np.ndarray) -> np.ndarray:
        return np.repeat(by_tensor, np.diff([*self.places, self.start.size]))

    def by_tensor(self, values: np.ndarray) -> np.ndarray:
        """L2 norm of each tensor's sampled elements."""
        return np.sqrt(np.add.reduceat(values * values, self.places))


def sample(array: np.ndarray) -> np.ndarray:
    """At most ``SAMPLE`` of an array's elements, spread evenly, flat and in float64."""
    every = array.reshape(-1)
    if every.size > SAMPLE:
        every = every[np.linspace(0, every.size - 1, SAMPLE).astype(int)]
    return every.astype(np.float64)


def flat(state: Mapping[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    """The sampled elements of named tensors."""
    return np.concatenate([sample(state[name]) for name in names])


def weights_after(form: Form, material: Material) -> list[np.ndarray]:
    """The weights after each update of the same starting weights; the optimizer's memory goes on."""
    config, made = form.config, []
    memory: dict[str, np.ndarray] = {}
    decays = np.array(form.decays)[material.groups]
    total = np.zeros_like(material.start)
    for number, gradient in enumerate(material.gradients):
        rate = form.factor * _rate(form, material, number)
        total = total + gradient
        given = {"own": gradient, "all": total, "none": np.zeros_like(gradient)}[form.fed]
        given = _clipped(form, material, number, given)
        weights = material.start
        if form.decay in PENALTIES:
            given = given + decays * PENALTIES[form.decay](weights)
        elif form.decay != "none":
            weights = weights * (1 - decays * (rate if form.decay == "decoupled" else 1.0))
        made.append(weights - MOVES[config.name](form, memory, given, rate, number + 1))
    return made


def _rate(form: Form, material: Material, number: int) -> float:
    place = {"own": number, "first": 0, "next": number + 1, "previous": max(number - 1, 0)}[form.rate]
    return material.rates[place]


def _clipped(form: Form, material: Material, number: int, given: np.ndarray) -> np.ndarray:
    if form.clip is None or form.fed == "none":
        return given
    if form.clipped == "value":
        return np.clip(given, -form.clip, form.clip)
    norms = material.norms[form.fed][number]
    if form.clipped == "tensor":
        size = material.by_element(norms[:, 0])
    else:
        size = {
            "largest": norms[:, 2].max(),
            "sum": norms[:, 1].sum(),
            "square": float((norms[:, 0] ** 2).sum()),
        }.get(form.clipped, float(np.sqrt((norms[:, 0] ** 2).sum())))
    factor = form.clip / (size + 1e-6)
    return given * (factor if form.clipped == "always" else np.minimum(factor, 1.0))


def _buffered(form: Form, memory: dict[str, np.ndarray], step: np.ndarray, rate: float) -> np.ndarray:
    """Momentum: the buffer of ``step``, times the rate where that is not inside it."""
    momentum = form.config.momentum
    step = rate * step if form.rate_in_buffer else step
    first = "velocity" not in memory
    memory["velocity"] = step if first else momentum * memory["velocity"] + (1 - form.dampening) * step
    move = step + momentum * memory["velocity"] if form.nesterov else memory["velocity"]
    return move if form.rate_in_buffer else rate * move


def _sgd(form: Form, memory: dict[str, np.ndarray], g: np.ndarray, rate: float, number: int) -> np.ndarray:
    return _buffered(form, memory, g, rate)


def _rmsprop(form: Form, memory: dict[str, np.ndarray], g: np.ndarray, rate: float, number: int) -> np.ndarray:
    c = form.config
    memory["square"] = c.alpha * memory.get("square", 0.0) + (1 - c.alpha) * g * g
    square = memory["square"]
    if form.centered:
        memory["mean"] = c.alpha * memory.get("mean", 0.0) + (1 - c.alpha) * g
        square = np.maximum(square - memory["mean"] ** 2, 0)
    root = np.sqrt(square + c.eps) if form.eps_at == "inside" else np.sqrt(square) + c.eps
    return _buffered(form, memory, g / root, rate)


def _adam(form: Form, memory: dict[str, np.ndarray], g: np.ndarray, rate: float, number: int) -> np.ndarray:
    c = form.config
    memory["first"] = c.beta1 * memory.get("first", 0.0) + (1 - c.beta1) * g
    memory["second"] = c.beta2 * memory.get("second", 0.0) + (1 - c.beta2) * g * g
    square = memory["second"]
    if form.amsgrad:
        memory["largest"] = square = np.maximum(memory.get("largest", 0.0), square)
    corrections = [1 - beta**number if on else 1.0 for beta, on in zip((c.beta1, c.beta2), form.corrected, strict=True)]
    if form.eps_at == "inside":
        root = np.sqrt(square / corrections[1] + c.eps)
    elif form.eps_at == "before":
        root = (np.sqrt(square) + c.eps) / np.sqrt(corrections[1])
    else:
        root = np.sqrt(square / corrections[1]) + c.eps
    return rate * (memory["first"] / corrections[0]) / root


MOVES: dict[str, Callable[..., np.ndarray]] = {"sgd": _sgd, "rmsprop": _rmsprop, "adam": _adam, "adamw": _adam}


# --- mistakes --------------------------------------------------------------------------------------------------------------

UPDATE = "apply_update"  # the function that clips and clears; other mistakes are the optimizer's own


def _observed(form: Form, material: Material, ours: list[np.ndarray], right: list[np.ndarray]) -> list[Observed]:
    """The moves of all updates; those of each tensor are to be explained by themselves."""
    parts = np.concatenate([material.places + number * material.start.size for number in range(len(ours))])
    noise = np.tile(tolerance.WEIGHT_ROUNDING * material.by_tensor(material.start) + tolerance.TINY, len(ours))
    own, expected = (np.concatenate([made - material.start for made in side]) for side in (ours, right))
    return [Observed(material, own, expected, noise=noise, parts=parts)]


OPTIMIZER = Family("optimizer", _observed)


def optimizer_hint(form: Form, material: Material, ours: list[np.ndarray]) -> tuple[str, Hint] | None:
    """Location and kind of the one mistake that gives the port's updates; None where none does.

    Args:
        form: as the reference has it.
        material: what the updates are made from.
        ours: the port's weights after each update, flat.
    """
    if not all(np.isfinite(made).all() for made in ours):
        return None
    for one in OPTIMIZER.confirmed(form, material, ours, weights_after(form, material)):
        return one.about or "", one.hint
    return None


def _made(form: Form, kind: Kind, words: str, place: str = "", **changes: Any) -> Hypotheses:
    """The update with some fields of its form changed; nothing where they are the reference's."""
    changed = replace(form, **changes)
    if changed != form:

        def predict(material: Material) -> np.ndarray:
            return np.concatenate([made - material.start for made in weights_after(changed, material)])

        yield Hypothesis(kind, words, predict, about=place)


def _set(form: Form, kind: Kind, words: str, **settings: Any) -> Hypotheses:
    """The update with other settings of the optimizer."""
    yield from _made(form, kind, words, config=replace(form.config, **settings))


@OPTIMIZER
def gradients_not_cleared(form: Form, *_: Any) -> Hypotheses:
    words = "gradients are not cleared: each update takes those of all before it too"
    yield from _made(form, Kind.GRADIENT_NOT_CLEARED, words, UPDATE, fed="all")


@OPTIMIZER
def gradients_cleared_early(form: Form, *_: Any) -> Hypotheses:
    if any(form.decays):
        words = "gradients are cleared before the update: the weight decay alone moves the weights"
        yield from _made(form, Kind.GRADIENT_CLEARED_EARLY, words, UPDATE, fed="none")


@OPTIMIZER
def not_clipped(form: Form, *_: Any) -> Hypotheses:
    yield from _made(form, Kind.CLIPPING_MISSING, "gradients are not clipped", UPDATE, clip=None)


@OPTIMIZER
def clipped_otherwise(form: Form, *_: Any) -> Hypotheses:
    for how, kind, words in (
        ("value", Kind.CLIPPED_BY_VALUE, "gradients are clipped by value, expected by their global norm"),
        ("tensor", Kind.CLIPPED_BY_TENSOR, "each gradient is clipped by its own norm, expected the global norm"),
        ("largest", Kind.CLIP_NORM, "gradients are clipped by their largest value's size, expected their L2 norm"),
        ("sum", Kind.CLIP_NORM, "gradients are clipped by their L1 norm, expected their L2 norm"),
        ("square", Kind.CLIP_NORM, "gradients are clipped by the square of their norm: the root is missing"),
        ("always", Kind.CLIP_NORM, "gradients below the clip norm are scaled up to it"),
    ):
        if form.clip is not None:
            yield from _made(form, kind, words, UPDATE, clipped=how)


@OPTIMIZER
def another_clip_norm(form: Form, material: Material, ours: list[np.ndarray], right: list[np.ndarray]) -> Hypotheses:
    """Where the clip norm itself is another one, the clipped gradients tell which."""
    if form.clip is None:
        return
    unit = weights_after(replace(form, clip=form.clip * 0.5), material)[0] - right[0]
    share = float((ours[0] - right[0]) @ unit / max(float(unit @ unit), tolerance.TINY))
    for clip in (*((form.clip * (1 - 0.5 * share),) if form.config.name == "sgd" else ()), 1.0, 5.0, 10.0):
        if clip > 0 and abs(clip - form.clip) > tolerance.CLOSE * form.clip:
            words = f"gradients are clipped to the norm {clip:.4g}, expected {form.clip:.4g}"
            yield from _made(form, Kind.CLIP_NORM, words, UPDATE, clip=clip)


@OPTIMIZER
def uphill(form: Form, *_: Any) -> Hypotheses:
    yield from _made(form, Kind.SIGN, "the step goes up the gradient: its sign is wrong", factor=-1.0)


@OPTIMIZER
def rate_of_another_update(form: Form, *_: Any) -> Hypotheses:
    for name, words, kind in (
        ("first", "every update takes the first one's learning rate: the schedule is not followed", Kind.LR_NOT_FOLLOWED),
        ("next", "each update takes the learning rate of the next: the schedule steps too early", Kind.SCHEDULE_OFF_BY_ONE),
        ("previous", "each update takes the learning rate of the one before", Kind.SCHEDULE_OFF_BY_ONE),
    ):
        yield from _made(form, kind, words, rate=name)


@OPTIMIZER
def momentum(form: Form, *_: Any) -> Hypotheses:
    c = form.config
    if c.name in ("sgd", "rmsprop"):
        # A config with Nesterov momentum refuses a momentum of 0; without momentum the two forms are one.
        yield from _set(form, Kind.MOMENTUM_MISSING, "momentum is 0", momentum=0.0, nesterov=False)
        for other in (1 - c.momentum, 0.9, 0.99, 0.95, 0.5):
            yield from _set(form, Kind.MOMENTUM, f"momentum {other:.4g}, expected {c.momentum:.4g}", momentum=other)


@OPTIMIZER
def momentum_in_another_place(form: Form, *_: Any) -> Hypotheses:
    """Settings passed to the wrong argument, which shows where their values differ."""
    c = form.config
    if c.name != "rmsprop":
        return
    yield from _set(form, Kind.MOMENTUM, "momentum and alpha (rho) are swapped", momentum=c.alpha, alpha=c.momentum)
    words = f"alpha's value is passed as momentum: {c.alpha:.4g}, expected {c.momentum:.4g}"
    yield from _set(form, Kind.MOMENTUM, words, momentum=c.alpha)
    words = f"the momentum's value is passed as alpha (rho): {c.momentum:.4g}, expected {c.alpha:.4g}"
    yield from _set(form, Kind.ALPHA, words, alpha=c.momentum)
    words = "momentum is 0, and its value is passed as alpha (rho)"
    yield from _set(form, Kind.MOMENTUM_MISSING, words, alpha=c.momentum, momentum=0.0)


@OPTIMIZER
def rate_in_buffer(form: Form, *_: Any) -> Hypotheses:
    if form.config.name in ("sgd", "rmsprop"):
        words = "the learning rate is inside the momentum's buffer: it shows where the rate moves"
        yield from _made(form, Kind.LR_IN_BUFFER, words, rate_in_buffer=True)


@OPTIMIZER
def nesterov(form: Form, *_: Any) -> Hypotheses:
    if form.config.name in ("sgd", "rmsprop"):
        words = "plain momentum, expected Nesterov's" if form.nesterov else "Nesterov momentum, expected plain momentum"
        yield from _made(form, Kind.NESTEROV, words, nesterov=not form.nesterov)


@OPTIMIZER
def dampening(form: Form, *_: Any) -> Hypotheses:
    c = form.config
    for other in (c.momentum, 1 - c.momentum, 0.1, 0.5, 0.9):
        if c.name in ("sgd", "rmsprop"):
            words = f"dampening {other:.3g} of what enters the momentum's buffer, expected 0"
            yield from _made(form, Kind.DAMPENING, words, dampening=other)


@OPTIMIZER
def rmsprop(form: Form, *_: Any) -> Hypotheses:
    c = form.config
    if c.name != "rmsprop":
        return
    words = "eps inside the root, expected outside"
    yield from _made(form, Kind.EPS_INSIDE_ROOT, words, eps_at="inside")
    words += " (paddle.optimizer.RMSProp)"
    yield from _made(form, Kind.EPS_INSIDE_ROOT, words, eps_at="inside", rate_in_buffer=True)
    words = "the square of the mean gradient is taken off: centered, not expected"
    yield from _made(form, Kind.CENTERED, words, centered=True)
    for alpha in (0.99, 0.9, 0.95, 0.999, 1 - c.alpha):
        yield from _set(form, Kind.ALPHA, f"alpha (rho) {alpha:.4g}, expected {c.alpha:.4g}", alpha=alpha)


@OPTIMIZER
def betas(form: Form, *_: Any) -> Hypotheses:
    c = form.config
    if c.name not in ("adam", "adamw"):
        return
    yield from _set(form, Kind.BETAS_SWAPPED, "beta1 and beta2 are swapped", beta1=c.beta2, beta2=c.beta1)
    for one, two in ((0.9, 0.999), (0.9, c.beta2), (c.beta1, 0.999), (0.9, 0.99), (c.beta1, 0.99), (0.9, 0.95)):
        words = f"beta1 and beta2 are {one:.4g} and {two:.4g}, expected {c.beta1:.4g} and {c.beta2:.4g}"
        yield from _set(form, Kind.BETAS, words, beta1=one, beta2=two)


@OPTIMIZER
def adam(form: Form, *_: Any) -> Hypotheses:
    if form.config.name not in ("adam", "adamw"):
        return
    for corrected, which in (
        ((False, False), "neither moment is"),
        ((False, True), "the first moment is not"),
        ((True, False), "the second moment is not"),
    ):
        yield from _made(form, Kind.BIAS_CORRECTION, f"{which} corrected for its start at zero", corrected=corrected)
    yield from _made(form, Kind.EPS_INSIDE_ROOT, "eps inside the root, expected outside", eps_at="inside")
    words = "eps is added before the second moment is corrected, expected after"
    yield from _made(form, Kind.EPS_BEFORE_CORRECTION, words, eps_at="before")
    words = "AMSGrad: the largest second moment so far, expected the present one"
    yield from _made(form, Kind.AMSGRAD, words, amsgrad=True)


@OPTIMIZER
def eps(form: Form, *_: Any) -> Hypotheses:
    if form.config.name in ("rmsprop", "adam", "adamw"):
        for other in (1e-8, 1e-10, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0):
            yield from _set(form, Kind.OPTIMIZER_EPS, f"eps {other:g}, expected {form.config.eps:g}", eps=other)


@OPTIMIZER
def decays_of_groups(form: Form, *_: Any) -> Hypotheses:
    others, on_norm, on_bias = form.decays
    norm_, bias, both = Kind.NORM_WEIGHT_DECAY, Kind.BIAS_WEIGHT_DECAY, Kind.NORM_AND_BIAS_WEIGHT_DECAY
    swapped, without = Kind.WEIGHT_DECAYS_SWAPPED, [bool(on_norm), bool(on_bias)]
    for asked, kind, words, decays in (
        (True, Kind.WEIGHT_DECAY_MISSING, "weight decay is left out", (0.0, 0.0, 0.0)),
        (without[0], norm_, "weight decay on norm layers is left out", (others, 0.0, on_bias)),
        (without[1], bias, "weight decay on biases is left out", (others, on_norm, 0.0)),
        (all(without), both, "weight decay on norm layers and biases is left out", (others, 0.0, 0.0)),
        (True, norm_, "norm layers have the weight decay of all others, expected their own", (others, others, on_bias)),
        (True, bias, "biases have the weight decay of all others, expected their own", (others, on_norm, others)),
        (True, both, "norm layers and biases have the weight decay of all others, expected their own", (others, others, others)),
        (True, swapped, "the weight decays of norm layers and of biases are swapped", (others, on_bias, on_norm)),
        (True, swapped, "the weight decays of norm layers and of all other weights are swapped", (on_norm, others, on_bias)),
    ):
        if asked:
            yield from _made(form, kind, words, decays=decays)


@OPTIMIZER
def another_way_of_decay(form: Form, *_: Any) -> Hypotheses:
    expected = "an L2 penalty (times the weight)" if form.decay == "l2" else "a decoupled one (AdamW's)"
    for how, kind, words in (
        ("l2", Kind.L2_FOR_DECOUPLED, "the weight decay is an L2 penalty in the gradient, expected decoupled (AdamW's)"),
        ("decoupled", Kind.DECOUPLED_FOR_L2, "the weight decay is decoupled (times the learning rate), expected an L2 penalty"),
        ("unscaled", Kind.DECAY_NOT_TIMES_LR, "the weight decay is not multiplied by the learning rate"),
        ("l1", Kind.L1_FOR_L2, f"the weight decay is an L1 penalty (times the sign of each weight), expected {expected}"),
    ):
        yield from _made(form, kind, words, decay=how)


@OPTIMIZER
def another_decay(form: Form, material: Material, ours: list[np.ndarray], right: list[np.ndarray]) -> Hypotheses:
    """The first update says which, where moves are linear in it."""
    others, on_norm, on_bias = form.decays
    without = weights_after(replace(form, decays=(0.0, 0.0, 0.0)), material)[0]
    unit = right[0] - without
    share = float((ours[0] - without) @ unit / max(float(unit @ unit), tolerance.TINY))
    for factor in (*((share,) if form.config.name != "rmsprop" else ()), 0.5, 2.0, 0.1, 10.0):
        if abs(factor - 1) > tolerance.CLOSE and others:
            words = f"weight decay {others * factor:.4g}, expected {others:.4g}"
            yield from _made(form, Kind.WEIGHT_DECAY, words, decays=(others * factor, on_norm * factor, on_bias * factor))


@OPTIMIZER
def another_rate(form: Form, material: Material, ours: list[np.ndarray], right: list[np.ndarray]) -> Hypotheses:
    gap, move = ours[0] - material.start, right[0] - material.start
    ratio = float(gap @ move / max(float(move @ move), tolerance.TINY))
    for factor in (ratio, 0.1, 10.0, 0.5, 2.0):
        if 0 < factor < 1e6 and abs(factor - 1) > tolerance.CLOSE:
            words = f"the learning rate is {factor:.6g} times the reference's"
            yield from _made(form, Kind.LR_SCALED, words, factor=factor)
