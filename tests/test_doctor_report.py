"""What the doctor prints and its page: 80 columns, colour on a terminal, pages that explain, named bars, scales that show all."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from alignment_doctor import report
from alignment_doctor.compare.command import _names
from alignment_doctor.findings import Finding, found, not_applicable, nothing
from alignment_doctor.items import every_check
from alignment_doctor.report import Examination, explanation, page, text, where_explained
from mobilenetv3_common.drawing import Series, bars, chart, strip
from tests.browser import DESK_SMALL, PHONE, browser, opened
from tests.conftest import LITE_DATA, ROOT

CHECKS = {check.id: check for check in every_check()}


@pytest.fixture(scope="module")
def chromium():
    with browser() as made:
        yield made


def examined(where=()):
    findings = [
        Finding(CHECKS["data.leak"], found("3 pictures of validation are in training", where or ["val/a.png = train/a.png"])),
        Finding(CHECKS["data.size"], nothing("sizes: 21, 400 x 286 most often; shortest side 249 " * 3)),
        Finding(CHECKS["data.manifest"], not_applicable("no manifest was given: --compare-manifest FILE")),
    ]
    return Examination("data", "pictures", findings)


def test_the_table_has_80_columns_and_the_page_of_each_problem():
    lines = text(examined()).splitlines()
    table = lines[: lines.index("")]
    assert max(map(len, table)) <= 80 and " ".join(" ".join(table).split()).count("shortest side 249") == 3, "nothing is lost"
    assert "\033" not in "\n".join(lines)
    assert "  explained with an example: docs/checks/data.leak.md" in lines
    assert not any("NAME.md" in line for line in lines)


def test_every_check_is_explained_where_it_says(monkeypatch, tmp_path):
    assert all(explanation(id).is_file() for id in CHECKS)
    assert not explanation("data.other").is_file()
    monkeypatch.chdir(tmp_path)
    assert Path(where_explained("data.leak")) == ROOT / "docs" / "checks" / "data.leak.md", "from another folder the whole path"


def test_outside_a_checkout_the_advice_names_commands_of_the_installed_tool(monkeypatch, tmp_path):
    """In the terminal, the page with what it explains, and JSON."""
    stuck = Examination("run", "output", [Finding(CHECKS["run.learning"], found("top-1 at chance", ["top-1 0.5"]))])
    monkeypatch.setattr("sys.argv", ["tools/doctor.py"])
    monkeypatch.chdir(ROOT)
    assert "python tools/lr_find.py" in text(stuck) and "mnv3 lr-find" not in text(stuck)
    monkeypatch.chdir(tmp_path)
    for said in (text(stuck), page(stuck), str(report.as_json(stuck)["checks"])):
        assert "mnv3 lr-find" in said and "python tools/" not in said


def test_a_terminal_gets_colour_and_a_pipe_none(tmp_path):
    data = tmp_path / "data"
    shutil.copytree(LITE_DATA, data)
    (picture,) = (data / "val" / "cat").glob("cat_0.*")
    (twin,) = (data / "train" / "cat").glob("cat_*0.*") or sorted((data / "train" / "cat").iterdir())[:1]
    twin.write_bytes(picture.read_bytes())
    command = [sys.executable, "-m", "alignment_doctor", "data", str(data)]
    plain = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert plain.returncode == 1 and "\033" not in plain.stdout, plain.stderr
    leader, follower = pty.openpty()
    with subprocess.Popen(command, cwd=ROOT, stdout=follower, env={**os.environ, "TERM": "xterm"}) as shown:
        os.close(follower)
        got = b""
        while chunk := _read(leader):
            got += chunk
    coloured = got.decode()
    assert shown.returncode == 1 and "\033[31mproblem found" in coloured and "\033[32mnone found" in coloured
    words = re.sub(r"\033\[[\d;]*m|\r", "", coloured)
    assert words.split() == plain.stdout.split(), "the same words"
    table = plain.stdout.partition("\n\n")[0]
    assert words.startswith(f"{table}\n"), "a line of the table that fits stays as it is, whatever its colour takes"


def _read(stream):
    try:
        return os.read(stream, 65536)
    except OSError:
        return b""


@pytest.mark.parametrize("size", [DESK_SMALL, PHONE])
def test_a_page_with_a_problem_says_it_first_and_folds_what_is_sound(chromium, tmp_path, size):
    path = tmp_path / "page.html"
    path.write_text(page(examined([f"val/{n}.png = train/{n}.png" for n in range(40)])))
    with opened(chromium, path.as_uri(), viewport=size) as shown:
        assert shown.evaluate("document.documentElement.scrollHeight") <= 1500
        box = shown.locator("dl.place").bounding_box()
        assert box["y"] + box["height"] <= 900
        assert not shown.get_by_text("no manifest was given").is_visible()
        shown.click("text=1 not applicable, and why")
        assert shown.get_by_text("no manifest was given").is_visible()
        shown.click("text=What this check means, an example, and how to fix it")
        assert "## How it is checked" in shown.inner_text("details[open] pre")


def test_advice_names_what_is_on_the_page(tmp_path):
    """data.labels speaks of the contact sheet: the section is called that."""
    from alignment_doctor.data.command import sheet
    from mobilenetv3_common.dataset_index import index_dataset
    from mobilenetv3_common.train_config import TrainConfig

    assert "contact sheet" in CHECKS["data.labels"].fix and "contact sheet" in CHECKS["check.held_out"].fix
    import numpy as np

    index = index_dataset(LITE_DATA, "val")
    made = sheet({"val": index}, np.ones(len(index), dtype=bool), TrainConfig(framework="ref"))[0]
    assert made.title.startswith("Contact sheet: ")


# --- drawings -------------------------------------------------------------------------------------------------------------------


def test_bars_are_named_sorted_and_folded():
    drawn = bars("train", [("cat", 3), ("<dog>", 5), ("owl", 0)])
    assert re.findall(r'class="name">([^<]+)</span>', drawn) == ["&lt;dog&gt;", "cat", "owl"]
    assert re.findall(r"width:([\d.]+)%", drawn) == ["100.0", "60.0", "0.0"]
    assert "powers of ten" not in drawn and "powers of ten" in bars("train", [("cat", 4), ("dog", 5), ("owl", 5000)])
    many = bars("train", [(f"c{n}", n + 1) for n in range(100)])
    assert "70 more between these" in many and many.count('class="name"') == 100
    assert many.index("c99<") < many.index("<details>") < many.index("c50<") < many.index("</details>") < many.index("c0<")


def test_a_value_that_dwarfs_the_others_gets_powers_of_ten():
    def ticks(*values):
        return "1e+0" in chart("loss", [str(n) for n in range(len(values))], [Series("a", list(values))], None, "update")

    assert ticks(1.0, 1.1, 0.9, 5000.0)
    assert not ticks(1.0, 1.1, 0.9, 5.0) and not ticks(-1.0, 1.1, 0.9, 5000.0), "below zero there are no powers of ten"
    assert not ticks(1.0, 1.1, 0.9, float("inf"))


def test_a_strip_marks_the_wrong_places_alone():
    drawn = strip([1e-16, None, 1e-3, 0.0], ["a", "b", "c", "d"], {2}, "where")
    assert re.findall(r'fill="var\((--\w+)\)"[^>]*><title>(\w)', drawn) == [("--soft", "a"), ("--bad", "c")]
    assert float(re.findall(r'height="([\d.]+)" fill', drawn)[1]) > 5 * float(re.findall(r'height="([\d.]+)" fill', drawn)[0])


def test_runs_are_called_by_what_tells_them_apart():
    assert _names(Path("output/a"), Path("output/b")) == ["a", "b"]
    assert _names(Path("x/run/log.jsonl"), Path("y/run/log.jsonl")) == ["x/run/log.jsonl", "y/run/log.jsonl"]
    assert _names(Path("a"), Path("a")) == ["a (1)", "a (2)"] and _names() == []


def test_these_checks_can_fail(monkeypatch):
    monkeypatch.setattr(report, "COLUMNS", 200)
    with pytest.raises(AssertionError):
        test_the_table_has_80_columns_and_the_page_of_each_problem()
