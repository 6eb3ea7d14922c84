"""``bench/real``: the list of real bugs, the pairs of source that it names, and what counts as found."""

import json
import re
import subprocess
import sys

import pytest

from bench.cli import bench
from bench.real import command, scored
from bench.real.audited import Audit
from bench.real.cases import PAIRS, load_cases, versions
from tests.conftest import ROOT

CASES = load_cases()
FEW = ("gemma-gelu", "xcit-batch-statistics", "megatron-sequence-norm", "retinanet-prior")  # each differs in another way


def test_the_list_is_complete():
    """At least 60 dated cases, each with a link, a pair of source and something that counts as its place and cause."""
    assert len(CASES) >= 60 and len({case.id for case in CASES}) == len(CASES)
    assert {case.id.replace("-", "_") for case in CASES} == {file.stem for file in PAIRS.glob("*.py")}
    for case in CASES:
        assert re.fullmatch(r"https://github\.com/" + re.escape(case.repository) + r"/(issues|pull|commit)/[0-9a-f]+", case.link), (
            case.id
        )
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", case.date), case.id
        assert case.place and case.words and case.cause and case.wrong.endswith("."), case.id
        assert all(word == word.lower() for word in case.words), case.id


def test_both_halves_are_about_as_large():
    held_out = load_cases(held_out=True)
    assert 0.4 < len(held_out) / len(CASES) < 0.6
    assert {case.id for case in held_out} | {case.id for case in load_cases(held_out=False)} == {case.id for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_both_versions_are_python_and_differ(case):
    broken, fixed, wrong = versions(case.marked)
    for source in (broken, fixed):
        compile(source, case.id, "exec")
        assert "# fix" not in source and "# drop" not in source and "# add" not in source
    assert broken != fixed and wrong and max(wrong) <= len(broken.splitlines())


def test_marks_give_both_versions():
    marked = "a = 1  # fix: a = 2\nif a:\n    b = 3  # drop\n    # add: b = 4\n    c = 5\n"
    assert versions(marked) == ("a = 1\nif a:\n    b = 3\n    c = 5\n", "a = 2\nif a:\n    b = 4\n    c = 5\n", [1, 3, 4])


@pytest.mark.parametrize("id", FEW)
def test_the_pair_is_what_it_says(id):
    pytest.importorskip("paddle")
    from bench.real.check import check, plain

    (case,) = load_cases([id])
    assert check(case) == []
    assert plain(case, versions(case.marked)[0]) == (id in ("gemma-gelu", "xcit-batch-statistics"))


def test_a_wrong_pair_is_noticed(monkeypatch):
    """A fix that changes nothing, and a broken version that is right."""
    pytest.importorskip("paddle")
    from bench.real import cases, check

    (case,) = load_cases(["gemma-gelu"])
    marked = case.marked
    monkeypatch.setattr(cases.Case, "marked", marked.replace("approximate=True)", "approximate=False)"))
    assert "the fixed version differs: output in evaluation" in check.check(case)
    monkeypatch.setattr(cases.Case, "marked", marked.replace("nn.GELU()  #", "nn.GELU(approximate=True)  #"))
    assert check.check(case) == ["the broken version does not differ"]


def finding(location="mlp", hint="wrong eps 1e-5", source="pair.py:7", kind="norm_eps", **more):
    return {
        "stage": "forward",
        "location": location,
        "also": [],
        "hint": hint,
        "source": source,
        "kind": kind,
        "measured": "",
    } | more


def scores(findings, place=("mlp",), words=("eps",), status=1, fixed=0):
    case = CASES[0].__class__(**vars(CASES[0]) | {"place": place, "words": words})
    audits = [Audit(status, "FAIL", tuple(findings), 1.0), Audit(fixed, "PASS", (), 1.0)]
    return scored.outcome(case, [7], *audits, plain=False)


def test_what_counts_as_located_and_named():
    o = scores([finding()])
    assert (o.detected, o.located, o.line, o.named, o.silent) == (True, 1, 1, 1, True)
    elsewhere = finding(location="head", hint="", source="pair.py:20", kind="")
    o = scores([elsewhere, finding(source="")])
    assert (o.located, o.line, o.named) == (2, None, 2)
    assert scores([elsewhere] * 5 + [finding()]).located is None, "nobody reads the sixth"
    assert scores([finding()], status=0).located is None, "what is not detected is not located"
    assert scores([finding()], fixed=1).silent is False and scores([finding()], fixed=1).alarm == "PASS"
    assert scores([finding()], status=2).detected is False


def test_the_whole_model_is_no_place():
    """Every mistake lies somewhere in the model: there the line counts."""
    o = scores([finding(location="Port.forward", source="pair.py:30")], place=("",))
    assert o.located is None
    assert scores([finding(location="Port.forward", source="pair.py:3-6")], place=("",)).located == 1


def test_names_of_modules_and_files_are_no_cause():
    assert scores([finding(location="eps_layer", hint="eps_layer: no known mistake", kind="")]).named is None


def test_misses_stand_first():
    found = [scores([finding()]), scores([], status=0), scores([finding(location="head", source="")])]
    found = [scored.Outcome(**vars(o) | {"id": case.id}) for o, case in zip(found, CASES, strict=False)]
    rows = scored.table(CASES, found).splitlines()[2:]
    assert [CASES[i].id in row for i, row in zip((1, 2, 0), rows, strict=True)] == [True] * 3


@pytest.mark.slow
def test_a_case_is_run_and_kept(tmp_path, capsys):
    """In a process that forks; a second run takes what is known."""
    words = [sys.executable, "-m", "bench", "real", "--only", "gemma-gelu", "--result-dir", str(tmp_path)]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    entry = json.loads((tmp_path / "real.jsonl").read_text())
    assert entry["detected"] and entry["silent"] and entry["located"] == 1 and "gemma-gelu" in (tmp_path / "real.md").read_text()
    again = subprocess.run([*words, "--resume"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert again.returncode == 0 and len((tmp_path / "real.jsonl").read_text().splitlines()) == 1


def test_what_an_earlier_run_knows_is_of_the_same_pair(tmp_path):
    """Lines of a changed pair, of another version, or cut off are left out."""
    case, other = CASES[:2]
    o = vars(scores([finding()]))
    lines = [
        json.dumps(o | {"id": case.id, "pair": case.digest}),
        json.dumps(o | {"id": other.id, "pair": "of another day"}),
        json.dumps({"id": other.id, "pair": other.digest, "detected": True}),
        json.dumps([1]),
        json.dumps(o | {"id": other.id, "pair": other.digest})[:40],
    ]
    (tmp_path / "real.jsonl").write_text("\n".join(lines))
    assert list(command.read(tmp_path / "real.jsonl", CASES)) == [case.id]
    assert command.read(tmp_path / "none.jsonl", CASES) == {}


@pytest.mark.parametrize(("argv", "words"), [
    (["--only", "no-such-bug"], "no-such-bug: there is no such case"),
    (["--only", "gemma-gelu", "--held-out"], "no case is left"),
])  # fmt: skip
def test_bad_input_is_said(argv, words, capsys):
    assert bench(["real", *argv]) == 2
    err = capsys.readouterr().err
    assert words in err and len(err.splitlines()) == 1


def test_the_list_is_printed(capsys):
    assert bench(["real", "--list", "--only", "gemma-gelu"]) == 0
    assert "https://github.com/huggingface/transformers/pull/29402" in capsys.readouterr().out


def test_every_case_stands_on_the_page():
    page = (ROOT / "docs" / "real_bugs.md").read_text()
    for case in CASES:
        assert page.count(f"[{case.id}]({case.link}) | {case.date} |") == 1, case.id


@pytest.mark.slow
def test_every_pair_is_what_it_says(capsys):
    """The fixed version equals the reference, the broken one does not."""
    assert bench(["real", "--check"]) == 0
    assert f"{len(CASES)} of {len(CASES)} pairs are as they say" in capsys.readouterr().out
