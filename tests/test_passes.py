"""The passes that pair modules and layers, on plain data: no framework is imported, and none can be taken out unseen."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from alignment.models import pairing, passes
from alignment.models.links import Link, labelled
from alignment.models.pairing import Part, best_moves, paired
from alignment.models.passes import paired_layers
from alignment.models.units import Unit, Use, words_of_name
from mobilenetv3_common.weights import Entry
from tests.conftest import run_command

Shape = tuple[int, ...]


def part(path: str, kind: str, *shapes: Shape) -> Part:
    of_it = tuple(sorted(tuple(sorted(shape)) for shape in shapes))
    return Part(path, path.rpartition(".")[2], None, kind, kind.title(), of_it, sum(map(math.prod, shapes)), ((kind,),), of_it)


def unit(path: str, kind: str = "", /, **tensors: Shape) -> Unit:
    """A layer of a kind; without one, what a module with children holds itself."""
    entries = tuple(Entry(f"{path}.{name}", f"{path}.{name}", shape, False, "parameter") for name, shape in tensors.items())
    rows = sum(shape[0] for shape in tensors.values() if len(shape) > 1)
    return Unit(part(path, kind or "block", *tensors.values()), entries, bool(kind), words_of_name(path), tensors, rows, False)


def conv(path: str, outputs: int = 4) -> Unit:
    return unit(path, "conv", weight=(outputs, 3, 3, 3))


def linear(path: str, outputs: int, inputs: int = 4) -> Unit:
    return unit(path, "linear", weight=(outputs, inputs))


def taps(path: str, channels: int) -> Unit:
    """A depthwise convolution of somebody's own, with the channels last."""
    return replace(unit(path, "causal", taps=(2, channels)), own=True)


# Three layers that are given one array, and one that is given as many numbers as they together.
GIVEN = Use(
    inputs={path: np.ones(3) for path in ("q", "k", "v")} | {"all": np.ones(9)},
    reads=lambda: ["p.g", "p.h", "x.s", "x.t"],  # in this order functions are first given these tensors
)
# By pass: units of the port, of the reference, the pairs by path, and the links that are expected.
LAYERS = {
    "in_order": (
        [conv(f"{name}.{letter}") for name in ("encoder", "decoder") for letter in "abc"],
        [conv(f"{name}.{letter}") for name in ("decoder_x", "encoder_x") for letter in "klm"],
        {
            f"{a}.{x}": f"{b}_x.{y}"
            for a, b in (("encoder", "decoder"), ("decoder", "encoder"))
            for x, y in zip("abc", "klm", strict=True)
        },
        [],
    ),
    "in_homes": (  # the second module would begin with the last layer of the first, which the port lacks
        [conv(f"a.{letter}") for letter in "pqrs"] + [conv(f"b.{letter}") for letter in "tuvw"],
        [conv(f"x.{letter}") for letter in "cdefg"] + [conv(f"y.{letter}") for letter in "hijk"],
        {
            **{f"a.{x}": f"x.{y}" for x, y in zip("pqrs", "cdef", strict=True)},
            **{f"b.{x}": f"y.{y}" for x, y in zip("tuvw", "hijk", strict=True)},
        },
        [],
    ),
    "elsewhere": (
        [conv("a", 5), conv("b", 6), conv("c", 7)],
        [conv("x", 7), conv("y", 6), conv("z", 5)],
        {"a": "z", "b": "y", "c": "x"},
        [],
    ),
    "packed_apart": (
        [linear("qkv", 12), conv("norm")],
        [linear("q", 4), conv("norm"), linear("k", 4), linear("v", 4)],
        {"norm": "norm"},
        [Link(("qkv.weight",), ("q.weight", "k.weight", "v.weight"))],
    ),
    "split_apart": (
        [taps("q", 4), conv("norm"), taps("k", 2), taps("v", 2)],
        [unit("all", "conv", weight=(8, 1, 2)), conv("norm")],
        {"norm": "norm"},
        [Link(("q.taps", "k.taps", "v.taps"), ("all.weight",), transposed=True)],
    ),
    "joined_apart": (
        [linear("both", 6, 8), conv("norm")],
        [linear("one", 6, 5), conv("norm"), linear("other", 6, 3)],
        {"norm": "norm"},
        [Link(("both.weight",), ("one.weight", "other.weight"), columns=True)],
    ),
    "namesakes": (
        [linear("a", 5), conv("norm"), linear("b", 6)],
        [unit("b", "linear", weight=(6, 4), bias=(6,)), conv("norm"), unit("a", "linear", weight=(5, 4), bias=(5,))],
        {"a": "a", "b": "b", "norm": "norm"},
        [],
    ),
    "in_order_of_reading": (
        [unit("p", g=(4,), h=(4,))],
        [unit("x", t=(4,), s=(4,))],
        {},
        [Link(("p.g",), ("x.s",)), Link(("p.h",), ("x.t",))],
    ),
    "stacked_inside": (
        [unit("a", mix=(2, 5), tail=(5,)), unit("b", mix=(2, 5))],
        [unit("a.0", one=(1, 1, 5), two=(1, 1, 5)), unit("a.1", one=(1, 1, 5), two=(1, 1, 5))],
        {},
        [Link(("a.mix",), ("a.0.one", "a.0.two")), Link(("b.mix",), ("a.1.one", "a.1.two"))],
    ),
    "stacked": (
        [unit("experts", kernels=(3, 5, 7))],
        [unit(f"experts.{number}", w=(5, 7)) for number in range(3)],
        {},
        [Link(("experts.kernels",), ("experts.0.w", "experts.1.w", "experts.2.w"))],
    ),
    "loose": ([unit("net", position=(1, 5, 4))], [unit("embed", pos=(5, 4))], {}, [Link(("net.position",), ("embed.pos",))]),
    "loose_parts": (
        [unit("net", table=(6, 4))],
        [unit("net", first=(2, 4), rest=(4, 4))],
        {},
        [Link(("net.table",), ("net.first", "net.rest"))],
    ),
    "other_width": ([conv("a"), conv("b", 8), conv("c")], [conv("x"), conv("y", 9), conv("z")], {"a": "x", "b": "y", "c": "z"}, []),
    "light": ([conv("a"), unit("act", "relu")], [conv("x"), unit("gelu", "gelu")], {"a": "x", "act": "gelu"}, []),
}
ADDED, IDLE = [unit("add", "added"), unit("act", "relu")], [unit("relu", "relu"), unit("idle", "identity")]
# Layers without weights of the port and of the reference, and the pairs that are expected.
LIGHT = {
    "an identity behind an activation": (ADDED, IDLE, {"act": "relu"}),
    "the same in the port": (IDLE, ADDED, {"relu": "act"}),
    "an activation that is an identity": ([unit("act", "identity")], [unit("relu", "relu")], {"act": "relu"}),
    "the second of two": ([unit("act", "relu"), unit("idle", "identity")], [unit("relu", "relu"), unit("gelu", "gelu")], {
        "act": "relu", "idle": "gelu"}),
    "identities on both sides": (IDLE, [unit("gelu", "gelu"), unit("none", "identity")], {"relu": "gelu", "idle": "none"}),
}  # fmt: skip


