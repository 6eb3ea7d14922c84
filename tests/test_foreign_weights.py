"""MobileNetV3's weights under the names of other trainers: the network here gives the logits that theirs gives.

The two networks below are written from the trainers' published architecture, with their names; timm itself and MMPretrain are used
where they are installed.
"""

import argparse

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
import torch

from mobilenetv3_common import foreign_names
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.pretrained import read_for
from mobilenetv3_common.weights_file import read_weights
from mobilenetv3_paddle.deploy.trained import load_trained
from mobilenetv3_paddle.models import MODELS
from mobilenetv3_paddle.models.mobilenetv3 import _SMALL, make_divisible
from mobilenetv3_paddle.train.state import load_pretrained
from mobilenetv3_ref.models import MODELS as REF_MODELS
from mobilenetv3_ref.train.state import load_pretrained as load_pretrained_ref
from tests.conftest import LARGE, SMALL, relative_l2
from tools.convert_weights import main as convert

CLASSES = 7
IMAGES = np.random.default_rng(1).standard_normal((4, 3, 64, 64)).astype(np.float32)


# --- PaddleClas ------------------------------------------------------------------------------------------------------------


class Named(paddle.nn.Layer):
    def __init__(self, **layers):
        super().__init__()
        for name, layer in layers.items():
            self.add_sublayer(name, layer)


def conv_bn(inputs, outputs, kernel=1, stride=1, groups=1):
    conv = paddle.nn.Conv2D(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias_attr=False)
    return Named(conv=conv, bn=paddle.nn.BatchNorm2D(outputs, epsilon=1e-5))


