"""``audit --budget``: a search that ends early names what it left out, and blames nothing that it did not look into."""

from __future__ import annotations

import pytest

from alignment.audit.pair import ModelMaker, pair_of
from alignment.cli import main
from alignment.comparisons.context import Context
from alignment.comparisons.every import EveryMistake
from alignment.localize.watch import Watch

PORT = """
from paddle import nn

class Block(nn.Layer):
    def __init__(self, padding):
        super().__init__()
        self.conv, self.act = nn.Conv2D(4, 4, 3, padding=padding, padding_mode="replicate"), nn.ReLU()

    def forward(self, x):
        return self.act(self.conv(x)) + x

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(3, 4, 3, padding=1)
        self.first, self.second = Block(1), Block(1)
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        return self.head(self.second(self.first(self.stem(x))).mean([2, 3]))
"""
REFERENCE = PORT.replace("from paddle", "from torch").replace("nn.Layer", "nn.Module").replace("Conv2D", "Conv2d")
REFERENCE = REFERENCE.replace(', padding_mode="replicate"', "")
ALL = "evaluation mode, training mode, evaluation mode in float32, training mode in float32, fresh weights"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "ours.py").write_text(PORT)
    (tmp_path / "theirs.py").write_text(REFERENCE)
    return tmp_path


def audit(folder, *flags):
    sides = ["--port", f"{folder}/ours.py:Net", "--reference", f"{folder}/theirs.py:Net", "--input", "2x3x16x12"]
    return main(["audit", *sides, "--report", str(folder / "report"), *flags])


def test_without_time_nothing_is_blamed_and_all_that_was_left_out_is_said(files, capsys):
    assert audit(files, "--budget", "1e-6") == 1
    out = capsys.readouterr().out
    assert "FAIL: the port differs from the reference." in out and "padding" not in out.partition("Not checked")[0], out
    assert f"the search ended when the 1e-06 seconds of --budget were over; not searched: {ALL}" in out, out
    assert "not searched" in (files / "report" / "report.md").read_text()


def test_with_enough_time_it_says_what_it_always_said(files, capsys):
    assert audit(files, "--budget", "1000") == 1
    out = capsys.readouterr().out
    assert "first.conv" in out and "second.conv" in out and "--budget" not in out, out


class ToTheFirst(Watch):
    """Time that is over once something was found."""

    def found(self, line, alike="", place=""):
        super().found(line, alike, place)
        self.ended = True


def test_what_surrounds_places_that_were_not_looked_at_is_not_blamed(files):
    makers = [ModelMaker(f"--{side}", f"{files}/{name}.py:Net", {}) for side, name in (("port", "ours"), ("reference", "theirs"))]
    context = Context(pair_of(*makers, "2x3x16x12", initialisation=True).project)
    search = EveryMistake(context, ToTheFirst())
    search.run()
    assert [one.location for one in search.found] == ["first.conv"]
    assert search.watch.left == ["the rest of evaluation mode", *ALL.split(", ")[1:]]


def test_a_long_search_prints_what_it_finds_and_where_it_is():
    said: list[str] = []
    watch = Watch(quiet=0.0, between=0.0, say=said.append)
    assert watch.goes_on("features.3")
    watch.found("forward: features.3: padding 2")
    assert [line.split(": ", 1)[1] for line in said] == ["looking at features.3", "forward: features.3: padding 2"]
    assert said[0][0] == "\n" and said[1][0] != "\n", "no empty lines"
    quiet = Watch(say=said.append)
    quiet.found("forward: head: nothing")
    assert quiet.goes_on("head") and len(said) == 2, "a short search says nothing before its end"


def test_findings_that_are_alike_have_one_line_and_their_further_places_another():
    said: list[str] = []
    watch = Watch(quiet=0.0, between=0.0, say=said.append)
    for place in ("n1", "n2", "n3"):
        watch.found(f"forward: {place}: momentum inverted", "momentum", place)
    watch.found("forward: fc: eps", "eps", "fc")
    lines = [line.strip().split(": ", 1)[-1] for text in said for line in text.strip("\n").split("\n")]
    assert lines == ["forward: n1: momentum inverted", "and also at n2, n3", "forward: fc: eps"]


def test_a_long_search_does_not_tell_what_the_frameworks_do_by_themselves(tmp_path):
    reference = (
        "from torch import nn\nNet = lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, eps=1e-3), nn.BatchNorm2d(4))"
    )
    (tmp_path / "theirs.py").write_text(reference)
    ported = reference.replace("torch", "paddle").replace("2d", "2D").replace(", eps=1e-3", "")
    (tmp_path / "ours.py").write_text(ported)
    makers = [
        ModelMaker(f"--{side}", f"{tmp_path}/{name}.py:Net", {}) for side, name in (("port", "ours"), ("reference", "theirs"))
    ]
    said: list[str] = []
    search = EveryMistake(Context(pair_of(*makers, "4x3x8x6", initialisation=True).project), Watch(quiet=0.0, say=said.append))
    search.run()
    assert "biased_variance" in [str(one.kind) for one in search.found]
    assert "eps" in "".join(said) and "biased" not in "".join(said), said


@pytest.mark.parametrize("text", ["0", "-1", "nan", "soon"])
def test_what_is_no_number_of_seconds_is_one_line_and_status_2(files, text, capsys):
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(audit(files, "--budget", text))
    assert ended.value.code == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and "--budget" in said[0], said
