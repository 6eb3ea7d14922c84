"""Random parameters that are drawn from another distribution: which function, which parameter, and what it seems to be drawn from.

A hypothesis is drawn itself, by a model of boxes in numpy or by the independent part, and named only where the port's sample has
its distribution, and not the right one.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from alignment.comparisons.context import Context
from alignment.comparisons.data import draws as data_draws
from alignment.comparisons.data.draws import FUNCTIONS, MIXES, POOLS, Drawn, DrawPool, Mix, measures
from alignment.distributions import as_stated, gap, same_shares
from alignment.draws import Draws, Operations
from alignment.finding import NO_HINT, Finding, Hint
from alignment.kinds import Kind
from mobilenetv3_common import sampling

Range = tuple[float, float]


class Law(NamedTuple):
    """How boxes are drawn in a picture.

    Attributes:
        height, width: of the picture.
        scale, ratio: ranges of the area's share and of the aspect ratio.
        uniform: whether the aspect ratio itself is uniform, and not its logarithm.
        erasing: whether the ratio is height / width, and a box must be smaller than the picture, as for random erasing.
    """

    height: int
    width: int
    scale: Range
    ratio: Range
    uniform: bool = False
    erasing: bool = False

    def boxes(self, count: int) -> np.ndarray:
        """Boxes (count, 4); what ten tries do not place is left out."""
        rng = np.random.default_rng(count)
        area = self.height * self.width * rng.uniform(*self.scale, (count, 10))
        low, high = self.ratio
        aspect = (
            rng.uniform(low, high, (count, 10)) if self.uniform else np.exp(rng.uniform(np.log(low), np.log(high), (count, 10)))
        )
        w, h = np.rint(np.sqrt(area * aspect)).astype(int), np.rint(np.sqrt(area / aspect)).astype(int)
        if self.erasing:
            w, h = h, w
        margin = int(self.erasing)
        fits = (w > 0) & (h > 0) & (w <= self.width - margin) & (h <= self.height - margin)
        first = fits.argmax(axis=1), fits.any(axis=1)
        h, w = (side[np.arange(count), first[0]][first[1]] for side in (h, w))
        places = rng.random((2, len(h)))
        return np.stack(
            [(places[0] * (self.height - h + 1)).astype(int), (places[1] * (self.width - w + 1)).astype(int), h, w], axis=1
        )


SIZES = ("area", "aspect", "height", "width")
AXES = (([1, 0, 3, 2], "rows and columns"), ([0, 1, 3, 2], "height and width"), ([1, 0, 2, 3], "top and left"))


def apart(ours: np.ndarray, theirs: np.ndarray, height: int, width: int, only: tuple[str, ...] = ()) -> float:
    """How far two samples of boxes lie apart, in units of what chance allows: above 1, they have not one distribution."""
    a, b = measures(ours, height, width), measures(theirs, height, width)
    gaps = [gap(a[name], b[name]) for name in only or a]
    return max(max(found.largest / found.allowed, found.beyond / found.allowed_beyond) for found in gaps)


def _common(boxes: np.ndarray) -> tuple[tuple[int, ...], float]:
    """The most frequent box and its share."""
    ((box, number),) = Counter(map(tuple, boxes.tolist())).most_common(1)
    return box, number / len(boxes)


def _wrong(boxes: np.ndarray, expected: np.ndarray, height: int, width: int) -> str:
    """Why two samples of boxes have not one distribution; ``""`` where they may."""
    return _reason(data_draws.box_rows("boxes", boxes, expected, height, width))


def box_hint(ours: np.ndarray, law: Law, expected: np.ndarray) -> tuple[str, Hint]:
    """Which part of a law of boxes is another one in the port (``""`` where unknown), and how."""
    size = law.height, law.width
    for order, words in AXES:
        if not _wrong(ours[:, order], expected, *size):
            return "axes", (Kind.AXES_SWAPPED, f"{words} of the box are exchanged")
    if (ours[:, :2] < 0).any() or (ours[:, 2:] <= 0).any() or (ours[:, :2] + ours[:, 2:] > size).any():
        return "box", (Kind.POSITION, "a box does not lie in the picture")
    if law.height != law.width and apart(ours, law._replace(height=law.width, width=law.height).boxes(len(ours)), *size) <= 1:
        return "axes", (Kind.AXES_SWAPPED, "drawn for a picture whose height and width are exchanged")
    (fallback, share), (instead, _) = _common(expected), _common(ours)
    if share > 0.1 and fallback != instead:
        return "fallback", (Kind.POSITION, f"where no box fits it is {instead}, expected {fallback}")
    sizes = [list(map(tuple, boxes[: min(len(ours), len(expected)), 2:].tolist())) for boxes in (ours, expected)]
    if apart(ours, expected, *size, SIZES) <= 1 and same_shares("", *sizes).passed:
        found = measures(ours, *size)
        places = ", ".join(f"{name} {_shown((found[name].min(), found[name].max()))}" for name in ("top", "left"))
        return "position", (Kind.POSITION, f"{places} of the free rows and columns; expected to be uniform from 0 to 1")
    for hypotheses in _hypotheses(ours, law):
        tried = [(apart(ours, other.boxes(len(ours)), *size, SIZES), part, words, other) for part, words, other in hypotheses]
        score, part, words, other = min(tried, key=lambda one: one[0], default=(2.0, "", "", law))
        if score <= 1:
            return part, (Kind.UNIFORM_FOR_LOG if other.uniform else Kind.RANGE, words)
    return "", NO_HINT


def _near(value: float, expected: float) -> list[float]:
    """What a bound may be meant to be, of which a sample shows ``value``."""
    guesses = (round(value, 2), float(Fraction(value).limit_denominator(12)), round(value, 1))
    return [guess for guess in dict.fromkeys(guesses) if guess != expected and guess > 0]


def _shown(values: Range) -> str:
    return f"{values[0]:.4g} to {values[1]:.4g}"


def _hypotheses(ours: np.ndarray, law: Law) -> Iterator[list[tuple[str, str, Law]]]:
    """Other laws that the sample suggests, the smallest changes first: the part, the words for it, the law."""
    found = measures(ours, law.height, law.width)
    low, high = (float(np.exp(end)) for end in (found["aspect"].min(), found["aspect"].max()))
    seen = {
        "scale": ((float(found["area"].min()), float(found["area"].max())), law.scale, "area shares"),
        "ratio": ((1 / high, 1 / low) if law.erasing else (low, high), law.ratio, "aspect ratios"),
    }
    uniform = "the aspect ratio is uniform, expected uniform in its logarithm"
    yield [("ratio", uniform, law._replace(uniform=True))]
    guesses = {part: [_near(value, bound) for value, bound in zip(*ends[:2], strict=True)] for part, ends in seen.items()}
    for both in (False, True):
        tried = []
        for part, (_, (lowest, highest), words) in seen.items():
            lows, highs = guesses[part]
            ranges = itertools.product(lows, highs) if both else [*((x, highest) for x in lows), *((lowest, x) for x in highs)]
            for a, b in ranges:
                if a < b:
                    other = law._replace(scale=(a, b)) if part == "scale" else law._replace(ratio=(a, b))
                    tried.append((part, f"{words} of {_shown((a, b))}, expected {_shown((lowest, highest))}", other))
        yield tried


# --- the parameters of one picture -----------------------------------------------------------------------------------------


def drawn(context: Context) -> Finding | None:
    """The first parameter that is drawn otherwise."""
    other = context.project.independent
    if other is None or other.draws is None:
        return None
    draws, seed = other.draws, context.seed
    for what in FUNCTIONS:
        if finding := _function(draws, what, seed):
            return finding
    for policy in data_draws.POLICIES:
        if finding := _policy(draws, policy, seed):
            return finding
    for pool in POOLS:
        samples = data_draws.drawn(pool, seed)
        for look in (_crops, _flips, _erased, _operations, _together):
            if finding := look(draws, pool, samples, seed):
                return finding
    for mix in MIXES:
        if finding := _mix(draws, mix, seed):
            return finding
    row = list(data_draws.mixes(draws, seed))[-1]
    return None if row.passed else Finding("data", "generator", Kind.NOT_INDEPENDENT, "groups share their parameters", row.reason)


def _reason(rows: Iterator) -> str:
    """Why the first row that fails does; ``""`` where none does."""
    return next((f"{row.name}: {row.reason}" for row in rows if not row.passed), "")


def _function(draws: Draws, what: str, seed: int) -> Finding | None:
    """A function that draws boxes, asked by itself."""
    measured = _reason(data_draws.function_rows(draws, what, seed))
    if not measured:
        return None
    name, height, width, _ = FUNCTIONS[what]
    law = Law(height, width, *draws.ranges(what), erasing=what == "erase")
    part, hint = box_hint(data_draws.asked_boxes(draws, what, seed), law, data_draws.expected_boxes(draws, what))
    return Finding("data", f"{name}: {what} {part}".rstrip(), *hint, measured)


def _boxes(what: str, ours: np.ndarray, expected: np.ndarray, law: Law, measured: str) -> Finding:
    """A finding about boxes: of the function that draws them where it is wrong when asked by itself, else of who asks it."""
    function, rng = getattr(sampling, FUNCTIONS[what].name), np.random.default_rng(1)
    given = () if law.erasing else (law.scale, law.ratio)  # erasing has its ranges by default
    asked = [function(rng, law.height, law.width, *given) or (-1, -1, -1, -1) for _ in range(len(ours))]
    wrong = _wrong(np.array(asked), expected, law.height, law.width)
    part, hint = box_hint(ours, law, expected)
    return Finding("data", f"{FUNCTIONS[what].name if wrong else 'sample_params'}: {what} {part}".rstrip(), *hint, measured)


def _crops(draws: Draws, pool: DrawPool, samples: Drawn, seed: int) -> Finding | None:
    measured = _reason(data_draws.crop_rows(draws, pool, samples, seed))
    if not measured:
        return None
    ranges = (pool.preset.crop_scale, pool.preset.crop_ratio) if pool.given else draws.ranges("crop")
    expected = data_draws.expected_crops(draws, pool, len(samples.crops))
    law = Law(pool.height, pool.width, *ranges)
    return _boxes("crop", samples.crops, expected, law, measured)


def _erased(draws: Draws, pool: DrawPool, samples: Drawn, seed: int) -> Finding | None:
    rows = list(data_draws.erase_rows(draws, pool, samples, seed))
    start = 0
    for row, (preset, count) in zip(rows, pool.parts, strict=False):
        if not row.passed:
            share = (samples.erased[start : start + count, 0] >= 0).mean()
            words = f"pictures are erased with probability {share:.3f}, expected {preset.random_erase_prob:g}"
            return Finding("data", "sample_params: erase probability", Kind.PROBABILITY, words, row.reason)
        start += count
    if not (measured := _reason(iter(rows))):
        return None
    ours, side = data_draws.erased_boxes(samples), pool.preset.crop_size
    law = Law(side, side, *draws.ranges("erase"), erasing=True)
    return _boxes("erase", ours, data_draws.expected_erased(draws, pool, len(ours)), law, measured)


def _flips(draws: Draws, pool: DrawPool, samples: Drawn, seed: int) -> Finding | None:
    (row,) = data_draws.flip_rows(draws, pool, samples, seed)
    if row.passed:
        return None
    words = f"mirrored with probability {samples.flips.mean():.3f}, expected {data_draws.expected_flips(draws, pool):g}"
    return Finding("data", "sample_params: flip", Kind.PROBABILITY, words, row.reason)


def _operations(draws: Draws, pool: DrawPool, samples: Drawn, seed: int) -> Finding | None:
    measured = _reason(data_draws.part_rows(draws, pool, samples, seed))
    return Finding("data", "sample_params: auto_augment", Kind.DISTRIBUTION, "other operations", measured) if measured else None


def _together(draws: Draws, pool: DrawPool, samples: Drawn, seed: int) -> Finding | None:
    for row in data_draws.together_rows(draws, pool, samples, seed):
        if not row.passed:
            words = f"{row.name.partition('independence.')[2].replace('.', ' and ')}: draws hang together"
            return Finding("data", "generator", Kind.NOT_INDEPENDENT, words, row.reason)
    return None


# --- policies --------------------------------------------------------------------------------------------------------------


def _policy(draws: Draws, policy: str, seed: int) -> Finding | None:
    """What the function of a policy does by itself, for its default and for each of RandAugment's magnitudes."""
    function, count = data_draws.POLICIES[policy]
    height, width = data_draws.HEIGHT, data_draws.WIDTH
    for magnitude in (None, *(range(31) if policy == "ra" else ())):
        law = draws.operations(policy, height, width, magnitude)
        given = {} if magnitude is None else {"magnitude": magnitude}
        asked = data_draws.asked(policy, seed, data_draws.EACH if given else count, **given)
        row = data_draws.operation_row(function, asked, law)
        if not row.passed:
            name, hint = operation_hint(draws, policy, asked, law, magnitude)
            return Finding("data", f"{function}: {name}" if name else function, *hint, row.reason)
    return _signs(draws, policy, function, data_draws.asked(policy, seed, 2 * count))


