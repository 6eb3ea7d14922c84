"""dump and load from Python: two sides that need not share a process, and the audit of what they stored."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import paddle
import pytest
import torch
from safetensors.numpy import load_file

from alignment import Dump, audit, dump, load
from mobilenetv3_common.errors import UserError
from tests.conftest import ROOT

pytestmark = pytest.mark.usefixtures("own_temporary")  # reports that are given no folder


def reference():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3))


def port(padding=1):
    n = paddle.nn
    return n.Sequential(n.Conv2D(3, 8, 3, padding=padding), n.ReLU(), n.Conv2D(8, 4, 3))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dumps")
    return dump(reference, folder / "reference", inputs="2x3x12x12", seed=3)


def test_two_right_dumps_pass_and_are_read_back(stored, tmp_path):
    assert isinstance(stored, Dump) and (stored.role, stored.framework, stored.seed, stored.training) == (
        "reference",
        "torch",
        3,
        False,
    )
    ours = dump(port, tmp_path / "port", reference=stored)
    assert (ours.role, ours.framework, ours.problem) == ("port", "paddle", "")
    assert load(tmp_path / "port") == ours and "torch" in stored.environment
    result = audit(ours, load(stored.folder), report=tmp_path / "report")
    assert result.passed and not result.mistakes and len(result.quantities) > 5
    assert (tmp_path / "report" / "report.html").is_file() and result.to_markdown().startswith("### ")


def test_inputs_of_a_dump_are_given_as_those_of_an_audit(tmp_path):
    picture = torch.linspace(-1, 1, 2 * 3 * 12 * 12).reshape(2, 3, 12, 12)
    for name, given in (("a", picture), ("b", {"x": picture.numpy()}), ("c", (picture,))):
        made = dump(reference, tmp_path / name, inputs=given)
        stored = load_file(made.folder / "arrays.safetensors")
        assert any(array.shape == picture.shape and np.array_equal(array, picture.numpy()) for array in stored.values()), name


def test_a_wrong_port_is_named_where_neither_framework_is(stored, tmp_path):
    ours = dump(lambda: port(padding=0), tmp_path / "port", reference=str(stored.folder))
    result = audit(ours, stored)
    assert not result.passed and [one.place for one in result.mistakes] == ["0"], str(result)
    code = (
        "import sys; sys.modules['torch'] = sys.modules['paddle'] = None\n"
        "from alignment import audit, load\n"
        f"print(audit(load({str(ours.folder)!r}), load({str(stored.folder)!r})).mistakes[0].place)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "0\n", done.stderr


def test_what_cannot_be_used_is_named(stored, tmp_path):
    with pytest.raises(UserError, match="no dump here"):
        load(tmp_path)
    (tmp_path / "dump.json").write_text("[]")
    with pytest.raises(UserError, match="is not the table of a dump"):
        load(tmp_path)
    with pytest.raises(UserError, match="no argument 'shape'"):
        dump(reference, tmp_path / "x", shape="2x3x12x12")
    with pytest.raises(UserError, match="inputs: expected a shape"):
        dump(reference, tmp_path / "x", inputs=[["a"]])
    with pytest.raises(UserError, match="a dump is audited against a dump"):
        audit(stored, reference)
    with pytest.raises(UserError, match=r"dump is a int"):
        dump(3, tmp_path / "x")
