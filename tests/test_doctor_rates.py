"""check.learning_rate: a rate far outside of those at which the first batch is learnt is found and told; sound rates are not."""

from __future__ import annotations

import json

import numpy as np
import pytest

from alignment_doctor.check.rates import RATES, fallen, find_range
from alignment_doctor.cli import main
from alignment_doctor.findings import Verdict
from mobilenetv3_common.lr_range import RangeTest
from tests.test_doctor_check import BOTH, SMALL, few, hooked, outcomes, problems  # noqa: F401 (a fixture)

# --- where a loss falls ---------------------------------------------------------------------------------------------------------


def swept(rates, falls_from, diverges_from):
    """A loss of 2 that falls by a tenth at each rate from one on, and doubles at each rate from another on."""
    losses: list[float] = []
    loss = 2.0
    for rate in rates:
        losses.append(loss)
        if loss > 4 * min(losses):
            break
        loss *= 2 if rate >= diverges_from else 0.9 if rate >= falls_from else 1
    done = len(losses)
    return RangeTest(rates[:done], np.array(losses), np.zeros(done), done < len(rates))


def test_the_rates_at_which_a_loss_falls_are_told():
    made = fallen(swept(np.geomspace(1e-5, 10, RATES), 1e-3, 0.5), 0.0)
    assert 1e-3 < made.begins < 5e-3 and 0.2 < made.best < 1.0 and made.test.diverged


def test_a_loss_that_never_falls_or_falls_by_little_has_no_such_rates():
    for falls, floor in ((1e9, 0.0), (5.0, 0.0), (0.5, -20.0)):
        made = fallen(swept(np.geomspace(1e-5, 10, RATES), falls, 1e9), floor)
        assert made.begins is None and made.best is None
    assert fallen(RangeTest(np.zeros(0), np.zeros(0), np.zeros(0), False), 0.0).begins is None


@pytest.mark.parametrize(("base", "first", "last"), [(1e-2, 1e-4, 10), (1e-8, 1e-5, 10), (1e4, 1e-4, 1e2)])
def test_the_rates_are_looked_for_above_and_below_where_the_loss_does_not_fall_around_the_configured_one(base, first, last):
    asked = []

    def sweep(rates):
        asked.append(rates)
        return swept(rates, 1e-3, 0.5)

    made = find_range(base, 0.0, sweep)
    assert 1e-3 < made.begins < 1e-2 and 0.2 < made.best < 1.0
    assert asked[-1][[0, -1]] == pytest.approx([first, last]) and len(asked) == 1 + (base != 1e-2)
    assert find_range(base, 0.0, lambda rates: swept(rates, 1e30, 1e30)).begins is None


# --- runs -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", BOTH)
@pytest.mark.parametrize(("rate", "said"), [(1e-8, "times too low"), (1e3, "times the best one")], ids=["low", "high"])
def test_a_rate_far_outside_is_found(few, framework, rate, said):  # noqa: F811
    told = outcomes(framework, lr=rate)["check.learning_rate"]
    assert told.verdict is Verdict.FOUND and said in told.measured and told.where == ("learning rate",)


def test_a_rate_far_too_high_is_found_even_where_the_batch_is_learnt_by_heart():
    found = problems("ref", lr=1e3)
    assert "check.learning_rate" in found and "check.overfit" not in found


def test_a_rate_at_which_the_batch_is_learnt_is_no_problem():
    told = outcomes("ref")["check.learning_rate"]
    assert told.verdict is Verdict.NONE and told.measured.startswith("0.002; the loss begins to fall at ")


def test_the_range_is_not_asked_where_it_means_nothing(few):  # noqa: F811
    said = outcomes("ref", amp_level="O1", amp_dtype="bfloat16")["check.learning_rate"]
    assert said.verdict is Verdict.NOT_APPLICABLE and "mixed precision" in said.measured
    said = outcomes("ref", hooked("ref", lambda output: output.detach() + 0 * output))["check.learning_rate"]
    assert said.verdict is Verdict.NOT_APPLICABLE and "falls at no rate" in said.measured


def test_the_curve_is_in_the_file_and_on_the_page(few, tmp_path):  # noqa: F811
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    main(["check", *flags, "--framework", "ref", "--json", str(tmp_path / "c.json"), "--html", str(tmp_path / "c.html")])
    told = json.loads((tmp_path / "c.json").read_text())["facts"]["learning_rate_range"]
    assert told["base"] == 0.002 and told["rates"][0] == pytest.approx(2e-5) and 2e-5 < told["begins"] < told["best"] < 2
    assert len(told["rates"]) == len(told["losses"]) > 20 and told["losses"][0] == pytest.approx(np.log(8), abs=0.3)
    assert "Loss of one batch while the learning rate grows" in (tmp_path / "c.html").read_text()
