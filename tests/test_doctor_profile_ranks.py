"""``doctor profile`` over ranks: who keeps the others waiting is named, and evenly loaded ranks are not."""

from __future__ import annotations

import json

import numpy as np
import pytest

from alignment_doctor.profile.ranks import line, of_every_rank, waiting
from tests.conftest import LITE_DATA, run_command


class One:
    """A rank of three that adds up what the others have already given."""

    world_size, rank = 3, 1

    def sum(self, values):
        return np.asarray(values) + np.array([0.2, 0.0, 0.4])


def test_every_rank_has_the_numbers_of_all():
    assert of_every_rank(One(), 0.3) == [0.2, 0.3, 0.4]


def test_the_slowest_rank_is_named_and_even_ranks_are_not():
    assert waiting([0.2, 0.2, 0.7, 0.2], 1.0) == (pytest.approx(0.5), 2)
    assert "rank 2 keeps the others waiting for 50% of an update" in line([0.2, 0.2, 0.7, 0.2], 1.0)
    assert line([0.2, 0.21, 0.2], 1.0).endswith("no rank keeps the others waiting") and line([0.2], 1.0) == ""


@pytest.mark.slow
def test_two_ranks_are_profiled_and_the_first_one_tells(tmp_path):
    flags = ["--data-path", LITE_DATA, "--crop-size=32", "--resize-size=36", "--width-mult=0.5", "--workers=0", "--batch-size=4"]
    launcher = ["-m", "paddle.distributed.launch", "--nproc_per_node=2", f"--log_dir={tmp_path / 'log'}"]
    done = run_command(
        *launcher, "tools/doctor.py", "profile", *flags, "--device=cpu", "--updates=2", "--json", tmp_path / "p.json", timeout=600
    )
    logs = [(tmp_path / f"log/workerlog.{rank}").read_text() for rank in (0, 1)]
    assert "ms of each rank before they meet: " in logs[0] and "before they meet" not in logs[1], (done.stderr[-500:], logs)
    facts = json.loads((tmp_path / "p.json").read_text())["facts"]
    assert len(facts["seconds_of_each_rank"]) == 2 and min(facts["seconds_of_each_rank"]) > 0
