"""What the frameworks themselves do on the pinned versions, where a port would not expect it.

docs/known_differences.md names these tests. One that fails after an upgrade says that a difference is gone, and that what is
done about it in this project can go too.
"""

from __future__ import annotations

import inspect
import textwrap

import cv2
import numpy as np
import paddle
import pytest
import torch
import torchvision
from PIL import Image

from tests.conftest import LITE_DATA, run_command


def test_stock_batch_norm_trains_neither_parameter_where_one_is_frozen():
    layer = paddle.nn.BatchNorm2D(3)
    layer.weight.stop_gradient = True
    (layer(paddle.randn([4, 3, 5, 5])) ** 3).sum().backward()
    assert layer.bias.grad is None, "Paddle gives it a gradient now"


def test_stock_batch_norm_goes_on_with_one_value_a_channel():
    ones = [1, 4, 1, 1]
    assert np.isfinite(paddle.nn.BatchNorm2D(4)(paddle.ones(ones)).numpy()).all()
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        torch.nn.BatchNorm2d(4)(torch.ones(ones))


def test_stock_batch_norm_counts_its_statistics_as_parameters():
    assert [name for name, _ in paddle.nn.BatchNorm2D(4).named_parameters()] == ["weight", "bias", "_mean", "_variance"]
    assert [name for name, _ in torch.nn.BatchNorm2d(4).named_parameters()] == ["weight", "bias"]


def test_paddle_has_no_half_precision_kernels_of_convolution_and_normalisation_on_a_cpu():
    conv, norm, x = paddle.nn.Conv2D(3, 4, 3), paddle.nn.BatchNorm2D(3), paddle.ones([1, 3, 8, 8])
    for dtype in ("bfloat16", "float16"):
        conv.to(dtype=dtype)
        for layer in (conv, norm):
            with pytest.raises((RuntimeError, TypeError, ValueError, NotImplementedError)):
                layer(x.astype(dtype))
    half = torch.ones(1, 3, 8, 8, dtype=torch.bfloat16)
    assert torch.nn.BatchNorm2d(3)(half).dtype == torch.nn.Conv2d(3, 4, 3, dtype=torch.bfloat16)(half).dtype == torch.bfloat16


def test_depthwise_convolution_is_not_on_paddles_list_of_half_precision():
    from paddle.amp.amp_lists import black_list, white_list

    for dtype in ("bfloat16", "float16"):
        assert "conv2d" in white_list()[dtype]["O1"] and "depthwise_conv2d" not in white_list()[dtype]["O1"]
        assert "depthwise_conv2d" not in black_list()[dtype]["O1"], (
            "so it runs in the widest type it is given: its weights' float32"
        )
    depthwise = torch.nn.Conv2d(4, 4, 3, groups=4)
    with torch.autocast("cpu", torch.bfloat16):
        assert depthwise(torch.ones(1, 4, 8, 8)).dtype == torch.bfloat16


def test_paddles_loss_scaler_does_nothing_on_a_cpu():
    with pytest.warns(UserWarning, match="makes no effect"):
        assert not paddle.amp.GradScaler(True, 2.0**16).is_enable()
    assert torch.amp.GradScaler("cpu").is_enabled()


def test_a_linear_weight_is_the_other_way_round():
    assert (paddle.nn.Linear(3, 5).weight.shape, list(torch.nn.Linear(3, 5).weight.shape)) == ([3, 5], [5, 3])


def test_stock_initialisation_goes_by_all_input_channels():
    def spread(layer):
        return float(layer.weight.numpy().std())

    paddle.seed(0)
    fan_out = (2 / (64 * 9)) ** 0.5
    assert spread(paddle.nn.Conv2D(16, 64, 3)) == pytest.approx(2 * fan_out, rel=0.1)
    assert spread(paddle.nn.Conv2D(64, 64, 3, groups=64)) == pytest.approx(fan_out, rel=0.1)
    assert spread(paddle.nn.Linear(576, 1024)) > 0.03, "torchvision's MobileNetV3 has 0.01"