def of_layers(name, among):
    own, other, _, _ = LAYERS[name]
    found = paired_layers(own, other, (GIVEN, GIVEN), among)
    return {mine.path: theirs.path for mine, theirs in found.pairs}, found.links


def test_a_module_may_hold_the_layers_of_an_inner_one_and_those_around_it():
    inner = [f"l{number}" for number in range(8)]
    own = [unit("net", extra=(3, 3)), *(conv(f"net.t.{name}", 4 + n) for n, name in enumerate(["a", *inner, "z"]))]
    names = ["b.first", *(f"b.block.{name}" for name in inner), "b.last"]
    other = [*(conv(name, 4 + n) for n, name in enumerate(names)), unit("b", table=(5, 2))]
    found = paired_layers(own, other, (GIVEN, GIVEN), [passes.in_order, passes.in_homes])
    assert {mine.path: theirs.path for mine, theirs in found.pairs} == {
        f"net.t.{name}": path for name, path in zip(["a", *inner, "z"], names, strict=True)
    }


def test_columns_of_an_embedding_may_be_tensors_of_a_module():
    own, other = [unit("net", where=(7, 4), what=(7, 4))], [unit("query", "embedding", weight=(7, 8))]
    assert paired_layers(own, other, (GIVEN, GIVEN), [passes.loose_parts]).links == [
        Link(("net.where", "net.what"), ("query.weight",), columns=True)
    ]
    assert not paired_layers(own, [unit("query", "embedding", weight=(7, 9))], (GIVEN, GIVEN), [passes.loose_parts]).links


@pytest.mark.parametrize("case", LIGHT)
def test_an_identity_stands_for_an_activation_only_where_none_beside_it_does(case):
    own, other, wanted = LIGHT[case]
    found = paired_layers([conv("a"), *own, conv("b")], [conv("a"), *other, conv("b")], (GIVEN, GIVEN))
    assert {mine.path: theirs.path for mine, theirs in found.pairs if not mine.entries} == wanted


