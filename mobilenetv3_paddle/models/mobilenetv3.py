"""MobileNetV3 (Howard et al. 2019, https://arxiv.org/abs/1905.02244), with torchvision's options and parameter names."""

from __future__ import annotations

from dataclasses import dataclass, replace

import paddle
import paddle.nn.functional as F
from paddle import nn

from mobilenetv3_paddle.models.norm import BatchNorm2D

# Rows of the paper's tables 1 and 2: kernel, expansion, output channels, squeeze-excitation, activation, stride.
# The last three rows (C4) are the tail that ``reduced_tail`` halves and ``dilated`` dilates.
_TAIL = 3
_SMALL = (
    (3, 16, 16, True, "RE", 2),
    (3, 72, 24, False, "RE", 2),
    (3, 88, 24, False, "RE", 1),
    (5, 96, 40, True, "HS", 2),
    (5, 240, 40, True, "HS", 1),
    (5, 240, 40, True, "HS", 1),
    (5, 120, 48, True, "HS", 1),
    (5, 144, 48, True, "HS", 1),
    (5, 288, 96, True, "HS", 2),
    (5, 576, 96, True, "HS", 1),
    (5, 576, 96, True, "HS", 1),
)
_LARGE = (
    (3, 16, 16, False, "RE", 1),
    (3, 64, 24, False, "RE", 2),
    (3, 72, 24, False, "RE", 1),
    (5, 72, 40, True, "RE", 2),
    (5, 120, 40, True, "RE", 1),
    (5, 120, 40, True, "RE", 1),
    (3, 240, 80, False, "HS", 2),
    (3, 200, 80, False, "HS", 1),
    (3, 184, 80, False, "HS", 1),
    (3, 184, 80, False, "HS", 1),
    (3, 480, 112, True, "HS", 1),
    (3, 672, 112, True, "HS", 1),
    (5, 672, 160, True, "HS", 2),
    (5, 960, 160, True, "HS", 1),
    (5, 960, 160, True, "HS", 1),
)
_ACTIVATIONS = {"RE": nn.ReLU, "HS": nn.Hardswish}


@dataclass(frozen=True)
class BlockConfig:
    """One row: an inverted residual block, in channels after widening. A dilated row runs with stride 1."""

    in_channels: int
    kernel: int
    expanded_channels: int
    out_channels: int
    use_se: bool
    activation: str
    stride: int
    dilation: int = 1


def make_divisible(channels: float, divisor: int = 8) -> int:
    """The multiple of ``divisor`` nearest to ``channels``, at least ``divisor`` and never below 90 % of ``channels``."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * channels else rounded


def block_configs(table: tuple, width_mult: float, reduced_tail: bool, dilated: bool) -> list[BlockConfig]:
    """The table's rows with their channels widened, and the tail reduced or dilated."""
    configs = []
    in_channels = 16
    for number, (kernel, expanded, out, use_se, activation, stride) in enumerate(table):
        tail_row = number - (len(table) - _TAIL)
        divider = 2 if reduced_tail and tail_row >= 0 else 1
        out //= divider
        if tail_row > 0:  # the first row of the tail still expands the full-width body
            expanded //= divider
        row = BlockConfig(in_channels, kernel, expanded, out, use_se, activation, stride)
        if dilated and tail_row >= 0:
            row = replace(row, dilation=2)
        configs.append(row)
        in_channels = out
    widen = lambda channels: make_divisible(channels * width_mult)  # noqa: E731
    return [
        replace(
            row,
            in_channels=widen(row.in_channels),
            expanded_channels=widen(row.expanded_channels),
            out_channels=widen(row.out_channels),
        )
        for row in configs
    ]


class Hardsigmoid(nn.Layer):
    """relu6(x + 3) / 6. Paddle's own layer has the slope 0.1666667, which is 1e-7 off."""

    def forward(self, input: paddle.Tensor) -> paddle.Tensor:
        return F.hardsigmoid(input, slope=1 / 6, offset=0.5)


