"""One line that is wrong and is called many times, in a loop over segments and layers: it is named once, within the budget."""

import json

import numpy as np
import pytest

from alignment.cli import main
from alignment.localize.hypotheses import calls

HEAD = "import {0}\nfrom {0} import nn\nfrom {0}.nn import functional as F\n"
THEIRS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])

    def forward(self, x):
        parts = []
        for x in x.split(2, dim=1):
            for step in self.steps:
                x = x + F.silu(step(x)) * 0.5
            parts.append(x)
        return torch.cat(parts, 1)
"""
OURS = """
class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.steps = nn.LayerList([nn.Linear(6, 6) for _ in range(3)])

    def forward(self, x):
        parts = []
        for x in x.split([2, 2, 2], axis=1):
            for step in self.steps:
                x = x + F.silu(step(x)) * 0.5
            parts.append(x)
        return paddle.concat(parts, 1)
"""
CASES = {
    "sound": ("", "", ""),
    "sigmoid": ("F.silu(", "F.sigmoid(", "sigmoid, expected silu"),
    "tanh": ("F.silu(", "F.tanh(", "tanh, expected silu"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_call_of_a_loop_is_named_once(case, tmp_path, monkeypatch):
    """Every change of one call alone leaves the output wrong, and the budget ends before all nine are tried one by one."""
    monkeypatch.setattr(calls, "RUNS", 6)
    for other in ("_segment", "_replayed"):  # in a larger model their budgets end before
        monkeypatch.setattr(calls._Search, other, lambda self: [])
    before, after, words = CASES[case]
    port = HEAD.format("paddle") + OURS.replace(before, after) if before else HEAD.format("paddle") + OURS
    (tmp_path / "ours.py").write_text(port)
    (tmp_path / "theirs.py").write_text(HEAD.format("torch") + THEIRS)
    np.savez(tmp_path / "inputs.npz", x=np.random.default_rng(0).standard_normal((2, 6, 6)).astype("float32"))
    sides = ("--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", f"{tmp_path}/inputs.npz")
    assert main(["audit", "--eval-only", *sides, "--report", str(tmp_path / "report")]) == bool(words)
    found = json.loads((tmp_path / "report" / "alignment.json").read_text())["mistakes"]
    assert len(found) == bool(words)
    if words:
        assert words in found[0]["hint"] and found[0]["source"] == f"ours.py:{port[: port.index(after)].count(chr(10)) + 1}", found


LENGTHS = """
class Net(nn.{0}):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def frames(self, lengths):
        for kernel, stride in ((10, 5), (3, 2), (3, 2), (2, 2)):
            lengths = (lengths - kernel) // stride + 1
        return lengths

    def forward(self, x, lengths):
        padded = {1}[None, :] >= self.frames(lengths)[:, None]
        return self.fc({2})
"""
FILLED = {
    "torch": ("Module", "torch.arange(x.shape[1])", "x.masked_fill(padded.unsqueeze(-1), 0)"),
    "paddle": ("Layer", 'paddle.arange(x.shape[1], dtype="int64")', "x * (~padded).astype(x.dtype).unsqueeze(-1)"),
}


@pytest.mark.parametrize("wrong", [False, True])
def test_a_step_that_a_loop_over_lengths_lacks_is_named_once(wrong, tmp_path):
    """Lengths are few small numbers: those behind one step of the port are by chance the reference's behind another one."""
    sources = {name: HEAD.format(name) + LENGTHS.format(*filled) for name, filled in FILLED.items()}
    sources["paddle"] = sources["paddle"].replace("// stride + 1", "// stride") if wrong else sources["paddle"]
    for name, source in sources.items():
        (tmp_path / f"of_{name}.py").write_text(source)
    x = np.random.default_rng(0).standard_normal((4, 19, 6)).astype("float32")
    np.savez(tmp_path / "inputs.npz", x=x, lengths=np.array([800, 653, 420, 800]))
    sides = ("--port", f"{tmp_path}/of_paddle.py:Net", "--reference", f"{tmp_path}/of_torch.py:Net")
    given = ("--input", f"{tmp_path}/inputs.npz", "--report", str(tmp_path / "report"))
    assert main(["audit", "--eval-only", *sides, *given]) == wrong
    found = json.loads((tmp_path / "report" / "alignment.json").read_text())["mistakes"]
    assert len(found) == wrong
    if wrong:
        line = sources["paddle"][: sources["paddle"].index("// stride")].count("\n") + 1
        assert "+ 1 is missing after //" in found[0]["hint"] and found[0]["source"] == f"of_paddle.py:{line}", found