class PaddleClas(paddle.nn.Layer):
    """Every block expands, squeeze-excitation a quarter of the channels and the gate clip(0.2 x + 0.5); the head is 1280 wide."""

    def __init__(self, scale):
        super().__init__()
        widen = lambda channels: make_divisible(channels * scale)  # noqa: E731
        self.conv = conv_bn(3, widen(16), 3, 2)
        blocks, inputs = [], widen(16)
        for kernel, expanded, outputs, squeezes, activation, stride in _SMALL:
            middle = widen(expanded)
            block = Named(
                expand_conv=conv_bn(inputs, middle),
                bottleneck_conv=conv_bn(middle, middle, kernel, stride, middle),
                linear_conv=conv_bn(middle, widen(outputs)),
            )
            if squeezes:
                block.mid_se = Named(conv1=paddle.nn.Conv2D(middle, middle // 4, 1), conv2=paddle.nn.Conv2D(middle // 4, middle, 1))
            block.act, block.adds = (F.hardswish if activation == "HS" else F.relu), stride == 1 and inputs == widen(outputs)
            blocks.append(block)
            inputs = widen(outputs)
        self.blocks = paddle.nn.LayerList(blocks)
        self.last_second_conv = conv_bn(inputs, widen(576))
        self.last_conv = paddle.nn.Conv2D(widen(576), 1280, 1, bias_attr=False)
        self.fc = paddle.nn.Linear(1280, CLASSES)

    def forward(self, x):
        normalised = lambda layer, x: layer.bn(layer.conv(x))  # noqa: E731
        x = F.hardswish(normalised(self.conv, x))
        for block in self.blocks:
            y = block.act(normalised(block.bottleneck_conv, block.act(normalised(block.expand_conv, x))))
            if hasattr(block, "mid_se"):
                gate = block.mid_se.conv2(F.relu(block.mid_se.conv1(y.mean([2, 3], keepdim=True))))
                y = y * F.hardsigmoid(gate, slope=0.2, offset=0.5)
            y = normalised(block.linear_conv, y)
            x = x + y if block.adds else y
        x = F.hardswish(normalised(self.last_second_conv, x)).mean([2, 3], keepdim=True)
        return self.fc(F.dropout(F.hardswish(self.last_conv(x)).flatten(1), 0.2, training=self.training, mode="downscale_in_infer"))


def telling(model):
    """Weights and statistics under which an epsilon, a gate and a missing layer change the logits."""
    rng = np.random.default_rng(0)
    for name, tensor in model.state_dict().items():
        last, shape = name.rpartition(".")[2], tuple(tensor.shape)
        if last in ("_variance", "running_var"):
            values = rng.uniform(1e-3, 0.5, shape)
        elif last == "weight" and len(shape) == 1:
            values = rng.uniform(0.5, 1.5, shape)
        elif last == "weight":
            values = rng.standard_normal(shape) * (2 / np.prod(shape[1:] if len(shape) > 2 else shape[:1])) ** 0.5
        elif last == "num_batches_tracked":
            continue
        else:
            values = rng.normal(0, 0.2, shape)
        values = values.astype(np.float32)
        tensor.copy_(torch.from_numpy(values)) if isinstance(tensor, torch.Tensor) else tensor.set_value(values)
    return model.eval()


def logits(file, **options):
    trained = load_trained(file, **options)
    assert len(trained.classes) == CLASSES
    return trained.layer(paddle.to_tensor(IMAGES)).numpy(), trained.model


@pytest.mark.parametrize("scale", [1.0, 0.35, 0.75])
def test_paddleclas_weights_give_paddleclas_logits(tmp_path, scale):
    theirs = telling(PaddleClas(scale))
    paddle.save(theirs.state_dict(), str(tmp_path / "w.pdparams"))
    expected = theirs(paddle.to_tensor(IMAGES)).numpy()
    found, model = logits(tmp_path / "w.pdparams")
    assert model == SMALL and expected.std() > 0.01 and relative_l2(found, expected) < 1e-5
    said = "; ".join(read_weights(tmp_path / "w.pdparams").notes)
    assert said == "", "a file of weights alone"
    for target in ("back.pth", "own.pdparams", "other.safetensors"):  # of the same weights, under this project's names
        assert convert([str(tmp_path / "w.pdparams"), str(tmp_path / target), "--from", "paddleclas"]) == 0
        assert relative_l2(logits(tmp_path / target)[0], expected) < 1e-5


@pytest.mark.parametrize("constant", ["SLOPES", "KEPT", "EPS"])
def test_each_difference_counts(tmp_path, constant, monkeypatch):
    theirs = telling(PaddleClas(1.0))
    paddle.save(theirs.state_dict(), str(tmp_path / "w.pdparams"))
    monkeypatch.setattr(foreign_names, constant, 1e-5 if constant == "EPS" else 1.0)
    assert relative_l2(logits(tmp_path / "w.pdparams")[0], theirs(paddle.to_tensor(IMAGES)).numpy()) > 1e-3


def test_both_packages_evaluate_paddleclas_weights(tmp_path):
    theirs = telling(PaddleClas(0.35))
    paddle.save(theirs.state_dict(), str(tmp_path / "w.pdparams"))
    expected = theirs(paddle.to_tensor(IMAGES)).numpy()
    port, reference = MODELS[SMALL](CLASSES, width_mult=0.35), REF_MODELS[SMALL](CLASSES, width_mult=0.35)
    load_pretrained(port, str(tmp_path / "w.pdparams"))
    with torch.no_grad():
        load_pretrained_ref(reference, str(tmp_path / "w.pdparams"))
        found = reference.eval()(torch.from_numpy(IMAGES)).numpy()
    port.eval()
    assert relative_l2(port(paddle.to_tensor(IMAGES)).numpy(), expected) < 1e-5 and relative_l2(found, expected) < 1e-5


# --- timm ------------------------------------------------------------------------------------------------------------------


def as_timm(state):
    """A state of torchvision's network under timm's names: of the small model, whose first block does not expand."""
    stages = [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (4, 0), (4, 1), (4, 2), (5, 0)]
    found = {}
    for name, tensor in state.items():
        parts = name.split(".")
        if parts[0] == "classifier":
            found[("conv_head." if parts[1] == "0" else "classifier.") + parts[2]] = tensor
        elif parts[1] == "0":
            found[("conv_stem." if parts[2] == "0" else "bn1.") + parts[3]] = tensor
        elif parts[1] == "12":
            found[("blocks.5.0.conv." if parts[2] == "0" else "blocks.5.0.bn1.") + parts[3]] = tensor
        else:
            stage, index = stages[int(parts[1]) - 1]
            first, place = parts[1] == "1", int(parts[3])
            gate = any(other.startswith(f"features.{parts[1]}.block.{place}.fc1") for other in state)
            order = ["conv_dw", "conv_pw"] if first else ["conv_pw", "conv_dw", "conv_pwl"]
            if gate:
                layer = "se.conv_reduce" if parts[4] == "fc1" else "se.conv_expand"
            else:
                earlier = place - any(f"features.{parts[1]}.block.{p}.fc1.weight" in state for p in range(place))
                layer = order[earlier] if parts[4] == "0" else f"bn{earlier + 1}"
            found[f"blocks.{stage}.{index}.{layer}.{parts[5]}"] = tensor
    found["conv_head.weight"] = found["conv_head.weight"][:, :, None, None]
    return found


@pytest.mark.parametrize(("arch", "eps"), [("mobilenetv3_small_100", 1e-5), ("tf_mobilenetv3_small_100", 1e-3)])
def test_timm_weights_give_the_logits_of_timms_epsilon(tmp_path, arch, eps, capsys):
    theirs = telling(REF_MODELS[SMALL](CLASSES))
    for layer in theirs.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.eps = eps
    content = {"arch": arch, "state_dict": as_timm(theirs.state_dict()), "args": argparse.Namespace(model=arch), "epoch": 3}
    torch.save(content, tmp_path / "model_best.pth.tar")
    with torch.no_grad():
        expected = theirs(torch.from_numpy(IMAGES)).numpy()
    found, model = logits(tmp_path / "model_best.pth.tar")
    said = capsys.readouterr().err
    assert model == SMALL and relative_l2(found, expected) < 1e-5 and "timm's names" in said
    assert ("eps 1e-05 moved into its weights" in said) == (eps == 1e-5) and ("pads asymmetrically" in said) == arch.startswith(
        "tf_"
    )
    wrong = read_for(tmp_path / "model_best.pth.tar"), read_for_eps(tmp_path / "model_best.pth.tar", 0.01)
    assert not np.array_equal(wrong[0]["features.0.1.weight"], wrong[1]["features.0.1.weight"]), (
        "another epsilon gives other weights"
    )
    assert (
        convert([str(tmp_path / "model_best.pth.tar"), str(tmp_path / "c.pdparams"), "--from", "timm", "--bn-eps", str(eps)]) == 0
    )
    assert relative_l2(logits(tmp_path / "c.pdparams")[0], expected) < 1e-5


def test_weights_of_timm_that_do_not_name_their_model_are_said_to_be_taken_for_its_own(tmp_path, capsys):
    """A tf_ model's weights alone look the same, and were taken with the other epsilon without a word: 3 of 16 classes changed."""
    state = as_timm(telling(REF_MODELS[SMALL](CLASSES)).state_dict())
    for content, named in ((state, False), ({"arch": "mobilenetv3_small_100", "state_dict": state}, True)):
        torch.save(content, tmp_path / "w.pth")
        logits(tmp_path / "w.pth")
        assert ("one of timm's tf_ models" in capsys.readouterr().err) != named


def read_for_eps(file, eps):
    from mobilenetv3_common.pretrained import prepared

    return prepared(read_weights(file), file, eps=eps)


@pytest.mark.parametrize(
    "arch", ["mobilenetv3_small_100", "mobilenetv3_large_100", "mobilenetv3_small_050", "mobilenetv3_large_075"]
)
def test_timms_own_networks(tmp_path, arch):
    from mobilenetv3_common.torchvision_operators import declare_missing_operators

    declare_missing_operators(torch)
    timm = pytest.importorskip("timm", reason="the extra zoo is not installed")
    theirs = telling(timm.create_model(arch, num_classes=CLASSES))
    torch.save(theirs.state_dict(), tmp_path / "w.pth")
    with torch.no_grad():
        expected = theirs(torch.from_numpy(IMAGES)).numpy()
    found, model = logits(tmp_path / "w.pth")
    assert model == (SMALL if "small" in arch else LARGE) and relative_l2(found, expected) < 1e-4
    assert (found.argmax(1) == expected.argmax(1)).all()


# --- MMPretrain, wrappers, and what is refused -----------------------------------------------------------------------------


def as_mmpretrain(state):
    """A state of torchvision's small network under MMPretrain's names."""
    found = {}
    for name, tensor in state.items():
        parts = name.split(".")
        if parts[0] == "classifier":
            found[f"head.layers.{0 if parts[1] == '0' else 1}.fc.{parts[2]}"] = tensor
        elif parts[2] != "block":
            found[f"backbone.layer{parts[1]}.{'conv' if parts[2] == '0' else 'bn'}.{parts[3]}"] = tensor
        else:
            layers = sorted({int(n.split(".")[3]) for n in state if n.startswith(f"features.{parts[1]}.block.")})
            gates = [p for p in layers if f"features.{parts[1]}.block.{p}.fc1.weight" in state]
            order = [*(["expand_conv"] if parts[1] != "1" else []), "depthwise_conv", *(["se"] if gates else []), "linear_conv"]
            part = order[int(parts[3])]
            inner = {"fc1": "conv1.conv", "fc2": "conv2.conv", "0": "conv", "1": "bn"}[parts[4]]
            found[f"backbone.layer{parts[1]}.{part}.{inner}.{parts[5]}"] = tensor
    return found


@pytest.mark.parametrize("prefix", ["", "module.", "model.", "net.", "timm_model.", "_orig_mod.", "model._orig_mod."])
@pytest.mark.parametrize("names", ["torchvision", "mmpretrain", "timm"])
def test_every_wrapper_of_every_trainer_is_found(tmp_path, prefix, names):
    theirs = telling(REF_MODELS[SMALL](CLASSES, width_mult=0.5))
    state = {"torchvision": dict, "mmpretrain": as_mmpretrain, "timm": as_timm}[names](theirs.state_dict())
    metrics = {"train_accuracy.correct": torch.zeros(CLASSES)} if prefix == "model." else {}
    torch.save({"state_dict": {f"{prefix}{name}": tensor for name, tensor in state.items()} | metrics}, tmp_path / "w.ckpt")
    found = read_for(tmp_path / "w.ckpt")
    expected = {name: tensor for name, tensor in theirs.state_dict().items() if tensor.ndim}
    assert found.keys() == expected.keys()
    changed = {name for name in found if not np.array_equal(found[name], expected[name].numpy().reshape(found[name].shape))}
    assert changed == (
        {name for name in expected if name.endswith("weight") and expected[name].ndim == 1} if names == "timm" else set()
    )


def test_names_of_somebody_else_are_refused(tmp_path):
    torch.save(REF_MODELS[SMALL](CLASSES).state_dict(), tmp_path / "w.pth")
    torch.save(
        {f"{of}.{n}": t for of in ("a", "b") for n, t in REF_MODELS[SMALL](CLASSES).state_dict().items()}, tmp_path / "two.pth"
    )
    from mobilenetv3_common.pretrained import prepared

    with pytest.raises(UserError, match=r"the weights have not timm's names: they begin with features\.0\.0\.weight"):
        prepared(read_weights(tmp_path / "w.pth"), tmp_path / "w.pth", source="timm")
    with pytest.raises(UserError, match=r"two\.pth: the weights hold several networks \(a\., b\.\)"):
        read_for(tmp_path / "two.pth")


def test_convert_reads_model_and_classes_from_the_file(tmp_path, capsys):
    torch.save(REF_MODELS[LARGE](CLASSES, width_mult=0.35).state_dict(), tmp_path / "w.pth")
    assert convert([str(tmp_path / "w.pth"), str(tmp_path / "w.pdparams")]) == 0
    assert convert([str(tmp_path / "w.pth"), str(tmp_path / "x.pdparams"), "--model", SMALL]) == 2
    assert "holds mobilenet_v3_large; leave --model out" in capsys.readouterr().err and not (tmp_path / "x.pdparams").exists()
    assert logits(tmp_path / "w.pdparams")[1] == LARGE