def test_stock_cross_entropy_saturates_at_64():
    """Its gradient is right: the value alone reads too low."""
    logits, label = np.array([[500, 0]], np.float32), np.array([1])
    assert float(paddle.nn.functional.cross_entropy(paddle.to_tensor(logits), paddle.to_tensor(label))) == 64
    assert float(torch.nn.functional.cross_entropy(torch.tensor(logits), torch.tensor(label))) == 500
    assert paddle.nn.functional.log_softmax(paddle.to_tensor(logits.astype(np.float64))).numpy().min() == -64


def test_a_float32_sum_rounds_once_a_value():
    values = np.random.default_rng(0).random((200, 1000), np.float32)
    truth = values.sum(1, dtype=np.float64)

    def error(sums):
        return np.abs(sums - truth).mean()

    assert error(paddle.to_tensor(values).sum(1).numpy()) > 5 * error(torch.tensor(values).sum(1).numpy())


def test_a_cosine_schedulers_get_lr_is_a_step_ahead():
    schedule = paddle.optimizer.lr.CosineAnnealingDecay(0.1, T_max=10)
    for _ in range(3):
        schedule.step()
    present = 0.1 * (1 + np.cos(np.pi * 3 / 10)) / 2
    assert schedule() == pytest.approx(present, rel=1e-12)
    assert abs(schedule.get_lr() - present) > 5e-3


def test_a_schedule_with_restarts_forgets_its_place():
    def made():
        return paddle.optimizer.lr.CosineAnnealingWarmRestarts(0.1, T_0=3)

    schedule, resumed = made(), made()
    schedule.step()
    resumed.set_state_dict(schedule.state_dict())
    for one in (schedule, resumed):
        one.step()
    assert abs(schedule() - resumed()) > 1e-3


def test_a_group_puts_nesterov_back_to_the_constructors():
    weight = paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(0.0))
    optimizer = paddle.optimizer.Momentum(1.0, 0.5, parameters=[{"params": [weight]}], use_nesterov=False)
    optimizer._use_nesterov = True
    weight.sum().backward()
    optimizer.step()
    assert weight.numpy()[0] == -1.0, "nesterov would have gone 1.5"


def test_the_loss_of_a_logit_that_is_no_number_is_a_number():
    loss = paddle.nn.functional.cross_entropy(paddle.full([1, 1000], float("nan")), paddle.to_tensor([3]))
    assert float(loss) == pytest.approx(np.log(1000), abs=1e-4)
    assert torch.isnan(torch.nn.functional.cross_entropy(torch.full([1, 1000], float("nan")), torch.tensor([3])))


def test_stock_synchronised_batch_norm_has_no_cpu_kernel():
    with pytest.raises((RuntimeError, NotImplementedError, ValueError), match=r"(?i)sync_batch_norm"):
        paddle.nn.SyncBatchNorm(4)(paddle.rand([2, 4, 3, 3]))


def test_paddle_has_no_automatic_augmentation():
    names = {name for name, _ in inspect.getmembers(paddle.vision.transforms)}
    assert not names & {"AutoAugment", "RandAugment", "TrivialAugment", "TrivialAugmentWide"}


def test_the_gradient_of_a_mean_over_a_window_is_float32():
    x = paddle.ones([1, 1, 3, 3], dtype="float64")
    x.stop_gradient = False
    paddle.nn.AvgPool2D(3)(x).sum().backward()
    assert 1e-10 < abs(float(x.grad[0, 0, 0, 0]) - 1 / 9) < 1e-7


def test_a_stock_loader_keeps_its_workers_error_to_itself():
    """The loop is told of a queue, and not of the picture."""
    code = """
        import paddle

        class Bad(paddle.io.Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, index):
                raise OSError("cat_1.JPEG is damaged")

        try:
            list(paddle.io.DataLoader(Bad(), num_workers=1))
        except SystemError as error:
            print(error)
    """
    done = run_command("-c", textwrap.dedent(code), timeout=60)
    assert "Blocking queue is killed" in done.stdout and "cat_1" not in done.stdout, done.stderr


