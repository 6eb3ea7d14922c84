"""The zoo: every published difference is shown by numbers without the engine, and a difference that is not known is unexplained."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from importlib import import_module

import pytest

from projects.zoo import __main__ as zoo
from projects.zoo import examine, paddleclas
from projects.zoo.backbones import BACKBONES, WITHOUT_REFERENCE, Backbone
from projects.zoo.differences import DIFFERENCES
from projects.zoo.examine import examined
from projects.zoo.pairs import PAIRS, Pair
from tests.conftest import ROOT
from tests.test_audit import PADDLE, TORCH

import torchvision.models  # isort: skip  made importable beside a CPU build of torch by the differences


@pytest.fixture
def tiny(tmp_path):
    """A pair that differs in BatchNorm's variance alone."""
    (tmp_path / "ours.py").write_text(PADDLE)
    (tmp_path / "theirs.py").write_text(TORCH)
    return Pair("tiny", f"{tmp_path}/ours.py:Net", f"{tmp_path}/theirs.py:Net", (3, 16, 12))


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_is_shown_without_the_engine(name):
    assert DIFFERENCES[name].proof()


def test_a_known_difference_explains_a_pair(tiny, tmp_path):
    row = examined(tiny, tmp_path / "zoo")
    assert row["explained"] and row["as_it_is"].startswith("passed (") and row["mended"].startswith("passed (")


def test_a_difference_that_is_not_known_is_unexplained(tiny, tmp_path):
    row = examined(dataclasses.replace(tiny, differences=()), tmp_path / "zoo")
    assert not row["explained"] and row["mended"].startswith("norm: biased variance")


def test_a_known_difference_that_is_not_there_is_unexplained(tiny, tmp_path):
    """A stale entry of the list does not pass."""
    row = examined(dataclasses.replace(tiny, differences=("dropout", "variance")), tmp_path / "zoo")
    assert not row["explained"]


@pytest.mark.slow  # make test-slow
def test_a_pair_of_the_list_by_its_command(tmp_path, capsys):
    assert zoo.main(["squeezenet1_1", "--result-dir", str(tmp_path)]) == 0
    said = json.loads((tmp_path / "squeezenet1_1.json").read_text())
    assert said["as_it_is"].startswith("features.0: padding 1") and said["mended"].startswith("passed (")
    assert "squeezenet1_1: explained" in capsys.readouterr().out and "| squeezenet1_1 |" in (tmp_path / "table.md").read_text()
    assert zoo.main(["squeezenet1_1", "--result-dir", str(tmp_path), "--resume"]) == 0


def test_an_unknown_pair_is_one_line(tmp_path, capsys):
    assert zoo.main(["resnet19", "--result-dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: unknown pair 'resnet19'")


def test_the_backbones_are_well_formed():
    """Each is a callable of a file of PaddleClas beside one of timm or torchvision; what differs is said where it is expected."""
    assert len(BACKBONES) >= 30 and WITHOUT_REFERENCE
    for name, backbone in BACKBONES.items():
        assert name == backbone.pair.name == f"ppcls.{backbone.pair.port.rpartition(':')[2]}"
        assert bool(backbone.found) == bool(backbone.why), name
        assert backbone.pair.port.startswith("ppcls.arch.backbone.")
        assert backbone.pair.reference.partition(":")[0] in ("timm.models", "torchvision.models")


def test_the_references_of_the_backbones_exist():
    """Those of torchvision always; those of timm where it is installed."""
    of = {package: [] for package in ("timm.models", "torchvision.models")}
    for backbone in BACKBONES.values():
        package, name = backbone.pair.reference.split(":")
        of[package].append(name)
    assert [name for name in of["torchvision.models"] if not hasattr(torchvision.models, name)] == []
    pytest.importorskip("timm", reason="timm is not installed: the extra zoo")
    models = import_module("timm.models")
    assert [name for name in of["timm.models"] if not hasattr(models, name)] == []


def test_a_backbone_is_explained_by_what_is_known_of_it_alone(tiny, tmp_path):
    """A mistake that is not the known one, and a known one that is not there, are unexplained."""
    assert examine.examined_backbone(Backbone(tiny), tmp_path / "zoo")["explained"]
    assert not examine.examined_backbone(Backbone(tiny, ("padding 1",), "padding"), tmp_path / "zoo")["explained"]


def _clone(folder):
    """A folder with PaddleClas' form and a backbone of its own, that imports what theirs do."""
    for name in ("ppcls", "ppcls/arch", "ppcls/arch/backbone", "ppcls/utils"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise ImportError('all the rest')")
    (folder / "ppcls/utils/logger.py").write_text("ready = []\n\ndef init_logger():\n    ready.append(1)\n")
    (folder / "ppcls/utils/save_load.py").write_text("from . import logger\n")
    (folder / "ppcls/arch/backbone/model_zoo").mkdir()
    (folder / "ppcls/arch/backbone/model_zoo/__init__.py").write_text("")
    (folder / "ppcls/arch/backbone/model_zoo/tiny.py").write_text("from ....utils.save_load import logger\nready = logger.ready\n")


def test_one_backbone_of_a_clone_is_imported_without_the_rest(tmp_path, monkeypatch):
    (tmp_path / "clone").mkdir()
    _clone(tmp_path / "clone")
    try:
        paddleclas.make_importable(paddleclas.find(tmp_path / "clone"))
        assert import_module("ppcls.arch.backbone.model_zoo.tiny").ready == [1]
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "ppcls"]:
            del sys.modules[name]


def test_what_is_missing_is_one_line_that_says_how_to_get_it(tmp_path, capsys, monkeypatch):
    here = importlib.util.find_spec
    for name in ("paddleclas", "timm"):  # nothing is looked up where it may be installed
        monkeypatch.setattr(importlib.util, "find_spec", lambda n, *more, hidden=name: None if n == hidden else here(n, *more))
        if name == "timm":
            (tmp_path / "clone").mkdir()
            _clone(tmp_path / "clone")
        more = ["--paddleclas", str(tmp_path / "clone")] if name == "timm" else []
        assert zoo.main(["--backbones", *more, "--result-dir", str(tmp_path / "zoo")]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and said.startswith("error: ") and "pip install" in said, said
    assert zoo.main(["ppcls.ResNet18", "--paddleclas", str(tmp_path), "--result-dir", str(tmp_path / "zoo")]) == 2
    assert "it has no folder ppcls/arch/backbone" in capsys.readouterr().err
    assert not (tmp_path / "zoo").exists(), "nothing is written before all is there"


def test_the_page_names_the_pairs_of_the_list():
    page = (ROOT / "docs" / "zoo.md").read_text()
    missing = [name for name in [*PAIRS, *BACKBONES] if f"| {name} |" not in page and f"`{name}`" not in page]
    assert missing == []
