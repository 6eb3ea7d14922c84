"""Pairs of formulas: models without a parameter, of values that have a range."""

import paddle
import torch


class ReferenceStep(torch.nn.Module):
    def forward(self, weight, gradient):
        return weight - 0.1 * gradient / (gradient.abs() + 1e-3)


class PortStep(paddle.nn.Layer):
    factor = 0.1

    def forward(self, weight, gradient):
        return weight - self.factor * gradient / (gradient.abs() + 1e-3)


class PortStepOfAnotherRate(PortStep):
    factor = 0.2


def weight_and_gradient(samples, generator):
    return tuple(generator.standard_normal((samples, 6)).astype("float32") for _ in range(2))


class ReferenceShare(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(6, 6)

    def forward(self, noise, share):
        return (1 - share[:, None]) ** 0.5 * self.net(noise)


class PortShare(paddle.nn.Layer):
    power = 0.5

    def __init__(self):
        super().__init__()
        self.net = paddle.nn.Linear(6, 6)

    def forward(self, noise, share):
        return (1 - share.unsqueeze(1)) ** self.power * self.net(noise)


class PortShareOfAnotherPower(PortShare):
    power = 0.4


def noise_and_share(samples, generator):
    return generator.standard_normal((samples, 6)).astype("float32"), generator.uniform(0.2, 0.6, samples).astype("float32")