X, Y, Z = (4, 3), (5, 6), (7, 8)
# By pass: children of the port and of the reference, whether their names are numbers, and (port, reference, how) in order.
CHILDREN = {
    "by_name": (
        [part("b", "conv", X), part("a", "conv", X)],
        [part("a", "conv", X), part("b", "conv", X)],
        [("a", "a", "same"), ("b", "b", "same")],
    ),
    "by_order": (
        [part("0", "conv", X), part("1", "conv", Z)],
        [part("0", "conv", X), part("1", "conv", Y), part("2", "conv", Z)],
        [("0", "0", "same"), (None, "1", "same"), ("1", "2", "same")],
    ),
    "by_weights": (
        [part("p", "conv", Y), part("q", "lstm", X)],
        [part("r", "lstm", X), part("s", "conv", Y)],
        [("q", "r", "same"), ("p", "s", "same")],
    ),
    "by_neighbours": (
        [part("a", "conv", X), part("mid", "relu")],
        [part("a", "conv", X), part("middle", "linear", Z)],
        [("a", "a", "same"), ("mid", "middle", "replaced")],
    ),
}


def of_children(name, among):
    own, other, _ = CHILDREN[name]
    numbered = all(one.name.isdigit() for one in own)
    found = paired(own, other, {one.path: one.path for one in own}, numbered, among)
    return [(mine and mine.path, theirs and theirs.path, how) for mine, theirs, how in found]


@pytest.mark.parametrize(("module", "cases"), [(passes, LAYERS), (pairing, CHILDREN)])
def test_every_pass_has_a_name_a_sentence_and_a_case(module, cases):
    assert [one.__name__ for one in module.PASSES] == list(cases)
    assert all(one.__doc__ for one in module.PASSES)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_paired_and_the_pass_is_what_pairs_them(name):
    expected = LAYERS[name][2:]
    assert of_layers(name, passes.PASSES) == expected
    assert of_layers(name, [one for one in passes.PASSES if one.__name__ != name]) != expected


@pytest.mark.parametrize("name", CHILDREN)
def test_children_are_paired_and_the_pass_is_what_pairs_them(name):
    expected = CHILDREN[name][2]
    assert of_children(name, pairing.PASSES) == expected
    assert of_children(name, [one for one in pairing.PASSES if one.__name__ != name]) != expected


def test_a_convolution_and_a_normalisation_do_not_exchange_their_biases():
    """Both are left over, as where each stands elsewhere on the other side: they are layers, and paired as such."""
    patches, norm = {"weight": (6, 3, 3, 3), "bias": (6,)}, {"weight": (6,), "bias": (6,)}
    own = [unit("ln", "layernorm", **norm), linear("a", 5), unit("patches", "conv", **patches)]
    other = [unit("proj", "conv", **patches), linear("b", 5), unit("norm", "layernorm", **norm)]
    found = paired_layers(own, other, (Use(), Use()))
    assert {(mine.path, theirs.path) for mine, theirs in found.pairs} == {("a", "b"), ("ln", "norm"), ("patches", "proj")}
    assert not found.links


def test_layers_whose_names_are_exchanged_are_no_renaming():
    own, other = [conv("a"), conv("b")], [conv("b"), conv("a")]
    found = paired_layers(own, other, (Use(), Use()))
    assert {(mine.path, theirs.path) for mine, theirs in found.pairs} == {("a", "a"), ("b", "b")}


def test_a_layer_that_is_given_a_sample_does_not_hold_those_that_are_given_its_tokens():
    """Of the same shapes: the layer of the whole sample lies in two of the port, with the others between them."""
    sample, tokens = np.full((2, 4), 2.0), np.zeros((2, 3, 4))
    own = [linear("a.mod", 12), linear("a.qkv", 12), linear("a.proj", 4), linear("a.mod2", 12)]
    other = [linear("b.ada", 24), *(linear(f"b.{name}", 4) for name in "qkv"), linear("b.out", 4)]
    uses = (
        Use(inputs={"a.mod": sample, "a.qkv": tokens, "a.proj": tokens + 1, "a.mod2": sample}),
        Use(inputs={"b.ada": sample, **{f"b.{name}": tokens for name in "qkv"}, "b.out": tokens + 1}),
    )
    found = paired_layers(own, other, uses)
    assert {(link.port, link.reference) for link in found.links} == {
        (("a.qkv.weight",), ("b.q.weight", "b.k.weight", "b.v.weight")), (("a.mod.weight", "a.mod2.weight"), ("b.ada.weight",))
    }  # fmt: skip
    assert [(mine.path, theirs.path) for mine, theirs in found.pairs] == [("a.proj", "b.out")]


