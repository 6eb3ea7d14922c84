"""Which weights of a training checkpoint the engine's commands take: its moving average, or the weights themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from alignment.comparisons.context import Context
from alignment.flags import audit_parser, dump_parser, run_parser, weights_parser
from mobilenetv3_ref.models import mobilenet_v3_small
from projects.mobilenetv3.project import PROJECT


@pytest.mark.parametrize(("take", "value"), [("auto", 2.0), ("averaged", 2.0), ("raw", 1.0)])
def test_the_engine_takes_what_it_is_told_of_a_checkpoint(take, value, tmp_path):
    state = mobilenet_v3_small(num_classes=8, width_mult=0.25).state_dict()
    file, bias = tmp_path / "checkpoint.pth", "classifier.3.bias"
    sets = {"state_dict": {**state, bias: torch.ones(8)}, "state_dict_ema": {**state, bias: 2 * torch.ones(8)}}
    torch.save(sets, file)
    weights = Context(PROJECT, weights_from=str(file), take=take).material.weights
    assert np.array_equal(weights.state[bias], np.full(8, value, np.float32))


@pytest.mark.parametrize(
    ("parser", "flags"),
    [
        (run_parser, ["p.py"]),
        (weights_parser, ["p.py", "--output", "x.pth"]),
        (audit_parser, ["--port", "a:b", "--reference", "c:d"]),
    ],
)
def test_every_command_of_the_engine_that_reads_weights_has_the_flag(parser, flags):
    assert parser().parse_args([*flags, "--checkpoint-weights", "raw"]).checkpoint_weights == "raw"
    assert parser().parse_args(flags).checkpoint_weights == "auto"
    assert "--checkpoint-weights" in dump_parser().format_help()
