"""The line that decides a wrong value, where a class or a helper that others use rightly only hands it on."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from alignment.frameworks import framework_of
from alignment.localize.origin import Origins
from alignment.localize.source import noting_lines

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python keeps no positions of calls")

# A line ends with the cases in which it is the one to change: their edit is in CASES.
SOUND = """
import torch
from torch import nn

ACTS = {"relu": nn.ReLU, "gelu": nn.GELU, "hswish": nn.Hardswish}


def mlp(dim, act="gelu", drop=0.1):  # drop, half
    return nn.Sequential(nn.Linear(dim, dim), ACTS[act](), nn.Dropout(drop))


class Conv(nn.Module):
    def __init__(self, dim, k=3, d=1, act=True):
        super().__init__()
        self.conv = nn.Conv2d(dim, dim, k, padding=d * (k // 2), dilation=d)
        self.act = nn.SiLU() if act else nn.Identity()


class Attention(nn.Module):
    def __init__(self, dim, heads=2, window=0, temperature=1.0, slope=0.1):  # slope everywhere
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5 / temperature  # scale
        self.window = window
        self.slope = slope
        self.fixed = 8  # fixed

    def forward(self, x):
        scale = self.scale
        return nn.functional.leaky_relu(x * scale, self.slope) > self.window + self.fixed  # nothing


class Layer(nn.Module):
    def __init__(self, dim, heads, window, act="gelu", eps=1e-5):  # default eps
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=eps)
        self.attn = Attention(dim, heads, window)
        self.mlp = mlp(dim, act=act)
        self.cv1 = Conv(dim, 3)
        self.cv2 = Conv(dim, 1, act=False)  # activation


class Config:
    dim = 16
    eps = 1e-3  # configured eps
    temperature = 2.0  # configured temperature


class Net(nn.Module):
    def __init__(self, cfg=Config):
        super().__init__()
        self.first = Layer(cfg.dim, 2, 0, eps=cfg.eps)  # eps
        rows = ((2, "gelu"), (3, "relu"), (4, "hswish"))  # row, act of a row
        self.layers = nn.ModuleList([Layer(cfg.dim, 2, window=w, act=a) for w, a in rows])
        self.last = Layer(cfg.dim, 2, 2)  # window
        self.pool = Attention(cfg.dim, temperature=cfg.temperature)  # temperature
        self.wide = Conv(cfg.dim, 3, 2)  # dilation
"""
EVERY = ("first", "layers.0", "layers.1", "layers.2", "last")
ATTENTIONS = tuple(f"{one}.attn" for one in EVERY)
# The edit, the wrong modules, and the settings that are wrong or, of an attribute, a piece of the line that uses it and its value.
CASES = {
    "eps": (", eps=cfg.eps)", ")", ["first.norm"], {"eps": 1e-5}),
    "configured eps": ("eps = 1e-3", "eps = 1e-6", ["first.norm"], {"eps": 1e-6}),
    "default eps": ("eps=1e-5", "eps=1e-6", [f"{one}.norm" for one in EVERY[1:]], {"eps": 1e-6}),
    "drop": ("drop=0.1", "drop=0.2", [f"{one}.mlp.2" for one in EVERY], {"p": 0.2}),
    "dilation": ("Conv(cfg.dim, 3, 2)", "Conv(cfg.dim, 3)", ["wide.conv"], {"dilation": (1, 1), "padding": (1, 1)}),
    "activation": ("1, act=False", "1", [f"{one}.cv2.act" for one in EVERY], {}),
    "act of a row": ('(3, "relu")', '(3, "gelu")', ["layers.1.mlp.1"], {}),
    "row": ("(3,", "(2,", ["layers.1.attn"], ("> self.window", 2)),
    "window": ("2, 2)  #", "2, 3)  #", ["last.attn"], ("> self.window", 3)),
    "scale": ("(dim // heads) **", "dim **", [*ATTENTIONS, "pool"], ("x * scale", 0.25, 0.125)),
    "temperature": (", temperature=cfg.temperature", "", ["pool"], ("x * scale", 8**-0.5)),
    "configured temperature": ("temperature = 2.0", "temperature = 1.0", ["pool"], ("x * scale", 8**-0.5)),
    "slope everywhere": ("slope=0.1", "slope=0.2", [*ATTENTIONS, "pool"], ("self.slope)", 0.2)),
    "fixed": ("self.fixed = 8", "self.fixed = 9", [*ATTENTIONS, "pool"], ("self.fixed  # nothing", 9)),
}  # fmt: skip


def built(folder, text):
    file = folder / "net.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(f"net_{folder.name}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with noting_lines(framework_of(module.Net())):
        return file, module.Net()


def line_of(text, piece):
    (found,) = [number for number, one in enumerate(text.splitlines(), 1) if piece in one]
    return found


def origin_of(folder, text, wrong, what):
    """The line to change, for each of the wrong modules, and the number of lines on the way."""
    file, model = built(folder, text)
    modules = dict(model.named_modules())
    origins = Origins("torch", [module for path, module in modules.items() if path not in wrong])
    found = []
    for path in wrong:
        if isinstance(what, dict):
            found.append(origins.of_layer(modules[path], what))
        else:
            found.append(origins.of_attribute(modules[path], (file, line_of(text, what[0])), what[1:]))
    return found


@pytest.mark.parametrize("case", CASES)
def test_the_line_that_decides_is_said_and_those_that_hand_the_value_on(tmp_path, case):
    old, new, wrong, what = CASES[case]
    assert SOUND.count(old) == 1
    (line,) = [n for n, one in enumerate(SOUND.splitlines(), 1) if case in one.partition("  # ")[2].split(", ")]
    for one in origin_of(tmp_path, SOUND.replace(old, new), wrong, what):
        assert one[0][1] == line, one
        assert len(one) == len(set(one))


def test_a_value_that_the_sound_modules_share_is_not_said(tmp_path):
    """The class makes the layer alike for all: it lacks the argument that would tell them apart."""
    assert origin_of(tmp_path, SOUND, ["last.cv1.conv"], {"dilation": (1, 1)}) == [[]]
    assert origin_of(tmp_path, SOUND, ["last.attn"], ("self.fixed  # nothing", 8)) == [[]]


# A line of forward or of the constructor, the call and the argument in it, its value, and whether it comes from elsewhere.
LINES = {
    "an operand that is computed": ("x.reshape(-1, self.heads) / x.shape[-1] ** 0.5", ("__truediv__", ""), 4, False),
    "the same under a name": ("rows / x.shape[-1] ** 0.5", ("__truediv__", ""), 4, False),
    "an operand that is the attribute": ("x.flatten() / self.heads", ("__truediv__", ""), 4, True),
    "the attribute under a name": ("x.flatten() / heads", ("__truediv__", ""), 4, True),
    "an argument": ("functional.leaky_relu(x, negative_slope=self.heads)", ("leaky_relu", "negative_slope"), 4, True),
    "an argument by its place": ("functional.leaky_relu(x, self.heads)", ("leaky_relu", "negative_slope"), 4, True),
    "a number there": ("functional.leaky_relu(x.reshape(-1, self.heads), 4)", ("leaky_relu", "negative_slope"), 4, False),
    "a lambda of the constructor": ("functional.gelu(x, approximate='tanh')", ("gelu", "approximate"), "tanh", False),
    "the function by another name": ("self.act(x, self.heads)", ("leaky_relu", "negative_slope"), 4, True),
}  # fmt: skip


@pytest.mark.parametrize("case", LINES)
def test_only_what_hands_the_value_on_decides_it(tmp_path, case):
    """An attribute that has the same value by chance, in another operand or beside the number itself, is not blamed."""
    text, call, value, elsewhere = LINES[case]
    source = f"""
from torch import nn
from torch.nn import functional


class Part(nn.Module):
    def __init__(self, heads, act):
        super().__init__()
        self.heads = heads
        self.act = {{"gelu": lambda x: {text if "lambda" in case else "x"}}}[act]  # constructor

    def forward(self, x):
        heads, rows = self.heads, x.reshape(-1, self.heads)
        return {text}  # line


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Part(4, "gelu")  # decides
"""
    file, model = built(tmp_path, source.replace("heads, rows = self.heads, ", "heads = self.heads\n        rows = "))
    place = file, line_of(file.read_text(), "# constructor" if "lambda" in case else "# line")
    found = Origins("torch", []).of_attribute(model.part, place, [value], [call])
    assert [line for _, line in found[:1]] == ([line_of(file.read_text(), "# decides")] if elsewhere else [])


def test_of_modules_that_nobody_saw_being_made_nothing_is_said(tmp_path):
    _, model = built(tmp_path, SOUND)
    model = type(model)()
    assert Origins("torch", []).of_layer(model.wide.conv, {"dilation": (2, 2)}) == []
