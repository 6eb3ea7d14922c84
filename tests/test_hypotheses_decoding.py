"""Decoders of tokens: with a cache, padding, beyond the trained length and in bfloat16 a port gives what one pass gives."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest

from alignment.audit.pair import GivenMaker, pair_of
from alignment.cli import main
from alignment.comparisons.context import Context
from alignment.comparisons.precision import decoding
from alignment.frameworks.base import Low
from alignment.frameworks.paddle import Paddle
from alignment.kinds import Kind
from alignment.localize.hypotheses.decoding import DECODING
from tests.conftest import ROOT, mode_of
from tests.tokens import ours, theirs

LONG = {"trained": 300}  # in bfloat16, whole numbers beyond 256 are rounded
REFERENCES = {
    "rotary": theirs.Decoder,
    "learned": theirs.learned,
    "long": functools.partial(theirs.Decoder, **LONG),
    "padding left out": functools.partial(theirs.learned, padding=True),
}
PORTS = {
    "rotary": ours.Decoder,
    "learned": ours.learned,
    "long": functools.partial(ours.Decoder, **LONG),
    "padding left out": ours.learned,
}


def compared(port, reference):
    makers = [GivenMaker(f"--{role}", role, {}, made) for role, made in (("port", port), ("reference", reference))]
    return decoding.run(Context(pair_of(*makers, None, initialisation=False).project))


def wrong(result):
    return [row.name for row in result.quantities if not row.passed]


# The model, and another way to write it that is no mistake.
SOUND = [
    ("rotary", "", 36),
    pytest.param("learned", "", 29, marks=pytest.mark.slow),
    pytest.param("long", "", 36, marks=pytest.mark.slow),
    pytest.param("rotary", "time first", 36, marks=pytest.mark.slow),
    pytest.param("rotary", "large number", 36, marks=pytest.mark.slow),
    ("padding left out", "left padding", 32),
]


@pytest.mark.parametrize(("model", "form", "rows"), SOUND)
def test_a_sound_decoder_passes_in_every_case(model, form, rows):
    result = compared(functools.partial(PORTS[model], mistake=form), REFERENCES[model])
    assert not wrong(result) and len(result.quantities) == rows and not result.compared
    assert {"decoding with a cache", "padded batches", "decoding in bfloat16"} < set(result.covers) and not result.not_run


def test_a_model_whose_outputs_depend_on_later_tokens_is_no_decoder():
    assert compared(theirs.Both, theirs.Both) is None


ATTENTION, MODEL = "blocks.0.attention", "Decoder.forward"
# The hypothesis (none: the search through the modules), the model, the mistake; what is said, with its place; and a case that it
# does not touch.
MISTAKES = [
    ("cache_lost", "rotary", "stale", Kind.CACHE, "stays that of the prompt", ATTENTION, "cached"),
    ("cache_exchanged", "rotary", "exchanged", Kind.CACHE, "keys and values of the cache are exchanged", ATTENTION, "cached"),
    ("cache_rounded", "rotary", "float16", Kind.HALF_PRECISION, "kept in float16", ATTENTION, "cached"),
    ("cache_rounded", "rotary", "bfloat16", Kind.HALF_PRECISION, "kept in bfloat16", ATTENTION, "cached"),
    ("positions_behind_a_cache", "rotary", "restart", Kind.POSITIONS, "begin at 0 again in each call", MODEL, "left"),
    ("positions_behind_a_cache", "learned", "restart", Kind.POSITIONS, "begin at 0 again in each call", MODEL, "left"),
    ("positions_behind_a_cache", "learned", "off by one", Kind.POSITIONS, "off by +1", MODEL, "left"),
    ("positions_of_padding", "learned", "left padding", Kind.POSITIONS, "positions leave padding out", MODEL, "prompt"),
    ("positions_of_padding", "rotary", "left padding with a cache", Kind.POSITIONS, "behind a cache leave padding", MODEL, "left"),
    ("positions_of_padding", "padding left out", "", Kind.POSITIONS, "positions count padding", MODEL, "prompt"),
    ("positions_beyond", "rotary", "modulo", Kind.POSITIONS, "modulo 24", MODEL, "prompt"),
    ("mask_ignored", "rotary", "mask ignored", Kind.MASK, "the mask of padding is ignored", MODEL, "prompt"),
    ("mask_ignored", "rotary", "mask ignored with a cache", Kind.MASK, "ignored once a cache is given", MODEL, "left"),
    ("mask_too_weak", "rotary", "weak mask", Kind.MASK, "hides padding by too small a number", ATTENTION, "prompt"),
    ("causal_mask", "rotary", "diagonal", Kind.MASK, "lets token 2 see token 3, which comes later", MODEL, "prompt"),
    ("", "rotary", "cache axis", Kind.CALL_ARGUMENT, "concat axis 1, expected 2", ATTENTION, "cached"),
    ("", "rotary", "new keys first", Kind.OPERAND, "concat takes", ATTENTION, "cached"),
    ("", "rotary", "scale", Kind.CALL_MISSING, "/ 2.82843", ATTENTION, "cached"),
    ("", "rotary", "least", Kind.OVERFLOW, "overflow bfloat16", ATTENTION, "left.prompt"),
    ("", "long", "angles", Kind.HALF_PRECISION, "right in float64, and wrong in bfloat16", ATTENTION, "beyond"),
]
FAST = {("rotary", "stale"), ("learned", "restart"), ("rotary", "mask ignored"), ("rotary", "cache axis")}


@pytest.mark.parametrize(
    ("model", "mistake", "kind", "words", "place", "untouched"),
    [pytest.param(*one[1:], marks=() if one[1:3] in FAST else pytest.mark.slow) for one in MISTAKES],
)
def test_a_mistake_of_decoding_is_found_placed_and_named(model, mistake, kind, words, place, untouched):
    result = compared(functools.partial(PORTS[model], mistake=mistake), REFERENCES[model])
    found = result.compared[0].explain()
    assert (found.kind, found.location) == (kind, place) and words in found.hint, found.line()
    assert found.source.startswith("tests/tokens/ours.py:")
    assert f"decoding.{untouched}" not in wrong(result) and any(row.name == f"decoding.{untouched}" for row in result.quantities)


def test_every_hypothesis_has_a_case_of_its_own():
    assert set(DECODING.makers) == {name for name, *_ in MISTAKES if name}


def restarting():
    return ours.Decoder(mistake="restart")


@pytest.mark.slow
@pytest.mark.parametrize(("port", "status"), [("ours.py:Decoder", 0), ("../test_hypotheses_decoding.py:restarting", 1)])
def test_an_audit_has_a_row_for_decoding(port, status, tmp_path, capsys):
    folder = ROOT / "tests/tokens"
    sides = ["--port", f"{folder}/{port}", "--reference", f"{folder}/theirs.py:Decoder"]
    assert main(["audit", *mode_of([]), *sides, "--report", str(tmp_path)]) == status
    report = json.loads((tmp_path / "alignment.json").read_text())
    assert [(row["step"], row["passed"]) for row in report["steps"] if row["name"] == "decoding"] == [(1, not status)]
    assert "decoding" in capsys.readouterr().out and report["passed"] is not bool(status)


def test_operators_of_paddle_compute_in_bfloat16_as_its_functions_do():
    import paddle

    a, b = (np.random.default_rng(n).standard_normal((4, 4)).astype(np.float32) for n in (1, 2))
    low = Paddle().in_low_precision(Low("bfloat16"))
    made = {name: low.call(one, (a, b)).outputs[0] for name, one in (("@", lambda x, y: x @ y), ("matmul", paddle.matmul))}
    assert (made["@"] == made["matmul"]).all() and (made["@"] != a @ b).any()
    assert np.isfinite(low.call(lambda x, y: (x @ y) ** 2, (a, b)).outputs[0]).all()
