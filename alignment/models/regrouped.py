"""Whether a port draws the random numbers of its reference in other axes or pieces: windows by picture, or all in a row.

Shared masks are the same for axes in another order. For axes that are taken together or apart they are the same only where the
numbers are laid out in the order of the values, which then breaks the former. So that is done only where each of the two models
asks for numbers of a shape that the other does not, of the same size, and where more modules then agree, or as many and none of
the numbers has its axes moved: a port that is called otherwise and draws once more agrees nowhere by itself.

One pass over a whole sequence draws at once what a prompt and the steps behind it, with a cache, draw one after another. The
numbers of the whole are then made of those of its pieces.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import NamedTuple

from alignment.models.mirrored import DRAWING as FOR_ANYTHING
from alignment.models.mirrored import alike
from alignment.models.observe import MaskPieces, MaskShape
from alignment.models.tracing import Network, training_mode
from alignment.strangers import strangers


class Drawn(NamedTuple):
    """How the random numbers of two sides become the same.

    Attributes:
        flat: whether those of both are laid out in the order of the values.
        mirrored: modules of the port that are given the mirrored ones: see ``alignment.models.mirrored``.
        pieces: of what shapes, drawn apart on one side, the numbers that the other draws at once are made.
    """

    flat: bool = False
    mirrored: frozenset[str] = frozenset()
    pieces: MaskPieces = MappingProxyType({})


MOST_PIECES = 64  # of one sequence

# A forward that names none of these leaves all to dropout layers, whose values lie as the layers around them give them.
DRAWING = FOR_ANYTHING | {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "bernoulli", "bernoulli_"}


def choose(port: Network, reference: Network, inputs: tuple) -> Drawn:
    """Whether the numbers of both have to be laid out in the order of the values, or some be made of pieces.

    Args:
        port, reference: in exact mode, with the same weights and the same numbers to draw.
        inputs: of both, float64.
    """
    lanes, every, asked = (port, reference), [], []
    with training_mode([*lanes], True), strangers("reference"):  # it may need labels: there is nothing to compare then
        for lane in lanes:
            lane.draws.asked = []
            lane.outputs(inputs)
            every.append(list(lane.draws.asked))
            asked.append(Counter(tuple(sorted(shape)) for shape in lane.draws.asked))
        alone = asked[0] - asked[1], asked[1] - asked[0]  # a port that draws once more than its reference may do so for these, too
        if not {*map(math.prod, alone[0])} & {*map(math.prod, alone[1])}:
            return Drawn(pieces=pieces_of(*every))
        agreeing = []
        for flat in (False, True):
            for lane in lanes:
                lane.draws.flat = flat
            calls = [(path, call) for path, call in reference.trace(inputs).items() if path in port.modules]
            agreeing.append(sum(alike(port.answer(path, call), reference.answer(path, call)) for path, call in calls))
        as_it_is = (Counter(every[0]) & Counter(every[1])).total() == (asked[0] & asked[1]).total()  # of no shape are axes moved
        flat = agreeing[1] > agreeing[0] or (agreeing[1] == agreeing[0] and as_it_is)
        return Drawn(flat=flat, pieces=MappingProxyType({}) if flat else pieces_of(*every))
    return Drawn()


def pieces_of(ours: Sequence[MaskShape], theirs: Sequence[MaskShape]) -> MaskPieces:
    """Of what shapes the one side makes what the other draws at once.

    Args:
        ours, theirs: shapes of the numbers that either side draws in a pass, in order.
    """
    found: dict[MaskShape, tuple[int, Sequence[MaskShape]]] = {}
    for at_once, apart in ((ours, theirs), (theirs, ours)):
        left = Counter(apart) - Counter(at_once)
        for whole, count in (Counter(at_once) - Counter(apart)).items():
            for axis in range(1, len(whole)):
                fitting = {one: n // count for one, n in left.items() if len(one) == len(whole) and one[0] == whole[0]}
                parts = next(_in_a_row(whole, axis, fitting, (), 0), None)
                if parts is not None:
                    found.setdefault(whole[1:], (axis, [part[1:] for part in parts]))
    return found


def _in_a_row(
    whole: MaskShape, axis: int, left: dict[MaskShape, int], so_far: tuple[MaskShape, ...], end: int
) -> Iterator[tuple[MaskShape, ...]]:
    """Shapes that make up a whole along an axis; another is that of the whole, or has the keys so far."""
    if end == whole[axis]:
        yield so_far
    for one, count in left.items() if len(so_far) < MOST_PIECES else ():
        after = end + one[axis]
        others = [
            n == most or (n == after and most == whole[axis])
            for place, (n, most) in enumerate(zip(one, whole, strict=True))
            if place != axis
        ]
        if count and end < after <= whole[axis] and one[axis] < whole[axis] and all(others):
            yield from _in_a_row(whole, axis, {**left, one: count - 1}, (*so_far, one), after)
