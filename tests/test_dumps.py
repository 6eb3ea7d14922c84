"""Two models that never share a process: what the two dumps say, against the audit of both at once, and what is refused."""

from __future__ import annotations

import json
import shutil

import pytest

from alignment.cli import main
from tests.conftest import mode_of, run_command
from tests.test_audit import PADDLE, TORCH

SHAPE = ("--input", "2x3x16x12")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The two files, and the dump of the reference."""
    made = tmp_path_factory.mktemp("dumps")
    (made / "theirs.py").write_text(TORCH)
    assert main(["dump", f"{made}/theirs.py:Net", "--framework", "torch", *SHAPE, "--training", "--out", f"{made}/reference"]) == 0
    return made


def both(folder, place, port, *flags, reference="reference", source=PADDLE):
    """Exit status and alignment.json of the audit of a port's dump; the report's folder is ``place/report``."""
    (place / "ours.py").write_text(source)
    given = ("--reference-dump", f"{folder}/{reference}")
    assert main(["dump", f"{place}/ours.py:{port}", *given, "--out", f"{place}/port", *flags]) == 0
    report = ("--report", f"{place}/report")
    status = main(["audit", "--port-dump", f"{place}/port", *given, *report, *[f for f in flags if f == "--training"]])
    return status, json.loads((place / "report" / "alignment.json").read_text())


def live(folder, place, port, *flags):
    sides = ("--port", f"{place}/ours.py:{port}", "--reference", f"{folder}/theirs.py:Net")
    status = main(["audit", *mode_of(flags), *sides, *SHAPE, "--report", f"{place}/live", *flags])
    return status, json.loads((place / "live" / "alignment.json").read_text())


@pytest.mark.parametrize("port", ["Net", "Nested"])
def test_a_sound_pair_passes_with_the_numbers_of_one_process(folder, tmp_path, port):
    apart, together = both(folder, tmp_path, port), live(folder, tmp_path, port)
    assert apart[0] == together[0] == 0
    for mine, other in zip(apart[1]["steps"], together[1]["steps"], strict=True):
        # Other sizes of input and larger values are compared in one process alone, and the dumps' audit says so.
        other["quantities"] = [q for q in other["quantities"] if not q["name"].startswith(("size.", "large."))]
        assert [q["name"] for q in mine["quantities"]] == [q["name"] for q in other["quantities"]]
        assert [q["float64_diff"] for q in mine["quantities"]] == [q["float64_diff"] for q in other["quantities"]]
        assert [q["paddle_error"] for q in mine["quantities"]] == [q["paddle_error"] for q in other["quantities"]]
    block = (tmp_path / "report" / "report.md").read_text()
    assert "### Passed, as far as" in block and "| port made by | python " in block and "not held by dumps: fresh weights" in block


FAULTS = {
    "padding": ("nn.Conv2D(3, width, 3, padding=1)", "nn.Conv2D(3, width, 3, padding=2)"),
    "eps": ("nn.BatchNorm2D(width)", "nn.BatchNorm2D(width, epsilon=1e-3)"),
    "no bias": ("nn.Linear(width, 5)", "nn.Linear(width, 5, bias_attr=False)"),
    "axes": ("(self.norm(self.conv(x))).mean([2, 3])", "(self.norm(self.conv(x))).max([2, 3])"),
    "detached": (
        "self.head(nn.functional.relu(self.norm(self.conv(x)))",
        "self.head(nn.functional.relu(self.norm(self.conv(x).detach()))",
    ),
    "it raises": ("return self.head(nn.functional.relu(self.norm", "return self.head(nn.functional.relu(self.nrm"),
    "another layer": ("self.norm = nn.BatchNorm2D(width)", "self.norm = nn.Conv2D(width, width, 1)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mistake_has_the_place_and_the_name_that_one_process_gives(folder, tmp_path, fault):
    old, new = FAULTS[fault]
    assert old in PADDLE
    apart = both(folder, tmp_path, "Net", source=PADDLE.replace(old, new))
    together = live(folder, tmp_path, "Net")
    assert apart[0] == together[0] == 1
    mine, other = (made[1]["first_divergence"] for made in (apart, together))
    assert (mine["stage"], mine["location"]) == (other["stage"], other["location"]), (mine, other)
    if fault == "axes":  # calls of functions, by their lines, are compared in one process alone: a dump does not hold them
        assert mine["hint"].startswith("no known mistake") and "expected mean" in other["hint"]
    elif fault == "detached":
        assert mine["hint"].startswith("no gradient flows back through it in the port: detached"), mine
        assert ": detach: no gradient" in other["hint"], other
    else:
        assert mine["hint"].split(" (")[0] == other["hint"].split(" (")[0], (mine, other)
    assert [step["passed"] for step in apart[1]["steps"]] == [step["passed"] for step in together[1]["steps"]]


def test_training_mode_finds_what_evaluation_cannot(folder, tmp_path):
    status, said = both(folder, tmp_path, "Net", "--training")
    assert status == 1 and said["first_divergence"]["location"] == "norm"
    assert said["first_divergence"]["hint"].startswith("biased variance")


BLOCKED = "import sys; sys.modules.update(dict.fromkeys({absent!r})); from alignment.cli import main; sys.exit(main({argv!r}))"


def test_no_process_needs_the_other_framework(folder, tmp_path):
    (tmp_path / "ours.py").write_text(PADDLE)
    given = ["--reference-dump", f"{tmp_path}/reference"]
    for absent, argv in (
        (["paddle"], ["dump", f"{folder}/theirs.py:Net", *SHAPE, "--out", f"{tmp_path}/reference"]),
        (["torch"], ["dump", f"{tmp_path}/ours.py:Net", *given, "--out", f"{tmp_path}/port"]),
        (["paddle", "torch"], ["audit", "--port-dump", f"{tmp_path}/port", *given, "--report", f"{tmp_path}/report"]),
    ):
        run = run_command("-W", "ignore", "-c", BLOCKED.format(absent=absent, argv=argv))
        assert run.returncode == 0, run.stdout + run.stderr
    assert "step 1 forward ... passed" in run.stdout


# --- what is refused --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound(folder, tmp_path_factory):
    """A port's dump that fits."""
    place = tmp_path_factory.mktemp("sound")
    assert both(folder, place, "Net")[0] == 0
    return place


