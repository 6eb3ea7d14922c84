"""Weights of several layers in one tensor with an axis more: the experts of a mixture."""

import numpy as np
import paddle
import pytest
import torch

from alignment.frameworks._pieces import Piece
from alignment.models.links import Link, forms_of
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import Entry
from tests.conftest import ROOT
from tests.forms import experts_ours, experts_theirs
from tests.sound_pairs import PAIRS, audited, audited_with
from tools.convert_weights import main as convert

FOLDER = ROOT / "tests/forms"
NETWORKS = ("Soft", "Square", "Bank", "Sparse")
# What is changed in the port's source -> network and place of the only mistake.
MISTAKES = {
    "activation": ("Soft", "F.gelu(", "F.relu(", "first"),
    "experts reversed": ("Soft", "x, self.w1) + self.b1", "x, self.w1.flip(0)) + self.b1", "first"),
    "bias of another expert": ("Soft", "hidden, self.w2) + self.b2", "hidden, self.w2) + self.b2.roll(1, 0)", "first"),
    "gate and up exchanged": (
        "Sparse", "x, self.gate_proj)) * paddle.einsum(\"btd,efd->btef\", x, self.up_proj)",
        "x, self.up_proj)) * paddle.einsum(\"btd,efd->btef\", x, self.gate_proj)", "Sparse.forward",
    ),
    "an activation of the bank": ("Bank", "down(paddle.tanh(up(x)))", "down(F.sigmoid(up(x)))", "Bank.forward"),
}  # fmt: skip


@pytest.mark.parametrize("network", NETWORKS)
def test_a_sound_port_passes(network):
    found = audited(network, PAIRS[network], 1)
    assert not found.status, found


@pytest.mark.slow
@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_found_in_the_module_that_holds_the_experts(case, tmp_path):
    network, before, after, place = MISTAKES[case]
    found = audited_with(network, before, after, tmp_path)
    assert found.status == 1 and found.findings, found
    assert {one["location"] for one in found.findings} == {place}, found.findings


@pytest.mark.parametrize("network", NETWORKS)
def test_weights_are_converted_both_ways(network, tmp_path):
    theirs, ours = getattr(experts_theirs, network)(), getattr(experts_ours, network)()
    rng = np.random.default_rng(0)
    given = rng.integers(0, 20, (3, 7)) if network == "Sparse" else rng.standard_normal((4, 8)).astype(np.float32)
    np.savez(tmp_path / "input.npz", **{"tokens" if network == "Sparse" else "x": given})
    torch.save(theirs.state_dict(), tmp_path / "theirs.pth")
    names = [f"{FOLDER / 'experts_ours.py'}:{network}", f"{FOLDER / 'experts_theirs.py'}:{network}"]
    for start, end in (("theirs.pth", "ours.pdparams"), ("ours.pdparams", "back.pth")):
        sides = ["--port", names[0], "--reference", names[1], "--model-input", str(tmp_path / "input.npz")]
        assert convert([str(tmp_path / start), str(tmp_path / end), *sides]) == 0
    ours.set_state_dict(paddle.load(str(tmp_path / "ours.pdparams")))
    back = torch.load(tmp_path / "back.pth")
    assert all(torch.equal(back[name], value) for name, value in theirs.state_dict().items())
    expected = theirs.eval()(torch.from_numpy(given)).detach().numpy()
    assert np.allclose(ours(paddle.to_tensor(given)).numpy(), expected, atol=1e-4)


def entry(name: str, *shape: int) -> Entry:
    return Entry(name, name, shape, False, "parameter")


@pytest.mark.parametrize("turned", [False, True])
def test_a_slice_is_read_and_written(turned):
    parts = [entry(f"experts.{number}.weight", 3, 5) for number in range(2)]
    link = Link(("w",), tuple(part.canonical for part in parts), transposed=turned)
    ours, theirs = forms_of([link], [entry("w", 2, *((5, 3) if turned else (3, 5)))], parts)
    pieces: list[Piece] = ours["w"]
    values = np.random.default_rng(0).standard_normal((2, 3, 5))
    own = None
    for piece, value in zip(pieces, values, strict=True):
        own = piece.into(value, own)
    assert np.array_equal(own, values.transpose(0, 2, 1) if turned else values) and not theirs
    assert all(np.array_equal(piece.to_canonical(own), value) for piece, value in zip(pieces, values, strict=True))


@pytest.mark.parametrize(
    ("shape", "count", "more"),
    [((2, 5, 3), 2, {}), ((2, 3, 5), 2, {"transposed": True}), ((3, 3, 5), 2, {}), ((2, 3, 5), 2, {"groups": 3}),
     ((2, 3, 5), 2, {"added": True})],
)  # fmt: skip
def test_a_map_that_does_not_fit_is_refused(shape, count, more):
    parts = [entry(f"experts.{number}.weight", 3, 5) for number in range(count)]
    with pytest.raises(UserError, match="do not fit together"):
        forms_of([Link(("w",), tuple(part.canonical for part in parts), **more)], [entry("w", *shape)], parts)
