"""Networks that hand a state from segment to segment: a mistake in what is handed on, kept or computed in closed form is named.

Each mistake has the sound port beside it, on which the engine is silent.
"""

import functools
import json

import numpy as np
import pytest

from alignment.cli import main
from alignment.localize.hypotheses import calls, replay

LOOP = """
import torch
from torch import nn
from torch.nn import functional as F


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.decay, self.drive, self.up, self.out = (nn.Linear(6, 6) for _ in range(4))

    def forward(self, x, state):
        decay, drive, made = torch.sigmoid(self.decay(x)), self.drive(x), []
        for t in range(x.shape[1]):
            made.append(state)
            state = decay[:, t] * state + drive[:, t]
        return self.out(F.relu(self.up(torch.stack(made, 1))) ** 2), state


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Mixer() for _ in range(2)])

    def forward(self, x, states):
        made = []
        for part in x.split(3, 1):
            states, left = states.detach() if made else states, []
            for n, layer in enumerate(self.layers):
                y, state = layer(part, states[:, n])
                part = part + y
                left.append(state)
            states = torch.stack(left, 1)
            made.append(part)
        return torch.cat(made, 1), states
"""
CLOSED = """
import paddle
from paddle import nn
from paddle.nn import functional as F


def split(x):
    return x.reshape([x.shape[0], x.shape[1], 2, 3]).transpose([0, 2, 1, 3])


def joined(x):
    return x.transpose([0, 2, 1, 3]).flatten(2)


def scan(log, drive, state):
    upto = paddle.cumsum(log, axis=2)
    before = upto - log
    past = paddle.tril(paddle.ones([log.shape[2], log.shape[2]], dtype=log.dtype), diagonal=-1).unsqueeze(-1)
    gap = paddle.minimum(before.unsqueeze(3) - upto.unsqueeze(2), paddle.zeros([1], dtype=log.dtype)).exp() * past
    made = (gap * drive.unsqueeze(2)).sum(3) + before.exp() * state.unsqueeze(2)
    left = (upto[:, :, -1:] - upto).exp()
    state = state * upto[:, :, -1].exp() + (left * drive).sum(2)
    return made, state


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.decay, self.drive, self.up, self.out = (nn.LayerList([nn.Linear(6, 6) for _ in range(2)]) for _ in range(4))

    def forward(self, x, states):
        held, made = [states[:, n] for n in range(2)], []
        for part in x.split(2, axis=1):
            held = [one.detach() for one in held] if made else held
            for n in range(2):
                log = F.log_sigmoid(self.decay[n](part))
                y, state = scan(split(log), split(self.drive[n](part)), held[n].reshape([-1, 2, 3]))
                held[n] = state.flatten(1)
                part = part + self.out[n](F.relu(self.up[n](joined(y))).square())
            made.append(part)
        return paddle.concat(made, 1), paddle.stack(held, 1)
"""
OTHERS = {"torch.cat": "paddle.concat", "torch": "paddle", "Module": "Layer"}
ALIKE = functools.reduce(lambda source, one: source.replace(one, OTHERS[one]), OTHERS, LOOP)
# What is changed in a port's source -> what is said, and what the line that is shown holds.
CLOSED_MISTAKES = {
    "sound": ("", "", "", ""),
    "another operand": ("upto[:, :, -1:] - upto)", "upto[:, :, -1:] - before)", "- takes - in line 17, expected cumsum in line 16",
        "left = "),
    "another order": ("F.relu(self.up[n](joined(y))).square()", "F.relu(self.up[n](joined(y)).square())",
        "square before relu, expected after it", "part = part + "),
    "no known mistake": ("- upto).exp()\n", "- upto).tanh()\n", "no known mistake matches",
        "left = "),
}  # fmt: skip


