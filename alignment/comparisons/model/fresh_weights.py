"""FreshTensor weights of two sides, each built with several seeds: is every tensor of the port drawn as the reference draws it?

What the reference has alike for every seed must be the port's to the last bit, a table that is computed within rounding; what it
draws at random must be drawn anew for each seed, and from the same distribution. A side is a function of seeds that gives the
weights for each, under the reference's names and in its layout; no model is known here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm
from alignment.initialisers import difference_words, extremes, extremes_bound, ks_bound, ks_distance
from mobilenetv3_common.weights import State

FreshDraws = Callable[[Iterable[int]], Iterator[State]]
SEEDS = (4, 12)  # at least, at most
SAMPLE = 32768  # values of a tensor that are looked at, over all seeds together
ENOUGH = 4096  # of them from the smallest tensor, where the greatest number of seeds gives them
WEIGHTS = 50_000_000  # drawn on each side at most, beyond the least number of seeds


@dataclass
class FreshTensor:
    """FreshTensor values of one tensor.

    Attributes:
        first: those of the first seed.
        alike: which of them every seed gave.
        places: flat indices of the values that are kept of each seed.
        kept: these values, a row a seed.
    """

    first: np.ndarray
    alike: np.ndarray
    places: np.ndarray
    kept: list[np.ndarray] = field(default_factory=list)

    def add(self, array: np.ndarray) -> None:
        """The values of another seed."""
        self.alike &= (array == self.first) | (_no_number(array) & _no_number(self.first))
        self.kept.append(array.ravel()[self.places])

    def drawn(self) -> np.ndarray:
        """The kept values of all seeds in the places that differ from seed to seed."""
        return np.concatenate([row[~self.alike.ravel()[self.places]] for row in self.kept])


@dataclass(frozen=True)
class Verdict:
    """What is said of one tensor.

    Attributes:
        name: canonical, the reference's.
        shape: of the tensor.
        random: whether the reference draws it at random.
        words: what is wrong; empty where nothing is.
        measured: by how much.
        repeats: whether the port has other values than one for all, and the same ones for every seed, where the reference draws.
        drawn: whether the port fills it as a framework may: at random like the reference, or a vector of one value on one side.
    """

    name: str
    shape: tuple[int, ...]
    random: bool
    words: str = ""
    measured: str = ""
    repeats: bool = False
    drawn: bool = False


def compare(port: FreshDraws, reference: FreshDraws, left: Collection[str] = (), most: int = SEEDS[1]) -> tuple[list[Verdict], int]:
    """Every tensor that both sides have in one shape, in the reference's order, and the number of seeds.

    Args:
        port, reference: the two sides.
        left: names of tensors that are left out where the reference has them alike for every seed.
        most: seeds at most, ``SEEDS[0]`` or more; fewer cost less, and a difference in small tensors must be greater to be found.
    """
    first, second = reference(range(2))
    seeds = _seeds(first, second, most)
    each = -(-SAMPLE // seeds)
    theirs = _gathered(itertools.chain((first, second), reference(range(2, seeds))), each)
    ours = _gathered(port(range(seeds)), each)
    both = [name for name, fresh in theirs.items() if name in ours and ours[name].first.shape == fresh.first.shape]
    both = [name for name in both if not (name in left and theirs[name].alike.all())]
    tests = 3 * sum(not theirs[name].alike.all() for name in both)
    return [_verdict(name, ours[name], theirs[name], tests) for name in both], seeds


def compare_constants(port: FreshDraws, reference: FreshDraws, names: Iterable[str]) -> list[Verdict]:
    """Those of the named tensors of the reference that it fills alike for every seed, where the port has them in the same shape."""
    theirs, ours = _gathered(reference(range(2)), ENOUGH), _gathered(port(range(2)), ENOUGH)
    found = []
    for name in names:
        mine, right = ours.get(name), theirs[name]
        if mine is not None and mine.first.shape == right.first.shape and right.first.size and right.alike.all():
            wrong = _constants(mine, right, right.alike)
            words = (_first_place(mine, right) or wrong[0], wrong[1]) if wrong else ()
            found.append(Verdict(name, right.first.shape, False, *words))
    return found


def _first_place(ours: FreshTensor, theirs: FreshTensor) -> str:
    """The first value that differs; nothing where the port's are all the same, or random."""
    if not ours.alike.all() or (ours.first == ours.first.flat[0]).all():
        return ""
    place = tuple(np.argwhere(ours.first != theirs.first)[0])
    values = f"{ours.first[place]:g}, expected {theirs.first[place]:g}"
    return f"the constructor makes other constants: at {list(map(int, place))} {values}"


