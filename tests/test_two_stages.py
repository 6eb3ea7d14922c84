"""Mistakes of networks in two stages, of which the second takes what the first chooses: in ports of another form.

Each is shown at its line, and the sound port beside it is silent.
"""

import math
from pathlib import Path

import paddle
import pytest
import torch
from paddle.nn import functional as PF
from torch import nn
from torch.nn import functional as F

from alignment import audit
from alignment.frameworks.paddle import within_bounds


def rows(count, rng):
    return (rng.standard_normal((count, 6, 5)).astype("float32"),)


class Picks(nn.Module):
    """Scores of rows, of which the best are taken."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406, 0.1, 0.3]))
        self.score, self.size = nn.Linear(5, 4), nn.Linear(5, 3)

    def forward(self, x):
        x = x - self.mean
        if self.training:
            sure = (x[..., 0] > 0).to(x)
            return F.binary_cross_entropy_with_logits(self.score(x)[..., 0], sure, sure + 0.5, reduction="sum") / sure.sum()
        best = F.softmax(self.score(x), -1)[..., 1:].flatten(1).topk(4, dim=1)
        places = best[1] // 3
        sizes = torch.gather(self.size(x), 1, places[..., None].expand(-1, -1, 3))
        return sizes, best[0], best[1] % 3 + 1


class OwnPicks(paddle.nn.Layer):
    def __init__(self, wrong=""):
        super().__init__()
        self.score, self.size, self.wrong = paddle.nn.Linear(5, 4), paddle.nn.Linear(5, 3), wrong

    def forward(self, x):
        x = x - paddle.to_tensor([0.485, 0.456, 0.406, 0.1, 0.3], dtype=x.dtype)
        score = self.score(x)
        if self.training:
            sure = (x[..., 0] > 0).astype(x.dtype)
            weight = None if self.wrong == "weight" else sure + 0.5
            return PF.binary_cross_entropy_with_logits(score[..., 0], sure, weight, reduction="sum") / sure.sum()
        likely = PF.softmax(score[..., 1:]) if self.wrong == "order" else PF.softmax(score)[..., 1:]
        size = self.size(x)
        best, index = likely.flatten(1).topk(4)
        rows = [size[n][index[n] // 3] for n in range(x.shape[0])]
        return paddle.stack(rows), best, index % 3 if self.wrong == "label" else index % 3 + 1


class Pyramid(nn.Module):
    """Levels from the coarsest down, each of which gets what the one above it got."""

    def __init__(self):
        super().__init__()
        self.lateral = nn.ModuleList(nn.Linear(5, 4) for _ in range(3))
        self.smooth = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        levels = [x, x[:, ::2], x[:, ::4]]
        last = self.lateral[2](levels[2])
        made = [self.smooth[2](last)]
        for n in (1, 0):
            here = self.lateral[n](levels[n])
            last = here + last.repeat_interleave(2, 1)[:, : here.shape[1]]
            made.insert(0, self.smooth[n](last))
        return tuple(made)


class OwnPyramid(paddle.nn.Layer):
    def __init__(self, order=(1, 0)):
        super().__init__()
        self.lateral = paddle.nn.LayerList([paddle.nn.Linear(5, 4) for _ in range(3)])
        self.smooth = paddle.nn.LayerList([paddle.nn.Linear(4, 4) for _ in range(3)])
        self.order = order

    def forward(self, x):
        levels = [x, x[:, ::2], x[:, ::4]]
        here = [layer(level) for layer, level in zip(self.lateral, levels, strict=True)]
        for n in self.order:
            here[n] = here[n] + here[n + 1].repeat_interleave(2, 1)[:, : here[n].shape[1]]
        return tuple(layer(level) for layer, level in zip(self.smooth, here, strict=True))


class Anchors(nn.Module):
    def __init__(self):
        super().__init__()
        self.delta = nn.Linear(5, 4)

    def forward(self, x):
        made = []
        for size in (8.0, 16.0, 32.0):
            root = torch.sqrt(torch.tensor([0.5, 1.0, 2.0]))
            wide, high = size / root, size * root
            cells = (torch.stack([-wide, -high, wide, high], dim=1) / 2).round()
            made.append(self.delta(x)[:, :, None] * 0.1 + cells)
        return torch.cat(made, 1)


class OwnAnchors(paddle.nn.Layer):
    def __init__(self, wrong=False):
        super().__init__()
        self.delta, self.wrong = paddle.nn.Linear(5, 4), wrong

    def forward(self, x):
        made = []
        for size in (8.0, 16.0, 32.0):
            cells = []
            for ratio in (0.5, 1.0, 2.0):
                wide, high = size / math.sqrt(ratio) / 2, size * math.sqrt(ratio) / 2
                if self.wrong:
                    wide, high = high, wide
                cells.append([round(-wide), round(-high), round(wide), round(high)])
            made.append(self.delta(x).unsqueeze(2) * 0.1 + paddle.to_tensor(cells, dtype="int64").astype(x.dtype))
        return paddle.concat(made, 1)


class Chooses(nn.Module):
    """Moves points by what it computes, and gives them without a gradient."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Linear(5, 5)

    def move(self, shift, x):
        return torch.cat([shift[..., :2] * 2 + x[..., :2], torch.exp(shift[..., 2:]) * x[..., 2:]], -1)

    def forward(self, x):
        shift = self.shift(x)
        moved = self.move(shift.detach(), x.detach())
        return moved, shift if self.training else None


