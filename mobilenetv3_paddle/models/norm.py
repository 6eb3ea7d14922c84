"""Batch normalisation that keeps torch's running statistics, alone or over all ranks."""

from __future__ import annotations

import paddle
import paddle.distributed as dist
import paddle.nn.functional as F
from paddle import nn
from paddle.autograd import PyLayer


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

    Attributes:
        synchronized: take the statistics over the samples of all ranks, as ``torch.nn.SyncBatchNorm`` does.
            (``paddle.nn.SyncBatchNorm`` has stock Paddle's running statistics, and no CPU kernel.)

    Raises:
        ValueError: in training, where there is one value a channel, whose variance is unknown (as torch does; stock
            Paddle goes on).
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__(num_features, epsilon=eps, momentum=1.0 - momentum)
        self.eps = eps
        self.momentum = momentum
        self.synchronized = False

    def forward(self, input: paddle.Tensor) -> paddle.Tensor:
        if not self.training:
            return F.batch_norm(input, self._mean, self._variance, self.weight, self.bias, training=False, epsilon=self.eps)
        weight, bias = _wanted(self.weight), _wanted(self.bias)
        ranks = dist.get_world_size() if self.synchronized else 1
        count = input.shape[0] * input.shape[2] * input.shape[3] * ranks
        if count <= 1:
            raise ValueError(f"expected more than 1 value per channel in training, got input of shape {tuple(input.shape)}")
        if ranks > 1:
            output, mean, biased_variance = _BatchNormOverRanks.apply(input, weight, bias, self.eps, count)
        else:
            # With momentum 0 the kernel overwrites these two with the statistics of this batch.
            mean, biased_variance = paddle.zeros_like(self._mean), paddle.zeros_like(self._variance)
            output = F.batch_norm(input, mean, biased_variance, weight, bias, training=True, momentum=0.0, epsilon=self.eps)
        with paddle.no_grad():
            keep, take = 1.0 - self.momentum, self.momentum
            self._mean.set_value(self._mean * keep + mean * take)
            self._variance.set_value(self._variance * keep + biased_variance * (take * count / (count - 1)))
        return output

    def extra_repr(self) -> str:
        return f"{self._num_features}, eps={self.eps}, momentum={self.momentum}"


def _wanted(parameter: paddle.Tensor) -> paddle.Tensor:
    """A parameter whose gradient is computed even where it is frozen; the frozen parameter itself gets none.

    Where Paddle's kernel need not give the gradients of both weight and bias, it gives neither.
    """
    if not parameter.stop_gradient:
        return parameter
    twin = parameter.detach()
    twin.stop_gradient = False
    return twin


class _BatchNormOverRanks(PyLayer):
    """Normalisation with the mean and variance of all ranks' samples; every rank has equally many.

    The gradients of weight and bias are this rank's share, which data parallelism adds up like all others.
    """

    @staticmethod
    def forward(ctx, input, weight, bias, eps, count):
        pixels = input.astype(weight.dtype)
        mean = pixels.sum([0, 2, 3])
        dist.all_reduce(mean)
        mean = mean / count
        centred = pixels - _channels(mean)
        variance = (centred * centred).sum([0, 2, 3])
        dist.all_reduce(variance)
        variance = variance / count
        inverse = 1.0 / paddle.sqrt(variance + eps)
        normalised = centred * _channels(inverse)
        ctx.save_for_backward(normalised, inverse, weight)
        ctx.count = count
        output = normalised * _channels(weight) + _channels(bias)
        mean.stop_gradient = variance.stop_gradient = True
        return output.astype(input.dtype), mean, variance

    @staticmethod
    def backward(ctx, gradient, _mean, _variance):
        normalised, inverse, weight = ctx.saved_tensor()
        wide = gradient.astype(weight.dtype)
        for_bias = wide.sum([0, 2, 3])
        for_weight = (wide * normalised).sum([0, 2, 3])
        sums = paddle.stack([for_bias, for_weight])
        dist.all_reduce(sums)
        mean_gradient, mean_product = sums[0] / ctx.count, sums[1] / ctx.count
        centred = wide - _channels(mean_gradient) - normalised * _channels(mean_product)
        for_input = centred * _channels(weight * inverse)
        return for_input.astype(gradient.dtype), for_weight, for_bias


def _channels(values: paddle.Tensor) -> paddle.Tensor:
    return values.reshape([1, -1, 1, 1])
