"""docs/notebooks: executed, without paths of a machine, and what they show is what the code gives today. And the executor."""

from __future__ import annotations

import json

import pytest

from mobilenetv3_common.errors import UserError
from scripts.run_notebooks import NOTEBOOKS, executed, main, outputs_of, read, shown
from tests.conftest import ROOT

FOUND = sorted(NOTEBOOKS.glob("*.ipynb"))


def test_there_are_notebooks_of_a_port_and_of_a_run():
    assert [path.stem for path in FOUND] == ["audit_a_port", "examine_a_run"]


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_a_notebook_is_executed_and_names_no_machine(path):
    notebook, text = read(path), path.read_text(encoding="utf-8")
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(bool(cell["outputs"]) for cell in cells) >= len(cells) - 1, "outputs are stored: a code host runs nothing"
    assert all(cell.keys() >= {"id", "metadata", "source"} for cell in notebook["cells"])
    for path_of_a_machine in ("/tmp/", "/work/", "/root", "/home/", str(ROOT)):
        assert path_of_a_machine not in text
    assert len(text) < 300_000


def test_the_port_is_found_wrong_and_then_right():
    said = "\n".join(shown(read(NOTEBOOKS / "audit_a_port.ipynb")))
    assert "FAIL: # mistakes found in the port." in said and "PASS: no mistake found in the port" in said
    assert "picture" in said and "self.norm# = nn.LayerNorm(dim, epsilon=#" in said


@pytest.mark.slow
@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_it_shows_what_the_code_gives_today(path, capsys):
    before = path.read_bytes()
    assert main(["--check", str(path)]) == 0, capsys.readouterr().err
    assert path.read_bytes() == before


# --- the executor ------------------------------------------------------------------------------------------------------------


class Shown:
    def _repr_html_(self):
        return "<b>1</b>"

    def _repr_png_(self):
        return b"png"


def test_outputs_are_those_of_the_format():
    names = {"Shown": Shown}
    assert outputs_of("x = 2", names, 1) == []
    stream, value = outputs_of("print('a')\nx + 1", names, 2)
    assert stream == {"name": "stdout", "output_type": "stream", "text": ["a\n"]}
    assert value == {"data": {"text/plain": ["3"]}, "execution_count": 2, "metadata": {}, "output_type": "execute_result"}
    data = outputs_of("Shown()", names, 3)[0]["data"]
    assert data["text/html"] == ["<b>1</b>"] and data["image/png"] == "cG5n"


def notebook_of(*sources):
    cells = [{"cell_type": "code", "id": str(i), "metadata": {}, "source": [s], "outputs": []} for i, s in enumerate(sources)]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def test_a_cell_that_raises_or_shows_something_else_is_told(tmp_path, capsys):
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps(notebook_of("x = 1", "raise ValueError('no such thing')")))
    assert main([str(path)]) == 1 and "no such thing" in capsys.readouterr().err
    path.write_text(json.dumps(executed(notebook_of("print('one 1')"))))
    assert main(["--check", str(path)]) == 0
    path.write_text(path.read_text().replace("one 1", "one 7").replace("print('one 7')", "print('one 1')"))
    assert main(["--check", str(path)]) == 0, "figures may differ"
    path.write_text(path.read_text().replace('"one 7\\n"', '"two 1\\n"'))
    assert main(["--check", str(path)]) == 1 and "shows something else today: one #" in capsys.readouterr().err
    path.write_text("{}")
    assert main([str(path)]) == 2 and "is no notebook" in capsys.readouterr().err
    path.write_text('{"cells": [], "nbformat": 3}')
    with pytest.raises(UserError, match="format 4"):
        read(path)
