"""The Paddle model: structure, initialisation, BatchNorm, and that no parameter is idle under calibrated weights."""

import numpy as np
import paddle
import pytest
import torch

from alignment.comparisons.context import Context
from alignment.frameworks.paddle import Paddle
from alignment.frameworks.torch import Torch
from alignment.models.calibration import calibrated_state
from mobilenetv3_common import train_config
from mobilenetv3_paddle.models import MODELS, BatchNorm2D
from mobilenetv3_ref.models import MODELS as REF_MODELS
from projects.mobilenetv3.project import PROJECT
from tests.conftest import LARGE, SMALL, relative_l2


def test_both_packages_have_the_models_that_the_recipes_name():
    assert tuple(MODELS) == tuple(REF_MODELS) == train_config.MODELS


@pytest.mark.parametrize(("name", "count"), [(SMALL, 2_542_856), (LARGE, 5_483_032)])
def test_parameter_count(name, count):
    model = MODELS[name]()
    assert sum(p.size for p in model.parameters() if not p.stop_gradient) == count
    # Paddle counts BatchNorm statistics among the parameters: more tensors than torch has.
    assert len(model.parameters()) > len(list(REF_MODELS[name]().parameters()))


@pytest.mark.parametrize("name", [SMALL, LARGE])
@pytest.mark.parametrize("width", [0.35, 0.75, 1.0, 1.4])
@pytest.mark.parametrize(("reduced", "dilated"), [(False, False), (True, False), (False, True), (True, True)])
def test_structure_is_torchvisions(name, width, reduced, dilated):
    options = {"num_classes": 17, "width_mult": width, "reduced_tail": reduced, "dilated": dilated, "dropout": 0.3}
    ours, theirs = MODELS[name](**options), REF_MODELS[name](**options)
    expected = {k: tuple(v.shape) for k, v in theirs.state_dict().items() if not k.endswith("num_batches_tracked")}
    found = {entry.canonical: entry.shape for entry in Paddle().entries(ours)}
    assert found == expected and list(found) == list(expected)
    convs = [(tuple(m._stride), tuple(m._dilation), m._groups) for m in ours.sublayers() if isinstance(m, paddle.nn.Conv2D)]
    assert convs == [(m.stride, m.dilation, m.groups) for m in theirs.modules() if isinstance(m, torch.nn.Conv2d)]
    shortcuts = [m.use_res_connect for m in ours.sublayers() if hasattr(m, "use_res_connect")]
    assert shortcuts == [m.use_res_connect for m in theirs.modules() if hasattr(m, "use_res_connect")]
    assert ours.classifier[2].p == theirs.classifier[2].p == 0.3


@pytest.mark.parametrize("options", [{"dilated": True}, {"reduced_tail": True}, {"num_classes": 10, "dropout": 0.5}])
def test_options_compute_what_torchvision_computes(options):
    context = Context(PROJECT, given_state=calibrated_state(PROJECT, SMALL, size=64, **options), options=options)
    images = np.random.default_rng(0).normal(size=(2, 3, 64, 64))
    logits = []
    for role, side in context.sides.items():
        logits.append(side.framework.call(context.networks.build(role, exact=True), (images,)).outputs[0])
    assert relative_l2(*logits) < 1e-12


def initial_statistics(arrays: dict[str, list[np.ndarray]]) -> dict[str, tuple[float, float]]:
    return {k: (float(np.mean(v)), float(np.std(v))) for k, v in arrays.items()}


def test_initialisation_has_torchvisions_statistics():
    drawn: dict[str, dict[str, list[np.ndarray]]] = {"paddle": {}, "ref": {}}
    for seed in range(6):
        paddle.seed(seed)
        torch.manual_seed(seed)
        sides = {"paddle": Paddle().state(MODELS[SMALL]()), "ref": Torch().state(REF_MODELS[SMALL]())}
        for side, state in sides.items():
            for name, array in state.items():
                drawn[side].setdefault(name, []).append(array)
    ours, theirs = initial_statistics(drawn["paddle"]), initial_statistics(drawn["ref"])
    for name, (mean, std) in theirs.items():
        count = 6 * drawn["ref"][name][0].size
        # Five standard errors of two independent samples' mean and standard deviation.
        assert abs(ours[name][0] - mean) <= 5 * std * (2 / count) ** 0.5 + 1e-12, name
        assert abs(ours[name][1] - std) <= 5 * std * (1 / count) ** 0.5 + 1e-12, name
    # He normal over fan_out, the first convolution's 16 x 9 here.
    assert ours["features.0.0.weight"][1] == pytest.approx((2 / (16 * 9)) ** 0.5, rel=0.1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batch_norm_keeps_torchs_statistics(dtype):
    rng = np.random.default_rng(0)
    ours, theirs = BatchNorm2D(6, eps=0.001, momentum=0.01), torch.nn.BatchNorm2d(6, eps=float(np.float32(0.001)), momentum=0.01)
    ours, theirs = ours.to(dtype=dtype), theirs.to(getattr(torch, dtype))
    for _ in range(4):
        x = (rng.normal(size=(2, 6, 3, 3)) * 3 + 1).astype(dtype)
        out, expected = ours(paddle.to_tensor(x)).numpy(), theirs(torch.tensor(x)).detach().numpy()
    bound = 1e-6 if dtype == "float32" else 1e-14
    assert relative_l2(out, expected) < bound
    assert relative_l2(ours._mean.numpy(), theirs.running_mean.numpy()) < bound
    assert relative_l2(ours._variance.numpy(), theirs.running_var.numpy()) < bound
    # Stock Paddle takes the biased variance: with n = 18 values a channel that is far outside the bound.
    stock = paddle.nn.BatchNorm2D(6, epsilon=0.001, momentum=0.99).to(dtype=dtype)
    stock(paddle.to_tensor(x))
    once = torch.nn.BatchNorm2d(6, eps=0.001, momentum=0.01).to(getattr(torch, dtype))
    once(torch.tensor(x))
    assert relative_l2(stock._variance.numpy(), once.running_var.numpy()) > 1e-4


def test_batch_norm_refuses_one_value_a_channel_in_training():
    layer = BatchNorm2D(4)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        layer(paddle.ones([1, 4, 1, 1]))
    layer.eval()
    assert layer(paddle.ones([1, 4, 1, 1])).shape == [1, 4, 1, 1]


def test_no_parameter_is_idle_under_calibrated_weights(small_state, context):
    """Otherwise a port that ignores a parameter would pass the forward step."""
    framework, network = Torch(), context().networks.build("reference")
    images = np.random.default_rng(1).normal(size=(2, 3, 96, 96)).astype(np.float32)
    before = framework.call(network, (images,)).outputs[0]
    assert 0.3 < before.std() < 10
    for name, array in small_state.items():
        framework.load(network, {**small_state, name: np.full_like(array, array.mean() * 1.5 + 0.1)})
        assert relative_l2(framework.call(network, (images,)).outputs[0], before) > 1e-3, name
        framework.load(network, small_state)


def test_fresh_weights_would_make_every_check_vacuous():
    torch.manual_seed(0)
    network = REF_MODELS[SMALL]().eval()
    with torch.no_grad():
        assert network(torch.randn(2, 3, 224, 224)).abs().max() < 1e-7
