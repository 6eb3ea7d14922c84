"""Accuracy over real ranks, by the real launchers."""

import numpy as np
import pytest

from alignment.comparisons.metric.right_answers import oracle
from mobilenetv3_paddle.metric import TopKAccuracy
from tests.conftest import run_command


@pytest.mark.parametrize("framework", ["paddle", "torch"])
def test_accuracy_of_two_processes_is_that_of_the_whole(framework, tmp_path):
    script = ["tests/accuracy_over_ranks.py", framework, tmp_path]
    launcher = (
        ["-m", "paddle.distributed.launch", "--nproc_per_node=2", f"--log_dir={tmp_path / 'log'}"]
        if framework == "paddle"
        else ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    )
    run = run_command(*launcher, *script, timeout=180, PYTHONPATH=".")
    assert run.returncode == 0, run.stdout + run.stderr
    logits = np.random.default_rng(0).normal(size=(33, 10)).astype(np.float32)
    labels = np.random.default_rng(1).integers(0, 10, 33)
    right = oracle(logits, labels).sum(axis=0)
    ranks = [tuple(map(int, (tmp_path / f"rank{r}").read_text().split())) for r in range(2)]
    assert [r[0] for r in ranks] == [17, 16], "each rank has its own share"
    assert all(r[1:] == (33, right[0], right[1]) for r in ranks)


def test_accuracy_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="no samples"):
        TopKAccuracy().compute()
