"""Fresh weights: is every tensor of the port drawn from the distribution that the reference draws it from?

Both sides are built with several seeds. What the reference has alike for every seed must be the port's to the last bit; what it
draws at random must be drawn anew for each seed, and from the same distribution.

Constants that no training changes (index tables, anchors, masks, frozen encodings of positions) are compared for every model: the
reference's weights overwrite them, so the other steps cannot see that the port's constructor makes them otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from alignment import tolerance
from alignment.compare import Group, Quantity, distance, norm
from alignment.initialisers import difference_words, extremes, extremes_bound, ks_bound, ks_distance
from alignment.steps.context import Context
from alignment.steps.result import StepResult
from alignment.weights import renamed
from mobilenetv3_common.weights import State

SEEDS = (4, 12)  # at least, at most
SAMPLE = 8192  # values of a tensor that are looked at, over all seeds together
ENOUGH = 4096  # of them from the smallest tensor, where the greatest number of seeds gives them
WEIGHTS = 50_000_000  # drawn on each side at most, beyond the least number of seeds


@dataclass
class Fresh:
    """Fresh values of one tensor.

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
    """

    name: str
    shape: tuple[int, ...]
    random: bool
    words: str = ""
    measured: str = ""


def wanted(context: Context) -> bool:
    """Whether fresh weights are compared: where the project says so, else where it makes whole runs that begin with them."""
    project, asked = context.project, context.spec.initialisation
    return asked if asked is not None else not (project.lacks_runs() or project.lacks("data") or project.lacks("loss"))


def judge(context: Context, result: StepResult) -> None:
    """Add a row for all tensors together, and one for each that differs: of constants, and where asked for, of fresh weights."""
    constants = constants_of(context)
    result.quantities += _rows(context, "constants", constants)
    if not wanted(context):
        return
    verdicts, seeds = verdicts_of(context)
    if not verdicts:
        return
    drawn = sum(verdict.random for verdict in verdicts)
    result.evidence["initialisation"] = f"{drawn} random and {len(verdicts) - drawn} constant tensors, {seeds} seeds"
    result.quantities += _rows(context, "initialisation", verdicts)
    result.cover("initialisation")


def _rows(context: Context, name: str, verdicts: Sequence[Verdict]) -> list[Quantity]:
    rows = Group(name)
    for verdict in verdicts:
        row, known = Quantity(f"{name}.{verdict.name}", list(verdict.shape)), verdict.name in context.known_fresh
        rows.add(row.fail(f"{verdict.words} ({verdict.measured})") if verdict.words and not known else row)
    return list(rows.rows()) if verdicts else []


def constants_of(context: Context) -> list[Verdict]:
    """Tensors that the reference's constructor fills alike for every seed and no training changes, statistics left out.

    Only those that the port has in the same shape: others are missing, or no part of its weights, and nothing overwrites them.

    Raises:
        Exception: what the port raises when it is built.
    """
    if not context.constants:
        return []
    reference = _fresh(_states(context, "reference", {}, range(2)), ENOUGH)
    port = _fresh(_states(context, "port", context.matched.matching.renaming(), range(2)), ENOUGH)
    found = []
    for name in context.constants:
        ours, theirs = port.get(name), reference[name]
        if ours is not None and ours.first.shape == theirs.first.shape and theirs.first.size and theirs.alike.all():
            wrong = _constants(ours, theirs, theirs.alike)
            words = (_first_place(ours, theirs) or wrong[0], wrong[1]) if wrong else ()
            found.append(Verdict(name, theirs.first.shape, False, *words))
    return found


def _first_place(ours: Fresh, theirs: Fresh) -> str:
    """The first value that differs; nothing where the port's are all the same, or random."""
    if not ours.alike.all() or (ours.first == ours.first.flat[0]).all():
        return ""
    place = tuple(np.argwhere(ours.first != theirs.first)[0])
    values = f"{ours.first[place]:g}, expected {theirs.first[place]:g}"
    return f"the constructor makes other constants: at {list(map(int, place))} {values}"