def _signs(draws: Draws, policy: str, function: str, outcomes: list[Operations]) -> Finding | None:
    signed = {name for name, (_, sign) in draws.magnitudes(policy, data_draws.HEIGHT, data_draws.WIDTH).items() if sign}
    signs = [magnitude < 0 for outcome in outcomes for name, magnitude in outcome if name in signed and magnitude]
    row = as_stated("signs", {"negative": sum(signs)}, len(signs), {"negative": 0.5})
    if row.passed:
        return None
    words = f"magnitudes are negative with probability {np.mean(signs):.3f}, expected 0.5"
    return Finding("data", f"{function}: sign", Kind.SIGN, words, row.reason)


def operation_hint(
    draws: Draws, policy: str, outcomes: list[Operations], law: Mapping[Operations, float], magnitude: int | None
) -> tuple[str, Hint]:
    """Which operation a policy draws otherwise (``""`` where unknown), and how."""
    known = {op for outcome in law for op in outcome}
    names = {name for name, _ in known}
    done = [op for outcome in data_draws.as_known(outcomes, law) for op in outcome]
    for name in sorted({name for name, _ in done} - names):
        return name, (Kind.OTHER_OPERATION, f"{name} is drawn, which the policy does not have")
    for name in sorted(names - {name for name, _ in done}):
        return name, (Kind.OTHER_OPERATION, f"{name} is never drawn")
    if policy == "ra":
        for other in range(31):
            right = draws.operations(policy, data_draws.HEIGHT, data_draws.WIDTH, other)
            if right != law and data_draws.operation_row("", outcomes, right).passed:
                expected = "the default one" if magnitude is None else f"{magnitude}"
                return "magnitude", (Kind.MAGNITUDE, f"the magnitudes of bin {other}, expected those of {expected}")
    for name in sorted(names):
        ours, theirs = ({m for op, m in found if op == name} for found in (done, known))
        if impossible := sorted(ours - theirs):
            if {-m for m in impossible} <= theirs:
                return name, (Kind.SIGN, f"{name} by {impossible[0]:g}: its magnitude has no such sign")
            near = min(theirs, key=lambda m: abs(m - impossible[0]))
            return name, (
                Kind.MAGNITUDE,
                f"{name} by {impossible[0]:.6g}, which does not occur; the nearest that does is {near:.6g}",
            )
        if len({m < 0 for m in ours if m}) < len({m < 0 for m in theirs if m}):
            return name, (
                Kind.SIGN,
                f"{name} always goes one way: its magnitude is never {'positive' if min(ours) < 0 else 'negative'}",
            )
    return _share_hint([op for outcome in data_draws.as_known(outcomes, law).elements() for op in outcome], law)


