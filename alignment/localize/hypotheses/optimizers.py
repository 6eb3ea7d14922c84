"""What an optimizer's update is, in numpy, with every setting in which mistakes are made; and which of them explains a port.

The formulas are torch's: they must give the reference's own updates first, and only then does a changed one say anything. A
fixed sample of each tensor's elements is enough, as every element moves by itself; norms are those of the whole gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from alignment.compare import norm
from alignment.finding import Hint
from alignment.kinds import Kind
from alignment.localize.hypotheses.arrays import UNEXPLAINED
from mobilenetv3_common.train_config import OptimizerConfig
from mobilenetv3_common.weights import State

SAMPLE = 400  # elements of each tensor
GROUPS = ("others", "norm", "bias")  # parameters by the weight decay that they may have of their own


@dataclass(frozen=True)
class Form:
    """An optimizer's update of one run.

    Attributes:
        decays: weight decay of each of ``GROUPS``.
        decay: ``"l2"`` (added to the gradient), ``"decoupled"`` (times the learning rate) or ``"unscaled"`` (not times it).
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
        if form.decay == "l2":
            given = given + decays * weights
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

OptimizerMistake = tuple[
    str, Hint, Form
]  # location ("apply_update", or "" for the optimizer), what it is, and the form that has it


def optimizer_hint(form: Form, material: Material, ours: list[np.ndarray]) -> tuple[str, Hint] | None:
    """Location and kind of the one mistake that gives the port's updates; None where none does.

    Args:
        form: as the reference has it.
        material: what the updates are made from.
        ours: the port's weights after each update, flat.
    """
    right = weights_after(form, material)
    if not all(np.isfinite(made).all() for made in ours):
        return None
    for location, found, changed in _mistakes(form, material, ours, right):
        if found[1] and changed != form and same_updates(weights_after(changed, material), ours, right, material):
            return location, found
    return None


def same_updates(made: list[np.ndarray], ours: list[np.ndarray], right: list[np.ndarray], material: Material) -> bool:
    """Whether changed updates are the port's, tensor by tensor, and leave almost nothing of its difference over."""
    for one, own, other in zip(made, ours, right, strict=True):
        if not np.isfinite(one).all():
            return False
        error, gap = material.by_tensor(one - own), material.by_tensor(own - other)
        move = np.maximum(material.by_tensor(own - material.start), material.by_tensor(other - material.start))
        rounding = 1e-14 * material.by_tensor(material.start) + 1e-300
        if (error > 1e-6 * move + rounding).any() or (error > UNEXPLAINED * gap + rounding).any():
            return False
    return any((material.by_tensor(own - other) > 0).any() for own, other in zip(ours, right, strict=True))


def _mistakes(form: Form, material: Material, ours: list[np.ndarray], right: list[np.ndarray]) -> Iterator[OptimizerMistake]:
    c, change = form.config, lambda **changes: replace(form, **changes)
    setting: Callable[..., Form] = lambda **changes: replace(form, config=replace(form.config, **changes))  # noqa: E731
    here, update = "", "apply_update"
    yield (
        update,
        (Kind.GRADIENT_NOT_CLEARED, "gradients are not cleared: each update takes those of all before it too"),
        change(fed="all"),
    )
    words = "gradients are cleared before the update: the weight decay alone moves the weights"
    if any(form.decays):
        yield update, (Kind.GRADIENT_CLEARED_EARLY, words), change(fed="none")
    if form.clip is not None:
        yield from _clip_mistakes(form, material, ours, right)
    yield here, (Kind.SIGN, "the step goes up the gradient: its sign is wrong"), change(factor=-1.0)
    for name, words, kind in (
        (
            "first",
            "every update takes the first one's learning rate: the schedule is not followed",
            Kind.LR_NOT_FOLLOWED,
        ),
        (
            "next",
            "each update takes the learning rate of the next: the schedule steps too early",
            Kind.SCHEDULE_OFF_BY_ONE,
        ),
        ("previous", "each update takes the learning rate of the one before", Kind.SCHEDULE_OFF_BY_ONE),
    ):
        yield here, (kind, words), change(rate=name)
    if c.name in ("sgd", "rmsprop"):
        yield from _momentum_mistakes(form)
    if c.name == "rmsprop":
        yield from _rmsprop_mistakes(form)
    if c.name in ("adam", "adamw"):
        yield from _adam_mistakes(form)
    if c.name in ("rmsprop", "adam", "adamw"):
        for eps in (1e-8, 1e-10, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0):
            yield here, (Kind.OPTIMIZER_EPS, f"eps {eps:g}, expected {c.eps:g}"), setting(eps=eps)
    yield from _decay_mistakes(form, material, ours, right)
    gap, move = ours[0] - material.start, right[0] - material.start
    ratio = float(gap @ move / max(float(move @ move), 1e-300))
    for factor in (ratio, 0.1, 10.0, 0.5, 2.0):
        if 0 < factor < 1e6 and abs(factor - 1) > 1e-6:
            yield here, (Kind.LR_SCALED, f"the learning rate is {factor:.6g} times the reference's"), change(factor=factor)


