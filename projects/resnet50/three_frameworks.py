"""ResNet in MindSpore and in Paddle against torchvision's: two ports of one reference, and one table of both.

    python -m alignment run projects/resnet50/three_frameworks.py --model resnet18_cifar

The models, data and recipe are those of ``mindspore_project.py``; Paddle's parts are the package's.
"""

from __future__ import annotations

from dataclasses import replace

from projects.resnet50 import mindspore_project  # isort: skip  (before anything of Paddle)

import mobilenetv3_paddle.data
import mobilenetv3_paddle.loss
import mobilenetv3_paddle.metric
import mobilenetv3_paddle.train
from alignment.frameworks.paddle import Paddle
from alignment.project import Project, Side
from projects.resnet50.models import in_paddle

PADDLE = Side(
    Paddle(),
    data=mobilenetv3_paddle.data,
    metric=mobilenetv3_paddle.metric,
    loss=mobilenetv3_paddle.loss,
    train=mobilenetv3_paddle.train,
)
IN_MINDSPORE = mindspore_project.PROJECT
IN_PADDLE = replace(
    IN_MINDSPORE,
    name="resnet50_paddle",
    port=PADDLE,
    models={
        # paddle.vision's own initialisation is not torchvision's; both sides are trained from the reference's weights.
        name: replace(spec, port=getattr(in_paddle, name.partition("_")[0]), initialisation=False)
        for name, spec in IN_MINDSPORE.models.items()
    },
)
PROJECTS: dict[str, Project] = {"mindspore": IN_MINDSPORE, "paddle": IN_PADDLE}
