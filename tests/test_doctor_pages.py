"""docs/checks: one page a check in each language, which says what the check says; docs/doctor_items.md: every item's checks."""

from __future__ import annotations

import re

import pytest

from alignment_doctor.findings import Check, Finding, Verdict, found, not_applicable, nothing
from alignment_doctor.items import ELSEWHERE, ITEMS, NOWHERE, as_json, as_table, checks_of_items, every_check, states
from tests import failing_runs
from tests.conftest import ROOT

HEADINGS = (
    ["What it means", "How it is checked", "A failing run", "How to fix it"],
    ["含义", "如何检查", "失败示例", "如何修复"],
)
CHECKS = {check.id: check for check in every_check()}
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
SAMPLE = ("data.leak", "check.labels", "watch.left_out", "compare.form", "compare.from_gradients", "weights.shrunk", "profile.gap")


def test_every_check_has_a_page_in_both_languages_and_every_page_a_check():
    assert set(failing_runs.pages()) == set(CHECKS)
    assert {page.stem for page in (failing_runs.PAGES / "zh").iterdir()} == set(CHECKS)


@pytest.mark.parametrize("id", CHECKS)
def test_both_pages_say_what_the_check_says(id):
    check, pages = CHECKS[id], failing_runs.pages()[id]
    for page, headings in zip(pages, HEADINGS, strict=True):
        text = page.read_text(encoding="utf-8")
        assert re.match(rf"# {re.escape(id)}[:\uff1a]", text) and re.findall(r"^## (.*)$", text, re.M) == headings
        assert re.findall(r"00\d [^,、。.\n]+(?:\.\d+)?", text.split("\n## ")[0].split("\n", 2)[2]) == list(check.items)
        sections = re.split(r"^## .*$", text, flags=re.M)[1:]
        least = 100 if headings is HEADINGS[0] else 35
        assert all(len(failing_runs.BLOCK.sub("", section)) >= least for section in (sections[0], sections[1], sections[3]))
        assert not [line for line in text.splitlines() if len(line) > 140 and line not in failing_runs.shown(page)]
        shown = failing_runs.shown(page)
        assert shown.startswith((f"{id}: ", f"[watch {id}] ")) and check.fix in shown
        for target in LINK.findall(text):
            assert (page.parent / target).is_file(), target
    assert failing_runs.planted(pages[0]) == failing_runs.planted(pages[1])
    assert failing_runs.shown(pages[0]) == failing_runs.shown(pages[1])


@pytest.mark.slow
def test_the_failing_runs_are_what_the_doctor_says():
    chosen = {id: failing_runs.pages()[id][0] for id in SAMPLE}
    said = failing_runs.said([failing_runs.planted(page) for page in chosen.values()])
    for id, page in chosen.items():
        assert failing_runs.same(failing_runs.shown(page), said[failing_runs.planted(page), id])
        other = failing_runs.shown(page).replace(CHECKS[id].fix, "another fix")
        assert not failing_runs.same(other, said[failing_runs.planted(page), id])


@pytest.mark.slow
@pytest.mark.weekly
def test_all_failing_runs_are_what_the_doctor_says(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["failing_runs"])
    assert failing_runs.main() == 0, capsys.readouterr().out


@pytest.mark.parametrize("page", ["doctor_items.md", "doctor_items_zh.md"])
def test_the_table_of_items_lists_every_items_checks_or_why_there_is_none(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    rows = re.findall(r"^\| (00\d [^|]+) \| ([^|]+) \| ([^|]+) \|$", text, re.M)
    listed = {item: re.findall(r"\[([\w.]+)\]\(checks/", cell) for item, _, cell in rows}
    assert {item: checks for item, checks in listed.items() if checks} == checks_of_items()
    assert len(rows) == len(listed) == 60
    assert [item for item, *_ in rows] == [item.id for item in ITEMS]
    for item, _, cell in rows:
        assert listed[item] or len(cell) > 10, item


def test_the_english_table_says_what_the_code_says():
    text = (ROOT / "docs" / "doctor_items.md").read_text(encoding="utf-8")
    decided, lines = checks_of_items(), []
    for item in ITEMS:
        if f"## {item.group}" not in lines:
            lines.append(f"## {item.group}")
        links = ", ".join(f"[{id}](checks/{id}.md)" for id in decided.get(item.id, []))
        lines.append(f"| {item.id} | {item.what} | {'; '.join(part for part in (links, item.note) if part)} |")
    plain = re.sub(r"\[(docs/\w+\.md)\]\(\w+\.md\)", r"\1", text)
    assert [line for line in plain.splitlines() if line.startswith(("## ", "| 00"))] == lines


# --- what became of each item ---------------------------------------------------------------------------------------------------


def finding(id, outcome):
    return Finding(CHECKS[id], outcome)


def test_every_item_is_told_with_the_verdict_of_its_checks_or_where_it_is_decided_or_why_not():
    made = {one.item.id: one for one in states([
        finding("check.labels", nothing("8 labels")),
        finding("check.gradients", found("2 parameters get none", ["a", "b"])),
        finding("check.moved", nothing("all move")),
        finding("check.pretrained", not_applicable("fresh weights")),
    ])}  # fmt: skip
    assert list(made) == [item.id for item in ITEMS] and len(made) == 60
    assert made["002 ds.02"].verdict == Verdict.NONE.value and made["002 ds.02"].checks == {"check.labels": "none found"}
    assert "data.contradictory" in made["002 ds.02"].elsewhere["data"]
    assert made["002 cg.02"].verdict == Verdict.FOUND.value, "one problem outweighs what the other check says"
    assert made["002 wi.02"].verdict == Verdict.NOT_APPLICABLE.value
    assert made["002 mp.02"].verdict == ELSEWHERE and made["002 mp.02"].elsewhere == {"watch": ["watch.scale"]}
    assert made["002 cg.01"].verdict == NOWHERE and not made["002 cg.01"].elsewhere
    for one in made.values():
        assert one.checks or one.elsewhere or len(one.item.note) > 10, one.item.id
    told = as_json(list(made.values()))
    assert told[1]["checks"] == {"check.labels": "none found"} and set(told[0]) == {
        "item", "what", "verdict", "checks", "elsewhere", "note",
    }  # fmt: skip
    shown = as_table(list(made.values()))
    assert shown.count("<tr>") == 61 and "check.gradients: problem found; check.moved: none found; by doctor.py watch: " in shown


def test_an_item_that_no_list_has_would_be_noticed():
    """A check cannot decide an item that is not in the list of items."""
    known = {item.id for item in ITEMS}
    assert set(checks_of_items()) <= known
    assert "002 ds.9" not in known and isinstance(every_check()[0], Check)


def test_the_doctors_page_links_every_check():
    text = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\[`([\w.]+)`\]\(checks/\1\.md\)", text)) == set(CHECKS)