def table(change):
    def apply(place):
        file = place / "port" / "dump.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | change))

    return apply


def cut(name):
    def apply(place):
        file = place / "port" / name
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

    return apply


DAMAGES = {
    "no dump": (lambda place: shutil.rmtree(place / "port"), "no dump here (dump.json is missing)"),
    "interrupted": (lambda place: (place / "port" / "dump.json").unlink(), "no dump here (dump.json is missing)"),
    "arrays cut short": (cut("arrays.safetensors"), "arrays.safetensors is cut short or damaged: copy the folder again"),
    "table cut short": (cut("dump.json"), "dump.json is cut short or damaged"),
    "arrays lost": (lambda place: (place / "port" / "arrays.safetensors").unlink(), "arrays.safetensors cannot be read"),
    "another version": (table({"version": 2}), "a dump of version 2, this engine reads version 1: make it again"),
    "another file": (table({"format": "records"}), "dump.json is not the table of a dump"),
    "another role": (table({"role": "reference"}), "the dump of a reference, expected one of a port"),
    "another reference": (table({"dump_of_reference": "0"}), "it was made with another --reference-dump"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_dump_that_cannot_be_used_is_one_line_and_status_2(folder, sound, tmp_path, case, capsys):
    damage, words = DAMAGES[case]
    shutil.copytree(sound / "port", tmp_path / "port")
    damage(tmp_path)
    given = ("--port-dump", f"{tmp_path}/port", "--reference-dump", f"{folder}/reference", "--report", f"{tmp_path}/report")
    assert main(["audit", *given]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and words in said[0], said
    assert not (tmp_path / "report" / "alignment.json").exists()


def test_outputs_that_differ_in_number_are_one_line(folder, tmp_path, capsys):
    (tmp_path / "ours.py").write_text(
        PADDLE.replace("return self.head(nn.functional.relu(self.norm", "return x, self.head(nn.functional.relu(self.norm")
    )
    given = ("--reference-dump", f"{folder}/reference")
    assert main(["dump", f"{tmp_path}/ours.py:Net", *given, "--out", f"{tmp_path}/port"]) == 0
    assert main(["audit", "--port-dump", f"{tmp_path}/port", *given, "--report", f"{tmp_path}/report"]) == 2
    assert "error: the port returns 2 tensors, the reference 1" in capsys.readouterr().err


BAD = {
    "framework": (["dump", "{theirs}:Net", "--framework", "paddle", "--out", "{out}"], "makes a model of PyTorch (torch)"),
    "no model": (["dump", "{theirs}:three", "--out", "{out}"], "missing a required argument"),
    "no such callable": (["dump", "{theirs}:Nett", "--out", "{out}"], "did you mean 'Net'?"),
    "input of a port": (["dump", "{theirs}:Net", *SHAPE, "--reference-dump", "{ref}", "--out", "{out}"], "--input does not"),
    "names of a reference": (["dump", "{theirs}:Net", "--names", "x.yaml", "--out", "{out}"], "--names goes with --reference-dump"),
    "one dump": (["audit", "--reference-dump", "{ref}"], "--port-dump is missing"),
    "one side": (["audit", "--port", "{theirs}:Net"], "--reference is missing"),
    "a flag of models": (["audit", "--port-dump", "{ref}", "--reference-dump", "{ref}", "--seed=3"], "--seed does not"),
    "roles": (["audit", "--port-dump", "{ref}", "--reference-dump", "{ref}"], "the dump of a reference, expected one of a port"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_flags_that_do_not_fit_are_one_line(folder, tmp_path, case, capsys):
    argv, words = BAD[case]
    places = {"theirs": f"{folder}/theirs.py", "ref": f"{folder}/reference", "out": f"{tmp_path}/out"}
    assert main([part.format(**places) for part in argv]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and words in said[0], said


def test_a_dump_runs_no_code(folder):
    """The table is JSON and the arrays are safetensors: there is no pickle to open."""
    assert sorted(file.name for file in (folder / "reference").iterdir()) == ["arrays.safetensors", "dump.json"]
    json.loads((folder / "reference" / "dump.json").read_text())
