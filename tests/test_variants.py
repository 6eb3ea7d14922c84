"""Variants of the model (widths, tails, dilation, class count, dropout): a port that is wrong in one alone is found in it."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import paddle
import pytest
from paddle import nn

import mobilenetv3_ref.models
from alignment.comparisons.checked import check
from alignment.comparisons.context import Context
from alignment.comparisons.material import Weights
from alignment.comparisons.model import explain as models
from alignment.comparisons.model import variants
from alignment.comparisons.result import StepResult
from alignment.kinds import Kind
from mobilenetv3_common.errors import UserError
from mobilenetv3_paddle.models import mobilenetv3
from projects.mobilenetv3.project import PROJECT

Own = SimpleNamespace(
    block_configs=mobilenetv3.block_configs, build=mobilenetv3._build, make_divisible=mobilenetv3.make_divisible,
    network=mobilenetv3.MobileNetV3, conv=mobilenetv3.ConvNormActivation,
)  # fmt: skip


def nearest(channels, divisor=8):
    """Without the rule of 90 %."""
    return max(divisor, int(channels + divisor / 2) // divisor * divisor)


def rounded_down(channels, divisor=8):
    return max(divisor, int(channels) // divisor * divisor)


def not_dilated(table, width_mult, reduced_tail, dilated):
    return Own.block_configs(table, width_mult, reduced_tail, False)


def first_row_not_dilated(table, width_mult, reduced_tail, dilated):
    configs = Own.block_configs(table, width_mult, reduced_tail, dilated)
    return [*configs[:-3], dataclasses.replace(configs[-3], dilation=1), *configs[-2:]]


def dilated_by_four(table, width_mult, reduced_tail, dilated):
    configs = Own.block_configs(table, width_mult, reduced_tail, dilated)
    return [dataclasses.replace(row, dilation=4 if row.dilation == 2 else 1) for row in configs]


def tail_not_reduced(table, width_mult, reduced_tail, dilated):
    return Own.block_configs(table, width_mult, False, dilated)


def tail_reduced_too_early(table, width_mult, reduced_tail, dilated):
    configs = Own.block_configs(table, width_mult, reduced_tail, dilated)
    if not reduced_tail:
        return configs
    return [*configs[:-3], dataclasses.replace(configs[-3], expanded_channels=configs[-3].expanded_channels // 2), *configs[-2:]]


def built(**changed):
    """The builder with one of its arguments replaced."""
    names = ("table", "last_channels", "num_classes", "width_mult", "reduced_tail", "dilated", "dropout")

    def build(*args):
        given = {**dict(zip(names, args, strict=True)), **changed}
        return Own.build(*(given[name] for name in names))

    return build


def refuses(*args):
    if args[5]:
        raise NotImplementedError("dilated is not ported")
    return Own.build(*args)


def too_wide(*args):
    if args[3] > 2:
        raise NotImplementedError("no width above 2")
    return Own.build(*args)


class UnpaddedDilation(Own.conv):
    """The padding does not grow with the dilation."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        conv = self[0]
        if tuple(conv._dilation) != (1, 1):
            conv._padding = conv._updated_padding = [(side - 1) // 2 for side in conv.weight.shape[2:]]


HERE = f"tests/test_variants.py:{refuses.__code__.co_firstlineno + 2} in refuses"
BROKEN = {
    "no rule of 90 %": ("make_divisible", nearest, {"width_mult": 0.75}, "features.2.block.2.0.weight", "16 output"),
    "channels rounded down": ("make_divisible", rounded_down, {"width_mult": 0.5}, "features.2.block.0.0.weight", "32 output"),
    "width ignored": ("_build", built(width_mult=1.0), {"width_mult": 0.35}, "features.0.0.weight", "16 output"),
    "dilation ignored": ("block_configs", not_dilated, {"dilated": True}, "features.9.block.1.0", ""),
    "dilation of one row": ("block_configs", first_row_not_dilated, {"dilated": True}, "features.9.block.1.0", ""),
    "dilated by four": ("block_configs", dilated_by_four, {"dilated": True}, "features.9.block.1.0", ""),
    "padding without dilation": ("ConvNormActivation", UnpaddedDilation, {"dilated": True}, "features.9.block.1.0", "padding"),
    "dilation not ported": ("_build", refuses, {"dilated": True}, HERE, "the model cannot be built"),
    "tail not reduced": ("block_configs", tail_not_reduced, {"reduced_tail": True}, "features.9.block.3.0.weight", "48 output"),
    "tail reduced too early": (
        "block_configs", tail_reduced_too_early, {"reduced_tail": True}, "features.9.block.0.0.weight", "72 output channels",
    ),
    "classes ignored": ("_build", built(num_classes=1000), {"num_classes": 10}, "classifier.3.weight", "1000 classes"),
    "dropout ignored": ("_build", built(dropout=0.2), {"dropout": 0.5}, "classifier.2", "dropout rate 0.2, expected 0.5"),
}  # fmt: skip


@pytest.fixture
def variant(context):
    """Makes a context in which one variant is compared."""

    def make(options):
        project = PROJECT.with_models(lambda spec: dataclasses.replace(spec, compared_options=[options]))
        return context(project)

    return make


def located(context):
    """What the first variant that fails is explained by."""
    failed = variants.judge(context, StepResult(1, "forward"))
    return models.in_variant(context, *failed[0]) if failed else None


@pytest.mark.parametrize("case", BROKEN)
def test_a_variant_that_is_wrong_fails_and_is_located(case, variant, monkeypatch):
    name, replacement, options, place, words = BROKEN[case]
    monkeypatch.setattr(mobilenetv3, name, replacement)
    found = located(variant(options))
    assert found is not None
    assert found.location == place, found.line()
    assert found.hint.startswith(f"{variants.title(options)}: {words}") and found.measured, found.line()


def test_a_wrong_variant_fails_the_step(variant, monkeypatch):
    monkeypatch.setattr(mobilenetv3, "block_configs", not_dilated)
    result = StepResult(1, "forward")
    variants.judge(variant({"dilated": True}), result)
    assert [row.name for row in result.quantities if not row.passed] == ["variant.dilated=True.logits"]
    assert result.failed and result.covers == ["dilated=True", "width_mult=8.0 (shapes)"]


def one_channel_more(table, *options):
    """The same at every width that is run, since widths are rounded to multiples of 8."""
    return Own.block_configs([(row[0], row[1] + (row[1] == 88), *row[2:]) for row in table], *options)


@pytest.mark.slow
def test_a_width_that_rounding_hides_is_seen_in_a_model_too_large_to_run(context, monkeypatch):
    monkeypatch.setattr(mobilenetv3, "block_configs", one_channel_more)
    broken, result = context(), StepResult(1, "forward")
    variants.judge(broken, result)
    assert [row.name for row in result.quantities if not row.passed] == ["variant.width_mult=8.0.structure"]
    found = located(broken)
    assert found.location.startswith("features.3.block.") and found.kind == Kind.WIDTH, found.line()
    assert found.hint.startswith("width_mult=8.0: 712 output channels, expected 704"), found.line()


@pytest.mark.parametrize(
    ("name", "replacement", "words"),
    [
        ("_build", too_wide, "NotImplementedError: no width above 2"),
        ("block_configs", lambda *options: Own.block_configs(*options)[:-1], "is missing"),
    ],
    ids=["raises", "a block less"],
)
def test_a_port_that_is_wrong_in_the_larger_model_alone_fails(context, monkeypatch, name, replacement, words):
    sound = context()
    assert variants.structure_of(sound, {"width_mult": 8.0}).passed
    monkeypatch.setattr(mobilenetv3, name, replacement)
    row = variants.structure_of(sound, {"width_mult": 8.0})
    assert not row.passed and words in row.reason, row.reason


def test_all_variants_of_a_sound_port_pass(context):
    sound, result = context(), StepResult(1, "forward")
    variants.judge(sound, result)
    failed = [f"{row.name}: {row.reason}" for row in result.quantities if not row.passed]
    assert result.passed, failed
    assert result.covers == ["width_mult=0.35", "width_mult=0.5", "width_mult=0.75", "width_mult=1.25", "reduced_tail=True",
        "dilated=True", "num_classes=10", "dropout=0.5", "width_mult=8.0 (shapes)"]  # fmt: skip
    names = [row.name for row in result.quantities]
    assert names[:3] == ["variant.width_mult=0.35." + rest for rest in ("structure", "dropout.classifier.2", "logits")]
    exact = [row.float64_diff for row in result.quantities if row.name.endswith("logits")]
    assert len(exact) == 8 and 0 < max(exact) < 1e-12


def test_without_the_weights_own_options_the_defaults_are_compared_too(small_state):
    """Weights of another width say the options of both builders, which hides their defaults."""

    def other_default(num_classes=1000, dropout=0.1, **rest):
        return mobilenetv3.mobilenet_v3_small(num_classes, dropout=dropout, **rest)

    project = PROJECT.with_models(lambda spec: dataclasses.replace(spec, port=other_default, compared_options=[]))
    given = Context(project, given_state=small_state)
    assert variants.compared(given) == []
    given = given.knowing(weights=Weights(small_state, "a file", {"width_mult": 0.5, "dropout": 0.2}, False))
    assert variants.compared(given) == [{}]
    found = located(given)
    assert found.location == "classifier.2" and found.hint == "defaults: dropout rate 0.1, expected 0.2"


def test_a_variant_that_the_reference_does_not_have_is_the_projects_mistake(small_state):
    project = PROJECT.with_models(lambda spec: dataclasses.replace(spec, compared_options=[{"depth": 3}]))
    given = Context(project, given_state=small_state, options={"width_mult": 0.5})
    with pytest.raises(UserError, match=r"does not take compared_options {'depth': 3}: got an unexpected keyword argument 'depth'"):
        check(given)
    with pytest.raises(UserError, match="the reference of mobilenet_v3_small with depth=3 cannot be built or run"):
        variants.judge(given, StepResult(1, "forward"))


class PooledBySeven(mobilenetv3.MobileNetV3):
    """Global at 224 pixels alone."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.avgpool = nn.AvgPool2D(7)


def test_a_pooling_that_is_global_in_one_size_alone_is_found(context, monkeypatch):
    monkeypatch.setattr(mobilenetv3, "MobileNetV3", PooledBySeven)
    result = StepResult(1, "forward")
    failed = variants.judge_on_other_inputs(context(), result)
    assert [row.name for row in result.quantities if not row.passed] == ["size.257x289.logits"]
    found = models.on_other_inputs(*failed[0])
    assert (found.location, found.kind) == ("avgpool", "pooling"), found.line()
    assert found.hint.startswith("on pictures of 257x289 pixels: one average over a window of 7 x 7"), found.line()


def test_a_sound_port_passes_in_another_size(context):
    result = StepResult(1, "forward")
    assert variants.judge_on_other_inputs(context(), result) == []
    assert result.passed and result.covers == ["pictures of 257x289 pixels", "inputs 8 times as large"]


def test_a_network_of_one_size_alone_is_not_asked_for_another(context):
    def of_one_size(**options):
        network = mobilenetv3_ref.models.mobilenet_v3_small(**options)
        network.register_forward_pre_hook(one_size)
        return network

    def one_size(_, inputs):
        assert inputs[0].shape[-1] < 257

    project = PROJECT.with_models(lambda spec: dataclasses.replace(spec, reference=of_one_size))
    assert variants.in_another_size(context(project)) is None


def test_a_window_larger_than_its_input_is_refused_and_ends_no_process():
    """Paddle gives such a tensor a negative size, and reading it is a segmentation fault."""
    made = paddle.nn.functional.conv2d(paddle.rand([1, 2, 1, 1]), paddle.rand([2, 2, 5, 5]), padding=2, dilation=2)
    with pytest.raises(ValueError, match=r"Paddle gave a tensor of shape \(1, 2, -3, -3\): a window is larger"):
        PROJECT.port.framework.array(made)
