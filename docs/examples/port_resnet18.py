"""ResNet-18 from torchvision to Paddle, checked stage by stage. Run: python docs/examples/port_resnet18.py

The port is paddle.vision's own ResNet-18, pipeline and loss. What is found wrong is fixed and checked again.
"""

from pathlib import Path

import mobilenetv3_paddle  # noqa: F401  # isort: skip  # keeps a warning of Paddle's import quiet
import mobilenetv3_ref  # noqa: F401  # isort: skip  # lets PyPI's torchvision be imported beside a CPU build of torch

import numpy as np
import paddle
import torch
import torchvision
from PIL import Image

from alignment.frameworks.paddle import Paddle
from alignment.frameworks.torch import Torch
from alignment.localize import localize
from alignment.models.weights import copy_weights
from alignment.record import save_record
from mobilenetv3_common.train_config import OptimizerConfig
from mobilenetv3_paddle.loss import CrossEntropyLoss
from mobilenetv3_paddle.models import BatchNorm2D
from mobilenetv3_paddle.train import build_optimizer
from mobilenetv3_ref.train import build_optimizer as build_reference_optimizer

PHOTOGRAPHS = sorted(Path("lite_data/val").glob("*/*.JPEG"))[:8]
LABELS = np.arange(8) % 4
RECORDS = Path("output/port_resnet18")
RECORDS.mkdir(parents=True, exist_ok=True)
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def relative_l2(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def fixed(layer: paddle.nn.Layer) -> paddle.nn.Layer:
    """Every BatchNorm replaced by the one that keeps torch's statistics."""
    for name, child in layer.named_children():
        if type(child) is paddle.nn.BatchNorm2D:
            setattr(layer, name, BatchNorm2D(child.weight.shape[0]))
        fixed(child)
    return layer


def models(fix=fixed) -> tuple[paddle.nn.Layer, torch.nn.Module]:
    torch.manual_seed(0)
    reference = torchvision.models.resnet18(num_classes=4)
    port = fix(paddle.vision.models.resnet18(num_classes=4))
    copy_weights(reference, port)
    return port, reference


# 1. Model: evaluation mode, then training mode; fix, and look again.
port, reference = models(fix=lambda layer: layer)
batch = np.random.default_rng(0).standard_normal((4, 3, 64, 64)).astype("float32")
print("model, evaluation:       ", localize(port, reference, batch).verdict())
print("model, training:         ", localize(port, reference, batch, training=True).verdict())
port, reference = models()
print("model, training, fixed:  ", localize(port, reference, batch, training=True).verdict())

# 2. Data: the same photographs through each framework's own evaluation pipeline.
theirs = torchvision.transforms.Compose(
    [torchvision.transforms.Resize(72), torchvision.transforms.CenterCrop(64), torchvision.transforms.ToTensor(),
     torchvision.transforms.Normalize(MEAN, STD)]
)  # fmt: skip
ours = paddle.vision.transforms.Compose(
    [paddle.vision.transforms.Resize(72), paddle.vision.transforms.CenterCrop(64), paddle.vision.transforms.ToTensor(),
     paddle.vision.transforms.Normalize(MEAN, STD)]
)  # fmt: skip
pictures = [Image.open(path).convert("RGB") for path in PHOTOGRAPHS]
pixels = np.stack([theirs(picture).numpy() for picture in pictures])
port_pixels = np.stack([np.asarray(ours(picture)) for picture in pictures])
print(f"data:                     largest difference {np.abs(port_pixels - pixels).max():.1e}")
save_record(RECORDS / "data_paddle.npy", {"pixels": port_pixels})
save_record(RECORDS / "data_ref.npy", {"pixels": pixels})

# 3. Loss, on logits as they come and on logits far apart.
for name, logits in (
    ("as they come", np.random.default_rng(1).standard_normal((8, 4))),
    ("500 apart", np.eye(4)[LABELS - 1] * 500),
):
    truth = float(torch.nn.functional.cross_entropy(torch.tensor(logits), torch.tensor(LABELS)))
    stock = float(paddle.nn.functional.cross_entropy(paddle.to_tensor(logits), paddle.to_tensor(LABELS)))
    ours_too = float(CrossEntropyLoss()(paddle.to_tensor(logits), paddle.to_tensor(LABELS)))
    print(f"loss, logits {name:13} torch {truth:.4f}, Paddle's own {stock:.4f}, this project's {ours_too:.4f}")

# 4. Optimizer: ten updates in exact mode (float64, without the float32 constants of kernels), and settings that float32 holds.
port, reference = models()
port, reference = Paddle().make_exact(port), Torch().make_exact(reference)
settings = OptimizerConfig("sgd", lr=0.03125, momentum=0.875, weight_decay=2.0**-13)
optimizer, reference_optimizer = build_optimizer(port, settings), build_reference_optimizer(reference, settings)
images = pixels.astype("float64")
for _ in range(10):
    with Paddle().exact_calls(), Torch().exact_calls():
        loss = CrossEntropyLoss()(port(paddle.to_tensor(images)), paddle.to_tensor(LABELS))
        reference_loss = torch.nn.functional.cross_entropy(reference(torch.tensor(images)), torch.tensor(LABELS))
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    reference_optimizer.zero_grad()
    reference_loss.backward()
    reference_optimizer.step()
weights = {name: weight.numpy() for name, weight in port.named_parameters()}
weights["fc.weight"] = weights["fc.weight"].T
worst = max(relative_l2(weights[name], weight.detach().numpy()) for name, weight in reference.named_parameters())
print(f"optimizer, ten updates:   weights differ by {worst:.1e} at most")


# 5. Training in float32, held against the reference run again from weights one unit in the last place away.
def losses(model, build, loss, tensor) -> np.ndarray:
    optimizer, curve = build(model, settings), []
    for _ in range(40):
        value = loss(model(tensor(pixels)), tensor(LABELS))
        value.backward()
        optimizer.step()
        (optimizer.clear_grad if hasattr(optimizer, "clear_grad") else optimizer.zero_grad)()
        curve.append(value.item())
    return np.array(curve)


port, reference = models()
_, again = models()
with torch.no_grad():
    for weight in again.parameters():
        weight.copy_(torch.nextafter(weight, torch.full_like(weight, torch.inf)))
entropy = torch.nn.functional.cross_entropy
curves = [
    losses(port, build_optimizer, CrossEntropyLoss(), paddle.to_tensor),
    losses(reference, build_reference_optimizer, entropy, torch.tensor),
    losses(again, build_reference_optimizer, entropy, torch.tensor),
]
apart, envelope = np.abs(curves[0] - curves[1]).max(), np.abs(curves[2] - curves[1]).max()
print(f"training, 40 losses:      {curves[1][0]:.3f} to {curves[1][-1]:.4f}")
print(f"                          apart by {apart:.1e}, the reference from itself by {envelope:.1e}")
print("right" if worst < 1e-12 and apart < 10 * envelope else "WRONG")
