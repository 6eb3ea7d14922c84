"""Is a fresh model's spread torchvision's? Run: python docs/examples/initialisation.py"""

import paddle
import torch

import mobilenetv3_paddle.models
import mobilenetv3_ref.models

LAYERS = {
    "features.0.0": "first convolution",
    "features.1.block.0.0": "depthwise",
    "features.2.block.0.0": "pointwise",
    "features.1.block.1.fc1": "squeeze",
    "classifier.0": "linear",
}


def spread(model, name: str) -> float:
    return float(dict(model.named_parameters())[f"{name}.weight"].detach().numpy().std())


def stock(layer: paddle.nn.Layer) -> paddle.nn.Layer:
    """A layer of the same shape as Paddle initialises it when it is not told how."""
    if isinstance(layer, paddle.nn.Linear):
        return paddle.nn.Linear(*layer.weight.shape)
    channels, per_group, *kernel = layer.weight.shape
    groups = channels if per_group == 1 else 1
    return paddle.nn.Conv2D(per_group * groups, channels, kernel, groups=groups)


paddle.seed(0)
torch.manual_seed(0)
port = mobilenetv3_paddle.models.mobilenet_v3_small()
reference = mobilenetv3_ref.models.mobilenet_v3_small()
layers = dict(port.named_sublayers())
print(f"{'layer':22} {'kind':17} torch  ours          stock Paddle")
for name, kind in LAYERS.items():
    expected, ours, default = spread(reference, name), spread(port, name), float(stock(layers[name]).weight.numpy().std())
    verdict = "right" if abs(ours / expected - 1) < 0.2 else "WRONG"
    print(f"{name:22} {kind:17} {expected:.3f} {ours:.3f} {verdict}   {default:.3f} ({default / expected:.2f} x)")
