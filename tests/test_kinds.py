"""Kinds of correct pairs that an audit once failed, each with a sibling that has a mistake: that alone is found."""

import pytest

from alignment import audit
from tests.kinds import pairing_ours, pairing_theirs

pytestmark = pytest.mark.usefixtures("own_temporary")  # reports that are given no folder
INPUTS = {
    "Unused": "2x5x6", "FusedNet": "4x3x8x8", "TimeNet": "2x3x8x8", "Sine": "2x3x6x8", "Positions": "2x5x6", "Rotary": "2x5x16",
    "ConvBias": "4x3x8x8", "Packed": "2x5x12", "Segformer": "2x3x8x8", "Turned": "4x5x6", "TurnedRaw": "4x5x6",
    "LayerNormNet": "2x5x8", "Llama": "2x5x8", "UNet": "2x3x8x8",
}  # fmt: skip
SOUND = {
    "Unused": "Unused", "UnusedRenamed": "Unused", "UnusedOther": "Unused", "UnusedBoth": "Unused", "FusedNet": "FusedNet",
    "FusedLayers": "FusedNet", "TimeNet": "TimeNet", "Sine": "Sine", "Positions": "Positions", "PositionsAnew": "Positions",
    "Rotary": "Rotary", "RotaryPlain": "Rotary", "ConvBias": "ConvBias", "Packed": "Packed", "Segformer": "Segformer",
    "Turned": "Turned", "TurnedRaw": "TurnedRaw",
    "Llama": "Llama", "LayerNormNet": "LayerNormNet", "LayerNormNetSame": "LayerNormNet", "UNet": "UNet",
}  # fmt: skip
# Port -> reference, kind of the only mistake, words.
WRONG = {
    "UnusedEps": ("Unused", "norm_eps", "wrong eps 0.001, expected 1e-05"),
    "FusedBare": ("FusedNet", "layer_missing", "ReLU: the port lacks it"),
    "TimeNetWrong": ("TimeNet", "call_argument", "* 100, expected 10"),
    "SineEps": ("Sine", "call_argument", "+ 0.0001, expected 1e-06"),
    "PositionsBase": ("Positions", "", ""),
    "PositionsAnewBase": ("Positions", "", ""),
    "RotaryBase": ("Rotary", "", ""),
    "ConvBiasDetached": ("ConvBias", "detached", ""),
    "SegformerPadding": ("Segformer", "padding", "reflect, expected zeros"),
    "TurnedSigmoid": ("Turned", "other_function", "sigmoid, expected tanh"),
    "LlamaEps": ("Llama", "call_argument", "+ 1e-05, expected 1e-06"),
    "LlamaGelu": ("Llama", "other_function", "gelu(approximate=none), expected silu"),
    "UNetTime": ("UNet", "call_missing", "silu is missing before"),
    "UNetSinusoid": ("UNet", "operand", "in this order"),
}
FAST = ("UnusedOther", "UnusedEps", "FusedNet", "TimeNetWrong", "Sine", "PositionsAnew", "PositionsAnewBase")


def cases(names):
    return [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in names]


def audited(name, reference):
    return audit(getattr(pairing_ours, name), getattr(pairing_theirs, reference), inputs=INPUTS[reference])


@pytest.mark.parametrize("name", cases(SOUND))
def test_a_sound_port_passes(name):
    found = audited(name, SOUND[name])
    assert found.passed, str(found)
    assert ("float32_constant" in [one.kind for one in found.differences]) == (name == "PositionsAnew")


@pytest.mark.parametrize("name", cases(WRONG))
def test_a_mistake_is_the_only_finding(name):
    reference, kind, words = WRONG[name]
    found = audited(name, reference)
    (mistake,) = found.mistakes
    assert not found.passed and kind in mistake.kind and words in mistake.words, mistake
