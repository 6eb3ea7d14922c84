"""result/report.html in a real browser: a failed and a passed alignment, light and dark, phone and print."""

from __future__ import annotations

import pytest

from tests.browser import PHONE, browser, contrast, opened, tab_stops
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
def passed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("passed")
    assert main(["--localize", "--steps", "3,4", "--result-dir", str(folder)]) == 0
    return (folder / "report.html").as_uri()


def test_a_failed_report_names_place_and_mistake_and_has_its_pictures(chromium, failed):
    with opened(chromium, failed) as page:
        assert "FAILED" in page.inner_text("[role=status]")
        place = page.inner_text("dl.place")
        assert "features.0.1" in place and "wrong eps: 1e-05, expected 0.001" in place and "relative L2" in place
        pictures = page.query_selector_all("figure svg")
        assert len(pictures) == 2, "forward and backward"
        for picture in pictures:
            box = picture.bounding_box()
            assert box["width"] > 300 and box["height"] > 80
            assert picture.get_attribute("aria-label")
            assert picture.query_selector("polyline").get_attribute("points").count(",") > 50, "a value for every module"
        assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
        assert "paddlepaddle\t3." in page.inner_text("main") and "torchvision\t0." in page.inner_text("main")


def test_a_passed_report_says_how_far_it_can_tell(chromium, passed):
    with opened(chromium, passed) as page:
        assert "PASSED" in page.inner_text("[role=status]") and "as far as step(s) 3, 4 can tell" in page.inner_text(
            "[role=status]"
        )
        assert page.query_selector("dl.place") is None
        assert len(page.query_selector_all("figure svg")) == 2


def test_the_keyboard_reaches_and_opens_everything(chromium, failed):
    with opened(chromium, failed) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = false)")
        stops = tab_stops(page)
        assert stops[0][1] == "Skip to the steps"
        assert sum(tag == "SUMMARY" for tag, _ in stops) == len(page.query_selector_all("summary")) > 1
        page.focus("summary")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus is seen"
        page.keyboard.press("Enter")
        assert page.evaluate("document.querySelector('details').open")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_readable(chromium, failed, scheme):
    with opened(chromium, failed, color_scheme=scheme) as page:
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") == (scheme == "light"), background
        for selector in ("main", "[role=status]", "td.bad", ".place dt", "figcaption"):
            assert contrast(page, selector) >= 4.5, selector


def test_it_fits_a_phone(chromium, failed):
    with opened(chromium, failed, viewport=PHONE) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], "only tables scroll sideways"
        assert page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") >= 16


def test_it_prints(chromium, failed):
    with opened(chromium, failed, color_scheme="dark") as page:
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        printed = page.pdf(format="A4")
        assert printed.startswith(b"%PDF") and len(printed) > 20_000
        hidden = page.evaluate("getComputedStyle(document.querySelector('.skip')).display")
        assert hidden == "none"


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