def _share_hint(done: Sequence[tuple[str, float]], law: Mapping[Operations, float]) -> tuple[str, Hint]:
    """The operation whose magnitudes have other shares, where each operation is as frequent as it must be."""
    expected: Counter[tuple[str, float]] = Counter()
    for outcome, probability in law.items():
        for operation in outcome:
            expected[operation] += probability  # type: ignore[assignment]  # a Counter of shares
    made, names = Counter(done), sorted({name for name, _ in expected})

    def of(counted: Mapping[tuple[str, float], float], name: str) -> dict[float, float]:
        return {magnitude: share for (own, magnitude), share in counted.items() if own == name}

    whole = {name: sum(of(expected, name).values()) for name in names}
    laws = {name: share / sum(whole.values()) for name, share in whole.items()}
    if as_stated("", Counter(name for name, _ in done), len(done), laws).passed:
        for name in names:
            ours, theirs = of(made, name), of(expected, name)
            given = {magnitude: share / whole[name] for magnitude, share in theirs.items()}
            row = as_stated("", {m: int(count) for m, count in ours.items()}, int(sum(ours.values())), given)
            if not row.passed:
                return name, (Kind.MAGNITUDE, f"the magnitudes of {name}, which is as frequent as it must be: {row.reason}")
    return "", (Kind.PROBABILITY, "single operations have other probabilities")