def _momentum_mistakes(form: Form) -> Iterator[OptimizerMistake]:
    c, change = form.config, lambda **changes: replace(form, **changes)
    setting: Callable[..., Form] = lambda **changes: replace(form, config=replace(form.config, **changes))  # noqa: E731
    here = ""
    # A config with Nesterov momentum refuses a momentum of 0; without momentum the two forms are one.
    yield here, (Kind.MOMENTUM_MISSING, "momentum is 0"), setting(momentum=0.0, nesterov=False)
    yield from ((here, (Kind.MOMENTUM, f"momentum {m:.4g}, expected {c.momentum:.4g}"), setting(momentum=m))
                for m in (1 - c.momentum, 0.9, 0.99, 0.95, 0.5))  # fmt: skip
    words = "the learning rate is inside the momentum's buffer: it shows where the rate moves"
    yield here, (Kind.LR_IN_BUFFER, words), change(rate_in_buffer=True)
    words = "plain momentum, expected Nesterov's" if form.nesterov else "Nesterov momentum, expected plain momentum"
    yield here, (Kind.NESTEROV, words), change(nesterov=not form.nesterov)
    for dampening in (c.momentum, 1 - c.momentum, 0.1, 0.5, 0.9):
        words = f"dampening {dampening:.3g} of what enters the momentum's buffer, expected 0"
        yield here, (Kind.DAMPENING, words), change(dampening=dampening)


def _rmsprop_mistakes(form: Form) -> Iterator[OptimizerMistake]:
    c, change = form.config, lambda **changes: replace(form, **changes)
    setting: Callable[..., Form] = lambda **changes: replace(form, config=replace(form.config, **changes))  # noqa: E731
    here = ""
    words = "eps inside the root, expected outside"
    yield here, (Kind.EPS_INSIDE_ROOT, words), change(eps_at="inside")
    yield (
        here,
        (Kind.EPS_INSIDE_ROOT, "eps inside the root, expected outside (paddle.optimizer.RMSProp)"),
        change(eps_at="inside", rate_in_buffer=True),
    )
    yield here, (Kind.CENTERED, "the square of the mean gradient is taken off: centered, not expected"), change(centered=True)
    for alpha in (0.99, 0.9, 0.95, 0.999, 1 - c.alpha):
        yield here, (Kind.ALPHA, f"alpha (rho) {alpha:.4g}, expected {c.alpha:.4g}"), setting(alpha=alpha)


def _adam_mistakes(form: Form) -> Iterator[OptimizerMistake]:
    c, change = form.config, lambda **changes: replace(form, **changes)
    setting: Callable[..., Form] = lambda **changes: replace(form, config=replace(form.config, **changes))  # noqa: E731
    here = ""
    yield here, (Kind.BETAS_SWAPPED, "beta1 and beta2 are swapped"), setting(beta1=c.beta2, beta2=c.beta1)
    for betas in ((0.9, 0.999), (0.9, c.beta2), (c.beta1, 0.999), (0.9, 0.99), (c.beta1, 0.99), (0.9, 0.95)):
        words = f"beta1 and beta2 are {betas[0]:.4g} and {betas[1]:.4g}, expected {c.beta1:.4g} and {c.beta2:.4g}"
        yield here, (Kind.BETAS, words), setting(beta1=betas[0], beta2=betas[1])
    for corrected, which in (((False, False), "neither moment is"), ((False, True), "the first moment is not"),
                             ((True, False), "the second moment is not")):  # fmt: skip
        words = f"{which} corrected for its start at zero"
        yield here, (Kind.BIAS_CORRECTION, words), change(corrected=corrected)
    yield here, (Kind.EPS_INSIDE_ROOT, "eps inside the root, expected outside"), change(eps_at="inside")
    words = "eps is added before the second moment is corrected, expected after"
    yield here, (Kind.EPS_BEFORE_CORRECTION, words), change(eps_at="before")
    yield here, (Kind.AMSGRAD, "AMSGrad: the largest second moment so far, expected the present one"), change(amsgrad=True)


