"""paddle.vision's ResNet-50 against torchvision's, with MobileNetV3's data, metric, loss and training code.

Neither network is ours. In evaluation mode the two agree; in training mode they do not, since ``paddle.nn.BatchNorm2D`` keeps
the biased variance: ``--model resnet50_stock`` shows it. ``resnet50`` is the same port with the fix, one line: the package's
BatchNorm2D, which keeps torch's statistics, in the stock one's place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import paddle.vision.models
from paddle import nn

import mobilenetv3_paddle.data
import mobilenetv3_paddle.loss
import mobilenetv3_paddle.metric
import mobilenetv3_paddle.train
import mobilenetv3_ref.data
import mobilenetv3_ref.loss
import mobilenetv3_ref.metric
import mobilenetv3_ref.train  # mobilenetv3_ref makes torchvision importable beside a CPU build of torch
from alignment.frameworks.paddle import Paddle
from alignment.frameworks.torch import Torch
from alignment.project import ModelSpec, Project, Side
from projects.resnet50.models.in_paddle import with_torch_statistics
from projects.witnesses import WITNESSES

import torchvision.models  # isort: skip


def spec(depth: int, fixed: bool) -> ModelSpec:
    """ResNet of a depth (18, 34, 50, ...): the fixed port, or the stock one."""
    stock = getattr(paddle.vision.models, f"resnet{depth}")

    def port(zero_init_residual: bool = False, **options: Any) -> nn.Layer:
        """paddle.vision has no such initialisation; the weights that are trained are the reference's on both sides."""
        return with_torch_statistics(stock(**options)) if fixed else stock(**options)

    return ModelSpec(
        port=port,
        reference=getattr(torchvision.models, f"resnet{depth}"),
        input_shape=(3, 224, 224),
        small_shape=(3, 48, 48),
        last_layer="fc",
        options_of=lambda state: {"num_classes": state["fc.bias"].shape[0]},
        train_options=lambda recipe: {"zero_init_residual": True},  # a deep network from scratch learns little without it
        updates=5,
        initialisation=False,  # paddle.vision's own is not torchvision's; both sides are trained from the reference's weights
    )


PROJECT = Project(
    name="resnet50",
    port=Side(
        Paddle(),
        data=mobilenetv3_paddle.data,
        metric=mobilenetv3_paddle.metric,
        loss=mobilenetv3_paddle.loss,
        train=mobilenetv3_paddle.train,
    ),
    reference=Side(
        Torch(),
        data=mobilenetv3_ref.data,
        metric=mobilenetv3_ref.metric,
        loss=mobilenetv3_ref.loss,
        train=mobilenetv3_ref.train,
    ),
    models={
        "resnet50": spec(50, fixed=True),
        "resnet50_stock": spec(50, fixed=False),
        "resnet18": spec(18, fixed=True),
        "resnet18_stock": spec(18, fixed=False),
    },
    sample_data=Path(__file__).resolve().parents[2] / "lite_data",
    # Fifty layers without a trained start are chaotic: more draws of the reference's own noise than MobileNetV3 needs.
    train_plan={"iterations": 20, "draws": 5, "lag": 2, "seeds": 2, "epochs": 3},
    recipe={"batch_size": 16, "lr": 2.0**-10},
    witnesses=WITNESSES,
)
