"""The TIPC chains: their flags exist, a failure at any stage fails the chain, and one chain runs for real.

Where only the chain itself is the subject, PYTHON is a script that notes what it is asked to run; .ci/run runs all chains with
the real tools (make tipc).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mobilenetv3_common.config_file import add_flags, make_config
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.weights import read_state
from tests.conftest import LARGE, ROOT, SMALL

CHAINS = {
    "test_train_inference_python.sh": "train_infer_python.txt",
    "test_train_amp_inference_python.sh": "train_amp_infer_python.txt",
    "test_train_fleet_inference_python.sh": "train_fleet_infer_python.txt",
    "test_ptq_inference_python.sh": "train_ptq_infer_python.txt",
    "test_paddle2onnx.sh": "paddle2onnx_infer_python.txt",
    "test_serving_infer_python.sh": "serving_infer_python.txt",
}
STAGES = {chain: ("train", "eval", "export_model", "serve" if "serving" in chain else "infer") for chain in CHAINS}
MODES = ("lite_train_lite_infer", "lite_train_whole_infer", "whole_train_whole_infer", "whole_infer")
LITE = MODES[0]

# Notes a command, and fails where FAIL is in it. -c is the chain's own questions: whether there is a GPU, a free port, and
# complete_config.py its own, too.
PYTHON = """#!/bin/bash
if [ "$1" = -c ] || [ "$1" = test_tipc/complete_config.py ]; then exec {python} "$@"; fi
echo "$*" >> "$NOTES"
[ -z "${{FAIL:-}}" ] || [[ "$*" != *"$FAIL"* ]]
"""


@pytest.fixture
def project(tmp_path):
    """A copy of what the chains stand on, so that their output is nobody else's."""
    for name in ("test_tipc", "tools", "configs", "lite_data"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("output", "__pycache__"))
    (tmp_path / "python").write_text(PYTHON.format(python=sys.executable))
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def run(project: Path, script: str, config: str, mode: str, model: str = SMALL, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", f"test_tipc/{script}", f"test_tipc/configs/{model}/{config}", mode],
        cwd=project, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHON": str(project / "python"), "NOTES": str(project / "notes"), "TIPC_CPU": "1", **env},
    )  # fmt: skip


def results(project: Path, mode: str = LITE, model: str = SMALL) -> list[str]:
    return (project / f"test_tipc/output/{model}/{mode}/results_python.log").read_text().splitlines()


