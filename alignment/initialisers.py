"""Are two samples drawn from one distribution, and which one is it? In numpy, without any model.

Two tests are made, whose bounds hold for every distribution and every size of the samples. Values that repeat, or are spread more
evenly than independent ones, only lie closer.

- Kolmogorov and Smirnov's, on the values and on their absolute values, which is twice as sharp around zero: two samples of n values
  lie farther apart than d with a probability of at most e * exp(-n * d ** 2) (Wei and Dudley, Two-sample
  Dvoretzky-Kiefer-Wolfowitz inequalities, 2012).
- Extremes, which see a cut-off that moves few values: that the k largest absolute values of two samples of n values all lie in the
  same sample has a probability of at most 2 * 2 ** -k.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import ndtr

Array = np.ndarray
NORMAL, UNIFORM, TRUNCATED = "normal", "uniform", "normal cut off at two standard deviations"
CUT_STD = 0.8796256610342398  # of a standard normal variable within +-2
SHAPES: dict[str, Callable[[Array], Array]] = {  # distribution functions of mean 0 and standard deviation 1
    NORMAL: lambda z: ndtr(z),
    UNIFORM: lambda z: np.clip(0.5 + z / math.sqrt(12), 0, 1),
    TRUNCATED: lambda z: np.clip((ndtr(z * CUT_STD) - ndtr(-2.0)) / (ndtr(2.0) - ndtr(-2.0)), 0, 1),
}
FORMULAS: dict[str, Callable[[Array], Array]] = {  # what a constructor forgets, or does once too often
    "exp(x)": np.exp,
    "log(x)": np.log,
    "-x": np.negative,
    "1 / x": np.reciprocal,
    "softplus(x)": lambda x: np.logaddexp(x, 0.0),
    "log(exp(x) - 1)": lambda x: np.log(np.expm1(x)),
    "sigmoid(x)": lambda x: 1 / (1 + np.exp(-x)),
    "log(x / (1 - x))": lambda x: np.log(x / (1 - x)),
}
REACH = {NORMAL: math.inf, UNIFORM: math.sqrt(3), TRUNCATED: 2.0 / CUT_STD}  # largest absolute value

# What an initialiser multiplies 1 / fan by to get the variance: LeCun's and Glorot's, He's, torch's default, tanh's gain.
GAINS = (1.0, 2.0, 1 / 3, 25 / 9)


def ks_distance(a: Array, b: Array) -> float:
    """The largest difference of two samples' distribution functions, 0 to 1."""
    a, b = np.sort(a), np.sort(b)
    places = np.concatenate([a, b])
    shares = [np.searchsorted(sample, places, side="right") / len(sample) for sample in (a, b)]
    return float(np.abs(shares[0] - shares[1]).max())


def ks_bound(count: int, tests: int, probability: float) -> float:
    """What the distances of so many tests on samples of ``count`` values exceed with at most this probability in all."""
    return math.sqrt(math.log(math.e * tests / probability) / count)


def extremes(a: Array, b: Array) -> int:
    """How many of one sample's absolute values are greater than all of the other's; equal ones count once."""
    a, b = np.unique(np.abs(a)), np.unique(np.abs(b))
    return int(max((a > b[-1]).sum(), (b > a[-1]).sum()))


def extremes_bound(tests: int, probability: float) -> float:
    """What the extremes of so many tests exceed with at most this probability in all."""
    return math.log2(2 * tests / probability)


def shape_of(sample: Array) -> str:
    """The name of the one distribution that a sample can be of; ``""`` where that cannot be told."""
    spread = float(sample.std())
    if spread == 0:
        return ""
    z = np.sort((sample - sample.mean()) / spread)
    n = len(z)
    steps = np.arange(n + 1) / n
    # In units of 1 / sqrt(n): with mean and deviation taken from the sample, a right one stays below 1.2 in 999 cases of 1000.
    apart = {
        name: max(np.abs(cdf(z) - steps[1:]).max(), np.abs(cdf(z) - steps[:-1]).max()) * math.sqrt(n)
        for name, cdf in SHAPES.items()
    }
    reach = float(np.abs(z).max())
    possible = {name for name in SHAPES if apart[name] < 1.7 and reach < REACH[name] * (1 + 3 / math.sqrt(n))}
    if n * math.log(max(2 * ndtr(reach) - 1, 1e-300)) < math.log(1e-6):
        possible.discard(NORMAL)  # so many normal values reach farther
    return possible.pop() if len(possible) == 1 and min(apart.values()) < 1.2 else ""


def fan_words(shape: Sequence[int], ours: float, theirs: float, count: int) -> str:
    """``"fan_in for fan_out"`` and the like, where each deviation has one known gain and fan that give it, both the same gain.

    Args:
        shape: canonical: (out, in / groups, kernel...) or (out, in).
        ours, theirs: standard deviations of samples of ``count`` values.
    """
    if len(shape) < 2 or min(ours, theirs) <= 0:
        return ""
    area = math.prod(shape[2:])
    fans: dict[str, float] = {"fan_in": shape[1] * area, "fan_out": shape[0] * area}
    fans["the mean of fan_in and fan_out"] = (fans["fan_in"] + fans["fan_out"]) / 2
    margin = 6 / math.sqrt(count)  # four standard deviations of a logarithm of the variance

    def explanations(deviation: float) -> list[tuple[str, float]]:
        return [(name, gain) for name, fan in fans.items() for gain in GAINS if abs(math.log(deviation**2 * fan / gain)) < margin]

    mine, right = explanations(ours), explanations(theirs)
    if len(mine) != 1 or len(right) != 1 or mine[0][1] != right[0][1] or fans[mine[0][0]] == fans[right[0][0]]:
        return ""
    return f"{mine[0][0]} for {right[0][0]}"


def formula_words(ours: Array, theirs: Array) -> str:
    """``"distributed as exp(x) of the reference's x"``, where one formula alone makes the other sample's values of this one's."""
    close = 2.0 * math.sqrt(1 / len(ours) + 1 / len(theirs))  # samples of one distribution lie closer in 999 cases of 1000
    fitting = []
    with np.errstate(all="ignore"):
        for name, formula in FORMULAS.items():
            made = formula(theirs)
            if np.isfinite(made).all() and ks_distance(made, ours) < close:
                fitting.append(name)
    return f"distributed as {fitting[0]} of the reference's x" if len(fitting) == 1 else ""


def difference_words(ours: Array, theirs: Array, shape: Sequence[int]) -> str:
    """In what two samples of equally many values differ, as far as that is certain: shape, deviation, mean, a formula."""
    parts = []
    mine, right = shape_of(ours), shape_of(theirs)
    if mine and right and mine != right:
        parts.append(f"{mine}, expected {right}")
    count = min(len(ours), len(theirs))
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    spreads, means = (float(ours.std()), float(theirs.std())), (float(ours.mean()), float(theirs.mean()))
    if min(spreads) > 0 and abs(math.log(spreads[0] / spreads[1])) > 6 / math.sqrt(count):
        fans = fan_words(shape, *spreads, count) if not (mine and right and mine != right) else ""
        parts.append(f"standard deviation {spreads[0]:.3g}, expected {spreads[1]:.3g}{': ' if fans else ''}{fans}")
    if abs(means[0] - means[1]) > 6 * math.hypot(*spreads) / math.sqrt(count):
        parts.append(f"mean {means[0]:.3g}, expected {means[1]:.3g}")
    if formula := formula_words(ours, theirs) if parts else "":
        parts.append(formula)
    return "; ".join(parts)
