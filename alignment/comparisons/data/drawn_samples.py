"""Parameters of whole samples, drawn through ``sample_params`` from a run's own keys: crops, flips, erased boxes and operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from alignment.compare import Quantity
from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.comparisons.data.drawn_boxes import (
    FUNCTIONS,
    NONE,
    Law,
    asked_boxes,
    box_hint,
    box_rows,
    expected_boxes,
    measures,
    reason,
)
from alignment.comparisons.data.drawn_operations import operation_row, outcomes_of, stored
from alignment.distributions import as_stated, same_shares, same_values
from alignment.draws import Draws
from alignment.finding import Finding
from alignment.kinds import Kind
from mobilenetv3_common import sampling
from mobilenetv3_common.presets import AUTO_AUGMENT_POLICIES, TrainPreset
from mobilenetv3_common.sampling import SampleKey

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

    @property
    def erases(self) -> bool:
        return any(preset.random_erase_prob for preset, _ in self.parts)


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
OTHER_SEED = 300  # samples that are drawn with another seed


def _drawn(preset: TrainPreset, seed: int, epoch: int, pool: DrawPool, count: int) -> list[sampling.SampleParams]:
    return [sampling.sample_params(preset, seed, SampleKey(epoch, i, 0), pool.height, pool.width) for i in range(count)]


class DrawnSamples:
    """The samples of a pool against what the independent part draws or states.

    Args:
        draws: the independent part.
        pool: one of POOLS.
    """

    def __init__(self, draws: Draws, pool: DrawPool) -> None:
        self.draws, self.pool = draws, pool
        self.crop_ranges = (pool.preset.crop_scale, pool.preset.crop_ratio) if pool.given else draws.ranges("crop")
        self.flip_probability = pool.preset.hflip_prob if pool.given else draws.flip_probability()
        # What a function of FUNCTIONS is asked by itself already need not be asked again.
        self.usual_crop = (pool.height, pool.width) == FUNCTIONS["crop"][1:3]
        self.usual_erase = pool.preset.crop_size == FUNCTIONS["erase"].width

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray]:
        """Crops and erased boxes, int64 (N, 4), of the independent part; of the port, all that is drawn for N samples.

        Of the port, ``erased`` has rows of -1 where nothing is erased, and ``asked.crop`` and ``asked.erase`` are the boxes of the
        functions by themselves.
        """
        pool, side = self.pool, self.pool.preset.crop_size
        count = sum(number for _, number in pool.parts)
        if role == "reference":
            ranges = self.crop_ranges if pool.given else (None, None)
            usual = (
                expected_boxes(self.draws, "crop") if self.usual_crop else self.draws.crops(count, pool.height, pool.width, *ranges)
            )
            made = {"crops": usual}
            if pool.erases:
                made["erased"] = expected_boxes(self.draws, "erase") if self.usual_erase else self.draws.erasures(count, side, side)
            return made
        start, made = 10 * POOLS.index(pool) if pool in POOLS else 0, {}
        parts = [_drawn(preset, context.seed, start + n, pool, number) for n, (preset, number) in enumerate(pool.parts)]
        for number, part in enumerate(parts):
            made |= stored(f"operations{number}", [params.ops for params in part])
        every = [params for part in parts for params in part]
        made["crops"] = np.array([params.crop for params in every])
        made["flips"] = np.array([params.flip for params in every])
        made["erased"] = np.array([params.erase or NONE for params in every])
        if pool is POOLS[0]:
            made["other_seed"] = np.array([params.crop for params in _drawn(pool.preset, context.seed + 1, 0, pool, OTHER_SEED)])
        if not self.usual_crop:
            rng = np.random.default_rng(1)
            made["asked.crop"] = asked_boxes("crop", rng, pool.height, pool.width, count, *self.crop_ranges)
        if pool.erases and not self.usual_erase:
            made["asked.erase"] = asked_boxes("erase", np.random.default_rng(1), side, side, count)
        return made

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        return [row for rows, _ in self._subjects() for row in rows(port, reference)]

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        for rows, explained in self._subjects():
            wrong = [row for row in rows(port, reference) if not row.passed]
            if wrong:
                return explained(port, reference, wrong[0])
        return None

    def _subjects(self) -> tuple[tuple[Callable[..., Iterator[Quantity]], Callable[..., Finding]], ...]:
        """The rows about each parameter, and what explains the first that fails."""
        return (
            (self._crop_rows, self._crops),
            (self._flip_rows, self._flips),
            (self._erase_rows, self._erased),
            (self._operation_rows, self._operations),
            (self._together_rows, self._together),
        )

    # --- crops ---

    def _crop_rows(self, port: Measurement, reference: Measurement) -> Iterator[Quantity]:
        ours, theirs = np.asarray(port["crops"]), np.asarray(reference["crops"])
        yield from box_rows(f"draws.{self.pool.name}.crop", ours, theirs, self.pool.height, self.pool.width)

    def _crops(self, port: Measurement, reference: Measurement, wrong: Quantity) -> Finding:
        law = Law(self.pool.height, self.pool.width, *self.crop_ranges)
        return self._boxes("crop", port, np.asarray(port["crops"]), np.asarray(reference["crops"]), law, wrong)

    def _boxes(self, what: str, port: Measurement, ours: np.ndarray, expected: np.ndarray, law: Law, wrong: Quantity) -> Finding:
        """A finding about boxes: of the function that draws them where it is wrong when asked by itself, else of who asks it."""
        asked, name = port.get(f"asked.{what}"), FUNCTIONS[what].name
        by_itself = asked is not None and reason(box_rows("boxes", np.asarray(asked), expected, law.height, law.width))
        part, hint = box_hint(ours, law, expected)
        place = f"{name if by_itself else 'sample_params'}: {what} {part}".rstrip()
        return Finding("data", place, *hint, f"{wrong.name}: {wrong.reason}")

    # --- flips ---

    def _flip_rows(self, port: Measurement, reference: Measurement) -> Iterator[Quantity]:
        flips = np.asarray(port["flips"])
        counted = {"flipped": int(flips.sum())}
        yield as_stated(f"draws.{self.pool.name}.flip", counted, len(flips), {"flipped": self.flip_probability})

    def _flips(self, port: Measurement, reference: Measurement, wrong: Quantity) -> Finding:
        words = f"mirrored with probability {np.asarray(port['flips']).mean():.3f}, expected {self.flip_probability:g}"
        return Finding("data", "sample_params: flip", Kind.PROBABILITY, words, wrong.reason)

    # --- erased boxes ---

    def _shares(self, port: Measurement) -> Iterator[tuple[int, int, float]]:
        """Of each part: how many samples are erased, of how many, and the probability of that."""
        erased, start = np.asarray(port["erased"])[:, 0] >= 0, 0
        for preset, count in self.pool.parts:
            yield int(erased[start : start + count].sum()), count, preset.random_erase_prob
            start += count

    def _erase_rows(self, port: Measurement, reference: Measurement) -> Iterator[Quantity]:
        """Whether pictures are erased, one row a part, and where; with these sizes ten tries always find a box."""
        for number, (erased, count, probability) in enumerate(self._shares(port)):
            counted = {"erased": erased} if erased else {}
            yield as_stated(f"draws.{self.pool.name}.erase.share{number}", counted, count, {"erased": probability})
        ours, side = _boxes_of(port), self.pool.preset.crop_size
        if len(ours) and self.pool.erases:
            yield from box_rows(f"draws.{self.pool.name}.erase", ours, np.asarray(reference["erased"]), side, side)

    def _erased(self, port: Measurement, reference: Measurement, wrong: Quantity) -> Finding:
        prefix = f"draws.{self.pool.name}.erase.share"
        if wrong.name.startswith(prefix):
            erased, count, probability = list(self._shares(port))[int(wrong.name.removeprefix(prefix))]
            words = f"pictures are erased with probability {erased / count:.3f}, expected {probability:g}"
            return Finding("data", "sample_params: erase probability", Kind.PROBABILITY, words, wrong.reason)
        side = self.pool.preset.crop_size
        law = Law(side, side, *self.draws.ranges("erase"), erasing=True)
        return self._boxes("erase", port, _boxes_of(port), np.asarray(reference["erased"]), law, wrong)

    # --- operations ---

    def _operation_rows(self, port: Measurement, reference: Measurement) -> Iterator[Quantity]:
        """What the policies do."""
        for number, (preset, _) in enumerate(self.pool.parts):
            policy, side, outcomes = preset.auto_augment, preset.crop_size, outcomes_of(port, f"operations{number}")
            if policy is None:
                yield operation_row(f"draws.{self.pool.name}.no_policy", outcomes, {(): 1.0})
            else:
                magnitude = preset.ra_magnitude if self.pool.given else None
                law = self.draws.operations(policy, side, side, magnitude)
                yield operation_row(f"draws.{self.pool.name}.{policy}", outcomes, law)

    def _operations(self, port: Measurement, reference: Measurement, wrong: Quantity) -> Finding:
        measured = f"{wrong.name}: {wrong.reason}"
        return Finding("data", "sample_params: auto_augment", Kind.DISTRIBUTION, "other operations", measured)

    # --- what must not hang together ---

    def _together_rows(self, port: Measurement, reference: Measurement) -> Iterator[Quantity]:
        """Parameters that are drawn independently of each other, of the epoch, of the seed and of other pictures."""
        if "other_seed" not in port:
            return
        boxes, flips, erased = np.asarray(port["crops"]), np.asarray(port["flips"]), np.asarray(port["erased"])[:, 0] >= 0
        count = self.pool.parts[0][1]  # the other parts erase
        area = measures(boxes, self.pool.height, self.pool.width)["area"]
        yield same_values("draws.independence.crop.flip", area[flips], area[~flips])
        area, flips, erased = area[count:], flips[count:], erased[count:]
        yield same_values("draws.independence.crop.erase", area[erased], area[~erased])
        size = min(flips.sum(), (~flips).sum())
        yield same_shares("draws.independence.flip.erase", erased[flips][:size], erased[~flips][:size])
        groups = (boxes[:count], boxes[count:], np.asarray(port["other_seed"]))
        known, *others = (set(map(tuple, group.tolist())) for group in groups)
        for name, crops in zip(("epoch", "seed"), others, strict=True):
            row, repeated = Quantity(f"draws.independence.{name}", [len(crops)]), len(known & crops)
            yield row.fail(f"{repeated} crops of one {name} occur in another") if repeated > len(crops) // 10 else row
        row = Quantity("draws.independence.picture", [count])
        yield row.fail(f"{count} pictures have {len(known)} different crops") if len(known) < count * 9 // 10 else row

    def _together(self, port: Measurement, reference: Measurement, wrong: Quantity) -> Finding:
        words = f"{wrong.name.partition('independence.')[2].replace('.', ' and ')}: draws hang together"
        return Finding("data", "generator", Kind.NOT_INDEPENDENT, words, wrong.reason)


def _boxes_of(port: Measurement) -> np.ndarray:
    """The boxes of the samples that are erased."""
    erased = np.asarray(port["erased"])
    return erased[erased[:, 0] >= 0]