def test_a_layer_that_one_side_alone_has_is_paired_with_none():
    found = paired_layers([conv("a"), linear("b", 3)], [conv("x")], (Use(), Use()))
    assert [(mine.path, theirs.path) for mine, theirs in found.pairs] == [("a", "x")] and not found.links


def test_the_best_alignment_takes_several_at_once_where_that_scores_more():
    moves = {(0, 0): [(1.0, (1, 1))], (1, 0): [(5.0, (2, 1))], (1, 1): [(1.0, (1, 1))]}
    assert best_moves(3, 2, lambda i, j: moves.get((i, j), [])) == [(1, 0, 2, 1)]


def test_pairing_needs_no_framework():
    done = run_command("-c", "import sys, alignment.models.passes, alignment.models.forms; print(*sys.modules)")
    known = set(done.stdout.split())
    assert "alignment.models.forms.axes" in known and not known & {"torch", "paddle", "mindspore"}, done


READ_OURS = unit("stack.0", base=(6,), mix=(2, 6), bonus=(6,), down=(6, 3))
READ_THEIRS = [
    unit("att", maa_x=(1, 1, 6), maa_k=(1, 1, 6), maa_v=(1, 1, 6), faaaa=(2, 3)),
    unit("att.low", "linear", weight=(3, 6)),
]
READ = (
    ["stack.0.base", "stack.0.down", "stack.0.mix", "stack.0.bonus"],
    ["att.maa_x", "att.low.weight", "att.maa_k", "att.maa_v", "att.faaaa"],
)


def read(ours: list[str], theirs: list[str], mine: Unit = READ_OURS) -> dict:
    uses = Use(reads=lambda: ours), Use(reads=lambda: theirs)
    found = paired_layers([mine], READ_THEIRS, uses).links
    return {link.port: (link.reference, link.transposed, link.layout) for link in found}


def test_tensors_that_are_left_over_are_paired_in_the_order_of_their_first_use():
    """Whatever they are called: one turned, two as places of a stack, and one whose rows lie in a vector."""
    assert read(*READ) == {
        ("stack.0.base",): (("att.maa_x",), False, ""),
        ("stack.0.down",): (("att.low.weight",), True, ""),
        ("stack.0.mix",): (("att.maa_k", "att.maa_v"), False, ""),
        ("stack.0.bonus",): (("att.faaaa",), False, "(a b) -> a b, a=2, b=3"),
    }


def test_the_order_of_first_use_pairs_all_tensors_or_none():
    right = read(*READ)
    assert read(READ[0][:-1], READ[1]) != right  # one is not used, or the engine cannot see it
    assert read(READ[0], [READ[1][0], *READ[1][2:], READ[1][1]]) != right  # the two orders do not fit
    named = unit("stack.0", maa_v=(6,), mix=(2, 6), bonus=(6,), down=(6, 3))
    others = read(["stack.0.maa_v", *READ[0][1:]], READ[1], named)  # a name speaks against it: a mistake may have exchanged them
    assert ("stack.0.maa_v",) not in others or others["stack.0.maa_v",][0] == ("att.maa_v",)


def test_a_loose_tensor_goes_to_the_one_of_its_very_shape():
    """A scale (4, 1, 1) and a bias (4) differ in axes of 1 alone, and the names of the two sides say nothing."""
    mine = unit("stack.0", "own", g=(4, 1, 1), b=(4,))
    theirs = [unit("blocks.0", bias=(4,)), unit("blocks.0.parametrizations.weight", original0=(4, 1, 1))]
    found = {link.port: link.reference for link in paired_layers([mine], theirs, (Use(), Use())).links}
    assert found == {("stack.0.g",): ("blocks.0.parametrizations.weight.original0",), ("stack.0.b",): ("blocks.0.bias",)}


@pytest.mark.parametrize(
    ("label", "name"),
    [("mlp", "blocks.0.mlp.weight"), ("attention", "blocks.0.attention.weight"), ("", "blocks.0.attention.weight")],
)
def test_a_part_of_a_tensor_has_the_ports_name(label, name):
    assert labelled(["blocks.0.attention.weight", "blocks.0.mlp.weight"], label) == name
