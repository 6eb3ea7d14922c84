"""Convolutional networks of public ports: what differs in size or kind is said so, and the steps pass once it is fixed."""

import json

import paddle
import pytest

from alignment.cli import main
from alignment.frameworks._paddle_norms import OLDER, put_activations_behind

HEAD = """
import {framework}
from {framework} import nn
from {framework}.nn import functional as F
"""
LAYERS = """

def uniform(n):
    return nn.initializer.Uniform(-n ** -.5, n ** -.5)


def conv(i, o, k, **more):
    n = i * k * k // more.get("groups", 1)
    return nn.Conv2D(i, o, k, weight_attr=uniform(n), bias_attr=uniform(n), **more)


def linear(i, o):
    return nn.Linear(i, o, uniform(i), uniform(i))
"""
GATED_REF = """

class Gate(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(n, m, 1), nn.Conv2d(m, n, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.expand(torch.relu(self.reduce(x.mean((2, 3), keepdim=True)))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.bn, self.se1 = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), Gate(16, 8)
        self.mid, self.se2, self.fc = nn.Conv2d(16, 12, 3), Gate(12, 6), nn.Linear(12, 5)

    def forward(self, x):
        x = self.mid(self.se1(torch.relu(self.bn(self.stem(x)))))
        return self.fc(self.se2(x).mean((2, 3)))
"""
GATED = (
    LAYERS
    + """

class Gate(nn.Layer):
    def __init__(self, n, m):
        super().__init__()
        self.pool, self.squeeze, self.excitation = nn.AdaptiveAvgPool2D(1), linear(n, m), linear(m, n)

    def forward(self, x):
        y = F.sigmoid(self.excitation(F.relu(self.squeeze(self.pool(x).squeeze([2, 3])))))
        return x * y.unsqueeze([2, 3])


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1, self.norm1, self.gate1 = conv(3, 16, 3), nn.BatchNorm2D(16), Gate(16, 8)
        self.conv2, self.gate2, self.head = conv(16, 12, 3), Gate(12, 6), linear(12, 5)

    def forward(self, x):
        x = self.conv2(self.gate1(F.relu(self.norm1(self.conv1(x)))))
        return self.head(self.gate2(x).mean([2, 3]))
"""
)
NARROW = GATED.replace("Gate(16, 8)", "Gate(16, 4)").replace("Gate(12, 6)", "Gate(12, 3)")
WIDTHS = [("width", "se1.reduce.weight", "4 output channels, expected 8")]
DRAWN = ("return nn.Linear(i, o, uniform(i)", "return nn.Linear(i, o, uniform(i / 9)")
BACK = (
    GATED.replace("linear(n, m), linear(m, n)", "conv(n, m, 1), conv(m, n, 1)")
    .replace(".squeeze([2, 3])))))", "))))")
    .replace("y.unsqueeze([2, 3])", "y")
)
BACK_REF = (
    GATED_REF.replace("nn.Conv2d(n, m, 1), nn.Conv2d(m, n, 1)", "nn.Linear(n, m), nn.Linear(m, n)")
    .replace("mean((2, 3), keepdim=True)", "mean((2, 3))")
    .replace("x * torch.sigmoid(", "x * torch.sigmoid(")
    .replace("(2, 3))))))", "(2, 3))))))[..., None, None]")
)
FUSED_REF = """

class Swish(nn.Module):
    def forward(self, x):
        return x * F.relu6(x + 3.0) / 6.0


class Block(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.conv, self.bn, self.act = nn.Conv2d(i, o, 3, bias=False), nn.BatchNorm2d(o), Swish()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.fc = Block(3, 8), Block(8, 12), nn.Linear(12, 5)

    def forward(self, x):
        return self.fc(self.b(self.a(x)).mean((2, 3)))
"""
FUSED = (
    LAYERS
    + """

class Block(nn.Layer):
    def __init__(self, i, o):
        super().__init__()
        self.conv = nn.Conv2D(i, o, 3, weight_attr=uniform(9 * i), bias_attr=False)
        self.bn = nn.BatchNorm(o, act="hard_swish")

    def forward(self, x):
        return self.bn(self.conv(x))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.fc = Block(3, 8), Block(8, 12), linear(12, 5)

    def forward(self, x):
        return self.fc(self.b(self.a(x)).mean([2, 3]))
"""
)
SIGMOID_REF = FUSED_REF.replace("x * F.relu6(x + 3.0) / 6.0", "F.hardsigmoid(x)")
DECODER_REF = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16)
        self.up2, self.bn2d = nn.ConvTranspose2d(16, 8, 3), nn.BatchNorm2d(8)
        self.up1, self.bn1d = nn.ConvTranspose2d(16, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.out = nn.ConvTranspose2d(8, 2, 3, padding=1)

    def forward(self, x):
        a = torch.relu(self.bn1(self.conv1(x)))
        b = torch.relu(self.bn2(self.conv2(a)))
        y = torch.relu(self.bn2d(self.up2(b)))
        y = torch.relu(self.bn1d(self.up1(torch.cat((y, a), 1))))
        return self.out(y)
"""
DECODER = (
    LAYERS
    + """

def transposed(i, o, **more):
    return nn.Conv2DTranspose(i, o, 3, weight_attr=uniform(9 * o), bias_attr=uniform(9 * o), **more)


class Block(nn.Layer):
    def __init__(self, layer, o):
        super().__init__()
        self.seq = nn.Sequential(layer, nn.BatchNorm2D(o), nn.ReLU())

    def forward(self, x):
        return self.seq(x)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1 = Block(conv(3, 8, 3, padding=1), 8)
        self.conv2 = Block(conv(8, 16, 3), 16)
        self.up2 = Block(transposed(16, 8), 8)
        self.up1 = Block(transposed(16, 8, padding=1), 8)
        self.out = transposed(8, 2, padding=1)

    def forward(self, x):
        a = self.conv1(x)
        y = self.up2(self.conv2(a))
        return self.out(self.up1(paddle.concat([y, a], 1)))
"""
)
PLAIN = DECODER.replace("transposed(16, 8, padding=1)", "conv(16, 8, 3, padding=1)")
# The padding is in a layer before the convolution.
AHEAD = DECODER.replace("layer, nn.Batch", "*layer, nn.Batch")
AHEAD = AHEAD.replace("Block(transposed(16, 8), 8)", "Block([transposed(16, 8)], 8)")
AHEAD = AHEAD.replace("Block(conv(8, 16, 3), 16)", "Block([conv(8, 16, 3)], 16)")
AHEAD = AHEAD.replace("Block(conv(3, 8, 3, padding=1), 8)", "Block([nn.Pad2D(1), conv(3, 8, 3)], 8)")
PLAIN_AHEAD = AHEAD.replace("Block(transposed(16, 8, padding=1), 8)", "Block([nn.Pad2D(1), conv(16, 8, 3)], 8)")
AHEAD = AHEAD.replace("Block(transposed(16, 8, padding=1), 8)", "Block([transposed(16, 8, padding=1)], 8)")
NO_BIAS = ("bias_attr=uniform(n)", "bias_attr=False")
REFLECTED_REF = DECODER_REF.replace("nn.Conv2d(3, 8, 3, padding=1)", 'nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect")')
WITHOUT = ("bias_missing", "conv1.bias", "the port's Conv2D has no bias")
SCALES_REF = """

class Fuse(nn.Module):
    def __init__(self):
        super().__init__()
        self.same = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.up = nn.Sequential(nn.Conv2d(12, 8, 1, bias=False), nn.BatchNorm2d(8), nn.Upsample(scale_factor=2, mode="nearest"))

    def forward(self, x, y):
        return torch.relu(self.same(x) + self.up(y))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 12, 2, stride=2)
        self.fuse, self.fc = Fuse(), nn.Linear(8, 5)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        return self.fc(self.fuse(x, self.down(x)).mean((2, 3)))
