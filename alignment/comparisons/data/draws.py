"""Step 2: the random parameters of training pictures, drawn as a run draws them, against the distributions that they ought to have.

Drawing stands once for both frameworks, so that a comparison of the two sides cannot see a mistake in it. Thousands of samples are
drawn through ``sample_params`` and ``mix_params`` from the run's own keys (seed, epoch, picture), and compared with what the
project's independent part (``alignment.draws.Draws``) draws or states.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.distributions import as_stated, same_shares, same_values
from alignment.draws import Draws, Operations
from mobilenetv3_common import sampling
from mobilenetv3_common.presets import AUTO_AUGMENT_POLICIES, TrainPreset
from mobilenetv3_common.sampling import SampleKey, mix_params, sample_params

ERASING = TrainPreset(crop_size=1000, random_erase_prob=0.5)  # large, so that rounding to pixels blurs no range
GIVEN = TrainPreset(
    crop_size=96,
    crop_scale=(0.35, 0.7),
    crop_ratio=(0.5, 1.2),
    hflip_prob=0.2,
    auto_augment="ra",
    ra_magnitude=20,
    random_erase_prob=0.8,
)


@dataclass(frozen=True)
class DrawPool:
    """Samples of one picture size that are looked at together.

    Attributes:
        name: for the rows.
        height, width: of the decoded picture in pixels.
        parts: the presets with how many samples of each; each part is an epoch of its own. Crops, flips and erased boxes have
            one distribution in all of them; erasing may be off in some.
        given: whether the presets say crop ranges and the flip's probability; the defaults otherwise.
    """

    name: str
    height: int
    width: int
    parts: tuple[tuple[TrainPreset, int], ...]
    given: bool = False

    @property
    def preset(self) -> TrainPreset:
        return self.parts[0][0]


POOLS = (
    DrawPool(
        "usual",
        375,
        500,
        (
            (replace(ERASING, random_erase_prob=0.0), 6000),
            *((replace(ERASING, auto_augment=p), 1000) for p in AUTO_AUGMENT_POLICIES),
        ),
    ),
    DrawPool("given", 300, 420, ((GIVEN, 1500),), given=True),
    DrawPool("tall", 900, 100, ((TrainPreset(), 1000),)),
    DrawPool("wide", 100, 900, ((TrainPreset(), 1000),)),
    DrawPool("tiny", 5, 7, ((TrainPreset(crop_size=12, random_erase_prob=1.0), 1500),)),
)


@dataclass
class Drawn:
    """Parameters of many samples.

    Attributes:
        crops, erased: boxes, int64 (N, 4) as (top, left, height, width); rows of -1 where nothing is erased.
        flips: bool (N,).
        operations: of each part, what automatic augmentation does.
    """

    crops: np.ndarray
    flips: np.ndarray
    erased: np.ndarray
    operations: list[list[Operations]] = field(default_factory=list)


def drawn(pool: DrawPool, seed: int) -> Drawn:
    """The pool's samples, through ``sample_params``."""
    parts = []
    for number, (preset, count) in enumerate(pool.parts):
        epoch = 10 * POOLS.index(pool) + number if pool in POOLS else number
        parts.append([sample_params(preset, seed, SampleKey(epoch, i, 0), pool.height, pool.width) for i in range(count)])
    every = [params for part in parts for params in part]
    return Drawn(
        np.array([params.crop for params in every]),
        np.array([params.flip for params in every]),
        np.array([params.erase or (-1, -1, -1, -1) for params in every]),
        [[params.ops for params in part] for part in parts],
    )


def run(context: Context, result: StepResult) -> None:
    """A row for every distribution."""
    other = context.project.independent
    if other is None or other.draws is None:
        return
    for what in FUNCTIONS:
        result.extend(function_rows(other.draws, what, context.seed))
    for pool in POOLS:
        samples = drawn(pool, context.seed)
        for rows in SUBJECTS.values():
            result.extend(rows(other.draws, pool, samples, context.seed))
    result.extend(policies(other.draws, context.seed))
    result.extend(mixes(other.draws, context.seed))
    result.cover(
        "distribution of random resized crops",
        "distribution of flips",
        "distribution of erased boxes",
        *(f"distribution of {policy}" for policy in ("autoaugment", "randaugment", "trivialaugment", "mixup", "cutmix")),
        outside=True,
    )