def test_paddles_resize_of_an_array_is_not_its_resize_of_a_picture():
    """OpenCV's bilinear resize has no antialiasing, Pillow's has."""
    picture = Image.open(LITE_DATA / "val" / "cat" / "cat_0.JPEG").convert("RGB")
    resize = paddle.vision.transforms.Resize(72)
    apart = np.abs(np.asarray(resize(picture), int) - np.asarray(resize(np.asarray(picture)), int))
    assert apart.max() > 20
    assert np.array_equal(np.asarray(resize(picture)), np.asarray(torchvision.transforms.Resize(72)(picture)))


def test_opencv_turns_pictures_by_their_tag_and_pillow_does_not(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    Image.new("RGB", (4, 2)).save(tmp_path / "turned.jpg", exif=exif)
    assert Image.open(tmp_path / "turned.jpg").size == (4, 2)
    assert cv2.imread(str(tmp_path / "turned.jpg")).shape[:2] == (4, 2), "height 4: it was turned"
    assert cv2.imread(str(tmp_path / "turned.jpg"), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION).shape[:2] == (2, 4)


def test_pillow_clips_sixteen_bit_grey():
    dark = Image.fromarray(np.full((2, 2), 20 * 257, dtype=np.uint16))
    assert np.asarray(dark.convert("RGB")).max() == 255


def test_opencv_fills_a_cut_off_jpeg(tmp_path):
    whole = next((LITE_DATA / "val" / "cat").glob("*.JPEG")).read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    assert cv2.imread(str(tmp_path / "cut.jpg")) is not None
    with pytest.raises(OSError, match="truncated"):
        Image.open(tmp_path / "cut.jpg").load()


GRAPHS = """
import gc, sys, paddle

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4 / 1024

def once(read):
    x = paddle.rand([1024, 1024, 2])
    x.stop_gradient = False
    loss = (x * 2).exp().sum()
    if read:
        loss.grad_fn
    if read == "and goes back":
        loss.backward()

for read in ("", "reads", "and goes back"):
    for _ in range(3):
        once("")
    gc.collect()
    before = resident()
    for _ in range(8):
        once(read)
    gc.collect()
    print(round(resident() - before))
"""


def test_reading_grad_fn_keeps_the_graph_for_ever():
    """Of eight graphs of 8 MiB or more each, all eight are kept."""
    nothing, read, back = map(int, run_command("-W", "ignore", "-c", GRAPHS).stdout.split())
    assert abs(nothing) < 8 and read >= 56 and back < 16


def test_a_cast_to_whole_numbers_passes_a_gradient_of_whole_numbers():
    x = paddle.to_tensor([1.5, 2.5], stop_gradient=False)
    whole = x.cast("int32").cast("float32")
    (gradient,) = paddle.grad([whole], [x], [paddle.to_tensor([0.6, 2.6])])
    assert gradient.tolist() == [0.0, 2.0]
    assert not torch.tensor([1.5], requires_grad=True).int().requires_grad


def test_a_byte_has_a_sign():
    assert paddle.to_tensor([200.0]).cast("byte").tolist() == [-56] and torch.tensor([200.0]).byte().tolist() == [200]


def test_whole_numbers_are_divided_in_float32():
    before = paddle.get_default_dtype()
    try:
        paddle.set_default_dtype("float64")
        assert (paddle.to_tensor([1, 2]) / 3).dtype == (paddle.to_tensor([1, 2]) * 0.1).dtype == paddle.float32
    finally:
        paddle.set_default_dtype(before)


GRID = """
import paddle

grid = paddle.rand([1, 3, 3, 2])
grid.stop_gradient = False
picture = paddle.rand([1, 2, 5, 5])
picture.stop_gradient = WANTED
paddle.nn.functional.grid_sample(picture, grid).sum().backward()
print(grid.grad.shape)
"""


def test_the_gradient_of_a_grid_alone_ends_the_process():
    assert "3, 3, 2" in run_command("-W", "ignore", "-c", GRID.replace("WANTED", "False")).stdout
    assert run_command("-W", "ignore", "-c", GRID.replace("WANTED", "True")).returncode < 0, "Paddle gives it now"