def tool(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parse(command: list[str]) -> None:
    """Give a command's flags to the tool's own parser; it raises where one is unknown."""
    name = Path(command[0]).stem
    if name in ("train", "eval"):
        from mobilenetv3_common.config_file import Parser

        parser = tool(name).parser() if name == "train" else Parser()
        if name == "eval":
            parser.add_argument("--config")
            add_flags(parser, TrainConfig)
        flags = vars(parser.parse_args(command[1:]))
        for name in ("watch", "test_only"):
            flags.pop(name, None)
        make_config(TrainConfig, ROOT / flags.pop("config"), flags)
    else:
        tool(name).parser().parse_args(command[1:])


@pytest.mark.parametrize("model", [SMALL, LARGE])
@pytest.mark.parametrize("chain", CHAINS)
def test_every_flag_of_every_config_exists_in_its_tool(project, chain, model):
    seen = set()
    for mode in MODES if "fleet" not in chain else MODES[:-1]:
        (project / "notes").unlink(missing_ok=True)
        done = run(project, chain, CHAINS[chain], mode, model)
        assert done.returncode == 0, done.stdout + done.stderr
        for line in (project / "notes").read_text().splitlines():
            words = line.split()
            starts = [i for i, word in enumerate(words) if word.startswith("tools/")]
            assert len(starts) == 1, line
            parse(words[starts[0] :])
            seen.add(Path(words[starts[0]]).stem)
    assert seen == set(STAGES[chain])


@pytest.mark.parametrize(("chain", "stage"), [(chain, stage) for chain in CHAINS for stage in STAGES[chain]])
def test_a_failure_at_any_stage_fails_the_chain(project, chain, stage):
    done = run(project, chain, CHAINS[chain], LITE, FAIL=f"tools/{stage}.py")
    assert done.returncode == 1, done.stdout
    lines = results(project)
    failed = [line for line in lines if line.startswith(" Run failed with command - ")]
    assert failed and all(f"tools/{stage}.py" in line for line in failed)
    assert all(f"tools/{stage}.py" not in line for line in lines if "successfully" in line)
    # What needs the output of a failed step does not run, and is not reported.
    dependent = {"train": ("eval", "export_model", "infer", "serve"), "export_model": ("infer", "serve")}.get(stage, ())
    assert not any(f"tools/{other}.py" in line for other in dependent for line in lines)
    assert re.search(r": (\d+) of \d+ steps successful", done.stdout)[1] == str(len(lines) - len(failed))


@pytest.mark.parametrize("chain", CHAINS)
def test_the_results_have_tipcs_form(project, chain):
    done = run(project, chain, CHAINS[chain], LITE)
    lines = results(project)
    assert done.returncode == 0 and len(lines) >= 4
    assert all(line.startswith(f" Run successfully with command - {SMALL} - ") for line in lines)
    assert f"{len(lines)} of {len(lines)} steps successful" in done.stdout


def test_wrong_arguments_are_refused(project):
    script, config = "test_train_inference_python.sh", "train_infer_python.txt"
    for arguments, message in (
        ((script, "nothing.txt", LITE), "no such config"),
        ((script, config, "light"), "has no mode 'light'"),
        (("test_train_fleet_inference_python.sh", "train_fleet_infer_python.txt", "whole_infer"), "has no mode 'whole_infer'"),
        (("test_train_amp_inference_python.sh", config, LITE), "--amp-level is null"),
        (("prepare.sh", config, "whole_train_whole_infer"), "data/imagenet has no ImageNet"),
    ):
        done = run(project, *arguments)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and message in done.stderr, done.stderr


@pytest.mark.slow
def test_whole_infer_makes_its_weights_with_the_real_engine(project):
    """``prepare.sh`` alone, without a stand-in for Python: the weights that it leaves are the model's."""
    for name in ("projects", "alignment", "mobilenetv3_common", "mobilenetv3_paddle", "mobilenetv3_ref"):
        (project / name).symlink_to(ROOT / name)
    env = {"PYTHON": sys.executable, "PYTHONPATH": str(project), "MOBILENETV3_CACHE": os.environ.get("MOBILENETV3_CACHE", "")}
    done = run(project, "prepare.sh", "train_infer_python.txt", "whole_infer", **env)
    assert done.returncode == 0 and "calibrated weights of mobilenet_v3_small" in done.stdout, done.stdout + done.stderr
    state = read_state(project / f".cache/tipc/{SMALL}.safetensors")
    assert state["classifier.3.weight"].shape == (1000, 1024)
    again = run(project, "prepare.sh", "train_infer_python.txt", "whole_infer", **env)
    assert again.returncode == 0 and "calibrated" not in again.stdout  # kept


def test_a_config_that_lacks_a_line_takes_the_chains_own(project):
    path = project / f"test_tipc/configs/{SMALL}/train_infer_python.txt"
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if not line.startswith("--img-path")))
    done = run(project, "test_train_inference_python.sh", path.name, LITE)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.endswith("taken from the default config: --img-path\n")
    assert "--img-path lite_data/val " in (project / "notes").read_text()
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if not line.startswith("model_name")))
    assert run(project, "test_train_inference_python.sh", path.name, LITE).returncode == 0
    path.write_text(path.read_text() + "model_name:mobilenet_v9\n")
    done = run(project, "test_train_inference_python.sh", path.name, LITE)
    assert done.returncode == 2 and "there is no mobilenet_v9" in done.stderr and done.stderr.count("\n") == 1


def test_the_configs_keep_the_standard_order():
    """Line by line the keys that Paddle's own scripts expect there (their lines 2-4, 8, 15-16, 24, 28-30 and 40)."""
    for model in (SMALL, LARGE):
        for config in CHAINS.values():
            lines = (ROOT / f"test_tipc/configs/{model}/{config}").read_text().splitlines()
            keys = {number: lines[number - 1].split(":")[0] for number in (1, 2, 3, 4, 11, 14, 15, 16, 22, 23, 24, 27, 30, 40)}
            assert keys[1].strip("=") == "train_params" and keys[23].strip("=") == "eval_params"
            assert keys[27].strip("=") == "infer_params"
            expected = {
                2: "model_name",
                3: "python",
                4: "gpu_list",
                11: "train_model_name",
                14: "##",
                15: "trainer",
                16: "norm_train",
            }
            expected |= {22: "##", 24: "eval", 30: "norm_export", 40: "inference"}
            assert {number: keys[number] for number in expected} == expected


@pytest.mark.slow
def test_a_chain_runs_for_real(project):
    """Train, evaluate, export, serve: every step successful, and results that say so."""
    for name in ("mobilenetv3_common", "mobilenetv3_paddle", "mobilenetv3_ref", "alignment"):
        (project / name).symlink_to(ROOT / name)
    config = project / f"test_tipc/configs/{SMALL}/serving_infer_python.txt"
    config.write_text(config.read_text().replace("--engine:onnxruntime|onednn", "--engine:onnxruntime"))
    real = {"PYTHON": sys.executable, "PYTHONPATH": str(project)}
    assert run(project, "prepare.sh", config.name, LITE, **real).returncode == 0
    done = run(project, "test_serving_infer_python.sh", config.name, LITE, **real)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4 steps successful" in done.stdout
    served = next((project / f"test_tipc/output/{SMALL}/{LITE}").glob("serve_*.log")).read_text()
    assert served.count(" %") == 16 and "lite_data/val/cat/cat_0.JPEG: " in served
