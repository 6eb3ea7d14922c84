"""A port whose own tensors hold the layers' weights with other axes: by tap, by head, packed, stacked, transposed.

Sound ones pass in both directions, a mistake beside them is found in its line, and the map that an audit writes says the layout.
"""

import re
import time
from pathlib import Path

import numpy as np
import paddle
import pytest
import torch
import yaml

from alignment import audit
from alignment.cli import main
from alignment.frameworks import framework_of
from alignment.frameworks.base import Arranged, arranged, turned_back
from alignment.models import matching
from alignment.models.layouts import layouts
from alignment.models.stored import HeldOtherwise, stored
from alignment.project import import_file
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import read_state, write_state
from tests.conftest import ROOT
from tools.convert_weights import main as convert

OURS, THEIRS = ROOT / "tests" / "forms" / "stored_ours.py", ROOT / "tests" / "forms" / "stored_theirs.py"
SOUND = {"Layers": "Layers", "Stacked": "Layers", "Own": "Own", "Split": "Split"}


def given(reference):
    rng = np.random.default_rng(0)
    return (
        rng.integers(0, 11, (4, 7)) if reference in ("Layers", "Split") else rng.standard_normal((2, 3, 12, 8)).astype("float32"),
    )


def sides(port):
    ours, theirs = getattr(import_file(OURS), port)(), getattr(import_file(THEIRS), SOUND[port])()
    return (ours, theirs), (framework_of(ours), framework_of(theirs))


@pytest.mark.parametrize(
    ("whole", "part", "count", "expected"),
    [
        ((3, 16), (16, 1, 3), 1, ["a b -> b 1 a"]),
        ((4, 4), (4, 4), 1, ["a b -> a b", "a b -> b a"]),
        ((6, 4), (2, 4), 3, ["(part a) b -> part a b, part=3, a=2", "(a part) b -> part a b, a=2, part=3"]),
        ((3, 2, 5), (5, 2), 3, ["part a b -> part b a"]),
        ((2, 5), (6,), 1, []),
    ],
)
def test_layouts_are_those_that_the_shapes_allow_the_plainest_first(whole, part, count, expected):
    found = [*layouts(whole, part, count)]
    assert [one for one in expected if one in found] == expected and found[: len(expected)] == expected
    assert bool(found) == bool(expected)


def test_a_layout_is_what_numpy_makes_by_hand():
    whole = np.arange(16 * 4 * 3 * 4).reshape(16, 4, 3, 4)
    assert "a b part c -> part (b c) a, b=4, c=4" in layouts(whole.shape, (16, 16), 3)
    made = arranged(whole, "a b part c -> part (b c) a, b=4, c=4")
    for part in range(3):
        assert np.array_equal(made[part], whole[:, :, part].reshape(16, 16).T)
    assert np.array_equal(arranged(made, turned_back("a b part c -> part (b c) a, b=4, c=4")), whole)


@pytest.mark.parametrize(("whole", "part", "count"), [((6, 8), (2, 8), 3), ((2, 3, 4), (12, 2), 1), ((4, 3, 4), (16,), 3)])
def test_what_a_layout_takes_out_it_puts_back(whole, part, count):
    array = np.random.default_rng(0).standard_normal(whole)
    for layout in layouts(whole, part, count):
        pieces = [
            Arranged(str(n), "own", part, False, "parameter", whole, layout=layout, place=n if count > 1 else None)
            for n in range(count)
        ]
        back = None
        for piece in pieces:
            back = piece.into(piece.to_canonical(array), back)
        assert np.array_equal(back, array), layout
        assert all(piece.partial == (count > 1) for piece in pieces)


@pytest.mark.parametrize("port", SOUND)
def test_a_sound_port_passes(port, tmp_path):
    result = audit(f"{OURS}:{port}", f"{THEIRS}:{SOUND[port]}", inputs=given(SOUND[port]), report=tmp_path)
    assert result.passed, result.mistakes


def test_without_the_search_a_sound_port_would_not_be_compared(monkeypatch, tmp_path):
    monkeypatch.setattr(matching, "stored", lambda *_: HeldOtherwise())
    with pytest.raises(UserError, match=r"not compared: both sides hold 1,920 parameters"):
        audit(f"{OURS}:Own", f"{THEIRS}:Own", inputs=given("Own"), report=tmp_path, training=False)


