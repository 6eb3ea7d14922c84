"""Tied and shared tensors: a conversion reads the same files as an audit, each name or one of them."""

import numpy as np
import paddle
import pytest
import safetensors.torch
import torch

from alignment.frameworks.paddle import Paddle
from alignment.frameworks.torch import Torch
from alignment.models.weights import load_file, second_names
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights_file import read_state
from tools.convert_weights import main

HERE = "tests/test_tied_weights.py"


class Reference(torch.nn.Module):
    """The head has the embedding's matrix, and one layer is called twice."""

    def __init__(self):
        super().__init__()
        self.embed, self.body = torch.nn.Embedding(11, 4), torch.nn.Linear(4, 4)
        self.head, self.again = torch.nn.Linear(4, 11, bias=False), self.body
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.again(self.body(self.embed(x)).relu()))


class Port(paddle.nn.Layer):
    """The head is a function of the embedding's matrix."""

    def __init__(self):
        super().__init__()
        self.embed, self.body = paddle.nn.Embedding(11, 4), paddle.nn.Linear(4, 4)
        self.again = self.body

    def forward(self, x):
        hidden = self.again(paddle.nn.functional.relu(self.body(self.embed(x))))
        return paddle.matmul(hidden, self.embed.weight, transpose_y=True)


def batch(count, rng):
    return (rng.integers(0, 11, (count, 3)),)


def convert(source, target, *flags):
    sides = ("--port", f"{HERE}:Port", "--reference", f"{HERE}:Reference", "--model-input", f"{HERE}:batch")
    return main([str(source), str(target), *sides, *flags])


@pytest.fixture
def reference():
    torch.manual_seed(0)
    return Reference()


def test_second_names_are_known(reference):
    assert second_names(Torch(), reference) == {
        "head.weight": "embed.weight",
        "again.weight": "body.weight",
        "again.bias": "body.bias",
    }
    assert second_names(Paddle(), Port()) == {"again.weight": "body.weight", "again.bias": "body.bias"}


FILES = {
    "state.pth": lambda net, file: torch.save(net.state_dict(), file),
    "wrapped.ckpt": lambda net, file: torch.save({"state_dict": {f"net.{n}": t for n, t in net.state_dict().items()}}, file),
    "one_name.safetensors": safetensors.torch.save_model,
    "parameters.pth": lambda net, file: torch.save(dict(net.named_parameters()), file),
}


@pytest.mark.parametrize("name", FILES)
def test_convert_and_audit_read_the_same_files(name, reference, tmp_path):
    FILES[name](reference, tmp_path / name)
    to = ("--to", "port") if name.endswith(".safetensors") else ()
    assert convert(tmp_path / name, tmp_path / "port.pdparams", *to) == 0
    assert convert(tmp_path / "port.pdparams", tmp_path / "back.pth") == 0
    Reference().load_state_dict(torch.load(tmp_path / "back.pth"))  # every name is there again
    expected = {entry: tensor.numpy() for entry, tensor in reference.state_dict().items()}
    assert all(np.array_equal(array, expected[entry]) for entry, array in read_state(tmp_path / "back.pth").items())
    state = load_file(tmp_path / name, [(Torch(), reference), (Paddle(), None)])
    assert state.keys() == expected.keys() and all(np.array_equal(state[entry], expected[entry]) for entry in expected)
    missing, unexpected = Port().set_state_dict(paddle.load(str(tmp_path / "port.pdparams")))
    assert not missing and not unexpected


def test_two_values_of_one_tensor_are_refused_by_both(reference, tmp_path, capsys):
    apart = {name: tensor.clone() for name, tensor in reference.state_dict().items()}
    apart["head.weight"] += 1
    torch.save(apart, tmp_path / "apart.pth")
    assert convert(tmp_path / "apart.pth", tmp_path / "port.pdparams") == 2 and not (tmp_path / "port.pdparams").exists()
    said = "embed.weight and head.weight differ, but are one tensor in the model"
    assert said in capsys.readouterr().err
    with pytest.raises(UserError, match=said):
        load_file(tmp_path / "apart.pth", [(Torch(), reference), (Paddle(), None)])