def verdicts_of(context: Context) -> tuple[list[Verdict], int]:
    """Every tensor but the constants that both sides have in one shape, in the reference's order, and the number of seeds.

    Raises:
        Exception: what the port raises when it is built.
    """
    first, second = _states(context, "reference", {}, range(2))
    seeds = _seeds(first, second)
    each = -(-SAMPLE // seeds)
    reference = _fresh(itertools.chain((first, second), _states(context, "reference", {}, range(2, seeds))), each)
    names = context.matched.matching.renaming()
    port = _fresh(_states(context, "port", names, range(seeds)), each)
    left = {name for name in context.constants if reference[name].alike.all()}
    both = [name for name, fresh in reference.items() if name in port and port[name].first.shape == fresh.first.shape]
    both = [name for name in both if name not in left]
    tests = 3 * sum(not reference[name].alike.all() for name in both)
    return [_verdict(name, port[name], reference[name], tests) for name in both], seeds


def _states(context: Context, role: str, names: Mapping[str, str], seeds: Iterable[int]) -> Iterator[State]:
    """The fresh weights of one side for each seed, under the reference's names."""
    framework = context.sides[role].framework
    for seed in seeds:
        framework.seed(seed)
        described = framework.described(context.fresh(role))
        yield {renamed(entry, names): entry.to_canonical(framework.array(tensor)) for entry, tensor in described}


def _seeds(first: State, second: State) -> int:
    """As many as give the smallest random tensor enough values, within bounds."""
    random = [int((array != second[name]).sum()) for name, array in first.items()]
    smallest = min((count for count in random if count), default=ENOUGH)
    affordable = WEIGHTS // max(sum(array.size for array in first.values()), 1)
    return int(np.clip(-(-ENOUGH // smallest), SEEDS[0], np.clip(affordable, *SEEDS)))


def _fresh(states: Iterable[State], each: int) -> dict[str, Fresh]:
    """The values of each tensor, so many of each seed."""
    found: dict[str, Fresh] = {}
    for state in states:
        for name, array in state.items():
            if name not in found:
                places = np.random.default_rng(array.size).choice(array.size, min(array.size, each), replace=False)
                found[name] = Fresh(array, np.ones(array.shape, bool), places)
            found[name].add(array)
    return found


def _verdict(name: str, ours: Fresh, theirs: Fresh, tests: int) -> Verdict:
    shape = theirs.first.shape
    alike, random = theirs.alike, ~theirs.alike
    wrong = _constants(ours, theirs, alike) if alike.any() else None
    if wrong is None and random.any():
        wrong = _drawn_anew(ours, theirs, random) or _distribution(ours, theirs, tests)
    return Verdict(name, shape, bool(random.any()), *(wrong or ()))


def _constants(ours: Fresh, theirs: Fresh, alike: np.ndarray) -> tuple[str, str] | None:
    """What the reference has alike for every seed; a table that is computed may be rounded otherwise."""
    mine, right = ours.first[alike], theirs.first[alike]
    apart = (mine != right) & ~(_no_number(mine) & _no_number(right))
    table = apart.any() and (right != right[0]).any() and mine.dtype.kind == "f" and np.isfinite(right[apart]).all()
    rounded = table and distance(mine[apart], right[apart]) <= tolerance.BASE_FLOOR_32 * norm(right[np.isfinite(right)])
    if ours.alike[alike].all() and (rounded or not apart.any()):
        return None
    count = f"{int((~ours.alike[alike] | apart).sum())} of {ours.first.size} values differ"
    return f"{_described(ours, alike)}, expected {_described(theirs, alike)}", count


def _no_number(values: np.ndarray) -> np.ndarray:
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)


def _drawn_anew(ours: Fresh, theirs: Fresh, random: np.ndarray) -> tuple[str, str] | None:
    """What the reference draws at random, and the port does not, or not for each seed."""
    stuck = ours.alike & random
    if not stuck.any():
        return None
    count = f"{int(stuck.sum())} of {stuck.size} values are equal for different seeds"
    if (ours.first[stuck] == ours.first[stuck][0]).all():
        return f"{_described(ours, stuck)}, expected {_described(theirs, stuck)}", count
    return "not initialised anew: equal for different seeds", count


def _described(fresh: Fresh, where: np.ndarray) -> str:
    """``"all values 0"``, or that they are random, and how widely spread."""
    values = fresh.first[where]
    if not fresh.alike[where].all():
        return f"random values of standard deviation {values.std():.3g}" if values.size > 1 else "random values"
    return f"all values {values[0]:g}" if (values == values[0]).all() else "fixed values"


def _distribution(ours: Fresh, theirs: Fresh, tests: int) -> tuple[str, str] | None:
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
    return words, f"Kolmogorov-Smirnov distance {apart:.3f} (bound {bound:.3f}), {beyond} extremes, {right.size} values"