class ConvNormActivation(nn.Sequential):
    """Convolution without bias, batch normalisation, activation ("RE" ReLU, "HS" Hardswish, None none)."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int,
        activation: str | None,
        stride: int = 1,
        groups: int = 1,
        dilation: int = 1,
    ) -> None:
        padding = (kernel - 1) // 2 * dilation
        layers: list[nn.Layer] = [
            nn.Conv2D(in_channels, out_channels, kernel, stride, padding, dilation=dilation, groups=groups, bias_attr=False),
            BatchNorm2D(out_channels, eps=0.001, momentum=0.01),
        ]
        if activation is not None:
            layers.append(_ACTIVATIONS[activation]())
        super().__init__(*layers)


class SqueezeExcitation(nn.Layer):
    """Scale channels by a gate computed from their global averages (paper section 5.3): ReLU inside, hard sigmoid out."""

    def __init__(self, channels: int, squeeze_channels: int) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2D(1)
        self.fc1 = nn.Conv2D(channels, squeeze_channels, 1)
        self.fc2 = nn.Conv2D(squeeze_channels, channels, 1)
        self.activation = nn.ReLU()
        self.scale_activation = Hardsigmoid()

    def forward(self, input: paddle.Tensor) -> paddle.Tensor:
        scale = self.activation(self.fc1(self.avgpool(input)))
        return self.scale_activation(self.fc2(scale)) * input


class InvertedResidual(nn.Layer):
    """Expand 1x1, depthwise, squeeze-excitation, project 1x1; plus the input where shapes allow (paper section 5)."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.use_res_connect = config.stride == 1 and config.in_channels == config.out_channels
        expanded = config.expanded_channels
        layers: list[nn.Layer] = []
        if expanded != config.in_channels:
            layers.append(ConvNormActivation(config.in_channels, expanded, 1, config.activation))
        layers.append(
            ConvNormActivation(
                expanded,
                expanded,
                config.kernel,
                config.activation,
                stride=1 if config.dilation > 1 else config.stride,
                groups=expanded,
                dilation=config.dilation,
            )
        )
        if config.use_se:
            layers.append(SqueezeExcitation(expanded, make_divisible(expanded // 4)))
        layers.append(ConvNormActivation(expanded, config.out_channels, 1, None))
        self.block = nn.Sequential(*layers)

    def forward(self, input: paddle.Tensor) -> paddle.Tensor:
        output = self.block(input)
        return output + input if self.use_res_connect else output


class MobileNetV3(nn.Layer):
    """The network: first convolution, blocks, last convolution, average pooling, classifier of two linear layers.

    Args:
        configs: one row a block.
        last_channels: width of the hidden layer of the classifier.
        num_classes: outputs, at least 1.
        dropout: probability of dropout before the last layer, 0..1.
    """

    def __init__(self, configs: list[BlockConfig], last_channels: int, num_classes: int = 1000, dropout: float = 0.2) -> None:
        super().__init__()
        tail_channels = 6 * configs[-1].out_channels
        self.features = nn.Sequential(
            ConvNormActivation(3, configs[0].in_channels, 3, "HS", stride=2),
            *[InvertedResidual(config) for config in configs],
            ConvNormActivation(configs[-1].out_channels, tail_channels, 1, "HS"),
        )
        self.avgpool = nn.AdaptiveAvgPool2D(1)
        self.classifier = nn.Sequential(
            nn.Linear(tail_channels, last_channels),
            nn.Hardswish(),
            nn.Dropout(dropout),
            nn.Linear(last_channels, num_classes),
        )
        self.apply(_init_weights)

    def forward(self, input: paddle.Tensor) -> paddle.Tensor:
        """Logits (N, num_classes) of normalised pictures (N, 3, H, W)."""
        features = self.avgpool(self.features(input))
        return self.classifier(paddle.flatten(features, 1))


def _init_weights(layer: nn.Layer) -> None:
    # torchvision's: He normal over fan_out (output channels x kernel area, groups not divided out) for convolutions,
    # standard deviation 0.01 for linear layers, zero biases. BatchNorm starts at weight 1 and bias 0 by itself.
    if isinstance(layer, nn.Conv2D):
        fan_out = layer.weight.shape[0] * layer.weight.shape[2] * layer.weight.shape[3]
        nn.initializer.Normal(0.0, (2.0 / fan_out) ** 0.5)(layer.weight)
    elif isinstance(layer, nn.Linear):
        nn.initializer.Normal(0.0, 0.01)(layer.weight)
    if isinstance(layer, (nn.Conv2D, nn.Linear)) and layer.bias is not None:
        nn.initializer.Constant(0.0)(layer.bias)


def _build(
    table: tuple, last_channels: int, num_classes: int, width_mult: float, reduced_tail: bool, dilated: bool, dropout: float
) -> MobileNetV3:
    configs = block_configs(table, width_mult, reduced_tail, dilated)
    last_channels = make_divisible(last_channels // (2 if reduced_tail else 1) * width_mult)
    return MobileNetV3(configs, last_channels, num_classes, dropout)


def mobilenet_v3_small(
    num_classes: int = 1000, *, width_mult: float = 1.0, reduced_tail: bool = False, dilated: bool = False, dropout: float = 0.2
) -> MobileNetV3:
    """MobileNetV3-Small (paper table 2): 2,542,856 parameters with the default arguments.

    Args:
        num_classes: outputs.
        width_mult: multiplies every channel count; results are rounded to multiples of 8.
        reduced_tail: halve the channels of the last stage (C4 and on), for detection and segmentation.
        dilated: dilate the last stage instead of striding, for segmentation.
        dropout: probability of dropout before the last layer.
    """
    return _build(_SMALL, 1024, num_classes, width_mult, reduced_tail, dilated, dropout)


def mobilenet_v3_large(
    num_classes: int = 1000, *, width_mult: float = 1.0, reduced_tail: bool = False, dilated: bool = False, dropout: float = 0.2
) -> MobileNetV3:
    """MobileNetV3-Large (paper table 1): 5,483,032 parameters with the default arguments.

    Args:
        num_classes: outputs.
        width_mult: multiplies every channel count; results are rounded to multiples of 8.
        reduced_tail: halve the channels of the last stage (C4 and on), for detection and segmentation.
        dilated: dilate the last stage instead of striding, for segmentation.
        dropout: probability of dropout before the last layer.
    """
    return _build(_LARGE, 1280, num_classes, width_mult, reduced_tail, dilated, dropout)
