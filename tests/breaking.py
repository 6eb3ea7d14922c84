"""What the breakage tables of the steps share: ways to break one piece of the Paddle side."""

from __future__ import annotations

from paddle import nn

from alignment.sides import PaddleSide
from mobilenetv3_paddle.loss import CrossEntropyLoss
from mobilenetv3_paddle.models import mobilenet_v3_small
from tests.conftest import SMALL


def broken_model(change):
    """A Paddle side whose model is changed after it is built."""

    def build(*args, **kwargs):
        model = mobilenet_v3_small(*args, **kwargs)
        return change(model) or model

    return PaddleSide(models={"MODELS": {SMALL: build}})


def each(model, kind):
    return [layer for layer in model.sublayers() if isinstance(layer, kind)]


def replace_all(model, kind, make):
    for parent in model.sublayers(include_self=True):
        for name, child in list(parent.named_children()):
            if type(child) is kind:
                setattr(parent, name, make(child))


def dropout_missing(model):
    replace_all(model, nn.Dropout, lambda _: nn.Identity())


def loss_of(function):
    class Loss(CrossEntropyLoss):
        def forward(self, logits, labels):
            return function(self, logits, labels)

    return lambda: PaddleSide(loss={"CrossEntropyLoss": Loss})


def without(**changes):
    def function(self, logits, labels):
        kept = {"label_smoothing": self.label_smoothing, "ignore_index": self.ignore_index, **changes}
        return CrossEntropyLoss(**kept)(logits, labels)

    return loss_of(function)
