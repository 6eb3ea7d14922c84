"""What the documents say is so: links, tests, flags and commands; the first steps are run as they stand."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from alignment import cli
from tests.browser import browser, opened
from tests.conftest import ROOT
from tests.test_tipc import parse, tool

PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "README_zh.md", ROOT / "CONTRIBUTING.md", *PAGES]
FENCE = re.compile(r"^```(?:bash)?\n(.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"^(?:[A-Z_]+=\S+ )*(?:python|bash|make|pip|torchrun|curl|scripts/\S+\.sh) .*$", re.M)

# What README's "First steps" and docs/deploy.md run one after the other; test_the_first_steps_work runs them.
FIRST_STEPS = [
    "python tools/train.py --config configs/lite.yaml --data-path lite_data --output-dir output/lite",
    "python tools/predict.py --img-path lite_data/val/cat/cat_0.JPEG --pretrained output/lite/best.safetensors",
    "python tools/eval.py --config output/lite/config.yaml --pretrained output/lite/best.safetensors",
    "python tools/export_model.py --pretrained output/lite/best.safetensors --output-dir output/lite/exported --int8 "
    "--calibration-data lite_data/train",
    "python tools/infer.py --model-dir output/lite/exported --img-path lite_data/val --batch-size 8 --benchmark",
    "python tools/serve.py --model-dir output/lite/exported --port 8000",
    "curl --data-binary @lite_data/val/cat/cat_0.JPEG http://127.0.0.1:8000/predict",
]
# Not run by a test, and why; their flags are checked all the same.
NOT_RUN = {
    "ImageNet, or data of the reader's": r"/data/|--gpus",
    "torchvision's published file, from the network": r"--weights torchvision|047dcff4",
    "several machines": r"10\.0\.0\.1|--nnodes",
    "minutes; .ci/run runs it": r"^make |scripts/06_test_train|--bench-faults|^bash test_tipc",
    "four minutes; its figures are in docs/benchmarks.md": r"prepare_digits|configs/digits\.yaml|output/config\.yaml",
    "installs": r"^pip |^python -m pip",
    "weights of the reader's": r"my_port|small\.pdparams|mine\.npz",
    "another test runs the like": r"--inject|scripts/0|--steps 1,4|docs/examples|alignment\.compare|alignment\.false_alarms",
}


def commands(document: Path) -> list[str]:
    text = document.read_text()
    return [line.split("  #")[0].strip() for block in FENCE.findall(text) for line in COMMAND.findall(block)]


def every_command() -> list[str]:
    return list(dict.fromkeys(command for document in DOCUMENTS for command in commands(document)))


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


@pytest.mark.parametrize("command", every_command())
def test_every_commands_flags_exist(command):
    """Each tool's own parser takes the flags; each file that a command names as its program is there."""
    words = [word for word in shlex.split(command) if not re.fullmatch(r"[A-Z_]+=\S*", word) and word != "&"]
    starts = [i for i, word in enumerate(words) if re.match(r"(tools|scripts|test_tipc|docs)/", word)]
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M)
    elif words[:2] == ["python", "-m"] and words[2].startswith("alignment."):
        assert (ROOT / (words[2].replace(".", "/") + ".py")).is_file()
    elif starts:
        program, arguments = words[starts[0]], words[starts[0] + 1 :]
        assert (ROOT / program).is_file(), program
        if program == "tools/align.py" or program.startswith("scripts/0"):
            cli.parser().parse_args(arguments)
        elif program in ("tools/train.py", "tools/eval.py") and "--confusion" not in arguments and "output/" not in command:
            parse([program, *arguments])
        elif program in ("tools/predict.py", "tools/infer.py", "tools/serve.py", "tools/export_model.py"):
            tool(Path(program).stem).parser().parse_args(arguments)
    else:
        assert words[0] in ("pip", "curl"), command


@pytest.mark.parametrize("command", every_command())
def test_every_command_is_run_or_says_why_not(command):
    run_here = command in FIRST_STEPS or command.startswith(("python tools/predict.py", "python tools/infer.py", "curl -F"))
    reasons = [reason for reason, pattern in NOT_RUN.items() if re.search(pattern, command)]
    assert run_here or reasons, command


