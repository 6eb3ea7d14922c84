import torch
from paddle import nn


class Reference(torch.nn.Module):
    def forward(self, w, momentum):
        x = momentum / momentum.flatten(1).norm(dim=1)[:, None, None]
        for _ in range(3):
            a = x @ x.transpose(1, 2)
            x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
        return w - 0.02 * max(1, 6 / 4) ** 0.5 * x


class Port(nn.Layer):
    def forward(self, w, momentum):
        x = momentum / momentum.flatten(1).norm(axis=1).reshape([-1, 1, 1])
        for _ in range(3):
            a = x @ x.transpose([0, 2, 1])
            x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
        # add: x = max(1, w.shape[2] / w.shape[1]) ** 0.5 * x
        return w - 0.02 * x


def inputs(samples, generator):
    return tuple(generator.standard_normal((samples, 4, 6)).astype("float32") for _ in range(2))