def audited(port, folder, *more, times=6):
    for name, text in (("ours", port), ("theirs", LOOP)):
        (folder / f"{name}.py").write_text(text)
    rng = np.random.default_rng(0)
    given = {"x": rng.standard_normal((2, times, 6)), "states": rng.standard_normal((2, 2, 6))}
    np.savez(folder / "inputs.npz", **{name: array.astype("float32") for name, array in given.items()})
    sides = ("--port", f"{folder}/ours.py:Net", "--reference", f"{folder}/theirs.py:Net", "--input", f"{folder}/inputs.npz")
    status = main(["audit", *sides, *more, "--report", str(folder / "report")])
    found = json.loads((folder / "report" / "alignment.json").read_text())["mistakes"]
    assert status == bool(found)
    return found


def shown(port, found):
    """The text of the line that a finding shows."""
    return port.splitlines()[int(found["source"].rpartition(":")[2]) - 1]


@pytest.mark.slow
@pytest.mark.parametrize("case", CLOSED_MISTAKES)
def test_a_mistake_in_the_closed_form_of_a_recurrence_is_named(case, tmp_path, monkeypatch):
    """What goes into numbers that the reference has is right, in whatever form it is computed."""
    if case == "no known mistake":  # nothing more is found in all the time
        monkeypatch.setattr(calls, "SECONDS", 1), monkeypatch.setattr(replay, "SECONDS", 1)
    before, after, words, line = CLOSED_MISTAKES[case]
    assert before in CLOSED
    port = CLOSED.replace(before, after) if before else CLOSED
    found = audited(port, tmp_path, "--eval-only")
    assert len(found) == bool(words), found
    if words:
        assert words in found[0]["hint"] and line in shown(port, found[0]), found


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [False, True])
def test_a_state_that_is_not_detached_between_segments_is_named(wrong, tmp_path):
    """The line detaches what several calls take, one after another: only all together they explain the gradients."""
    port = ALIKE.replace("states.detach() if made else states", "states") if wrong else ALIKE
    found = audited(port, tmp_path, times=9)
    assert len(found) == wrong, found
    if wrong:
        assert "detach is missing: a gradient flows back into stack in line" in found[0]["hint"], found
        assert "layer(part, states[:, n])" in shown(port, found[0])


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [False, True])
def test_an_index_of_an_argument_is_wrong_and_no_step_is_missing(wrong, tmp_path):
    port = ALIKE.replace("states[:, n])", "states[:, 0])") if wrong else ALIKE
    found = audited(port, tmp_path, "--eval-only", times=9)
    assert len(found) == wrong, found
    if wrong:
        assert "index [:, 0], expected [:, 1]" in found[0]["hint"] and "layer(part, states[:, 0])" in shown(port, found[0]), found


STARTS = """
import numpy as np
import {0}
from {0} import nn


class Block(nn.{1}):
    def __init__(self, depth):
        super().__init__()
        late = depth / {2}
        early = 1 - depth / 4
        place = np.arange(6) / 6
        self.a = self.kept(place**early)
        self.b = self.kept(place + 0.3 * late)
        self.c = self.kept(0.7 - late * place)

    def kept(self, values):
        {3}

    def forward(self, x):
        return (x * self.a + self.b).tanh() * self.c


class Net(nn.{1}):
    def __init__(self):
        super().__init__()
        self.blocks = nn.{1}List([Block(n) for n in range(2)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
"""
TORCH = ("torch", "Module", "2", "return nn.Parameter(torch.tensor(values, dtype=torch.float32))")
PADDLE = ("return self.create_parameter([6], default_initializer=nn.initializer.Assign(values.astype('float32')))",)


@pytest.mark.parametrize("wrong", [False, True])
def test_fresh_values_that_one_number_makes_wrong_are_shown_where_it_is_computed(wrong, tmp_path):
    port = STARTS.format("paddle", "Layer", "3" if wrong else "2", *PADDLE)
    for name, text in (("ours", port), ("theirs", STARTS.format(*TORCH))):
        (tmp_path / f"{name}.py").write_text(text)
    sides = ("--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", "3x6")
    assert main(["audit", *sides, "--report", str(tmp_path / "report")]) == wrong
    found = json.loads((tmp_path / "report" / "alignment.json").read_text())["mistakes"]
    assert len(found) == wrong, found
    if wrong:
        assert "fixed values, expected other fixed values" in found[0]["hint"] and "late = " in shown(port, found[0]), found
