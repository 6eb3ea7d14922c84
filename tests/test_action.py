"""action.yml and .pre-commit-hooks.yaml: their scripts are run as a runner runs them, GitHub's client apart, which is recorded."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest
import yaml

from alignment.cli import COMMANDS
from alignment.flags import audit_parser
from tests.conftest import ROOT

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
OWN = "docs/examples/own_project.py"
CLIENT = """#!/bin/sh
printf '%s\\n' "$*" >> "$CALLS"
case "$*" in *--jq*) cat "$IDS";; esac
for word in "$@"; do case "$word" in body=@*) cp "${word#body=@}" "$CALLS.body";; esac; done
"""


@pytest.fixture
def runner(tmp_path):
    """Runs a step with its own environment; ``gh`` writes down what it is asked."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "gh").write_text(CLIENT)
    (folder / "gh").chmod(0o755)
    (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    for name in ("ids", "output", "summary"):
        (tmp_path / name).touch()

    def run(name, **environment):
        given = {
            **os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
            "CALLS": str(tmp_path / "calls"), "IDS": str(tmp_path / "ids"), "GITHUB_OUTPUT": str(tmp_path / "output"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"), "GITHUB_REPOSITORY": "owner/name", **environment,
        }  # fmt: skip
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]]
        return subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, check=False)

    return run


def test_no_input_is_pasted_into_a_script():
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", ""), step["name"]
        assert step.get("shell") == "bash" or "uses" in step
    used = set(re.findall(r"inputs\.(\w+)", (ROOT / "action.yml").read_text()))
    assert used == set(ACTION["inputs"]), "every input is used, and none is unknown"


@pytest.mark.parametrize(
    ("ids", "method"), [("", "POST repos/owner/name/issues/7/comments"), ("12\n34\n", "PATCH repos/owner/name/issues/comments/12")]
)
def test_the_report_is_commented_once_and_then_written_anew(runner, tmp_path, ids, method):
    (tmp_path / "alignment-report").mkdir()
    (tmp_path / "alignment-report" / "report.md").write_text("### PASS: no mistake\n")
    (tmp_path / "ids").write_text(ids)
    done = runner("comment", NUMBER="7", PORT="port.py:Net", REPORT="alignment-report")
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 2 and calls[1].startswith(f"api --method {method} --field body=@")
    assert (tmp_path / "calls.body").read_text() == "<!-- alignment audit port.py:Net -->\n### PASS: no mistake\n"


def test_an_audit_leaves_report_status_and_summary(runner, tmp_path):
    port = ROOT / OWN
    done = runner("audit", PORT=f"{port}:Port", REFERENCE=f"{port}:Reference", SHAPE="2x3x16x16", ARGUMENTS="--eval-only --seed 1")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "output").read_text() == "report=alignment-report\nstatus=0\n"
    assert (tmp_path / "summary").read_text().startswith("### PASS") and "--seed 1" in (tmp_path / "summary").read_text()
    assert (tmp_path / "alignment-report" / "report.html").is_file()


def test_what_cannot_be_used_ends_the_job_with_its_status(runner, tmp_path):
    done = runner("audit", PORT="a.py:Port; touch x", REFERENCE="b.py:R", SHAPE="", ARGUMENTS="")
    assert done.returncode == 0 and "status=2" in (tmp_path / "output").read_text() and "error: " in done.stderr
    assert not (tmp_path / "x").exists()
    assert runner("verdict", STATUS="2").returncode == 2 and runner("verdict", STATUS="0").returncode == 0


def test_the_hooks_are_commands_of_today():
    hooks = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    assert set(hooks) == {"alignment-audit", "alignment-compare"}
    for hook in hooks.values():
        program, command = shlex.split(hook["entry"])
        assert program == "alignment" and command in COMMANDS and hook["pass_filenames"] is False and hook["language"] == "system"
    (args,) = re.findall(r"args: \[(.*)\]", hooks["alignment-audit"]["description"])
    assert audit_parser().parse_args(args.split(", ")).input == "2x3x64x64"
