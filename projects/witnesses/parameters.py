"""Which parameters get which rate and decay, against a table by hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alignment.witness import Told
from mobilenetv3_common import lr_range
from mobilenetv3_common.param_groups import GroupRule, check_rules, parse_rules, rate_factors, rule_of

NAMES = (
    "features.0.weight",
    "features.1.weight",
    "features.10.weight",
    "features.11.bias",
    "features.12.1.weight",
    "classifier.weight",
)
# Pattern -> which of these names it fits, as the shell and Python's fnmatch have it: a whole name, not its beginning.
FITS = {
    "features.1.*": [1],
    "features.1*": [1, 2, 3, 4],
    "features.1": [],
    "features.?.weight": [0, 1],
    "*.weight": [0, 1, 2, 4, 5],
    "*": [0, 1, 2, 3, 4, 5],
    "features.[01].weight": [0, 1],
    "weight": [],
    "Features.*": [],
    "classifier.weight": [5],
}


def rules() -> Iterator[Told]:
    """``param_groups``: a pattern fits whole names, the first rule that fits counts."""
    for pattern, expected in FITS.items():
        rule = GroupRule(pattern, 0.5)
        fitting = [number for number, name in enumerate(NAMES) if rule_of(name, [rule]) is rule]
        yield Told(f"names that {pattern} fits", fitting, expected)
    text = "features.0.*:frozen; features.*.bias: lr=0.25, decay=0; features.*:lr=4;classifier.weight:decay=0.125"
    found = [(rule.pattern, rule.lr, rule.decay, rule.frozen) for rule in parse_rules(text)]
    expected_rules = [
        ("features.0.*", 1.0, None, True), ("features.*.bias", 0.25, 0.0, False), ("features.*", 4.0, None, False),
        ("classifier.weight", 1.0, 0.125, False),
    ]  # fmt: skip
    yield Told("the rules of a text", str(found), str(expected_rules))
    parsed = parse_rules(text)
    got = [(rule_of(name, parsed).lr, rule_of(name, parsed).decay, rule_of(name, parsed).frozen) for name in NAMES]
    table = [(1.0, None, True), (4.0, None, False), (4.0, None, False), (0.25, 0.0, False), (4.0, None, False), (1.0, 0.125, False)]
    yield Told("the first rule that fits", str(got), str(table))
    yield Told("no rule", str([rule_of("x", ()).lr, rule_of("x", ()).decay, rule_of("x", ()).frozen]), str([1.0, None, False]))
    check_rules(NAMES, parsed)  # a sound text is not refused


def factors() -> Iterator[Told]:
    """``rate_factors``: the factor of the rule times a power of the decay for each block that comes after."""
    plain = [0.5**4, 0.5**3, 0.5**2, 0.5**1, 0.5**0]
    names = ["stem.weight", "features.0.weight", "features.0.conv.1.weight", "features.1.bias", "norm.weight", "head.weight"]
    expected = dict(zip(names, [plain[0], plain[1], plain[1], plain[2], plain[3], plain[4]], strict=True))
    yield Told("decay by depth", rate_factors(names, (), 0.5), expected)
    rule = (GroupRule("features.0.*", 8.0),)
    scaled = {name: value * (8.0 if name.startswith("features.0.") else 1.0) for name, value in expected.items()}
    yield Told("with a rule", rate_factors(names, rule, 0.5), scaled)
    yield Told("without decay", rate_factors(names, (), 1.0), dict.fromkeys(names, 1.0))


def range_test() -> Iterator[Told]:
    """``lr_range``: geometric rates; the loss's steepest fall and its minimum of a curve that is known."""
    rates = lr_range.growing_rates(1e-4, 1.0, 41)
    yield Told("rates from 0.0001 to 1", rates, [10 ** (-4 + 0.1 * number) for number in range(41)])
    places = np.arange(200)
    losses = np.where(places < 20, 2.0, 1 + np.cos(np.pi * (places - 20) / 100))
    test = lr_range.RangeTest(np.geomspace(1e-4, 1.0, 200), losses, losses * 0, False)
    width = 200 / 25
    flat = lr_range.RangeTest(np.arange(200.0), np.full(200, 3.0), losses, False)
    yield Told("a constant loss is its own mean", flat.smoothed(), np.full(200, 3.0))
    one = lr_range.RangeTest(np.arange(200.0), np.eye(200)[100], losses, False).smoothed()
    around = np.exp(-0.5 * ((places - 100) / width) ** 2)
    around[np.abs(places - 100) > int(3 * width)] = 0
    yield Told("one loss is spread as a Gaussian", one, around / around.sum())
    found = [*test.interval(), test.suggested() ** 2 / test.rates[120]]
    for name, rate, place in zip(
        ("a tenth of the fall", "the least loss", "the steepest fall"), found, (40.5, 120, 70), strict=True
    ):
        at = np.log(rate / 1e-4) / np.log(test.rates[1] / test.rates[0])
        yield Told(f"{name} of a cosine, within 4 of 200 updates", abs(at - place) < 4, True)