# --- boxes -----------------------------------------------------------------------------------------------------------------


def measures(boxes: np.ndarray, height: int, width: int) -> dict[str, np.ndarray]:
    """What is compared of boxes (top, left, height, width) in a picture: shares of it, and the logarithm of width / height."""
    top, left, h, w = boxes.T.astype(np.float64)
    return {
        "area": h * w / (height * width),
        "aspect": np.log(w / h),
        "height": h / height,
        "width": w / width,
        "top": top / np.maximum(height - h, 1),  # 0 where the box leaves no choice
        "left": left / np.maximum(width - w, 1),
    }


def box_rows(name: str, ours: np.ndarray, theirs: np.ndarray, height: int, width: int) -> Iterator[Quantity]:
    """Rows for two samples of boxes: each measure, and how often single boxes occur (a fallback's, or those of tiny pictures)."""
    inside = (ours[:, :2] >= 0).all() and (ours[:, 2:] > 0).all() and (ours[:, :2] + ours[:, 2:] <= (height, width)).all()
    row = Quantity(f"{name}.inside", [len(ours)])
    yield row if inside else row.fail("a box does not lie in the picture")
    if not inside:
        return
    expected = measures(theirs, height, width)
    for measure, values in measures(ours, height, width).items():
        yield same_values(f"{name}.{measure}", values, expected[measure])
    size = min(len(ours), len(theirs))
    yield same_shares(f"{name}.boxes", *(map(tuple, boxes[:size].tolist()) for boxes in (ours, theirs)))


class Function(NamedTuple):
    """A function that draws boxes, asked by itself with one generator, and so more often than samples are drawn."""

    name: str
    height: int
    width: int
    times: int


FUNCTIONS = {
    "crop": Function("random_resized_crop_box", 375, 500, 10000),
    "erase": Function("random_erasing_box", 1000, 1000, 4000),
}


def expected_boxes(draws: Draws, what: str) -> np.ndarray:
    """The independent boxes for one of FUNCTIONS."""
    _, height, width, count = FUNCTIONS[what]
    found = draws.crops(count, height, width) if what == "crop" else draws.erasures(count, height, width)
    return found[found[:, 0] >= 0]


def asked_boxes(draws: Draws, what: str, seed: int) -> np.ndarray:
    """The boxes of one of FUNCTIONS; erasing has its ranges by default."""
    name, height, width, count = FUNCTIONS[what]
    function, rng = getattr(sampling, name), np.random.default_rng([seed, height])
    ranges = draws.ranges(what) if what == "crop" else ()
    return np.array([function(rng, height, width, *ranges) or (-1, -1, -1, -1) for _ in range(count)])


def function_rows(draws: Draws, what: str, seed: int) -> Iterator[Quantity]:
    """The boxes of one function."""
    name, height, width, _ = FUNCTIONS[what]
    yield from box_rows(f"draws.{name}", asked_boxes(draws, what, seed), expected_boxes(draws, what), height, width)


def expected_crops(draws: Draws, pool: DrawPool, count: int) -> np.ndarray:
    """The independent crops for a pool, at least as many as asked for."""
    if (pool.height, pool.width) == FUNCTIONS["crop"][1:3]:
        return expected_boxes(draws, "crop")
    ranges = (pool.preset.crop_scale, pool.preset.crop_ratio) if pool.given else (None, None)
    return draws.crops(count, pool.height, pool.width, *ranges)


def crop_rows(draws: Draws, pool: DrawPool, samples: Drawn, seed: int) -> Iterator[Quantity]:
    """Random resized crops."""
    theirs = expected_crops(draws, pool, len(samples.crops))
    yield from box_rows(f"draws.{pool.name}.crop", samples.crops, theirs, pool.height, pool.width)