def run(command: str, folder: Path, **options) -> subprocess.CompletedProcess:
    words = [sys.executable if word == "python" else word for word in shlex.split(command)]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=200, check=False, **options)


def test_the_first_steps_work(tmp_path):
    """README's quick start and the commands of docs/deploy.md, as they stand, in a copy of the project."""
    for document in (ROOT / "README.md", ROOT / "README_zh.md"):
        assert [c for c in FIRST_STEPS if c not in commands(document)] == []
    for name in ("tools", "configs", "lite_data", "mobilenetv3_common", "mobilenetv3_paddle", "mobilenetv3_ref", "alignment"):
        (tmp_path / name).symlink_to(ROOT / name)
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "2"}
    train, predict, evaluate, export, infer, serve, ask = FIRST_STEPS
    assert (done := run(train, tmp_path, env=env)).returncode == 0, done.stderr
    done = run(predict, tmp_path, env=env)
    assert done.returncode == 0 and done.stdout.splitlines()[1].endswith("%  cat"), done.stdout + done.stderr
    assert float(done.stdout.splitlines()[1].split()[0]) > 60
    done = run(evaluate, tmp_path, env=env)
    assert done.returncode == 0 and "top1: 1.0" in done.stdout, done.stdout + done.stderr
    assert (done := run(export, tmp_path, env=env)).returncode == 0, done.stderr
    assert "model_int8.onnx" in done.stdout
    assert "pictures/s" in run(infer, tmp_path, env=env).stdout
    page = commands(ROOT / "docs" / "deploy.md")
    for command in page:
        if command.startswith(("python tools/predict.py", "python tools/infer.py")):
            assert (done := run(command, tmp_path, env=env)).returncode == 0, command + done.stderr
    accuracy = run(next(c for c in page if "--accuracy" in c), tmp_path, env=env).stdout
    assert float(re.search(r"top-1: ([\d.]+)", accuracy)[1]) > 0.9, "int8 too"
    served(serve, [ask, next(c for c in page if c.startswith("curl -F"))], tmp_path, env)


def served(command: str, questions: list[str], folder: Path, env: dict) -> None:
    words = [sys.executable if word == "python" else word for word in shlex.split(command.replace("8000", "0"))]
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True, env=env)
    try:
        port = re.search(r":(\d+)/", process.stdout.readline())[1]
        for question in questions if shutil.which("curl") else []:
            done = run(question.replace("8000", port), folder)
            assert done.returncode == 0 and json.loads(done.stdout)["predictions"][0]["name"] == "cat", done.stderr
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_the_localisation_example_says_what_the_page_shows():
    done = run("python docs/examples/localize_resnet18.py", ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs" / "localize.md").read_text()
    verdicts = done.stdout.splitlines()[:5]
    assert all(verdict.rstrip() in page for verdict in verdicts), verdicts


def test_both_readmes_have_the_same_commands_and_sections():
    english, chinese = ROOT / "README.md", ROOT / "README_zh.md"
    assert commands(english) == commands(chinese)
    headings = [len(re.findall(r"^## ", document.read_text(), re.M)) for document in (english, chinese)]
    assert headings[0] == headings[1]
    rows = [len(re.findall(r"^\|", document.read_text(), re.M)) for document in (english, chinese)]
    assert rows[0] == rows[1]


def test_the_site_builds_without_warnings_and_loads_nothing_from_elsewhere(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    api = (tmp_path / "site" / "api.html").read_text()
    for name in ("localize", "copy_to_paddle", "eval_transform", "create_engine", "Batcher"):
        assert re.search(rf'id="[\w.]+\.{name}"', api), name
    with contextlib.ExitStack() as stack:
        chromium = stack.enter_context(browser())
        for page in ("index.html", "localize.html", "api.html"):
            with opened(chromium, (tmp_path / "site" / page).as_uri()) as shown:
                time.sleep(0.2)
                assert shown.inner_text("h1")