def _clip_mistakes(form: Form, material: Material, ours: list[np.ndarray], right: list[np.ndarray]) -> Iterator[OptimizerMistake]:
    assert form.clip is not None
    place = "apply_update"
    yield place, (Kind.CLIPPING_MISSING, "gradients are not clipped"), replace(form, clip=None)
    for how, kind, words in (
        ("value", Kind.CLIPPED_BY_VALUE, "gradients are clipped by value, expected by their global norm"),
        ("tensor", Kind.CLIPPED_BY_TENSOR, "each gradient is clipped by its own norm, expected the global norm"),
        ("largest", Kind.CLIP_NORM, "gradients are clipped by their largest value's size, expected their L2 norm"),
        ("sum", Kind.CLIP_NORM, "gradients are clipped by their L1 norm, expected their L2 norm"),
        ("square", Kind.CLIP_NORM, "gradients are clipped by the square of their norm: the root is missing"),
        ("always", Kind.CLIP_NORM, "gradients below the clip norm are scaled up to it"),
    ):
        yield place, (kind, words), replace(form, clipped=how)
    # Where the clip norm itself is another one, the clipped gradients tell which.
    unit = weights_after(replace(form, clip=form.clip * 0.5), material)[0] - right[0]
    share = float((ours[0] - right[0]) @ unit / max(float(unit @ unit), 1e-300))
    for norm_ in (*((form.clip * (1 - 0.5 * share),) if form.config.name == "sgd" else ()), 1.0, 5.0, 10.0):
        if norm_ > 0 and abs(norm_ - form.clip) > 1e-6 * form.clip:
            words = f"gradients are clipped to the norm {norm_:.4g}, expected {form.clip:.4g}"
            yield place, (Kind.CLIP_NORM, words), replace(form, clip=norm_)


def _decay_mistakes(form: Form, material: Material, ours: list[np.ndarray], right: list[np.ndarray]) -> Iterator[OptimizerMistake]:
    others, on_norm, on_bias = form.decays

    def decays(kind: Kind, words: str, *values: float) -> OptimizerMistake:
        return "", (kind, words), replace(form, decays=(values[0], values[1], values[2]))

    yield decays(Kind.WEIGHT_DECAY_MISSING, "weight decay is left out", 0.0, 0.0, 0.0)
    if on_norm:
        yield decays(Kind.NORM_WEIGHT_DECAY, "weight decay on norm layers is left out", others, 0.0, on_bias)
    if on_bias:
        yield decays(Kind.BIAS_WEIGHT_DECAY, "weight decay on biases is left out", others, on_norm, 0.0)
    if on_norm and on_bias:
        words = "weight decay on norm layers and biases is left out"
        yield decays(Kind.NORM_AND_BIAS_WEIGHT_DECAY, words, others, 0.0, 0.0)
    words = "norm layers have the weight decay of all others, expected their own"
    yield decays(Kind.NORM_WEIGHT_DECAY, words, others, others, on_bias)
    words = "biases have the weight decay of all others, expected their own"
    yield decays(Kind.BIAS_WEIGHT_DECAY, words, others, on_norm, others)
    words = "norm layers and biases have the weight decay of all others, expected their own"
    yield decays(Kind.NORM_AND_BIAS_WEIGHT_DECAY, words, others, others, others)
    words = "the weight decays of norm layers and of biases are swapped"
    yield decays(Kind.WEIGHT_DECAYS_SWAPPED, words, others, on_bias, on_norm)
    words = "the weight decays of norm layers and of all other weights are swapped"
    yield decays(Kind.WEIGHT_DECAYS_SWAPPED, words, on_norm, others, on_bias)
    for how, kind, words in (
        ("l2", Kind.L2_FOR_DECOUPLED, "the weight decay is an L2 penalty in the gradient, expected decoupled (AdamW's)"),
        ("decoupled", Kind.DECOUPLED_FOR_L2, "the weight decay is decoupled (times the learning rate), expected an L2 penalty"),
        ("unscaled", Kind.DECAY_NOT_TIMES_LR, "the weight decay is not multiplied by the learning rate"),
    ):
        if how != form.decay:
            yield "", (kind, words), replace(form, decay=how)
    # Another decay: the first update says which, where moves are linear in it.
    without = weights_after(replace(form, decays=(0.0, 0.0, 0.0)), material)[0]
    unit = right[0] - without
    share = float((ours[0] - without) @ unit / max(float(unit @ unit), 1e-300))
    for factor in (*((share,) if form.config.name != "rmsprop" else ()), 0.5, 2.0, 0.1, 10.0):
        if abs(factor - 1) > 1e-6 and others:
            words = f"weight decay {others * factor:.4g}, expected {others:.4g}"
            yield decays(Kind.WEIGHT_DECAY, words, others * factor, on_norm * factor, on_bias * factor)