def erased_boxes(samples: Drawn) -> np.ndarray:
    """The boxes of those that are erased."""
    return samples.erased[samples.erased[:, 0] >= 0]


def expected_erased(draws: Draws, pool: DrawPool, count: int) -> np.ndarray:
    """The independent boxes for a pool, at least as many as asked for."""
    side = pool.preset.crop_size
    return (
        expected_boxes(draws, "erase") if side == FUNCTIONS["erase"].width else draws.erasures(-(-count // 500) * 500, side, side)
    )


def erase_rows(draws: Draws, pool: DrawPool, samples: Drawn, seed: int) -> Iterator[Quantity]:
    """Whether pictures are erased, one row a part, and where; with these sizes ten tries always find a box."""
    start = 0
    for number, (preset, count) in enumerate(pool.parts):
        erased = int((samples.erased[start : start + count, 0] >= 0).sum())
        counted = {"erased": erased} if erased else {}
        yield as_stated(f"draws.{pool.name}.erase.share{number}", counted, count, {"erased": preset.random_erase_prob})
        start += count
    ours, side = erased_boxes(samples), pool.preset.crop_size
    if len(ours) and any(preset.random_erase_prob for preset, _ in pool.parts):
        yield from box_rows(f"draws.{pool.name}.erase", ours, expected_erased(draws, pool, len(ours)), side, side)


# --- coins, and what must not hang together --------------------------------------------------------------------------------


def expected_flips(draws: Draws, pool: DrawPool) -> float:
    """The probability of a flip in a pool."""
    return pool.preset.hflip_prob if pool.given else draws.flip_probability()


def flip_rows(draws: Draws, pool: DrawPool, samples: Drawn, seed: int) -> Iterator[Quantity]:
    """How many pictures are mirrored."""
    counted = {"flipped": int(samples.flips.sum())}
    yield as_stated(f"draws.{pool.name}.flip", counted, len(samples.flips), {"flipped": expected_flips(draws, pool)})


def together_rows(draws: Draws, pool: DrawPool, samples: Drawn, seed: int) -> Iterator[Quantity]:
    """Parameters that are drawn independently of each other, of the epoch, of the seed and of other pictures."""
    if pool is not POOLS[0]:
        return
    count = pool.parts[0][1]  # the other parts erase
    area = measures(samples.crops, pool.height, pool.width)["area"]
    yield same_values("draws.independence.crop.flip", area[samples.flips], area[~samples.flips])
    area, flips, erased = area[count:], samples.flips[count:], samples.erased[count:, 0] >= 0
    yield same_values("draws.independence.crop.erase", area[erased], area[~erased])
    size = min(flips.sum(), (~flips).sum())
    yield same_shares("draws.independence.flip.erase", erased[flips][:size], erased[~flips][:size])
    other_seed = drawn(DrawPool("seed", pool.height, pool.width, ((pool.preset, 300),)), seed + 1).crops
    crops = [set(map(tuple, boxes.tolist())) for boxes in (samples.crops[:count], samples.crops[count:], other_seed)]
    for name, known, boxes in (("epoch", 0, 1), ("seed", 0, 2)):
        row = Quantity(f"draws.independence.{name}", [len(crops[boxes])])
        repeated = len(crops[known] & crops[boxes])
        yield row.fail(f"{repeated} crops of one {name} occur in another") if repeated > len(crops[boxes]) // 10 else row
    row = Quantity("draws.independence.picture", [count])
    yield row.fail(f"{count} pictures have {len(crops[0])} different crops") if len(crops[0]) < count * 9 // 10 else row


# --- automatic augmentation ------------------------------------------------------------------------------------------------


def events(outcome: Operations) -> set[tuple]:
    """What can be counted of what is done to one picture."""
    found: set[tuple] = {("done", *(part for op in outcome for part in op)), ("operations", len(outcome))}
    for place, (name, magnitude) in enumerate(outcome):
        found |= {("operation", place, name), ("magnitude", place, name, abs(magnitude))}
        found.add(("direction", place, name, "negative" if magnitude < 0 else "not negative"))
    return found


def as_known(outcomes: Iterable[Operations], law: Mapping[Operations, float]) -> Counter[Operations]:
    """How often each outcome occurs; a magnitude that is a stated one but for the rounding of float32 counts as that one."""
    stated: dict[str, np.ndarray] = {}
    for name, magnitude in {op for outcome in law for op in outcome}:
        stated[name] = np.append(stated.get(name, []), magnitude)

    @functools.cache
    def known(name: str, magnitude: float) -> tuple[str, float]:
        of_name = stated.get(name, np.array([math.inf]))
        nearest = float(of_name[np.abs(of_name - magnitude).argmin()])
        same = abs(nearest - magnitude) <= tolerance.MAGNITUDE_RTOL * abs(nearest) < math.inf
        return name, nearest if same else magnitude

    counted: Counter[Operations] = Counter()
    for outcome, number in Counter(outcomes).items():
        counted[tuple(known(*op) for op in outcome)] += number
    return counted


def operation_row(name: str, outcomes: Iterable[Operations], law: Mapping[Operations, float]) -> Quantity:
    """A row for what a policy has done, against the probability of everything that it can do."""
    known: Counter[tuple] = Counter()
    for outcome, probability in law.items():
        for event in events(outcome):
            known[event] += probability  # type: ignore[assignment]  # a Counter of probabilities
    counted: Counter[tuple] = Counter()
    done = as_known(outcomes, law)
    for outcome, number in done.items():
        for event in events(outcome):
            counted[event] += number
    return as_stated(name, counted, sum(done.values()), {event: min(float(p), 1.0) for event, p in known.items()})


def part_rows(draws: Draws, pool: DrawPool, samples: Drawn, seed: int) -> Iterator[Quantity]:
    """What the policies do to the samples of a pool."""
    for (preset, _), outcomes in zip(pool.parts, samples.operations, strict=True):
        policy, side = preset.auto_augment, preset.crop_size
        if policy is None:
            yield operation_row(f"draws.{pool.name}.no_policy", outcomes, {(): 1.0})
        else:
            magnitude = preset.ra_magnitude if pool.given else None
            yield operation_row(f"draws.{pool.name}.{policy}", outcomes, draws.operations(policy, side, side, magnitude))


# The function of each policy, and how many pictures it is asked about: more than a whole sample could be drawn for.
POLICIES = {"imagenet": ("auto_augment_imagenet", 6000), "ra": ("rand_augment", 4000), "ta_wide": ("trivial_augment_wide", 8000)}
EACH = 100  # pictures for each of RandAugment's magnitudes
HEIGHT, WIDTH = 224, 160  # of the picture, whose sides differ so that exchanged axes are seen


def asked(policy: str, seed: int, count: int, **arguments: Any) -> list[Operations]:
    """What a policy's own function does to pictures of HEIGHT x WIDTH."""
    rng = np.random.default_rng([seed, len(policy)])
    function: Callable[..., Operations] = getattr(sampling, POLICIES[policy][0])
    size = () if policy == "ta_wide" else (HEIGHT, WIDTH)
    return [function(rng, *size, **arguments) for _ in range(count)]


def policies(draws: Draws, seed: int) -> Iterator[Quantity]:
    """The functions of the policies; RandAugment with each of its magnitudes; signs, of all operations together."""
    negative = Counter({True: 0, False: 0})
    signed = {name for name, (_, sign) in draws.magnitudes("ra", HEIGHT, WIDTH).items() if sign}
    for policy, (function, count) in POLICIES.items():
        outcomes = asked(policy, seed, count)
        yield operation_row(f"draws.{function}", outcomes, draws.operations(policy, HEIGHT, WIDTH))
        negative.update(magnitude < 0 for outcome in outcomes for name, magnitude in outcome if name in signed and magnitude)
    yield as_stated("draws.signs", {"negative": negative[True]}, sum(negative.values()), {"negative": 0.5})
    for magnitude in range(31):
        outcomes = asked("ra", seed, EACH, magnitude=magnitude)
        yield operation_row(f"draws.rand_augment.{magnitude}", outcomes, draws.operations("ra", HEIGHT, WIDTH, magnitude))


SUBJECTS: dict[str, Callable[[Draws, DrawPool, Drawn, int], Iterator[Quantity]]] = {
    "crop": crop_rows,
    "flip": flip_rows,
    "erase": erase_rows,
    "auto_augment": part_rows,
    "independence": together_rows,
}


# --- mixing ----------------------------------------------------------------------------------------------------------------


class Mix(NamedTuple):
    """Groups that are mixed: with which parameter, how many, of pictures of which size."""

    name: str
    preset: TrainPreset
    groups: int
    height: int = 300
    width: int = 500


MIXES = (
    Mix("mixup", TrainPreset(mixup_alpha=0.2), 3000),
    Mix("mixup_1", TrainPreset(mixup_alpha=1.0), 1000),
    Mix("cutmix", TrainPreset(cutmix_alpha=1.0), 1500),
    Mix("cutmix_0.3", TrainPreset(cutmix_alpha=0.3), 600),
    Mix("cutmix_tiny", TrainPreset(cutmix_alpha=1.0), 1000, 5, 8),
    Mix("either", TrainPreset(mixup_alpha=0.2, cutmix_alpha=1.0), 1500),
)


def drawn_mix(mix: Mix, seed: int) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Kinds, shares float64 (N,) and boxes int64 (N, 4) (zeros for mixup) of a run's groups."""
    made = [mix_params(mix.preset, seed, MIXES.index(mix), group, mix.height, mix.width) for group in range(mix.groups)]
    boxes = np.array([params.box or (0, 0, 0, 0) for params in made])
    return [params.kind for params in made], np.array([params.lam for params in made]), boxes


def mix_rows(draws: Draws, mix: Mix, seed: int) -> Iterator[Quantity]:
    """Shares and boxes of one kind of mixing."""
    name, preset = f"draws.{mix.name}", mix.preset
    kinds, shares, boxes = drawn_mix(mix, seed)
    coin = (preset.mixup_alpha > 0) / ((preset.mixup_alpha > 0) + (preset.cutmix_alpha > 0))
    yield as_stated(f"{name}.kind", Counter(kinds), mix.groups, {"mixup": coin, "cutmix": 1 - coin})
    of_mixup = np.array(kinds) == "mixup"
    if of_mixup.any():
        rounded = (np.round(found, 6) for found in (shares[of_mixup], draws.mixup_shares(mix.groups, preset.mixup_alpha)))
        yield same_values(f"{name}.share", *rounded)  # one of the two may be of float32, where many are 1
    if not of_mixup.all():
        expected, theirs = draws.cutmix_boxes(mix.groups, preset.cutmix_alpha, mix.height, mix.width)
        yield same_values(f"{name}.share", shares[~of_mixup], expected)
        ours = boxes[~of_mixup]
        for column, measure in enumerate(("top", "left", "height", "width")):
            yield same_values(f"{name}.{measure}", ours[:, column].astype(float), theirs[:, column].astype(float))
        size = min(len(ours), len(theirs))
        yield same_shares(f"{name}.boxes", *(map(tuple, found[:size].tolist()) for found in (ours, theirs)))
        exact = 1 - ours[:, 2] * ours[:, 3] / (mix.height * mix.width)
        row = Quantity(f"{name}.share_of_box", [len(ours)])
        yield row if np.allclose(shares[~of_mixup], exact, rtol=0, atol=1e-12) else row.fail("the share is not what the box leaves")


def mixes(draws: Draws, seed: int) -> Iterator[Quantity]:
    """All of them, and that epochs and groups differ."""
    for mix in MIXES:
        yield from mix_rows(draws, mix, seed)
    row = Quantity("draws.mixup.independence", [100])
    shares = {mix_params(MIXES[0].preset, seed + a, b, c, 8, 8).lam for a in range(2) for b in range(5) for c in range(10)}
    yield row if len(shares) > 90 else row.fail(f"100 groups of two seeds and five epochs have {len(shares)} different shares")
