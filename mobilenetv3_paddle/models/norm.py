"""Batch normalisation that keeps torch's running statistics."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import nn


class BatchNorm2D(nn.BatchNorm2D):
    """``torch.nn.BatchNorm2d`` in Paddle: same arguments, same running statistics.

    Stock Paddle differs in training: its momentum is the share of the old value (0.99 where torch says 0.01), and its
    running variance takes the biased batch variance where torch takes the unbiased one, a gap of
    momentum * var / (n - 1). Here the normalisation is Paddle's own kernel, which returns the batch statistics, and
    the running averages are made from them as torch makes them.

    Args:
        num_features: channels C of the input (N, C, H, W).
        eps: added to the variance.
        momentum: share of the new batch in the running statistics, in torch's sense.

    Raises:
        ValueError: in training, where there is one value a channel, whose variance is unknown (as torch does; stock
            Paddle goes on).
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__(num_features, epsilon=eps, momentum=1.0 - momentum)
        self.eps = eps
        self.momentum = momentum

    def forward(self, input: paddle.Tensor) -> paddle.Tensor:
        if not self.training:
            return F.batch_norm(input, self._mean, self._variance, self.weight, self.bias, training=False, epsilon=self.eps)
        count = input.shape[0] * input.shape[2] * input.shape[3]
        if count <= 1:
            raise ValueError(f"expected more than 1 value per channel in training, got input of shape {tuple(input.shape)}")
        # With momentum 0 the kernel overwrites these two with the statistics of this batch.
        mean, biased_variance = paddle.zeros_like(self._mean), paddle.zeros_like(self._variance)
        output = F.batch_norm(input, mean, biased_variance, self.weight, self.bias, training=True, momentum=0.0, epsilon=self.eps)
        with paddle.no_grad():
            keep, take = 1.0 - self.momentum, self.momentum
            self._mean.set_value(self._mean * keep + mean * take)
            self._variance.set_value(self._variance * keep + biased_variance * (take * count / (count - 1)))
        return output

    def extra_repr(self) -> str:
        return f"{self._num_features}, eps={self.eps}, momentum={self.momentum}"