"""
SCALES = (
    LAYERS
    + """

class Block(nn.Layer):
    def __init__(self, i, o, k, **more):
        super().__init__()
        self.conv, self.bn = conv(i, o, k, **more), nn.BatchNorm2D(o)

    def forward(self, x):
        return self.bn(self.conv(x))


class Fuse(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a, self.b = Block(8, 8, 3, padding=1), Block(12, 8, 1)
        self.b.conv = nn.Conv2D(12, 8, 1, weight_attr=uniform(12), bias_attr=False)

    def forward(self, x, y):
        size = x.shape[2:]
        return F.relu(self.a(x) + F.interpolate(self.b(y), size, mode="nearest"))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem, self.down = conv(3, 8, 3, padding=1), conv(8, 12, 2, stride=2)
        self.fuse, self.fc = Fuse(), linear(8, 5)

    def forward(self, x):
        x = F.relu(self.stem(x))
        return self.fc(self.fuse(x, self.down(x)).mean([2, 3]))
"""
)
CALLED_REF = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.fc = nn.Conv2d(3, 8, 3), nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(F.relu(self.stem(x)).mean((2, 3)))
"""
LAYERED = (
    LAYERS
    + """

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem, self.fc = conv(3, 8, 3), linear(8, 5)
        self.act = nn.GELU()

    def forward(self, x):
        return self.fc(self.act(self.stem(x)).mean([2, 3]))
"""
)
BILINEAR = SCALES.replace('"nearest"', '"bilinear"')
SMOOTH_REF = SCALES_REF.replace('"nearest"', '"bilinear", align_corners=True')
# Reference, port, and kind, place and words of its mistakes.
CASES = {
    "linear layers for convolutions by 1 x 1": (GATED_REF, GATED, []),
    "of another width": (GATED_REF, NARROW, WIDTHS),
    "of another width, and an eps": (GATED_REF, NARROW.replace("Norm2D(16)", "Norm2D(16, epsilon=1e-3)"), [
        *WIDTHS, ("batch_norm_eps", "bn", "0.001")]),
    "of another width, and an initialiser": (GATED_REF, NARROW.replace(*DRAWN), [
        *WIDTHS, ("initialisation", "fc.weight", "the port's source sets this initialiser")]),
    "convolutions by 1 x 1 for linear layers": (BACK_REF, BACK, []),
    "the same, of another width": (BACK_REF, BACK.replace("Gate(16, 8)", "Gate(16, 4)"), WIDTHS),
    "an initialiser in layers by other names": (GATED_REF, GATED.replace(*DRAWN), [
        ("initialisation", "se1.reduce.weight", "the port's source sets this initialiser")]),
    "an older normalisation that holds the activation": (FUSED_REF, FUSED, []),
    "the same with a momentum": (FUSED_REF, FUSED.replace('"hard_swish"', '"hard_swish", momentum=0.8'), [
        ("momentum", "a.bn", "momentum 0.2 in torch's sense, expected 0.1")]),
    "the same with another activation": (FUSED_REF, FUSED.replace('"hard_swish"', '"relu"'), [
        ("other_function", "a", "relu, expected")]),
    "the same with a hard sigmoid of the older slope": (SIGMOID_REF, FUSED.replace("hard_swish", "hard_sigmoid"), [
        ("call_argument", "a", "hardsigmoid slope 0.2, expected 0.166667")]),
    "transposed convolutions": (DECODER_REF, DECODER, []),
    "a plain convolution for a transposed one": (DECODER_REF, PLAIN, [
        ("layer_replaced", "up1.weight", "Conv2D, expected ConvTranspose2d")]),
    "plain ones without a bias": (
        DECODER_REF, PLAIN.replace(*NO_BIAS), [
            WITHOUT, ("layer_replaced", "up1", "Conv2D, expected ConvTranspose2d: without bias (8,)")]),
    "padding in a layer of its own": (DECODER_REF, AHEAD, []),
    "the same before plain ones without a bias": (
        DECODER_REF, PLAIN_AHEAD.replace(*NO_BIAS), [
            WITHOUT, ("layer_replaced", "up1", "Conv2D, expected ConvTranspose2d: without bias (8,)")]),
    "the same, reflected": (REFLECTED_REF, AHEAD.replace("Pad2D(1)", 'Pad2D(1, "reflect")').replace(*NO_BIAS), [WITHOUT]),
    "upsampling in the caller": (SCALES_REF, SCALES, []),
    "the same in another mode": (SCALES_REF, BILINEAR, [
        ("call_argument", "fuse", "interpolate mode bilinear, expected nearest")]),
    "the same in another mode, to a measured size": (SCALES_REF, BILINEAR.replace("x.shape[2:]", "paddle.shape(x)[-2:]"), [
        ("call_argument", "fuse", "interpolate mode bilinear, expected nearest")]),
    "the same with other corners": (SMOOTH_REF, BILINEAR, [("call_argument", "fuse", "align_corners False, expected True")]),
    "another width of a transposed one": (DECODER_REF, DECODER.replace(
        "transposed(16, 8, padding=1), 8", "transposed(16, 6, padding=1), 6").replace("transposed(8, 2", "transposed(6, 2"), [
            ("shape", "up1.weight", "expected (16, 8, 3, 3)"), ("width", "bn1d.weight", "6 channels, expected 8")]),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(OLDER))
def test_an_activation_by_the_name_of_its_operator_is_the_function_that_stands_for_it(name):
    layer, x = paddle.nn.BatchNorm(3, act=name), paddle.linspace(-8, 8, 96).reshape([4, 3, 8])
    right = layer(x)
    put_activations_behind(paddle, layer)
    assert layer._act is None and float((layer(x) - right).abs().max()) < 1e-6


@pytest.mark.parametrize("case", CASES)
def test_what_is_said_of_convolutions(case, tmp_path, capsys):
    reference, port, wanted = CASES[case]
    (tmp_path / "theirs.py").write_text(HEAD.format(framework="torch") + reference)
    (tmp_path / "ours.py").write_text(HEAD.format(framework="paddle") + port)
    sides = ("--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", "4x3x16x16")
    status = main(["audit", *sides, "--report", str(tmp_path / "report")])
    mistakes = json.loads((tmp_path / "report" / "alignment.json").read_text())["mistakes"]
    said = capsys.readouterr().out
    assert (status, len(mistakes)) == (int(bool(wanted)), len(wanted)), said
    for one, (kind, place, words) in zip(mistakes, wanted, strict=True):
        assert one["kind"] == (kind or one["kind"]) and one["location"].startswith(place) and words in one["hint"], one
    assert "still fails" not in said and "cannot be run again" not in said, said


def test_a_call_that_a_layer_makes_is_changed_where_the_layer_is_made(tmp_path):
    """The reference calls a function, so that the layers are not paired; where the port calls one, its own line is to change."""
    (tmp_path / "theirs.py").write_text(HEAD.format(framework="torch") + CALLED_REF)
    sides = ("--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", "4x3x8x8")
    for port, line in ((LAYERED, "self.act = nn.GELU()"), (LAYERED.replace("self.act(", "F.gelu("), "return self.fc(F.gelu(")):
        (tmp_path / "ours.py").write_text(HEAD.format(framework="paddle") + port)
        assert main(["audit", *sides, "--report", str(tmp_path / "report")]) == 1
        (found,) = json.loads((tmp_path / "report" / "alignment.json").read_text())["mistakes"]
        assert "gelu(approximate=none), expected relu" in found["hint"], found
        number = int(found["source"].rpartition(":")[2])
        assert line in (tmp_path / "ours.py").read_text().splitlines()[number - 1]
        assert found["hint"].startswith(f"ours.py:{number}: "), found
