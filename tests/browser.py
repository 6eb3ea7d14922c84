"""A real Chromium for the pages this project makes; without one the tests that need it are skipped, with the reason."""

from __future__ import annotations

import contextlib
import re
import shutil

import pytest

PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}
DESK_SMALL = {"width": 1280, "height": 800}


@contextlib.contextmanager
def browser():
    """Playwright's browser object, driving Debian's chromium (``apt install chromium``) or Chrome."""
    api = pytest.importorskip("playwright.sync_api", reason="needs the Python package playwright")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("needs Chromium: apt install chromium")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            yield chromium
        finally:
            chromium.close()


@contextlib.contextmanager
def opened(chromium, address, **options):
    """A page at an address; fails at the end where the console had an error or anything but that address's origin was asked."""
    page = chromium.new_page(viewport=options.pop("viewport", DESK), **options)
    errors, requests = [], []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(address)
    try:
        yield page
        assert not errors, errors
        origin = re.match(r"(file://|https?://[^/]+)", address)[1]
        foreign = [url for url in requests if not url.startswith((origin, "data:", "blob:"))]
        assert not foreign, foreign
    finally:
        page.close()


def contrast(page, selector):
    """WCAG contrast ratio of an element's text on the page's background, 1 to 21."""
    colours = page.evaluate(
        """selector => [getComputedStyle(document.querySelector(selector)).color,
                        getComputedStyle(document.body).backgroundColor]""",
        selector,
    )
    light = []
    for colour in colours:
        channels = [int(n) / 255 for n in re.findall(r"\d+", colour)[:3]]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        light.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(light) + 0.05) / (min(light) + 0.05)


def tab_stops(page, limit=200):
    """What Tab reaches, in order: tag and text of each element, until it comes round."""
    stops = []
    for _ in range(limit):
        page.keyboard.press("Tab")
        stop = page.evaluate(
            """() => { const e = document.activeElement;
                       return e === document.body ? null : [e.tagName, (e.ariaLabel || e.innerText || e.id).trim()] }"""
        )
        if stop is None or stop in stops:
            break
        stops.append(stop)
    return stops