class Chosen(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Chooses(), nn.Linear(5, 3)

    def forward(self, x):
        x = x + 1
        moved, shift = self.first(x)
        return (self.second(moved), shift) if self.training else self.second(moved)


class OwnChooses(paddle.nn.Layer):
    def __init__(self, wrong):
        super().__init__()
        self.shift, self.wrong = paddle.nn.Linear(5, 5), wrong

    def move(self, shift, x):
        return paddle.concat([shift[..., :2] * 2 + x[..., :2], paddle.exp(shift[..., 2:]) * x[..., 2:]], -1)

    def forward(self, x):
        shift = self.shift(x)
        moved = self.move(shift if self.wrong else shift.detach(), x.detach())
        return moved, shift if self.training else None


class OwnChosen(paddle.nn.Layer):
    def __init__(self, wrong=False):
        super().__init__()
        self.first, self.second = OwnChooses(wrong), paddle.nn.Linear(5, 3)

    def forward(self, x):
        x = x + 1
        moved, shift = self.first(x)
        return (self.second(moved), shift) if self.training else self.second(moved)


def found(ours, theirs):
    mistakes = audit(ours, theirs, inputs="tests.test_two_stages:rows").mistakes
    return [f"{one.source.rpartition(':')[2]}: {one.words}" for one in mistakes]


def at(text):
    """The line of this file that holds a text."""
    return next(n for n, line in enumerate(Path(__file__).read_text().splitlines(), start=1) if text in line)


@pytest.mark.parametrize(
    ("wrong", "text", "words"),
    [
        ("order", "likely = PF", "before softmax(axis=-1), expected after it"),
        ("label", "index % 3 if", "+ 1 is missing after %"),
        ("weight", "return PF.binary_cross", "expected + 0.5 and binary_cross_entropy_with_logits(reduction=sum)"),
    ],
)
def test_a_mistake_beside_a_constant_that_is_rounded_otherwise_is_named(wrong, text, words):
    """The reference holds its mean in float32, the port writes it down: beside the mistake that is no formula of its own."""
    assert not found(lambda: OwnPicks(), Picks)
    (line,) = found(lambda: OwnPicks(wrong), Picks)
    assert line.startswith(f"{at(text)}: ") and words in line


def test_levels_that_are_merged_in_another_order_are_named():
    assert not found(lambda: OwnPyramid(), Pyramid)
    (line,) = found(lambda: OwnPyramid((0, 1)), Pyramid)
    assert line.startswith(f"{at('here[n] = ')}: ") and "which the port computes only after it" in line


def test_a_table_whose_rows_stand_in_another_order_is_named():
    assert not found(lambda: OwnAnchors(), Anchors)
    (line,) = found(lambda: OwnAnchors(True), Anchors)
    assert line.startswith(f"{at('paddle.to_tensor(cells')}: ") and "stand in another order, expected [2, 1, 0]" in line


def test_what_is_to_be_detached_inside_a_module_is_named_at_the_line_that_hands_it_on():
    """Whatever gradient the second stage gives the moved points ends in the first."""
    assert not found(lambda: OwnChosen(), Chosen)
    (line,) = found(lambda: OwnChosen(True), Chosen)
    assert line.startswith(f"{at('moved = self.move(shift if')}: ") and "detach is missing" in line


class Refined(nn.Module):
    """Points that each turn moves, and that the next turn begins with."""

    def __init__(self):
        super().__init__()
        self.layers, self.move = nn.ModuleList([nn.Linear(7, 5) for _ in range(3)]), nn.Linear(5, 2)

    def forward(self, x):
        points, out, every = x[..., :2].sigmoid(), x, []
        for number, layer in enumerate(self.layers):
            out = layer(torch.cat([out, points], -1)).tanh()
            moved = (self.move(out) + points).sigmoid() if number else (self.move(out) - points).sigmoid()
            points = moved.detach()
            every.append(points * out.sum(-1, keepdim=True))
        return torch.stack(every)


class OwnRefined(paddle.nn.Layer):
    def __init__(self, through=False):
        super().__init__()
        self.layers, self.move = paddle.nn.LayerList([paddle.nn.Linear(7, 5) for _ in range(3)]), paddle.nn.Linear(5, 2)
        self.through = through

    def forward(self, x):
        points, out, every = PF.sigmoid(x[..., :2]), x, []
        for number, layer in enumerate(self.layers):
            out = paddle.tanh(layer(paddle.concat([out, points], -1)))
            if number:  # noqa: SIM108
                here = PF.sigmoid(self.move(out) + points)
            else:
                here = PF.sigmoid(self.move(out) - points)
            here = here if self.through else here.detach()
            points = here
            every.append(points * out.sum(-1, keepdim=True))
        return paddle.stack(every)


def test_a_detach_that_is_missing_where_a_loop_hands_a_value_on_is_named_there():
    """The value is made in two lines, and taken in others: the line between them gives it the name of the next turn."""
    assert not found(lambda: OwnRefined(), Refined)
    (line,) = found(lambda: OwnRefined(True), Refined)
    assert line.startswith(f"{at('points = here')}: ") and "a gradient flows back through here" in line


@pytest.mark.parametrize(
    "index", [[0, 5], (slice(None), [-4]), (Ellipsis, [4]), ([True, False, True], [3])], ids=["rows", "columns", "last", "mask"]
)
def test_an_index_that_lies_outside_is_refused_before_the_kernel_reads_there(index):
    x, parts = paddle.zeros([3, 3]), index if isinstance(index, tuple) else (index,)
    given = tuple(paddle.to_tensor(one) if isinstance(one, list) else one for one in parts)
    with pytest.raises(IndexError, match="out of bounds for axis"):
        within_bounds(x, given)
    assert within_bounds(x, (paddle.to_tensor([0, 2]), None, slice(None))) is NotImplemented