def _seeds(first: State, second: State, most: int) -> int:
    """As many as give the smallest random tensor enough values, within bounds."""
    random = [int((array != second[name]).sum()) for name, array in first.items()]
    smallest = min((count for count in random if count), default=ENOUGH)
    affordable = WEIGHTS // max(sum(array.size for array in first.values()), 1)
    return int(np.clip(-(-ENOUGH // smallest), SEEDS[0], np.clip(affordable, SEEDS[0], most)))


def _gathered(states: Iterable[State], each: int) -> dict[str, FreshTensor]:
    """The values of each tensor, so many of each seed."""
    found: dict[str, FreshTensor] = {}
    for state in states:
        for name, array in state.items():
            if name not in found:
                places = np.random.default_rng(array.size).choice(array.size, min(array.size, each), replace=False)
                found[name] = FreshTensor(array, np.ones(array.shape, bool), places)
            found[name].add(array)
    return found


def _verdict(name: str, ours: FreshTensor, theirs: FreshTensor, tests: int) -> Verdict:
    shape = theirs.first.shape
    alike, random = theirs.alike, ~theirs.alike
    wrong = _constants(ours, theirs, alike) if alike.any() else None
    drawn = wrong is None or (_one_value(theirs) and not ours.alike.any())
    if wrong is None and random.any():
        wrong = _drawn_anew(ours, theirs, random)
        drawn = wrong is None or (theirs.first.ndim == 1 and (ours.first[random] == ours.first[random][0]).all())
        wrong = wrong or _distribution(ours, theirs, tests)
    repeats = bool(random.any() and ours.alike[random].all() and (ours.first[random] != ours.first[random][0]).any())
    words, measured = wrong or ("", "")
    return Verdict(name, shape, bool(random.any()), words, measured, repeats, bool(drawn))


def _one_value(fresh: FreshTensor) -> bool:
    """Whether it is a vector that every seed fills with the same one value."""
    return fresh.first.ndim == 1 and bool((fresh.alike & (fresh.first == fresh.first[0])).all())


def _constants(ours: FreshTensor, theirs: FreshTensor, alike: np.ndarray) -> tuple[str, str] | None:
    """What the reference has alike for every seed; a table that is computed may be rounded otherwise."""
    mine, right = ours.first[alike], theirs.first[alike]
    apart = (mine != right) & ~(_no_number(mine) & _no_number(right))
    table = apart.any() and (right != right[0]).any() and mine.dtype.kind == "f" and np.isfinite(right[apart]).all()
    rounded = table and distance(mine[apart], right[apart]) <= tolerance.BASE_FLOOR_32 * norm(right[np.isfinite(right)])
    if ours.alike[alike].all() and (rounded or not apart.any()):
        return None
    count = f"{int((~ours.alike[alike] | apart).sum())} of {ours.first.size} values differ"
    said = [_described(fresh, alike) for fresh in (ours, theirs)]
    return f"{said[0]}, expected {'other ' if said[0] == said[1] else ''}{said[1]}", count


def _no_number(values: np.ndarray) -> np.ndarray:
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)


def _drawn_anew(ours: FreshTensor, theirs: FreshTensor, random: np.ndarray) -> tuple[str, str] | None:
    """What the reference draws at random, and the port does not, or not for each seed."""
    stuck = ours.alike & random
    if not stuck.any():
        return None
    count = f"{int(stuck.sum())} of {stuck.size} values are equal for different seeds"
    if (ours.first[stuck] == ours.first[stuck][0]).all():
        return f"{_described(ours, stuck)}, expected {_described(theirs, stuck)}", count
    return "not initialised anew: equal for different seeds", count


def _described(fresh: FreshTensor, where: np.ndarray) -> str:
    """``"all values 0"``, or that they are random, and how widely spread."""
    values = fresh.first[where]
    if not fresh.alike[where].all():
        return f"random values of standard deviation {values.std():.3g}" if values.size > 1 else "random values"
    return f"all values {values[0]:g}" if (values == values[0]).all() else "fixed values"


def _distribution(ours: FreshTensor, theirs: FreshTensor, tests: int) -> tuple[str, str] | None:
    """What both sides draw at random, from different distributions."""
    mine, right = ours.drawn(), theirs.drawn()
    distinct = len(np.unique(right))
    if distinct < 2:
        return None
    if 2 * len(np.unique(mine)) < distinct:
        return "the same values again and again", f"{len(np.unique(mine))} different values of {mine.size}, expected {distinct}"
    bound = ks_bound(distinct, tests, tolerance.INITIALISATION_FALSE_ALARM)
    apart = max(ks_distance(mine, right), ks_distance(np.abs(mine), np.abs(right)))
    beyond = extremes(mine, right)
    if apart <= bound and beyond <= extremes_bound(tests, tolerance.INITIALISATION_FALSE_ALARM):
        return None
    words = difference_words(mine, right, theirs.first.shape)
    words = words or f"values up to {np.abs(mine).max():.3g}, expected up to {np.abs(right).max():.3g}"
    further = f"{beyond} of {right.size} values larger in size than all of the other side's"
    return words, f"Kolmogorov-Smirnov distance {apart:.3f} (bound {bound:.3f}), {further}"
