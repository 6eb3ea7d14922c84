"""The page of questions: its examples run, the tests it names exist, and the checks it names catch the mistakes."""

from __future__ import annotations

import json
import re

import pytest

from alignment.cli import main
from tests.conftest import ROOT

PAGES = {language: (ROOT / f"docs/porting_questions{language}.md").read_text() for language in ("", "_zh")}
EXAMPLES = dict(re.findall(r"^## ([^\n]+)\n.*?^```python\n(.*?)^```", PAGES[""], re.M | re.S))


@pytest.mark.parametrize("question", EXAMPLES)
def test_the_example_of_a_question_runs(question):
    exec(EXAMPLES[question], {})


def test_both_languages_have_the_same_examples_and_a_check_for_each():
    code = [re.findall(r"^```python\n(.*?)^```", page, re.M | re.S) for page in PAGES.values()]
    assert code[0] == code[1] and len(code[0]) == len(EXAMPLES) == 18
    for page, words in ((PAGES[""], "Caught by: "), (PAGES["_zh"], "由以下检查发现")):
        assert page.count(f"\n{words}") == len(EXAMPLES)
        named = re.findall(r"tests/\w+\.py", page)
        assert all((ROOT / name).is_file() for name in named) and len(named) > 12


HEAD = """
import numpy as np
import {f}

def given(n, rng):
    return rng.standard_normal((n, 6, 4)).astype("float32"), np.array([6, 3, 4, 2] * n)[:n]
"""
MISTAKES = {  # question: (the reference, the port with the mistake, what is said)
    "masked_fill": (
        "return x.masked_fill(x > 0, -1.0).sum(2)", "return paddle.where(x > 0, x, paddle.full_like(x, -1.0)).sum(2)", "forward"
    ),
    "torch.gather and take_along_axis": (
        "return torch.gather(x, 1, torch.zeros_like(x[:, :1], dtype=torch.int64))",
        "return paddle.take_along_axis(x, paddle.zeros_like(x[:, :1]).astype('int64') + 1, 1)", "forward"
    ),
    "Boxes as corners or as centre and size": (
        "a, b = x[..., :2], x[..., 2:]; return torch.cat([a - b / 2, a + b / 2], -1)",
        "return x", "forward"
    ),
    "Indexing in a loss": (
        "return (x[x > 0] ** 2).mean()", "return paddle.where(x > 0, x**2, paddle.zeros_like(x)).mean()", "forward"
    ),
}  # fmt: skip


@pytest.mark.parametrize("question", MISTAKES)
def test_the_audit_catches_the_mistake(question, tmp_path, capsys):
    theirs, ours, said = MISTAKES[question]
    body = "\n\nclass Net({base}):\n    def __init__(self):\n        super().__init__()\n        self.body = {layer}(4, 4)\n"
    body += "    def forward(self, x, lengths):\n        x = self.body(x)\n        {line}\n"
    for name, f, base, layer, line in (
        ("theirs_q", "torch", "torch.nn.Module", "torch.nn.Linear", theirs),
        ("ours_q", "paddle", "paddle.nn.Layer", "paddle.nn.Linear", ours),
    ):
        (tmp_path / f"{name}.py").write_text(HEAD.format(f=f) + body.format(base=base, layer=layer, line=line))
    sides = ["--port", f"{tmp_path}/ours_q.py:Net", "--reference", f"{tmp_path}/theirs_q.py:Net"]
    status = main(
        ["audit", *sides, "--input", f"{tmp_path}/theirs_q.py:given", "--eval-only", "--report", str(tmp_path / "report")]
    )
    found = json.loads((tmp_path / "report/alignment.json").read_text())
    assert status == 1 and found["mistakes"][0]["stage"] == said, capsys.readouterr().out


LSTM = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(4, 5, batch_first=True)
    def forward(self, x, lengths):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return torch.nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=6)[0]
"""
OURS = """
class Net(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.lstm = paddle.nn.LSTM(4, 5)
    def forward(self, x, lengths):
        return self.lstm(x{lengths})[0]
"""


@pytest.mark.parametrize(("lengths", "status"), [(", sequence_length=lengths", 0), ("", 1)])
def test_lengths_that_are_left_out_are_found(lengths, status, tmp_path, capsys):
    (tmp_path / "theirs_l.py").write_text(HEAD.format(f="torch") + LSTM)
    (tmp_path / "ours_l.py").write_text(HEAD.format(f="paddle") + OURS.replace("{lengths}", lengths))
    sides = ["--port", f"{tmp_path}/ours_l.py:Net", "--reference", f"{tmp_path}/theirs_l.py:Net"]
    given = ["--input", f"{tmp_path}/theirs_l.py:given", "--eval-only", "--report", str(tmp_path / "report")]
    assert main(["audit", *sides, *given]) == status, capsys.readouterr()