# --- mixing ----------------------------------------------------------------------------------------------------------------


def _mix(draws: Draws, mix: Mix, seed: int) -> Finding | None:
    coin, *rows = data_draws.mix_rows(draws, mix, seed)
    kinds, shares, boxes = data_draws.drawn_mix(mix, seed)
    alpha = mix.preset.mixup_alpha
    if not coin.passed:
        words = f"mixup in a share of {kinds.count('mixup') / len(kinds):.3f} of the groups"
        return Finding("data", "mix_params: kind", Kind.PROBABILITY, words, coin.reason)
    if not (measured := _reason(iter(rows))):
        return None
    if mix.preset.cutmix_alpha:
        ours = boxes[np.array(kinds) == "cutmix"].astype(float)
        _, expected = draws.cutmix_boxes(mix.groups, mix.preset.cutmix_alpha, mix.height, mix.width)
        for order, words in AXES:
            if all(gap(ours[:, order[i]], expected[:, i].astype(float)).same for i in range(4)):
                return Finding("data", "mix_params: box", Kind.AXES_SWAPPED, f"{words} of the box are exchanged", measured)
        right = all(gap(ours[:, i], expected[:, i].astype(float)).same for i in range(4))
        return Finding("data", f"mix_params: {'share' if right else 'box'}", Kind.DISTRIBUTION, "another distribution", measured)
    guess = float(f"{max((0.25 / shares.var() - 1) / 2, 1e-3):.1g}")
    hint = Kind.DISTRIBUTION, "another distribution"
    if guess != alpha and gap(np.round(shares, 6), np.round(draws.mixup_shares(mix.groups, guess), 6)).same:
        hint = Kind.RANGE, f"shares of Beta({guess:g}, {guess:g}), expected Beta({alpha:g}, {alpha:g})"
    return Finding("data", "mix_params: share", *hint, measured)
