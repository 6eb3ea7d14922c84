"""Whether a port draws the random numbers of its reference in other axes: those of windows by picture, or of all in a row.

Shared masks are the same for axes in another order. For axes that are taken together or apart they are the same only where the
numbers are laid out in the order of the values, which then breaks the former. So that is done only where the two models ask for
numbers of other shapes and of the same sizes, and where more modules then agree.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from alignment.models.mirrored import DRAWING as FOR_ANYTHING
from alignment.models.mirrored import alike
from alignment.models.tracing import Network, training_mode
from alignment.strangers import strangers


class Drawn(NamedTuple):
    """How the random numbers of two sides become the same.

    Attributes:
        flat: whether those of both are laid out in the order of the values.
        mirrored: modules of the port that are given the mirrored ones: see ``alignment.models.mirrored``.
    """

    flat: bool
    mirrored: frozenset[str]


# A forward that names none of these leaves all to dropout layers, whose values lie as the layers around them give them.
DRAWING = FOR_ANYTHING | {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "bernoulli", "bernoulli_"}


def choose(port: Network, reference: Network, inputs: tuple) -> bool:
    """Whether the numbers of both have to be laid out in the order of the values.

    Args:
        port, reference: in exact mode, with the same weights and the same numbers to draw.
        inputs: of both, float64.
    """
    lanes, asked = (port, reference), []
    with training_mode([*lanes], True), strangers("reference"):  # it may need labels: there is nothing to compare then
        for lane in lanes:
            lane.draws.asked = []
            lane.outputs(inputs)
            asked.append([tuple(sorted(shape)) for shape in lane.draws.asked])
        ours, theirs = (sorted(map(math.prod, shapes)) for shapes in asked)
        if ours != theirs or sorted(asked[0]) == sorted(asked[1]):
            return False
        agreeing = []
        for flat in (False, True):
            for lane in lanes:
                lane.draws.flat = flat
            calls = [(path, call) for path, call in reference.trace(inputs).items() if path in port.modules]
            agreeing.append(sum(alike(port.answer(path, call), reference.answer(path, call)) for path, call in calls))
        return agreeing[1] > agreeing[0]
    return False
