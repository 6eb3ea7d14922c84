"""tools/benchmark.py: what it refuses, and what it says of the engines; tests/test_documented_commands.py runs its commands."""

from __future__ import annotations

import pytest

from tests.conftest import run_command
from tools.benchmarks.engines import compared

REFUSED = {
    "service": "service: needs wrk, which sends the requests: apt install wrk",
    "data --pictures 0": "--pictures must be at least 1, found 0",
    "data --workers 0": "--workers must be at least 1, found 0",
    "train --batch-size 0": "--batch-size must be at least 1, found 0",
    "inference --repeats 0": "--repeats must be at least 1, found 0",
    "inference --threads -1": "--threads must be at least 0, found -1",
    "loader --pictures 63": "loader: --pictures must be at least 64 for --workers 2, found 63",
    "index --pictures 19999": "index: --pictures must be at least 20000, found 19999: a shorter list is not stored",
    "align --plot a.png": "--plot draws inference alone",
}


@pytest.mark.parametrize("flags", REFUSED)
def test_what_cannot_be_measured_is_a_line(flags):
    run = run_command("tools/benchmark.py", *flags.split(), PATH="", timeout=60)
    assert run.returncode == 2 and run.stderr == f"error: {REFUSED[flags]}\n"


def test_engines_are_compared_with_the_fastest_that_holds():
    times = {
        "ONNX Runtime fp32": [2.0, 1.2, 1.1],
        "ONNX Runtime int8": [0.9, 0.9, 0.9],
        "OpenVINO fp32": [1.0, 1.0, 9.0],
        "--engine auto, here openvino fp32": [1.1, 1.1, 1.1],
        "torch eager": [6.0, 6.0, 6.0],
    }
    assert compared(times, {"ONNX Runtime fp32", "OpenVINO fp32", "Paddle Inference"}).splitlines() == [
        "the fastest engine of the export whose predictions hold: OpenVINO fp32",
        "the default engine: 1.200 of the time of the fastest, 0.200 of that of torch eager",
        "--engine auto: 1.100 of the time of the fastest, 0.183 of that of torch eager",
    ]
