"""A check that cannot fail is a defect: breakages of what step 4 compares, each of which must fail the step."""

from __future__ import annotations

import paddle.nn.functional as F
import pytest

from alignment.steps import loss
from mobilenetv3_paddle.loss import CrossEntropyLoss
from tests.breaking import loss_of, without


def paddles_own(self, logits, labels):
    if self.label_smoothing > 0 and labels.ndim == 1 and (labels < 0).any():
        return CrossEntropyLoss.forward(self, logits, labels)  # Paddle's own raises here
    return F.cross_entropy(
        logits, labels, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing, soft_label=labels.ndim == 2
    )


LOSS = {
    "Paddle's own, which saturates": loss_of(paddles_own),
    "summed": loss_of(lambda self, x, y: CrossEntropyLoss.forward(self, x, y) * x.shape[0]),
    "smoothing forgotten": without(label_smoothing=0.0),
    "ignored index counted": without(ignore_index=-1000),
    "soft labels hardened": loss_of(lambda self, x, y: CrossEntropyLoss.forward(self, x, y.argmax(1) if y.ndim == 2 else y)),
    "mean over all samples, ignored ones too": loss_of(
        lambda self, x, y: (
            CrossEntropyLoss.forward(self, x, y) * ((y != self.ignore_index).astype(x.dtype).mean() if y.ndim == 1 else 1.0)
        )
    ),
    "smoothed over the other classes only": loss_of(
        lambda self, x, y: CrossEntropyLoss(self.label_smoothing * x.shape[1] / (x.shape[1] - 1), self.ignore_index)(x, y)
    ),
    "always 0": loss_of(lambda self, x, y: (x * 0).sum()),
    "no gradient": loss_of(lambda self, x, y: CrossEntropyLoss.forward(self, x.detach(), y) + (x * 0).sum()),
    "softmax taken twice": loss_of(lambda self, x, y: CrossEntropyLoss.forward(self, F.softmax(x), y)),
}


def test_step_4_passes(context):
    assert loss.run(context()).passed


@pytest.mark.parametrize("breakage", LOSS)
def test_step_4_fails(context, breakage):
    assert not loss.run(context(LOSS[breakage]())).passed