MISTAKES = {
    "scale of one attention": ("Layers", "/ math.sqrt(4)", "/ math.sqrt(16)"),
    "gelu by tanh": ("Layers", "h = F.gelu(h)", "h = F.gelu(h, approximate=True)"),
    "residual": ("Layers", 'x = x + paddle.einsum("bhtd', 'x = y + paddle.einsum("bhtd'),
    "scale of all": ("Stacked", "transpose([0, 1, 3, 2]) * 0.5", "transpose([0, 1, 3, 2]) * 0.25"),
    "activation": ("Stacked", "F.silu(y @ self.gate", "F.gelu(y @ self.gate"),
    "scale": ("Own", "math.sqrt(8)", "math.sqrt(16)"),
    "a square left out": ("Split", "@ self.w1[i]) ** 2 @", "@ self.w1[i]) @"),
    "queries for keys": (
        "Split",
        "q @ k.transpose([0, 1, 3, 2]) / 2",
        "q @ q.transpose([0, 1, 3, 2]) / 2",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_beside_them_is_found_near_its_line(name, tmp_path):
    port, right, wrong = MISTAKES[name]
    text = OURS.read_text(encoding="utf-8")
    assert text.count(right) == 1
    file = tmp_path / "ours.py"
    file.write_text(text.replace(right, wrong), encoding="utf-8")
    result = audit(f"{file}:{port}", f"{THEIRS}:{SOUND[port]}", inputs=given(SOUND[port]), report=tmp_path / "report")
    assert not result.passed and len(result.mistakes) == 1, result.mistakes
    line = text[: text.index(right)].count("\n") + 1
    said = int(re.search(r"ours\.py:(\d+)", result.mistakes[0].source)[1])
    assert abs(said - line) <= 1 or name == "residual", result.mistakes


def test_the_map_says_the_layout_and_can_be_given_back(tmp_path, capsys):
    np.savez(tmp_path / "x.npz", x=given("Own")[0])
    flags = ["audit", "--port", f"{OURS}:Own", "--reference", f"{THEIRS}:Own", "--input", str(tmp_path / "x.npz"), "--eval-only"]
    assert main([*flags, "--report", str(tmp_path / "report")]) == 0
    file = tmp_path / "report" / "map.yaml"
    said = {str(one["reference"]): one for one in yaml.safe_load(file.read_text())["tensors"]}
    assert said["qkv"]["layout"] == "part a b c -> part (b c) a, b=2, c=8" and said["qkv"]["port"] == [
        "q.weight",
        "k.weight",
        "v.weight",
    ]
    assert main([*flags, "--names", str(file), "--report", str(tmp_path / "again")]) == 0
    capsys.readouterr()
    wrong = {
        "part a b c -> part a (b c), b=2, c=8": "step 1",  # square: it fits, and is another one
        "part a b c -> part (b c), b=2, c=8": "does not fit",
        "part a b -> b part a": "does not fit",
        "part a (b d) c -> part (b d c) a": "sizes of a split axis but one",
        "a b c d -> a b c d": "makes (3, 16, 2, 8) of (3, 16, 2, 8), expected (3, 16, 16)",
    }
    for layout, words in wrong.items():
        text = file.read_text().replace(said["qkv"]["layout"], layout)
        (tmp_path / "wrong.yaml").write_text(text)
        status = main([*flags, "--names", str(tmp_path / "wrong.yaml"), "--report", str(tmp_path / "wrong")])
        shown = capsys.readouterr()
        assert status == (1 if words == "step 1" else 2) and words in shown.out + shown.err, (layout, shown)


def test_weights_are_converted_through_a_layout(tmp_path):
    theirs = import_file(THEIRS).Own()
    state = {name: np.random.default_rng(0).standard_normal(t.shape).astype("float32") for name, t in theirs.state_dict().items()}
    write_state(str(tmp_path / "theirs.safetensors"), state)
    flags = ["--port", f"{OURS}:Own", "--reference", f"{THEIRS}:Own", "--model-input", "2x3x12x8"]
    assert convert([*flags, str(tmp_path / "theirs.safetensors"), str(tmp_path / "ours.safetensors"), "--to", "port"]) == 0
    made = read_state(str(tmp_path / "ours.safetensors"))
    assert np.array_equal(made["k.weight"], state["qkv"][1].reshape(16, 16))  # Paddle's linear layer: inputs, outputs
    assert np.array_equal(made["stem.weight"], state["patch"].reshape(4, 4, 3, 16).transpose(3, 2, 0, 1))


def test_the_search_confirms_every_layer_of_a_sound_port():
    models, frameworks = sides("Stacked")
    found = stored(models, frameworks, given("Layers"))
    assert found.confirmed == 23 and found.names["embed"] == "emb"
    assert {link.reference for link in found.links if link.port == ("q",)} == {("blocks.0.q.weight", "blocks.1.q.weight")}


def test_every_part_of_a_layer_and_every_gain_is_confirmed():
    models, frameworks = sides("Split")
    found = stored(models, frameworks, given("Split"))
    links = {link.reference: link for link in found.links}
    assert links["blocks.1.qkv.weight",].port == ("pieces.1.wq", "pieces.1.wk", "pieces.1.wv")
    assert links["blocks.1.qkv.weight",].layout == "(part b) a -> part a b, part=3"
    gains = {"n1.weight": "g1", "n2.weight": "g2", "mix": "mix", "scale": "gamma"}
    assert all(links[f"blocks.{n}.{theirs}",].port == (f"{ours}.{n}",) for n in range(2) for theirs, ours in gains.items())


EARLY = {
    "of the first layer": ("Stacked", "h = self.embed(x)\n", "h = self.embed(x) * 1.5\n"),
    "of the activation": ("Stacked", "F.gelu(self.conv(", "F.relu(self.conv("),
    "in a block": ("Layers", "/ math.sqrt(4)", "/ math.sqrt(16)"),
}


@pytest.mark.parametrize("name", EARLY)
def test_behind_a_mistake_the_layers_are_found_as_without_it(name, tmp_path):
    port, right, wrong = EARLY[name]
    text = OURS.read_text(encoding="utf-8")
    assert text.count(right) == 1
    file = tmp_path / "ours.py"
    file.write_text(text.replace(right, wrong), encoding="utf-8")
    models, frameworks = sides(port)
    without = stored(models, frameworks, given("Layers"))
    found = stored((getattr(import_file(file), port)(), models[1]), frameworks, given("Layers"))
    assert found.confirmed >= without.confirmed - 2
    assert (found.links, found.names) == (without.links, without.names)


class Gated(torch.nn.Module):
    """Value and gate in one layer."""

    def __init__(self):
        super().__init__()
        self.norm, self.proj, self.out = torch.nn.LayerNorm(8), torch.nn.Linear(8, 32), torch.nn.Linear(16, 8)

    def forward(self, x):
        value, gate = self.proj(self.norm(x)).chunk(2, -1)
        return x + self.out(value * torch.nn.functional.gelu(gate))


class GatedApart(paddle.nn.Layer):
    """Gate and value in two layers, in a module that is given something else besides and cannot run on the reference's input."""

    def __init__(self, approximate):
        super().__init__()
        self.approximate, self.norm = approximate, paddle.nn.LayerNorm(8)
        self.gate, self.value, self.out = (paddle.nn.Linear(*size) for size in ((8, 16), (8, 16), (16, 8)))

    def forward(self, x, scale):
        y = self.norm(x)
        gate = paddle.nn.functional.gelu(self.gate(y), approximate=self.approximate)
        return x + self.out(gate * self.value(y)) * scale


class TwoApart(paddle.nn.Layer):
    def __init__(self, approximate=False):
        super().__init__()
        self.stem, self.head = paddle.nn.Linear(8, 8), paddle.nn.Linear(8, 3)
        self.first, self.second = GatedApart(False), GatedApart(approximate)

    def forward(self, x):
        one = paddle.ones([1], x.dtype)
        return self.head(self.second(self.first(self.stem(x), one), one))


@pytest.mark.parametrize("approximate", [False, True])
def test_parts_are_in_the_order_under_which_more_layers_agree_where_nothing_around_them_can_be_compared(approximate, tmp_path):
    theirs = torch.nn.Sequential(torch.nn.Linear(8, 8), Gated(), Gated(), torch.nn.Linear(8, 3))
    x = np.random.default_rng(0).standard_normal((4, 5, 8)).astype(np.float32)
    result = audit(TwoApart(approximate), theirs, inputs=x, report=tmp_path, accept=["initialisation"], training=False)
    assert result.passed != approximate, result.mistakes
    assert [one.kind for one in result.mistakes] == (["call_argument"] if approximate else []), result.mistakes


def test_a_layer_of_many_tensors_is_no_endless_search():
    class Many(torch.nn.Module):
        def __init__(self, turned):
            super().__init__()
            for number in range(9):
                setattr(self, f"part{number}", torch.nn.Parameter(torch.randn(*((2, 4, 4) if turned else (8, 4)))))

        def forward(self, x):
            return sum(x @ part.reshape(8, 4) for part in self.parameters())

    models = torch.nn.Sequential(Many(True)), torch.nn.Sequential(Many(False))
    start = time.process_time()
    stored(models, tuple(map(framework_of, models)), (np.ones((2, 8), "float32"),))
    assert time.process_time() - start < 30


def test_a_port_with_a_layer_of_another_width_is_no_other_layout(tmp_path):
    text = OURS.read_text(encoding="utf-8").replace("tensor(self, depth, 16, 24)", "tensor(self, depth, 16, 32)", 1)
    file = Path(tmp_path) / "ours.py"
    file.write_text(
        text.replace("tensor(self, depth, n, value=0.0) for n in (24, 24, 16)", "tensor(self, depth, n) for n in (32, 24, 16)")
    )
    result = audit(f"{file}:Stacked", f"{THEIRS}:Layers", inputs=given("Layers"), report=tmp_path / "report", training=False)
    assert not result.passed
