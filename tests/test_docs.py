"""What the documents say is so: links, tests, flags, code, equal languages. test_documented_commands.py runs their commands."""

from __future__ import annotations

import contextlib
import functools
import http.server
import re
import shlex
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import alignment_doctor.cli
from alignment import cli
from bench.flags import ablate_parser, bench_parser, patches_parser, planted_parser, real_parser
from mobilenetv3_common import __version__
from projects.mobilenetv3.faults import FAULTS
from tests.browser import browser, opened
from tests.conftest import ROOT
from tests.documents import DOCUMENTS, PAGES, code, commands
from tests.test_tipc import parse, tool


def every_command() -> list[str]:
    return list(dict.fromkeys(command.text for document in DOCUMENTS for command in commands(document)))


def test_every_test_that_is_named_exists():
    text = "".join(page.read_text() for page in PAGES)
    named = re.findall(r"`(?:tests/)?(test_\w+\.py)(?:::(\w+))?`", text)
    assert len(named) > 25
    for file, test in named:
        source = (ROOT / "tests" / file).read_text()
        assert not test or f"def {test}(" in source, f"{file}::{test}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_and_picture_exists(document):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", document.read_text()):
        assert target.startswith("#") or (document.parent / target.split("#")[0]).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_no_page_has_a_heading_twice(page):
    """As where a replacement repeated half of the page."""
    headings = Counter(re.findall(r"^#{1,6} .*$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M))
    assert headings and [heading for heading, count in headings.items() if count > 1] == []


@pytest.mark.parametrize("command", every_command())
def test_every_commands_flags_exist(command):
    """Each tool's own parser takes the flags; each file that a command names as its program is there."""
    words = [word for word in shlex.split(command) if not re.fullmatch(r"[A-Z_]+=\S*", word) and word != "&"]
    starts = [i for i, word in enumerate(words) if re.match(r"(tools|scripts|test_tipc|docs)/", word)]
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M)
    elif words[:3] == ["python", "-m", "alignment"]:
        parsers = {
            "run": cli.run_parser,
            "dump": cli.dump_parser,
            "bench": bench_parser,
            "weights": cli.weights_parser,
        }
        args = parsers[words[3]]().parse_args(words[4:])
        assert words[3] == "dump" or (ROOT / args.project).is_file()
    elif words[:2] == ["mnv3", "audit"]:
        cli.audit_parser().parse_args(words[2:])
    elif words[:4] == ["python", "-m", "bench", "ablate"]:
        ablate_parser().parse_args(words[4:])
    elif words[:4] == ["python", "-m", "bench", "patches"]:
        patches_parser().parse_args(words[4:])
    elif words[:4] == ["python", "-m", "bench", "planted"]:
        planted_parser().parse_args(words[4:])
    elif words[:4] == ["python", "-m", "bench", "real"]:
        real_parser().parse_args(words[4:])
    elif words[:3] == ["python", "-m", "http.server"]:
        pass  # Python's own
    elif words[:2] == ["python", "-m"] and words[2].startswith(("alignment.", "projects.")):
        module = words[2].replace(".", "/")
        assert (ROOT / f"{module}.py").is_file() or (ROOT / module / "__main__.py").is_file()
    elif starts:
        program, arguments = words[starts[0]], words[starts[0] + 1 :]
        assert (ROOT / program).is_file(), program
        if program == "tools/align.py" or program.startswith("scripts/0"):
            cli.run_parser(ROOT / "projects" / "mobilenetv3" / "project.py").parse_args(arguments)
        elif "--help" in arguments:
            pass
        elif program in ("tools/train.py", "tools/eval.py") and "--confusion" not in arguments and "output/" not in command:
            parse([program, *arguments])
        elif program == "tools/doctor.py":
            alignment_doctor.cli.parser().parse_args(alignment_doctor.cli.with_command(arguments))
        elif program in ("tools/predict.py", "tools/infer.py", "tools/serve.py", "tools/export_model.py", "tools/resnet50.py"):
            tool(Path(program).stem).parser().parse_args(arguments)
    else:
        assert words[0] in ("pip", "curl", "nginx"), command


def test_the_changelogs_newest_release_is_this_version():
    releases = re.findall(r"^## (\d+\.\d+\.\d+)\b", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert releases[:1] == [__version__]


def test_chinese_pages_have_one_term_each():
    pages = [ROOT / "README_zh.md", *(ROOT / "docs").glob("*_zh.md"), *(ROOT / "docs" / "checks" / "zh").glob("*.md")]
    assert len(pages) > 90
    for page in pages:
        for other, term in (("本底噪声", "噪声下限"), ("审计", "对比检查")):
            assert other not in page.read_text(encoding="utf-8"), f"{page.name}: {term}, not {other}"
        # 移植 is what somebody does; what comes of it is a 移植版.
        noun = re.search(r".{0,8}移植(?!版|时|中|后|到|自己|模型|的模型|\*).{0,8}", page.read_text(encoding="utf-8"))
        assert noun is None, f"{page.name}: 移植版 in {noun[0]!r}"  # type: ignore[index]


@pytest.mark.parametrize("name", ["README.md", "README_zh.md"])
def test_a_readme_says_what_is_needed_before_its_first_command(name):
    before = (ROOT / name).read_text(encoding="utf-8").partition("make setup")[0]
    assert "Python 3.11" in before and "`make`" in before


def test_the_readmes_code_runs():
    """Its Python, too, is there to be copied."""
    loading, snippet = code(ROOT / "README.md", "python")
    assert "load_trained" in loading, "run by test_create_model.py, which has a checkpoint"
    names: dict = {}
    exec(snippet, names)
    assert names["logits"].shape == [2, 10]


def test_the_fault_table_counts_every_fault():
    rows = re.findall(r"^\| (\w+) \| (\d+) \| \d+ \| \d+ \| \d+ \|", (ROOT / "docs" / "localize.md").read_text(), re.M)
    counts = Counter(fault.area for fault in FAULTS.values())
    assert {area: int(count) for area, count in rows} == {**counts, "all": len(FAULTS)}


def test_both_readmes_have_the_same_commands_and_sections():
    english, chinese = ROOT / "README.md", ROOT / "README_zh.md"
    assert [c.text for c in commands(english)] == [c.text for c in commands(chinese)]
    assert [c.shown for c in commands(english)] == [c.shown for c in commands(chinese)]
    headings = [len(re.findall(r"^## ", document.read_text(), re.M)) for document in (english, chinese)]
    assert headings[0] == headings[1]
    rows = [len(re.findall(r"^\|", document.read_text(), re.M)) for document in (english, chinese)]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    "page",
    ["tutorial", "port_your_own", "exported", "three_frameworks", "glossary", "audit", "deploy", "recipes", "projects", "localize"],
)
def test_the_chinese_pages_have_the_same_commands_sections_and_outputs(page):
    english, chinese = (ROOT / "docs" / name for name in (f"{page}.md", f"{page}_zh.md"))
    assert [(c.text, c.shown) for c in commands(english)] == [(c.text, c.shown) for c in commands(chinese)]
    for mark in (r"^#+ ", r"^\|"):
        assert len(re.findall(mark, english.read_text(), re.M)) == len(re.findall(mark, chinese.read_text(), re.M))


@contextlib.contextmanager
def served(folder):
    """The address of a server of static files."""
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_the_site_builds_without_warnings_and_loads_nothing_from_elsewhere(tmp_path):
    site = tmp_path / "site"
    command = ["make", "-o", ".venv/.installed", "docs", f"RUN={sys.executable}", f"SITE={site}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    for module, name in (
        ("alignment.localize.localize", "localize"), ("mobilenetv3_common.preprocess", "eval_transform"),
        ("mobilenetv3_paddle.deploy.engines", "create_engine"), ("mobilenetv3_paddle.deploy.serving.batcher", "Batcher"),
    ):  # fmt: skip
        assert re.search(rf'id="[\w.]+\.{name}"', (site / "api" / f"{module}.html").read_text()), name
        assert f'href="api/{module}.html"' in (site / "api.html").read_text()
    for page, language in (("index.html", "en"), ("glossary_zh.html", "zh"), ("checks/zh/data.leak.html", "zh")):
        assert f'<html lang="{language}"' in (site / page).read_text()
    with contextlib.ExitStack() as stack:
        chromium = stack.enter_context(browser())
        for page in ("index.html", "localize.html", "api.html"):
            with opened(chromium, (tmp_path / "site" / page).as_uri()) as shown:
                time.sleep(0.2)
                assert shown.inner_text("h1")
                blocks = shown.locator(".md-content pre > code").count()
                assert shown.locator(".md-content .md-clipboard, .md-content .md-code__button").count() >= blocks, page
        address = stack.enter_context(served(site))
        for words, found in (("噪声下限", "glossary_zh.html"), ("noise floor", "glossary.html")):
            with opened(chromium, f"{address}/index.html") as shown:
                shown.fill("input[name=query]", words)
                shown.wait_for_selector(".md-search-result__link")
                targets = [link.get_attribute("href") for link in shown.locator(".md-search-result__link").all()]
                assert any(found in target for target in targets), (words, targets)
