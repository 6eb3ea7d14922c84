"""Writes the archives beside this file anew, with the real tools: ``python make.py`` where these are installed.

They were made with transformers 5.24.0, mindstudio-probe (msProbe) 26.2.0 and PaDiff at commit 0a86a80 of its repository. Of what
the tools wrote, folders of this machine were replaced, and stacks of calls emptied. Each archive has three folders: ``reference``
(PyTorch), ``sound`` (the same computed otherwise; of PaDiff and of the plain folder, Paddle) and ``mistake``: the activation of
the second block is the approximation of GELU by tanh.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
TOOLS = ("transformers", "transformers_repr", "msprobe", "msprobe_statistics", "padiff", "npy")
VARIANTS = ("reference", "sound", "mistake")
RNG = np.random.default_rng(0)
SIZES = {
    "stem": (8, 6),
    **{f"blocks.{n}.{name}": size for n in (0, 1) for name, size in (("fc1", (12, 8)), ("fc2", (8, 12)))},
    "head": (4, 8),
}


def _drawn(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(shape[-1])).astype("float32")


WEIGHTS = {f"{name}.weight": _drawn(*size) for name, size in SIZES.items()}
WEIGHTS |= {f"{name}.bias": _drawn(size[0]) for name, size in SIZES.items()}
WEIGHTS |= {f"blocks.{n}.norm.weight": 1 + 0.1 * _drawn(8) for n in (0, 1)} | {f"blocks.{n}.norm.bias": _drawn(8) for n in (0, 1)}
INPUT = RNG.standard_normal((2, 3, 6)).astype("float32")


def torch_net(variant):
    import torch
    from torch import nn

    class Otherwise(nn.Module):
        """A linear layer that adds up in another order."""

        def __init__(self, inputs, outputs):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.zeros(outputs, inputs)), nn.Parameter(torch.zeros(outputs))

        def forward(self, x):
            return (x[..., None, :] * self.weight).flip(-1).sum(-1) + self.bias

    linear = nn.Linear if variant == "reference" else Otherwise

    class Block(nn.Module):
        def __init__(self, tanh):
            super().__init__()
            self.norm, self.fc1, self.fc2 = nn.LayerNorm(8), linear(8, 12), linear(12, 8)
            self.act = nn.GELU(approximate="tanh" if tanh else "none")

        def forward(self, x):
            return x + self.fc2(self.act(self.fc1(self.norm(x))))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.head = linear(6, 8), linear(8, 4)
            self.blocks = nn.ModuleList([Block(False), Block(variant == "mistake")])

        def forward(self, x):
            x = self.stem(x)
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    net = Net()
    net.load_state_dict({name: torch.from_numpy(array) for name, array in WEIGHTS.items()})
    return net.eval()


def paddle_net(variant):
    import paddle
    from paddle import nn

    class Block(nn.Layer):
        def __init__(self, tanh):
            super().__init__()
            self.norm, self.fc1, self.fc2, self.act = nn.LayerNorm(8), nn.Linear(8, 12), nn.Linear(12, 8), nn.GELU(tanh)

        def forward(self, x):
            return x + self.fc2(self.act(self.fc1(self.norm(x))))

    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.stem, self.head = nn.Linear(6, 8), nn.Linear(8, 4)
            self.blocks = nn.LayerList([Block(False), Block(variant == "mistake")])

        def forward(self, x):
            x = self.stem(x)
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    net = Net()
    net.set_state_dict({name: paddle.to_tensor(array.T if array.ndim == 2 else array) for name, array in WEIGHTS.items()})
    net.eval()
    return net


def transformers(out, variant, use_repr=False):
    import torch
    from transformers.model_debugging_utils import model_addition_debugger_context

    net = torch_net(variant)
    with model_addition_debugger_context(net, debug_path=str(out), do_prune_layers=False, use_repr=use_repr):
        net(torch.from_numpy(INPUT))


def transformers_repr(out, variant):
    transformers(out, variant, use_repr=True)


def msprobe(out, variant, task="tensor"):
    import torch
    from msprobe.pytorch import PrecisionDebugger

    config = {
        "task": task,
        "dump_path": str(out),
        "rank": [],
        "step": [],
        "level": "L0",
        task: {"scope": [], "list": [], "data_mode": ["all"]},
    }
    file = out.parent / f"{variant}.json"
    file.write_text(json.dumps(config))
    debugger = PrecisionDebugger(config_path=str(file))
    net = torch_net(variant)
    debugger.start(model=net)
    net(torch.from_numpy(INPUT)).square().sum().backward()
    debugger.stop()
    debugger.step()
    file.unlink()


def msprobe_statistics(out, variant):
    msprobe(out, variant, "statistics")


def padiff(out, variant):
    import paddle
    import torch
    from padiff import create_model

    net = create_model(torch_net(variant) if variant == "reference" else paddle_net(variant), name=variant)
    outputs = net(torch.from_numpy(INPUT) if variant == "reference" else paddle.to_tensor(INPUT))
    net.backward((outputs * outputs).sum())
    net.try_dump(str(out))


def npy(out, variant):
    import paddle
    import torch

    out.mkdir(parents=True)
    of_torch = variant == "reference"
    net = torch_net(variant) if of_torch else paddle_net(variant)
    for name, module in net.named_modules() if of_torch else net.named_sublayers():
        if name and name != "blocks":
            hooked = module.register_forward_hook if of_torch else module.register_forward_post_hook
            hooked(lambda module, inputs, output, name=name: np.save(out / f"{name}.npy", output.detach().numpy()))
    np.save(out / "output.npy", net(torch.from_numpy(INPUT) if of_torch else paddle.to_tensor(INPUT)).detach().numpy())


def cleaned(file):
    """A file's bytes without what is this machine's own."""
    if file.suffix != ".json":
        return file.read_bytes()
    text = re.sub(r'"stack": "(?:[^"\\]|\\.)*"', '"stack": ""', file.read_text())
    return re.sub(r'"/[^"]*/(reference|sound|mistake)/', r'"/home/user/\1/', text).encode()


def main():
    with tempfile.TemporaryDirectory() as folder:
        for tool in TOOLS:
            with zipfile.ZipFile(HERE / f"{tool}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
                for variant in VARIANTS:
                    out = Path(folder) / tool / variant
                    out.parent.mkdir(exist_ok=True)
                    subprocess.run([sys.executable, __file__, tool, variant, str(out)], check=True)
                    for file in sorted(out.rglob("*")):
                        if file.is_file() and file.name != "stack.json":
                            archive.writestr(str(Path(variant) / file.relative_to(out)), cleaned(file))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        globals()[sys.argv[1]](Path(sys.argv[3]), sys.argv[2])
    else:
        main()
