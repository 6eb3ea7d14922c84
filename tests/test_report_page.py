"""result/report.html in a real browser: a failed and a passed alignment, light and dark, phone and print."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from alignment import cli
from alignment.compare import Quantity
from alignment.comparisons.result import StepResult
from alignment.finding import Finding, Localization
from alignment.kinds import Kind
from alignment.report import page_cards
from alignment.report.page import _along, _details
from alignment.report.picture import failures, panels, plot
from mobilenetv3_common import drawing
from mobilenetv3_common.drawing import broken
from tests.browser import DESK, DESK_SMALL, PHONE, browser, contrast, opened, tab_stops
from tests.conftest import ROOT
from tools.align import main


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """The report of a port with a wrong BatchNorm eps."""
    folder = tmp_path_factory.mktemp("failed")
    assert main(["--inject", "batch_norm_eps", "--steps", "1", "--result-dir", str(folder)]) == 1
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """The report of an audit that finds three mistakes."""
    folder, examples = tmp_path_factory.mktemp("audited"), ROOT / "docs" / "examples"
    pair = ["--port", f"{examples}/vit_port.py:ViT", "--reference", f"{examples}/vit_reference.py:VisionTransformer"]
    assert cli.main(["audit", *pair, "--input", "2x3x32x32", "--report", str(folder)]) == 1
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def passed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("passed")
    assert main(["--localize", "--steps", "3,4", "--result-dir", str(folder)]) == 0
    return (folder / "report.html").as_uri()


def test_a_failed_report_names_place_and_mistake_and_has_its_pictures(chromium, failed):
    with opened(chromium, failed) as page:
        assert "FAILED" in page.inner_text("[role=status]")
        place = page.inner_text(".card")
        assert "features.0.1" in place and "wrong eps: 1e-05, expected 0.001" in place and "relative L2" in place
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        pictures = page.query_selector_all(".drawing svg")
        titles = [picture.get_attribute("aria-label") for picture in pictures]
        assert [title.partition(",")[0] for title in titles] == [
            "Output of every module", "Gradient of every module's output", "Step 1: output of every block",
            "Step 1: running means after a pass", "Step 1: running variances after a pass",
        ]  # fmt: skip
        for picture in pictures:
            box = picture.bounding_box()
            assert box["width"] > 300 and box["height"] > 80
            assert picture.get_attribute("aria-label")
        for picture in pictures[:2]:
            assert picture.query_selector("polyline").get_attribute("points").count(",") > 50, "a value for every module"
        assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
        assert "paddlepaddle\t3." in page.inner_text("main") and "torchvision\t0." in page.inner_text("main")


RED = "rgb(180, 35, 24)"


def test_the_culprit_is_marked_in_red_where_it_is(chromium, failed, passed):
    with opened(chromium, failed, color_scheme="light") as page:
        first = page.query_selector(".drawing svg")
        line, label = first.query_selector("line.culprit"), first.query_selector("text.culprit")
        assert label.text_content() == "wrong: features.0.1"
        assert page.evaluate("e => getComputedStyle(e).stroke", line) == RED
        assert page.evaluate("e => getComputedStyle(e).fill", label) == RED
        circles = first.query_selector_all("circle[r='4']")
        dots = {circle.query_selector("title").text_content().partition(":")[0]: circle for circle in circles}
        at = dots["features.0.1"].get_attribute("cx")
        assert at == line.get_attribute("x1") and dots["features.0.1"].get_attribute("fill") == "var(--bad)"
        assert dots["features.0.0"].get_attribute("fill") == "var(--soft)", "what was tried and is right is not red"
        assert page.locator("tr.wrong", has_text="features.0.1").count()
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        rings = page.locator("circle[fill=none]")
        assert rings.count() and {one.get_attribute("stroke") for one in rings.all()} == {"var(--fg)"}, (
            "what only differs is not red"
        )
        name = float(label.get_attribute("y"))
        assert all(float(dot.get_attribute("cy")) > name + 4 for dot in first.query_selector_all("circle")), "it hides no point"
        known = page.locator("main").inner_text()
        assert "blocks that were compared" in known and "evaluation mode" in known
        assert not re.search(r"blocks_without|logits_std|eval\.(fake|photos)", known), "names of the program are no words"
    with opened(chromium, passed) as page:
        assert not page.query_selector_all(".culprit, .card, tr.wrong, figure [fill='var(--bad)']"), (
            "nothing is red where all is well"
        )
        assert not page.query_selector("#only"), "no filter where nothing failed"


def test_each_side_has_one_colour_in_every_picture(chromium, failed):
    with opened(chromium, failed) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        for figure in page.query_selector_all("figure:not(.strip)"):
            keys = figure.query_selector_all(".key")
            words = figure.query_selector("figcaption").inner_text()
            colours = [key.get_attribute("style").partition("(")[2].rstrip(")") for key in keys]
            assert ("noise floor" in words) == ("--b" in colours) and ("float32 against the truth" in words) == ("--a" in colours)
            assert "--c" not in colours, "green means passed"


def test_failures_alone_are_shown_at_first(chromium, failed):
    with opened(chromium, failed) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        rows = "details tr.fine"
        assert page.locator(rows).count() > 5 and not page.locator(rows).first.is_visible()
        assert page.locator("details tr.wrong").first.is_visible()
        page.uncheck("#only")
        assert page.locator(rows).first.is_visible()


@pytest.mark.parametrize("size", [DESK_SMALL, PHONE])
def test_a_failed_report_fits_on_a_screen_first(chromium, failed, size):
    """It was 18,944 pixels high, and 28,103 on a phone."""
    with opened(chromium, failed, viewport=size) as page:
        assert page.evaluate("document.documentElement.scrollHeight") <= 1600
        for seen in ("[role=status]", ".card", ".card .strip", "td.bad"):
            box = page.locator(seen).first.bounding_box()
            assert box["y"] + box["height"] <= 900, (seen, box)
        assert not page.query_selector("details[open]"), "the rest is folded"


@pytest.mark.parametrize("size", [DESK_SMALL, PHONE])
def test_an_audit_shows_its_cards_with_the_corrected_lines_first(chromium, audited, size):
    with opened(chromium, audited, viewport=size, color_scheme="light") as page:
        assert page.evaluate("document.documentElement.scrollHeight") <= 2800, "it was 9,754, and 14,210 on a phone"
        cards = page.locator(".card")
        assert cards.count() == 3
        first = cards.first.bounding_box()
        assert first["y"] + first["height"] <= 900 and cards.nth(1).locator("h3").bounding_box()["y"] <= 900
        words = cards.first.inner_text()
        assert "norm eps at blocks.0.norm1" in words and "Line to change: vit_port.py:25" in words and "relative L2" in words
        assert re.search(r"^\+ +self.norm1 = nn.LayerNorm\(dim, epsilon=1e-06\)", words, re.M), words
        assert page.evaluate("e => getComputedStyle(e).color", page.query_selector(".card .out")) == RED
        reds = [bar.text_content() for bar in cards.first.locator("rect[fill='var(--bad)'] title").all()]
        assert [name.partition(":")[0] for name in reds][:2] == ["blocks.0", "blocks.1"]
        assert [card.locator(".strip").count() for card in cards.all()] == [1, 1, 1]
        folded = page.locator("summary").all_inner_texts()
        assert any(line.startswith("Known differences of the frameworks") for line in folded)
        assert any(line.startswith("Not checked, and the flag that would check it") for line in folded)


@pytest.mark.parametrize("size", [DESK_SMALL, PHONE])
def test_the_corrected_line_of_a_card_is_seen_without_scrolling(chromium, tmp_path, size):
    """On a phone long lines were broken into so many that the corrected one was below the edge of its box."""
    line = "                self.conv = nn.Conv2D(in_channels, out_channels, kernel_size=3, stride=stride, padding=dilation)"
    lines = [f" {line}", f" {line}", f"-{line}", f"+{line.replace('stride=stride', 'stride=1')}", f" {line}", f" {line}"]
    one = Finding("forward", "conv", Kind.STRIDE, "stride 2, expected 1", "1", source="ours.py:1")
    styles = f"<style>{drawing.STYLE}{page_cards.STYLE}</style>"
    head = f'<!doctype html><meta name="viewport" content="width=device-width">{styles}'
    (tmp_path / "card.html").write_text(f"{head}<main>{page_cards.cards([one], [lines], [])}</main>")
    with opened(chromium, (tmp_path / "card.html").as_uri(), viewport=size) as page:
        box, seen = page.locator(".card pre").bounding_box(), page.locator(".card .in").bounding_box()
        assert seen["height"] > 0 and seen["y"] + seen["height"] <= box["y"] + box["height"], (seen, box)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        assert page.inner_text(".card .in").startswith("+ self.conv = nn.Conv2D(")
        assert page.evaluate("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('.card pre'))"), "nor the lines around"


def test_a_chart_can_be_magnified_and_then_names_every_place(chromium, failed):
    with opened(chromium, failed) as page:
        figure = page.locator("figure:has(.zoom)").first
        before, names = figure.locator("svg").bounding_box()["width"], figure.locator(".names text")
        assert names.count() > 50 and not names.first.is_visible()
        figure.locator("input").focus()
        page.keyboard.press("Space")
        assert figure.locator("svg").bounding_box()["width"] > 2.7 * before and names.first.is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280, "the chart alone scrolls"


def test_what_failed_is_drawn_first():
    """Outputs agree and a statistic does not: the card's strip and the first chart are the statistic's."""
    fine = [Quantity(f"train.photos.b8.{n}.running_mean", [3], 0, 0, 1e-7, 1e-7, 1e-15) for n in "abc"]
    wrong = Quantity("train.photos.b8.b.running_var", [3], 1, 1, 1e-1, 1e-7, 1e-1, passed=False, reason="large")
    sound = [Quantity(f"train.photos.b8.{n}.running_var", [3], 0, 0, 1e-7, 1e-7, 1e-15) for n in "ac"]
    rows = _along([StepResult(1, "forward", [*fine, wrong, *sound])], Localization())
    assert rows == [("b", 1e-1), ("a", 1e-15), ("c", 1e-15)]
    assert _along([StepResult(1, "forward", fine)], Localization()) == []


def test_a_block_of_another_shape_keeps_its_place_in_the_charts(tmp_path):
    """It has no error, and was left out: of a residual network the layers were drawn and the blocks were not."""
    rows = [Quantity(f"eval.fake.b8.{name}", [3], 0, 0, 1e-7, 1e-7, 1e-15) for name in ("conv", "fc")]
    other = Quantity("eval.fake.b8.block", [3], passed=False, reason="float32: shape (3,) in the port, (2,) in the reference")
    results = [StepResult(1, "forward", [rows[0], other, rows[1]])]
    ((_, drawn),) = panels(results)
    assert [name for name, _ in drawn] == ["conv", "block", "fc"] and failures(drawn) == [None, 1.0, None]
    along = _along(results, Localization())
    assert along == [("conv", 1e-15), ("block", math.inf), ("fc", 1e-15)]
    card = page_cards.cards([Finding("forward", "block", Kind.SHAPE, "shape", "1")], [], along)
    assert card.count("<rect") == 3 and "<title>block: inf" in card
    assert plot(tmp_path / "a.png", SimpleNamespace(titles=lambda: ("Paddle", "PyTorch"), model="Net"), results)


def test_the_page_says_how_to_read_it_and_how_to_make_it_again(chromium, failed):
    with opened(chromium, failed) as page:
        page.click("text=How to read this")
        assert "noise floor" in page.inner_text("details.read").lower()
        page.click("text=What was run, and on what")
        assert page.inner_text("pre:not(.card pre)").startswith(
            "python tools/align.py --inject batch_norm_eps --steps 1 --result-dir "
        )
        said = page.inner_text("main")
        assert re.search(r"date\s+\d{4}-\d\d-\d\d", said) and re.search(r"processor\s+\S", said)


@pytest.mark.parametrize("report", ["failed", "audited"])
def test_the_table_of_steps_is_seen_whole_on_a_phone(chromium, report, request):
    with opened(chromium, request.getfixturevalue(report), viewport=PHONE) as page:
        assert page.evaluate("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('[aria-label=Steps]'))")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_the_verdict_is_seen_on_a_phone_and_on_paper(chromium, failed):
    with opened(chromium, failed, viewport=PHONE) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        cells = page.locator("td.bad").all()[:5]
        assert len(cells) == 5
        for cell in cells:
            box = cell.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"], "without scrolling sideways"
    with opened(chromium, failed, viewport={"width": 703, "height": 1000}) as page:  # A4 less its margins
        page.emulate_media(media="print")
        assert page.evaluate("document.documentElement.scrollWidth") <= 703, "nothing is cut off"
        fit = page.evaluate("[...document.querySelectorAll('.scroll')].map(e => e.scrollWidth <= e.clientWidth + 1)")
        assert len(fit) > 3 and all(fit)


def test_what_is_zero_but_for_rounding_is_a_footnote():
    sound = Quantity("gradient", [3], 1e-7, 1e-7, 1e-6, 1e-6, 1e-15)
    noise = Quantity("bias before a norm", [3], 1e-12, 1e-12, 1.0, 1.0, 1.0, noise=True)
    wrong = Quantity("wrong noise", [3], 1.0, 1.0, 1.0, 1.0, 1.0, noise=True, passed=False, reason="large")
    html = _details(StepResult(5, "backward", [sound, noise]), lambda row: (row, ""))
    table, _, note = html.partition("</table>")
    assert (
        "gradient" in table
        and "bias before a norm" not in table
        and "Zero apart from rounding" in note
        and "bias before a norm" in note
    )
    html = _details(StepResult(5, "backward", [noise, wrong]), lambda row: (row, ""))
    assert "wrong noise" in html.partition("</table>")[0], "what failed stays a row"


def test_alignment_json_says_when_where_and_by_which_command(failed):
    path = Path(failed.removeprefix("file://")).with_name("alignment.json")
    content = json.loads(path.read_text())
    assert content["command"].startswith("python tools/align.py --inject batch_norm_eps")
    assert datetime.strptime(content["date"], "%Y-%m-%d %H:%M:%S %z") and content["processor"] and content["python"]
    assert "commit" in content and content["versions"]["torch"]


def test_a_passed_report_says_how_far_it_can_tell(chromium, passed):
    with opened(chromium, passed) as page:
        assert "PASSED" in page.inner_text("[role=status]") and "as far as steps 3, 4 can tell" in page.inner_text("[role=status]")
        assert "Where it goes wrong first" not in page.inner_text("main")
        assert len(page.query_selector_all(".drawing svg")) == 2


def test_the_keyboard_reaches_and_opens_everything(chromium, failed):
    with opened(chromium, failed) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = false)")
        stops = tab_stops(page)
        assert stops[0][1] == "Skip to the steps"
        assert sum(tag == "SUMMARY" for tag, _ in stops) == page.locator("summary:visible").count() > 1
        page.focus("summary")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus is seen"
        page.keyboard.press("Enter")
        assert page.evaluate("document.querySelector('details').open")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_readable(chromium, audited, scheme):
    with opened(chromium, audited, color_scheme=scheme) as page:
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") == (scheme == "light"), background
        for selector in ("main", "[role=status]", "td.bad", ".card .in", ".card .out", ".note", "figcaption"):
            assert contrast(page, selector) >= 4.5, selector


def test_it_fits_a_phone(chromium, failed):
    with opened(chromium, failed, viewport=PHONE) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], "only tables scroll sideways"
        assert page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") >= 16


LABELS = """() => [...document.querySelectorAll('.drawing svg')].map(svg => [...svg.querySelectorAll('text')]
    .filter(t => t.getBoundingClientRect().width).map(t => {
        const box = t.getBoundingClientRect(), scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
        return [parseFloat(getComputedStyle(t).fontSize) * scale, box.left, box.right, box.top, box.bottom, t.classList.value];
    }))"""


@pytest.mark.parametrize("size", [DESK, PHONE])
def test_charts_are_legible_on_a_phone(chromium, failed, audited, size):
    for address in (failed, audited):
        with opened(chromium, address, viewport=size) as page:
            page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
            for labels in page.evaluate(LABELS):
                assert len(labels) > 4 and min(label[0] for label in labels) >= 9.5, labels
                assert all(label[1] >= 0 and label[2] <= size["width"] for label in labels), labels
                plain = [label for label in labels if label[5] != "culprit"]
                for i, one in enumerate(plain):
                    for other in plain[:i]:
                        assert one[1] >= other[2] - 1 or other[1] >= one[2] - 1 or one[3] >= other[4] - 3 or other[3] >= one[4] - 3


def test_long_words_are_broken_at_their_joints():
    said = broken("see /home/me/my_port/models/mobilenet.py:12, a < b and short_word.")
    assert said == ("see /<wbr>home/<wbr>me/<wbr>my_<wbr>port/<wbr>models/<wbr>mobilenet.<wbr>py:<wbr>12, a &lt; b and short_word.")
    assert broken("a" * 30) == "a" * 30 and "&amp;<wbr>" not in broken("x&" * 20)


def test_it_prints(chromium, failed):
    with opened(chromium, failed, color_scheme="dark") as page:
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        printed = page.pdf(format="A4")
        assert printed.startswith(b"%PDF") and len(printed) > 20_000
        hidden = page.evaluate("getComputedStyle(document.querySelector('.skip')).display")
        assert hidden == "none"
        keys = page.evaluate("[...document.querySelectorAll('.key')].map(key => getComputedStyle(key).printColorAdjust)")
        assert keys and set(keys) == {"exact"}, "a legend without its colours"


def test_functions_that_no_step_ran_are_folded_by_file(chromium, failed):
    with opened(chromium, failed) as page:
        folded = page.locator("details", has_text="public functions of the port were run by no step").last
        optimizer = folded.locator("p", has=page.locator("strong", has_text="mobilenetv3_paddle.train.optimizer"))
        assert not optimizer.is_visible()
        page.click("text=What the verdict rests on")
        folded.locator("summary").click()
        assert optimizer.is_visible()
        words = optimizer.inner_text()
        assert words.startswith("mobilenetv3_paddle.train.optimizer: build_optimizer, ") and "RMSProp.move" in words
        assert "mobilenetv3_paddle.train.optimizer." not in words


def test_names_on_axes_do_not_touch_and_numbers_stand_under_their_heading(chromium, failed):
    with opened(chromium, failed) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        boxes = page.evaluate(
            """[...document.querySelectorAll('svg')].map(svg => [...svg.querySelectorAll('text:not(.culprit)')]
                .map(t => t.getBoundingClientRect()).map(b => [b.left, b.right, b.top, b.bottom]))"""
        )
        for names in filter(None, boxes):
            for i, one in enumerate(names):
                for other in names[:i]:
                    assert one[0] >= other[1] or other[0] >= one[1] or one[2] >= other[3] or other[2] >= one[3]
        sides = page.evaluate(
            """[...document.querySelectorAll('table')].map(table => {
                const cells = table.querySelectorAll('tbody tr:first-child td');
                const side = cell => cell && getComputedStyle(cell).textAlign;
                return [...table.querySelectorAll('th')].map((head, i) => [side(head), side(cells[i])]);
            })"""
        )
        assert any(side == ["right", "right"] for table in sides for side in table)
        assert all(head == cell for table in sides for head, cell in table if cell)


def test_the_checks_can_fail(chromium, tmp_path):
    """A page with an error in its console, one that loads from elsewhere, grey on grey, and one too wide for a phone."""
    bad = tmp_path / "bad.html"
    bad.write_text('<body style="background:#777;width:2000px"><p style="color:#888">x</p><script>console.error("no")</script>')
    found = []
    with pytest.raises(AssertionError, match="no"), opened(chromium, bad.as_uri(), viewport=PHONE) as page:
        found += [contrast(page, "p"), page.evaluate("document.documentElement.scrollWidth")]
    assert found[0] < 4.5 and found[1] > PHONE["width"]
    bad.write_text('<link rel="stylesheet" href="http://127.0.0.1:9/x.css">')
    with pytest.raises(AssertionError), opened(chromium, bad.as_uri()):
        pass
