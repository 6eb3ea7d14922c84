"""Public pairs: the list is well formed, what is missing is one line, and only exactly what is known is an agreement."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import subprocess
import sys
import types
from importlib import import_module

import numpy as np
import pytest

from alignment.kinds import Kind
from projects.zoo import shells
from projects.zoo.public import __main__ as public
from projects.zoo.public.judge import TITLES, disagreements, row, table
from projects.zoo.public.pair import Difference, PublicPair
from projects.zoo.public.pairs import PAIRS
from projects.zoo.public.repository import REFERENCES, Repository
from tests.conftest import ROOT, run_command

TINY = Repository("somebody/Tiny", "abc1234", "tiny/models", package="tiny_that_nobody_has")
SOURCE = "import x\n\n\nclass Net:\n    self.norm = Norm(eps=1e-6)\n    self.head = Linear()\n"
EPS = Difference("another eps", "tiny/models/net.py", "Norm(eps=1e-6)", (Kind.NORM_EPS,), ("norm", "blocks.*.norm"))
FRESH = Difference("the head is random", "tiny/models/net.py", "Linear()", (Kind.INITIALISATION,), ("head.weight",))
UNSEEN = Difference("fails on longer texts", "tiny/models/net.py", "Linear()")


def tiny_port(checkouts=None):
    """Never called here."""


def tiny_reference():
    """Never called here."""


def tiny_inputs(samples, generator):
    """Tokens."""
    return {"tokens": generator.integers(0, 9, (samples, 5))}


PAIR = PublicPair(TINY, tiny_port, tiny_reference, "timm Tiny", tiny_inputs, (EPS, FRESH, UNSEEN))


@pytest.fixture
def checkouts(tmp_path):
    """A folder with a check-out, whose name is written in lower case."""
    (tmp_path / "tiny/tiny/models").mkdir(parents=True)
    (tmp_path / "tiny/tiny/models/net.py").write_text(SOURCE)
    return tmp_path


def mistake(kind, *places, source="models/net.py:5"):
    return {"kind": kind, "location": places[0], "also": list(places[1:]), "source": source, "hint": "wrong"}


FOUND = [mistake("norm_eps", "norm", "blocks.0.norm"), mistake("initialisation", "head.weight", source="")]


def test_the_list_is_well_formed():
    """The functions are those that a command can name; every place has a kind, and every file is one of Python."""
    assert len(PAIRS) >= 16
    for name, pair in PAIRS.items():
        assert name == pair.name and pair.package in REFERENCES, name
        for function in (pair.port, pair.reference, pair.inputs):
            assert getattr(import_module(function.__module__), function.__name__) is function
        assert pair.reference.__name__ == f"{pair.port.__name__}_reference"
        for known in pair.known:
            assert bool(known.kinds) == bool(known.places), (name, known.what)
            assert known.file.endswith(".py") and known.text and known.what and Kind.UNKNOWN not in known.kinds


@pytest.mark.parametrize("name", PAIRS)
def test_the_inputs_have_as_many_samples_as_are_asked_for(name):
    """And are drawn from the generator alone, so that the same seed gives the same."""
    for samples in (1, 2, 5):
        made, again = (PAIRS[name].inputs(samples, np.random.default_rng(7)) for _ in range(2))
        one, two = (list(given.values()) if isinstance(given, dict) else [given] for given in (made, again))
        assert all(len(array) == samples and (array == other).all() for array, other in zip(one, two, strict=True))
        assert all(array.dtype in (np.float32, np.int64) for array in one)


def test_what_is_known_and_nothing_else_is_an_agreement(checkouts):
    folder = TINY.found(checkouts)
    assert disagreements(FOUND, PAIR.known, folder) == []
    assert disagreements([], (UNSEEN,), folder) == []


def test_a_difference_that_is_not_found_is_a_disagreement(checkouts):
    folder = TINY.found(checkouts)
    assert disagreements(FOUND[:1], PAIR.known, folder) == ["not found: initialisation at head.weight"]
    assert disagreements([mistake("norm_eps", "norm"), FOUND[1]], PAIR.known, folder) == ["not found: norm_eps at blocks.*.norm"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (mistake("padding", "stem"), "not known: padding at stem"),
        (mistake("", "Net.forward"), "not known: unknown at Net.forward"),
        (mistake("norm_eps", "norm", "last.norm"), "not known: norm_eps at last.norm"),
        (mistake("initialisation", "norm", source=""), "not known: initialisation at norm"),
    ],
)
def test_a_mistake_that_is_not_known_is_a_disagreement(checkouts, more, said):
    assert disagreements([*FOUND, more], PAIR.known, TINY.found(checkouts)) == [said]


@pytest.mark.parametrize("source", ["models/net.py:9", "models/other.py:5"])
def test_another_line_is_a_disagreement(checkouts, source):
    found = [mistake("norm_eps", "norm", "blocks.0.norm", source=source), FOUND[1]]
    assert disagreements(found, PAIR.known, TINY.found(checkouts)) == [f"another line: {source} for norm_eps at norm"]


def test_a_table_of_rows(checkouts):
    folder = TINY.found(checkouts)
    record = {"failed": "", "mistakes": FOUND, "seconds": 12.4}
    good = row(PAIR, record, folder)
    bad = row(PAIR, {**record, "failed": "exit status 3: internal | error"}, folder)
    lines = table([good, bad]).splitlines()
    assert [line.count("|") for line in lines] == [len(TITLES) + 1] * 4
    assert (
        "| tokens 2x5 |" in lines[2] and "| yes | 12 |" in lines[2] and "norm_eps at norm and 1 more (models/net.py:5)" in lines[2]
    )
    assert "fails on longer texts (net.py:6) (this pair does not show it)" in lines[2]
    assert "| exit status 3: internal / error |" in lines[3] and "| no: no verdict | 12 |" in lines[3]


def test_a_check_out_of_another_version_is_one_line(checkouts, capsys, monkeypatch):
    monkeypatch.setattr(public, "PAIRS", {"tiny": PAIR})
    monkeypatch.setattr(public, "check_reference", lambda package: None)
    (checkouts / "tiny/tiny/models/net.py").write_text("import x\n")
    assert public.main(["--checkouts", str(checkouts), "--result-dir", str(checkouts / "result")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "it is not the version that was audited" in said and not (checkouts / "result").exists()


def test_a_missing_check_out_is_one_line(tmp_path, capsys):
    for more in ([], ["--checkouts", str(tmp_path)], ["--checkouts", str(tmp_path / "none")]):
        assert public.main(["paddlemix.unet_2d", *more, "--result-dir", str(tmp_path / "result")]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and said.startswith("error: ") and "github.com/PaddlePaddle/PaddleMIX" in said
    assert not (tmp_path / "result").exists(), "nothing is written before all is there"


def test_an_unknown_name_is_one_line(tmp_path, capsys):
    assert public.main(["paddlevit.vgg", "--result-dir", str(tmp_path / "result")]) == 2
    assert capsys.readouterr().err.startswith("error: unknown pair 'paddlevit.vgg': use one of paddlenlp.bert, ")


def test_a_missing_package_of_references_is_one_line(checkouts, capsys, monkeypatch):
    monkeypatch.setattr(public, "PAIRS", {"tiny": PAIR})
    here = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "timm" else here(name, *more))
    assert public.main(["--checkouts", str(checkouts), "--result-dir", str(checkouts / "result")]) == 2
    said = capsys.readouterr().err
    assert said == f"error: timm is not installed: pip install --no-deps timm=={REFERENCES['timm']}\n"


def test_an_installed_package_is_as_good_as_a_check_out(checkouts, monkeypatch):
    spec = types.SimpleNamespace(submodule_search_locations=[str(checkouts / "tiny/tiny")])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert TINY.found(None) == checkouts / "tiny"


def _runs(monkeypatch, status, mistakes):
    """Audits are not run: each ends with this status and writes these mistakes."""
    commands = []

    def run(command, stdout, **_):
        commands.append(command)
        stdout.write("much\nerror: the last line\n")
        report = command[command.index("--report") + 1]
        with open(f"{report}/alignment.json", "w") as file:
            json.dump({"verdict": "FAIL", "mistakes": mistakes}, file)
        return types.SimpleNamespace(returncode=status)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(public, "PAIRS", {"tiny": PAIR})
    monkeypatch.setattr(public, "check_reference", lambda package: None)
    return commands


def test_the_exit_status_says_whether_all_agree(checkouts, capsys, monkeypatch):
    given = ["--checkouts", str(checkouts), "--result-dir", str(checkouts / "result"), "--budget", "30"]
    commands = _runs(monkeypatch, 1, FOUND)
    assert public.main(given) == 0 and "agreement yes" in capsys.readouterr().out
    (command,) = commands
    assert command[command.index("--budget") + 1] == "30" and f"{__name__}:tiny_port" in command
    assert _runs(monkeypatch, 1, []) == [] and public.main([*given, "--resume"]) == 0, "the first audit is kept"
    assert public.main(given) == 1 and "agreement no: not found: norm_eps at norm" in capsys.readouterr().out
    _runs(monkeypatch, 3, [])
    assert public.main(given) == 1
    assert len(_runs(monkeypatch, 3, [])) == 0 and public.main([*given, "--resume"]) == 1, "an audit without a verdict is not kept"
    assert "exit status 3: error: the last line" in (checkouts / "result/table.md").read_text()


def test_a_pair_is_audited_by_its_command(tmp_path, monkeypatch):
    """With a port and a reference of its own: the command is one that the audit takes."""
    (tmp_path / "ours.py").write_text(
        "import paddle\nimport numpy as np\n\n"
        "def port(checkouts=None):\n    return paddle.nn.Linear(3, 2)\n\n"
        "def port_reference():\n    import torch\n    return torch.nn.Linear(3, 2)\n\n"
        "def inputs(samples, generator):\n    return generator.standard_normal((samples, 3)).astype(np.float32)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    ours = import_module("ours")
    pair = dataclasses.replace(PAIR, port=ours.port, reference=ours.port_reference, inputs=ours.inputs, known=())
    made = public.command(pair, tmp_path, 30, tmp_path / "report")
    assert made[0] == sys.executable
    done = run_command(*made[1:], PYTHONPATH=f"{ROOT}:{tmp_path}")
    sys.modules.pop("ours", None)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "report/alignment.json").read_text())["mistakes"] == []


def test_files_of_a_package_are_imported_without_the_rest(tmp_path):
    """What stands in for a missing package is gone afterwards; a second call keeps what was imported."""
    (tmp_path / "shelled/below").mkdir(parents=True)
    for name in ("shelled", "shelled/below"):
        (tmp_path / name / "__init__.py").write_text("raise ImportError('all the rest')")
    (tmp_path / "shelled/below/net.py").write_text("import package_that_is_missing\nfrom shelled.log import Log\n")
    try:
        shells.make_importable(tmp_path, ("shelled", "shelled.below"))
        shells.stand_in("shelled.log", Log=7)
        with shells.standing_in("package_that_is_missing"):
            net = import_module("shelled.below.net")
        assert net.Log == 7 and "package_that_is_missing" not in sys.modules
        shells.make_importable(tmp_path, ("shelled", "shelled.below"))
        assert import_module("shelled.below.net") is net and importlib.util.find_spec("shelled")
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "shelled"]:
            del sys.modules[name]


def test_a_package_is_hidden_only_meanwhile():
    with shells.hidden("tqdm"):
        assert importlib.util.find_spec("tqdm") is None
        with pytest.raises(ImportError):
            import_module("tqdm")
    assert importlib.util.find_spec("tqdm") and import_module("tqdm")


def test_the_page_names_the_pairs_of_the_list():
    page = (ROOT / "docs" / "zoo.md").read_text()
    assert [name for name in PAIRS if f"| {name} |" not in page] == []
