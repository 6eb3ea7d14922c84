"""Every command of README and docs is run, as it stands, in a copy of the project, in the order of the pages.

What a page shows must be what the command prints, figures apart. What cannot be had on any machine (ImageNet, eight GPUs, a
second machine, the network) has something of its kind in its place: the pairs of ``instead`` say what. ``make test-commands``
runs all of them, ``make test-slow`` those of which a page alone tells whether they work; the tests at the end are in the suite.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reprod_log

from alignment.comparisons import NAMES
from alignment.models.calibration import calibrated_state
from mobilenetv3_common.weights import with_counters
from projects.mobilenetv3.project import PROJECT
from tests.conftest import LITE_DATA, ROOT
from tests.documents import DOCUMENTS, Command, commands, without_figures
from tests.test_train_ranks import free_port

PUBLISHED = "mobilenet_v3_small-047dcff4.pth"
PORT, MASTER_PORT = str(free_port()), str(free_port())
SMALL_RUN = "--epochs 1 --batch-size 4 --workers 0"
IMAGENET = (r"(--data-path )?/data/(imagenet|mine)", rf"\1imagenet {SMALL_RUN}")  # lite_data in ImageNet's layout


@dataclass(frozen=True)
class Run:
    """How a command is run, and what it must do.

    Attributes:
        says: patterns of the output.
        status: the exit status.
        instead: (pattern, replacement) of what is not to be had here.
        shown: how many lines of what the page shows must be printed; None for all.
        in_ci: not run here: .ci/run, or the weekly workflow, runs it by itself.
        weekly: why a change need not wait for it: which test or target shows the same. ``make test-commands`` alone runs it.
        background: it goes on while the next commands run.
        leaves: asserts what lies in the project's folder then.
    """

    says: tuple[str, ...] = ()
    status: int = 0
    instead: tuple[tuple[str, str], ...] = ()
    shown: int | None = None
    in_ci: bool = False
    weekly: str = ""
    background: bool = False
    leaves: Callable[[Path], None] | None = None


def holds_updates(folder: Path) -> None:
    """What step 5 of ``make align`` leaves; test_align_command.py has the first four steps."""
    result = folder / "result"
    report = json.loads((result / "alignment.json").read_text())
    assert report["passed"] is True and report["rests_on"][:5] == list(NAMES.values())[:5]
    rows = next(step for step in report["steps"] if step["name"] == "backward")["quantities"]
    first = [q for q in rows if ".iter0." in q["name"] and not q["noise"] and not q["flips"]]
    assert max(q["float64_diff"] for q in first if ".state" not in q["name"]) < 1e-12
    names = {q["name"].split(".iter")[0] for q in rows if ".iter9.gradients.together" in q["name"]}
    assert names == {f"{o}.{m}" for o in ("sgd", "rmsprop", "adamw") for m in ("eval", "train")}
    helper = reprod_log.ReprodDiffHelper()
    sides = [helper.load_info(str(result / f"losses_{side}.npy")) for side in ("paddle", "ref")]
    assert sides[0] and sides[0].keys() == sides[1].keys()
    helper.compare_info(*sides)
    losses = sides[1]["sgd.eval.losses"]
    assert losses.shape == (10,) and np.unique(losses).size > 5
    lines = (result / "log" / "backward_diff.log").read_text().splitlines()
    assert "root INFO: " in lines[0] and "\tmean diff: check passed: True, value: " in lines[1]
    assert lines[-1].endswith("diff check passed")


MADE = (r"^make", "make -o .venv/.installed")  # with this environment, not one of its own
ONCE = (r"--repeats \d+", "--repeats 1")
LAUNCHED = "tests/test_train_ranks.py and tests/test_launch_scripts.py train with the same launchers"
LITE_RUN = "--epochs 2 --keep 9 --workers 0"
TWICE = (
    f"python tools/train.py --config configs/lite.yaml --data-path lite_data {LITE_RUN} --print-every 1 --output-dir output/{{}}"
)
DIGITS = "a measured result, three minutes of training; tests/test_train_command.py trains on lite_data"
COMPARES = re.compile(r"\balign|\bmnv3 audit|\bbench |scripts/|docs/examples/(?!client)|projects[./]|tools/resnet50")
MEASURED = "a measurement; tests/test_benchmark.py runs the tool"
WHOLE = "make tipc runs the same chain on lite_data"
# Faults of a step of which another one is injected.
AGAIN = (
    "batch_norm_eps|no_residual|momentum_inverted|crop_rounded_down|translate_other_way|ties_count_as_right|"
    "paddles_own_cross_entropy"
)
PASSED = r"step {} \w+ \.\.\. passed"
EXPECTED: dict[str, Run] = {
    r"make (test|test-slow|lint|tipc|docs|test-weekly|test-commands|ablate|bench|bench-low-precision|mutants)": Run(in_ci=True),
    r"make align-(resnet50|mindspore|mindspore-resnets|mindspore-short)": Run(in_ci=True),
    r"python docs/examples/reprod_log_demo/write_log\.py": Run((r"result_demo/reprod_log_2\.npy",)),
    r"python docs/examples/reprod_log_demo/check_log_diff\.py": Run((r"check passed: True", r"check passed: False"), status=1),
    # The environment of the tests is without it; make align-mindspore has one of its own.
    r"python -m alignment run (projects/resnet50/(mindspore_project|three_frameworks)|tests/pairs/three_small)\.py.*": Run(
        (r"mindspore is not installed",), status=2
    ),
    r"python -m alignment bench tests/pairs/mindspore_project\.py .*": Run((r"mindspore is not installed",), status=2),
    r"python tools/resnet50\.py (infer|train|profile) .*": Run((r"mindspore is not installed",), status=2),
    r"python tools/clean\.py --output-dir final": Run((r"final: .*mobilenetv3_paddle",)),
    r"python tools/resnet50\.py plan .*": Run((r"\| learning rate schedule \| constant 0\.001",)),
    r"python tools/resnet50\.py convert .*": Run((r"error: .*resnet50\.pth",), status=2),
    r"make setup(?: && \. \.venv/bin/activate)?": Run(instead=(MADE,)),
    r"make notebooks": Run((r"audit_a_port\.ipynb: 6 cells",), instead=(MADE,), weekly="tests/test_notebooks.py executes them"),
    r"make recording": Run(
        (r"audit\.svg: \d+ kB, 20 seconds",), instead=(MADE,), weekly="tests/test_recording.py records the same"
    ),
    r"make format": Run((r"files left unchanged",), instead=(MADE,)),
    r"make align": Run(
        (*(PASSED.format(step) for step in (1, 2, 3, 4, 5, 6, 8)), r"results: result/report\.html"),
        instead=(MADE,),
        leaves=holds_updates,
        weekly="tests/test_align_command.py runs steps 1 to 4, tests/test_breakages_5_backward.py and "
        "tests/test_breakages_6_train.py the sound port in the others",
    ),
    # The environment has it all; an installation would change it.
    r"pip install .*(mindspore|zoo).*": Run(
        (r"Would install .*mobilenetv3-reproduction",),
        instead=((r"$", " --dry-run"),),
        weekly="it downloads 800 MB, as make align-mindspore-short, or timm",
    ),
    r"pip install --no-deps paddleclas==.*": Run(
        (r"Would install paddleclas-",), instead=((r"$", " --dry-run"),), weekly="it downloads what tests/test_zoo.py stands in for"
    ),
    r"pip install --no-deps paddlenlp==.*": Run(
        (r"Would install paddlenlp-",),
        instead=((r"$", " --dry-run"),),
        weekly="it downloads what tests/test_zoo_public.py stands in for",
    ),
    r"pip install --no-deps timm==.*": Run(
        (r"Would install .*diffusers-",),
        instead=((r"$", " --dry-run"),),
        weekly="it downloads what tests/test_zoo_public.py does without",
    ),
    r"pip install (?!--no-deps)(?!.*(mindspore|zoo)).*": Run(
        (r"Would install mobilenetv3-reproduction",), instead=((r"$", " --dry-run"),)
    ),
    r"pip install --no-deps .*padiff.*": Run(weekly="what needs PaDiff runs weekly: tests/test_align_command.py has its flag"),
    r"python -m alignment bench projects/mobilenetv3/project\.py --together 3 .*": Run(
        (r"all 3 found in one search: 2 of 2; of 6 faults located 6, named 6",),
        instead=((r"--count 100 --seed 1", "--count 2 --seed 0"),),
        weekly="tests/test_every_mistake.py finds three faults in one search",
    ),
    r"python -m alignment bench projects/layers/pairs\.py --layer-faults .*": Run(
        weekly="tests/test_layer_faults.py runs a sample, and reads what PaDiff says"
    ),
    r"python tools/align\.py --inject list": Run((r"^batch_norm_eps +models +step 1", r"^ranks_not_merged")),
    rf"python tools/align\.py --inject (?!{AGAIN}|list)\w+( --steps [1-4])?": Run((r"^first divergence: ",), status=1),
    rf"python tools/align\.py --inject ({AGAIN})( --steps [1-4])?": Run(
        (r"^first divergence: ",),
        status=1,
        weekly="tests/test_breakages_1_forward.py to test_breakages_4_loss.py inject the same",
    ),
    r"python tools/align\.py --inject \w+ --steps [56]": Run(
        (r"^first divergence: ",),
        status=1,
        weekly="tests/test_breakages_5_backward.py and tests/test_breakages_6_train.py inject the same",
    ),
    r"python tools/align\.py --bench-faults( --padiff \S+)?": Run(
        (r"this project: detected 10 of 10 \(100 %\), located exactly 10 of 10 \(100 %\), right hint 10 of 10",),
        instead=((r"(--bench-faults)", r"\1 --steps 3,4"),),
        weekly="tests/test_breakages_3_metric.py and test_breakages_4_loss.py inject the same; test_align_command.py the flag",
    ),
    # The machine of the tests has no GPU; the command says so.
    r"python tools/align\.py --device gpu": Run((r"^error: --device gpu: this Paddle finds no GPU",), status=2),
    r"python tools/align\.py --steps 1": Run((PASSED.format(1),), weekly="tests/test_align_command.py runs the step"),
    r"python tools/align\.py --model mobilenet_v3_large --steps 1,4": Run(
        (PASSED.format(1), PASSED.format(4)), weekly="tests/test_align_command.py aligns the large model"
    ),
    # Without a network it says what to do instead; that is then done.
    r"python tools/align\.py --data-path /data/imagenet --weights torchvision": Run(
        (rf"error: cannot fetch https://\S+{PUBLISHED}: .* fetch it elsewhere and put it at \S+{PUBLISHED}", PASSED.format(2)),
        instead=(
            (r"/data/imagenet", "imagenet"),
            (r"(.*)torchvision$", rf"\1torchvision; [ $? -eq 2 ] && \1{PUBLISHED} --steps 1,2,4"),
        ),
        weekly="tests/test_large_data.py aligns on other data; tests/test_align_command.py with weights and without a network",
    ),
    r"python tools/align\.py --weights original\.pth --port-weights converted\.pdparams": Run(
        (PASSED.format(0), PASSED.format(1)),
        instead=((r"original\.pth", PUBLISHED), (r"converted\.pdparams", "my_port.pdparams --steps 1")),
        weekly="tests/test_converted_weights.py compares right and wrong files by the same flags",
    ),
    r"python tools/align\.py --config configs/digits\.yaml --steps 5,6": Run(
        (PASSED.format(5), PASSED.format(6), r"trained by configs/digits\.yaml"),
        weekly="tests/test_given_recipes.py aligns a given recipe",
    ),
    r"python tools/align\.py --weights my_port\.pdparams": Run(
        (PASSED.format(1), PASSED.format(6), r"my_port\.pdparams weights"),
        weekly="tests/test_align_command.py aligns with files of weights",
    ),
    **{
        rf"python scripts/0{step}_test_\w+\.py": Run(
            (PASSED.format(step),),
            weekly="tests/test_guides_files.py and test_align_command.py run scripts and steps" if step > 1 else "",
        )
        for step in range(1, 7)
    },
    r"python -m alignment\.compare result/\S+ result/\S+ --rtol 1e-4": Run((r"^(\d+) of \1 arrays agree",)),
    r"python -m alignment\.compare output/port_resnet18/\S+ output/port_resnet18/\S+": Run(
        (r"^1 of 1 arrays agree",), weekly="tests/test_compare_command.py compares files"
    ),
    r"python -m alignment\.compare mine\.npz theirs\.npz": Run((r"^1 of 1 arrays agree",)),
    r"python -m alignment bench projects/mobilenetv3/project\.py --false-alarms": Run(
        (r"^0 false alarms in 6 runs",),
        instead=((r"$", " --options width_mult=0.35 --seeds 1 --steps 1,4 --localize"),),
        weekly="tests/test_false_alarms.py makes such runs",
    ),
    r"python -m alignment bench projects/mobilenetv3/project\.py --false-alarms --seeds 1 --steps 4": Run(
        (r"^0 false alarms in 8 runs",), weekly="tests/test_false_alarms.py makes such runs"
    ),
    r"python tools/align\.py --ranks 2 --steps 7": Run((PASSED.format(7),), weekly="tests/test_ranks.py compares the same runs"),
    r"python -m alignment bench projects/mobilenetv3/project\.py --ranks 2": Run(
        (r"^detected (\d+), located exactly \1, right hint \1 of \1",), weekly="tests/test_ranks.py finds some of them"
    ),
    r"python -m alignment bench projects/mobilenetv3/project\.py --ranks 2 --false-alarms --seeds 20": Run(
        (r"^0 false alarms in 60 runs",), weekly="tests/test_ranks.py runs the sound port from one seed"
    ),
    r"python -m alignment bench projects/mobilenetv3/project\.py --steps 3,4": Run(
        (r"detected 10 of 10 \(100 %\)",),
        weekly="tests/test_breakages_3_metric.py and tests/test_breakages_4_loss.py inject the same",
    ),
    r"python -m alignment bench projects/mobilenetv3/project\.py --source-faults --steps 3,4": Run(
        (r"^all +\d+ +\d+ +\d+ +\d+ +0$",), weekly="tests/test_edits.py runs some of them"
    ),
    r"python -m alignment bench projects/mobilenetv3/project\.py --rewrites --steps 3,4": Run(
        (r"^0 alarms on \d+ right rewrites",), weekly="tests/test_edits.py runs one of them"
    ),
    r"python -m alignment bench projects/functional/project\.py --functional-faults": Run(
        (r"^51 faults: 51 detected, 51 named by line, 51 called what they are, 0 false lines$", r"^16 rewrites: 0 alarms$"),
        weekly="tests/test_calls.py runs some of them, and all in make test-slow",
    ),
    r"python -m bench real --list": Run((r"^gemma-gelu .*https://github\.com/huggingface/transformers/pull/29402$",)),
    r"python -m bench real --check": Run(
        (r"^\d+ of \d+ pairs are as they say$",), weekly="tests/test_real_bugs.py checks some pairs, and all in make test-slow"
    ),
    r"python -m bench real( --open| --held-out)?": Run(
        (r"results: result/real\.md",), status=1, weekly="tests/test_real_bugs.py audits one of them in make test-slow"
    ),
    r"python -m bench ablate convolution pooling": Run(
        (r"^\d+ hypotheses: \d+ noticed, 0 survived, 0 untested, 0 error$", r"results: result/ablate\.jsonl"),
        weekly="tests/test_ablate.py runs one family",
    ),
    r"python -m bench patches functional --sample 10 --seed 1": Run(
        (r"^functional +10 ", r"results: result/patches\.jsonl"), weekly="tests/test_patches.py makes one mistake of each list"
    ),
    r"python -m bench patches edits --steps 3,4 --sample 3": Run(
        (r"^edits +3 ", r"results: result/patches\.jsonl"), weekly="tests/test_patches.py corrects one edit"
    ),
    r"python -m bench planted": Run(
        (r"^\| nothing \|", r"0 of \d+ verdicts call"), weekly="tests/test_planted.py plants one difference in three seeds"
    ),
    r"python -m bench patches": Run(
        (r"^all +\d+ ", r"results: result/patches\.jsonl"), weekly="tests/test_patches.py makes one mistake of each list"
    ),
    r"python -m bench ablate": Run(
        (r"^\d+ hypotheses: \d+ noticed, 0 survived, 0 untested, 0 error$", r"results: result/ablate\.jsonl"),
        weekly="tests/test_ablate.py runs one family",
    ),
    r"python -m alignment bench projects/mobilenetv3/project\.py --mutants mobilenetv3_paddle\.loss --count 4": Run(
        (r"^mobilenetv3_paddle\.loss +\d", r"results: result/mutants.html"),
        weekly="tests/test_mutants.py makes mutants of a small project",
    ),
    r"python -m alignment run docs/examples/own_project\.py": Run((r"as far as steps 1, 5 \(in part\) can tell",)),
    r"mnv3 audit --port docs/examples/own_project.* --accept initialisation": Run(
        (
            r"step 5 backward \.\.\. passed",
            r"^PASS: no mistake found in the port \(1 known difference of the frameworks\)\.$",
            r"report\.md: to paste into a pull request",
        ),
    ),
    # Three mistakes in one run, the port without them, and that with updates.
    r"mnv3 audit --port docs/examples/vit_port\.py.*": Run(
        (r"^Your mistakes: 3 mistakes", r"with these 3 mistakes and the known differences fixed in memory, steps 1, 5 pass"),
        status=1,
    ),
    r"mnv3 audit --port docs/examples/vit_port_fixed\.py.*--training --report .*": Run(
        (r"^PASS: no mistake found in the port \(1 known difference of the frameworks\)\.$", r"^  initialisation: fresh weights"),
    ),
    r"mnv3 audit --port docs/examples/vit_port_fixed\.py.*--accept initialisation.*": Run(
        (r"^PASS: no mistake found in the port \(1 known difference of the frameworks\)\.$",)
    ),
    r"python tools/convert_weights\.py --port docs/examples/vit_port\.py.*--list": Run((r"^pos_embed <-> position",)),
    r"mnv3 audit --port docs/examples/own_project(?!.*--accept).*": Run(
        (r"step 5 backward \.\.\. passed", r"^PASS: no mistake found in the port", r"report\.md: to paste into a pull request"),
    ),
    # Without PaddleClas it says how to get it.
    r"python -m projects\.zoo (ppcls\.\w+|--backbones)": Run((r"^error: PaddleClas is not installed: ",), status=2),
    r"python -m projects\.zoo\.public --checkouts checkouts": Run(
        (r"^error: a check-out of github\.com/PaddlePaddle/PaddleNLP \(version 2\.8\.1\) is needed: checkouts has none",), status=2
    ),
    r"python -m projects\.zoo squeezenet1_1": Run((r"^squeezenet1_1: explained",), weekly="tests/test_zoo.py runs the same pair"),
    r"python -m alignment dump torchvision\.models:squeezenet.*": Run((r"dump of the reference",)),
    r"python -m alignment dump paddle\.vision\.models:squeezenet.*": Run((r"dump of the port",)),
    r"mnv3 audit --port-dump .*": Run((r"step 1 forward \.\.\. FAILED",), status=1),
    r"mnv3 audit --port paddle\.vision\.models:squeezenet.*": Run(
        (r"reference torchvision\.models:squeezenet1_1 \(PyTorch\)", r"^first divergence: forward: features\.0: padding 1"),
        status=1,
        weekly="tests/test_zoo.py runs the same pair",
    ),
    r"python -m alignment run projects/resnet50/project\.py --model resnet18_stock --steps 1": Run(
        (r"^first divergence: forward: bn1: biased variance",),
        status=1,
        weekly="tests/test_project.py finds the same in ResNet-18 by the same file",
    ),
    r"python -m alignment weights projects/mobilenetv3/project\.py .*--output \S+": Run((r"calibrated weights of mobilenet_v3",)),
    r"python tools/train\.py --config configs/lite\.yaml --data-path lite_data": Run((r"top1: 1\.0",)),
    r"python tools/train\.py --config configs/digits\.yaml --data-path digits": Run((r"top1: 0\.9[89]",), weekly=DIGITS),
    r"python tools/train\.py --help": Run((r"--lr-schedule", r"--label-smoothing")),
    r"python tools/train\.py --config configs/mobilenet_v3_small_rmsprop\.yaml --data-path /data/imagenet": Run(
        (r"\[Epoch 0, iter: ",), instead=(IMAGENET,)
    ),
    r"python tools/train\.py .* --data-path /data/mine .*--reset-classifier": Run((r"\[Epoch 0, iter: ",), instead=(IMAGENET,)),
    r"python -m paddle\.distributed\.launch --gpus 0,1,2,3 tools/train\.py .*": Run(
        (r"2 ranks on ",), instead=(IMAGENET, (r"--gpus 0,1,2,3", "--nproc_per_node 2")), weekly=LAUNCHED
    ),
    r"torchrun --nproc-per-node 4 tools/train\.py --framework ref .*": Run((r"4 ranks on ",), instead=(IMAGENET,), weekly=LAUNCHED),
    r"NPROC=4 scripts/train\.sh .*": Run((r"2 ranks on ",), instead=(IMAGENET, (r"NPROC=4", "NPROC=2")), weekly=LAUNCHED),
    r"MASTER=10\.0\.0\.1:8090 NNODES=2 NODE_RANK=0 NPROC=8 scripts/train_dist\.sh .*": Run(
        (r"2 ranks on ",),
        instead=(
            IMAGENET,
            (
                r"MASTER=\S+ NNODES=2 NODE_RANK=0 NPROC=8 (.*)",
                rf"export MASTER=127.0.0.1:{MASTER_PORT} NNODES=2 NPROC=1; NODE_RANK=0 \1 & NODE_RANK=1 \1 && wait $!",
            ),
        ),
        weekly=LAUNCHED,
    ),
    r"python -m paddle\.distributed\.launch --master 127\.0\.0\.1:8090 --nnodes 2 --rank 0 .* &": Run(
        instead=((r"8090", MASTER_PORT), (r" &$", f" {SMALL_RUN}")), background=True, weekly=LAUNCHED
    ),
    r"python -m paddle\.distributed\.launch --master 127\.0\.0\.1:8090 --nnodes 2 --rank 1 .*[^&]": Run(
        (r"2 ranks on ",),
        instead=((r"8090", MASTER_PORT), (r"$", f" {SMALL_RUN} && cat output/two/train.log")),
        weekly=LAUNCHED,
    ),
    # Sixteen pictures: on some processors one of them is named wrongly.
    r"python tools/eval\.py --config output/lite/config\.yaml .*": Run((r"top1: (1\.0|0\.9)",)),
    r"python tools/eval\.py .* --confusion output/digits/confusion\.png": Run((r"top1: 0\.9[89]",), weekly=DIGITS),
    r"python tools/make_shards\.py --data-path lite_data --output-dir lite_shards": Run(
        (r"^16 train pictures in 1 shard and 16 val pictures in 1 shard in lite_shards$",)
    ),
    r"python tools/prepare_digits\.py digits": Run((r"^digits: 1433 training and 364 validation pictures of 10 digits",)),
    r"python tools/doctor\.py data lite_data .*": Run(
        (r"^data\.leak .* none found", r"^No problem found in lite_data by 1[3-6] checks")
    ),
    r"python tools/doctor\.py weights output/lite/\S+ output/lite": Run(
        (r"^weights\.never_moved .* none found", r"^No problem found"),
        instead=(
            ("update_000000004", "update_000000002"),
            (r"^(.*)$", rf"python tools/train.py --config configs/lite.yaml --data-path lite_data {LITE_RUN} && \1"),
        ),
        weekly="tests/test_doctor_weights.py runs the same command",
    ),
    r"python tools/doctor\.py compare output/lite output/lite_again --watch .*": Run(
        (r"^compare\.curve .* none found", r"followed to update 4, the last one of"),
        instead=((r"^(.*)$", " && ".join([*map(TWICE.format, ("lite", "lite_again", "lite_seed1")), r"\1"])),),
        weekly="tests/test_doctor_continued.py follows a run",
    ),
    r"python tools/doctor\.py equal reference\.csv port\.csv --margin 0\.15": Run((r"^equal\.margin .* none found +equal within",)),
    r"python tools/doctor\.py compare --from output/lite/\S+": Run(
        (r"^compare\.from_update .* none found", r"^No problem found"),
        instead=((r"^(.*)$", rf"python tools/train.py --config configs/lite.yaml --data-path lite_data {LITE_RUN} && \1"),),
        weekly="tests/test_doctor_continued.py goes on from checkpoints",
    ),
    r"python tools/doctor\.py compare output/lite output/lite_again --html .*": Run(
        (r"^compare\.first_loss .* none found", r"^No problem found"),
        instead=((r"^(.*)$", rf"{TWICE.format('lite')} && {TWICE.format('lite_again')} && \1"),),
        weekly="tests/test_doctor_compare.py runs the same command",
    ),
    r"python tools/doctor\.py check --config configs/lite\.yaml --data-path lite_data --bundle help\.zip": Run(
        (r"^No problem found", r"help\.zip: 8 training and 16 validation pictures"),
        weekly="tests/test_doctor_check.py writes a bundle",
    ),
    r"python tools/doctor\.py check --config configs/lite\.yaml --data-path lite_data": Run(
        (r"^check\.overfit .* none found", r"^No problem found"), weekly="tests/test_doctor_check.py examines a sound recipe"
    ),
    r"python tools/train\.py --config configs/lite\.yaml --data-path lite_data --watch": Run(
        (r"^watched updates 1 to 4: 0 event",), instead=((r"$", f" {LITE_RUN}"),), weekly="tests/test_doctor_watch.py has the flag"
    ),
    r"python tools/doctor\.py profile --config configs/lite\.yaml --data-path lite_data .*": Run(
        (r"^profile\.gap ", r"^note: recommendation: "),
        instead=((r"$", " || test $? = 1"),),  # it depends on the machine whether the data are waited for
        weekly="tests/test_doctor_profile.py measures runs",
    ),
    r"python tools/doctor\.py output/lite": Run(
        (r"^run\.ended .* none found +2 of 2 epochs", r"^weights\.\* .* none found", r"^data\.\* .* none found"),
        instead=(  # two epochs may learn nothing
            (
                r"^(.*)$",
                rf"python tools/train.py --config configs/lite.yaml --data-path lite_data {LITE_RUN} && {{ \1 || test $? = 1; }}",
            ),
        ),
        weekly="tests/test_doctor_run.py runs the same command",
    ),
    r"python tools/doctor\.py watch output/lite": Run(
        (r"^watch\.no_gradient .* none found", r"^No problem found"),
        instead=((r"^(.*)$", rf"python tools/train.py --config configs/lite.yaml --data-path lite_data {LITE_RUN} --watch && \1"),),
        weekly="tests/test_doctor_watch.py runs the same command",
    ),
    r"python tools/lr_find\.py .* --plot lr\.png": Run(
        (r"picture: lr\.png",), weekly="tests/test_train_command.py searches a rate on lite_data"
    ),
    rf"python tools/convert_weights\.py {PUBLISHED} small\.pdparams": Run((r"small\.pdparams",)),
    r"python tools/convert_weights\.py small\.pdparams back\.pth": Run((r"back\.pth",)),
    r"python tools/predict\.py --img-path lite_data/val/cat/cat_0\.JPEG .*": Run((r"^ +[6-9]\d\.\d\d %  cat",), shown=2),
    r"python tools/predict\.py --img-path lite_data/val .*--topk 3": Run((r"^lite_data/val/cat/cat_0\.JPEG\n.*cat\n.*\n.*%",)),
    r"python tools/predict\.py --img-path lite_data/val .*--json --save-dir .*": Run((r'"name": "cat"',)),
    r"python tools/export_model\.py .*output/lite/.*--triton .*": Run(
        (r"output/lite/models/mobilenet_v3_small: a model for Triton",)
    ),
    r"python tools/export_model\.py .*output/lite/.*--int8 .*": Run((r"model_int8\.onnx",)),
    r"python tools/export_model\.py .*output/digits/.*--int8 .*": Run((r"model_int8\.onnx",), weekly=DIGITS),
    r"python tools/infer\.py .*--benchmark": Run((r"pictures/s",)),
    r"python tools/infer\.py .*output/lite/.*--accuracy": Run((r"top-1: (1\.0|0\.9)",)),
    r"python tools/infer\.py .*output/digits/.*--accuracy": Run((r"top-1: (1\.0|0\.9)",), weekly=DIGITS),
    r"python tools/infer\.py --model-dir output/lite/exported --img-path lite_data/val": Run((r"%  cat",)),
    # tests/test_workers.py starts it, where there is nginx.
    r"make serve MODEL_DIR=output/lite/exported": Run((r"--model-dir DIR",), instead=((r".*", "python deploy/front.py --help"),)),
    # tests/test_browser_page.py makes it, where there is npm, and opens it, where there is Chromium.
    r"make page MODEL_DIR=output/lite/exported": Run(
        (r"^cp output/lite/exported/model\.onnx ",), instead=((r"^make", "make -n -o ort-web"),)
    ),
    r"python -m http\.server .*": Run((r"--directory",), instead=((r"--directory .*", "--help"),)),
    r"python tools/serve\.py .* --port 8000": Run((rf"http://127\.0\.0\.1:{PORT}/",), instead=((r"8000", PORT),), background=True),
    r"(python|node) docs/examples/client\.(py|mjs) http://127\.0\.0\.1:8000 lite_data/val/cat/cat_0\.JPEG": Run(
        (r"^ .* cat$",), instead=((r"8000", PORT),)
    ),
    r"curl .*http://127\.0\.0\.1:8000/predict.*": Run((r'"name":"cat"',), instead=((r"8000", PORT),)),
    r"python docs/examples/exported\.py": Run((r"output/exported/deployed\.onnx",)),
    r"mnv3 audit --port output/exported/network\.onnx .*": Run((r"1 forward ... passed",)),
    r"mnv3 audit --port output/exported/deployed\.onnx .*": Run((r"nodes /Sub \(Sub\), /Div \(Div\)",), status=1),
    r"mnv3 audit --port model\.onnx .*": Run((r"error: --port model\.onnx: there is no such file",), status=2),
    r"python docs/examples/localize_resnet18\.py": Run(
        (r"no divergence: 76 modules agree", r"biased variance"), weekly="tests/test_project.py finds the same in ResNet-18"
    ),
    r"python docs/examples/port_resnet18\.py": Run(
        (r"^right$", r"Paddle's own 64\."), weekly="tests/test_project.py aligns ResNet-18, tests/test_weights.py converts"
    ),
    r"python docs/examples/initialisation\.py": Run((r"(?s)\A(?!.*WRONG).*linear .* right ",)),
    r"python tools/benchmark\.py loader( --repeats 7)?": Run(
        (r"^paddle cv2 .* x torchvision pil$",), instead=((r"( --repeats 7)?$", " --repeats 1 --pictures 64"),), weekly=MEASURED
    ),
    r"python tools/benchmark\.py index --pictures 1281167( --repeats 3)?": Run(
        (r"^list file: later times, s  ", r"^class folders: a worker over an epoch, its own memory, MiB  "),
        instead=((r"1281167.*", "25000 --repeats 1"),),
        weekly=MEASURED,
    ),
    r"python tools/benchmark\.py train --repeats 61": Run(
        (r"^paddle engine .* x paddle bare loop$",), instead=(ONCE,), weekly=MEASURED
    ),
    r"python tools/benchmark\.py data --pictures 50000": Run(
        (r"^doctor data .* x decoding$",), instead=((r"50000", "64 --repeats 1"),)
    ),
    r"python tools/benchmark\.py inference --repeats 15": Run(
        (r"^ONNX Runtime fp32 .* x torch eager$",),
        instead=(ONCE,),
        weekly="a measurement of three minutes; tests/test_export_infer.py runs every engine",
    ),
    r"python tools/benchmark\.py service --repeats 3": (
        Run((r"^service, 1 engine thread .* x infer\.py, batch 1, ",), instead=((r"3$", "1 --seconds 2"),))
        if shutil.which("wrk")
        else Run((r"^error: service: needs wrk",), status=2)
    ),
    r"bash test_tipc/(prepare|test_\w+)\.sh .* lite_train_lite_infer": Run(
        (r"ready: mobilenet_v3_small lite_train_lite_infer|(\d+) of \1 steps successful",), weekly="make tipc runs the same"
    ),
    r"bash test_tipc/prepare\.sh .* whole_infer": Run((r"ready: mobilenet_v3_small whole_infer",), weekly=WHOLE),
    r"bash test_tipc/prepare\.sh .* whole_train_whole_infer": Run(
        (r"ready: mobilenet_v3_small whole_train_whole_infer",),
        # One epoch of a few pictures for 600 of ImageNet.
        instead=(
            (r"(.* )(\S+\.txt)(.*)", r"sed -i 's/whole_infer=600/whole_infer=1/; s/whole_infer=128/whole_infer=4/' \2 && \1\2\3"),
        ),
        weekly=WHOLE,
    ),
    r"bash test_tipc/test_\w+\.sh .* whole_infer": Run((r"(\d+) of \1 steps successful",), weekly=WHOLE),
    r"bash test_tipc/test_\w+\.sh .* whole_train_whole_infer": Run((r"(\d+) of \1 steps successful",), weekly=WHOLE),
}


def every_command() -> list[Command]:
    """In the order of the pages; README_zh.md has README.md's."""
    pages = [page for page in DOCUMENTS if page.name != "README_zh.md"]
    return [command for page in pages for command in commands(page)]


def fitting(command: str) -> list[Run]:
    return [run for pattern, run in EXPECTED.items() if re.fullmatch(pattern, command)]


def expected(command: str) -> Run:
    runs = fitting(command)
    assert len(runs) == 1, f"{len(runs)} entries of EXPECTED fit {command}"
    return runs[0]


class Project:
    """A copy of the project with what the pages' readers have: data, weights, and this environment's Python."""

    def __init__(self, folder: Path):
        import torch

        self.folder = folder
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, listed.split("\0")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
        (folder / ".venv").symlink_to(sys.prefix)
        shutil.copytree(LITE_DATA, folder / "imagenet", ignore=shutil.ignore_patterns("*.txt", "*.json"))
        (folder / "data").mkdir()
        (folder / "data/imagenet").symlink_to(folder / "imagenet")
        for name, shift in (("reference", 0.0), ("port", 0.01)):  # results of a user's own runs
            (folder / f"{name}.csv").write_text("seed,top1\n0,67.61\n" + f"1,{67.55 + shift}\n2,{67.70 - shift}\n")
        for name in ("mine", "theirs"):
            np.savez(folder / f"{name}.npz", output=np.linspace(0, 1, 8))
        self.environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "PYTEST_", "PYTHONDONT"))
        } | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(folder),
            "OMP_NUM_THREADS": "1",  # two classes of commands run beside each other
            "TIPC_CPU": "1",
        }
        self.outputs: dict[str, str] = {}
        self.behind: dict[str, subprocess.Popen] = {}
        state = {name: torch.from_numpy(np.array(value)) for name, value in with_counters(calibrated_state(PROJECT)).items()}
        torch.save(state, folder / PUBLISHED)
        convert = [sys.executable, "tools/convert_weights.py", PUBLISHED, "my_port.pdparams"]
        subprocess.run(convert, cwd=folder, env=self.environment, check=True)

    def run(self, command: str) -> str:
        """What a command prints, both streams; asserts its exit status. A command that ran before is not run again."""
        if command not in self.outputs:
            log = self.folder / f"command_{len(self.outputs)}.log"
            self._run(command, expected(command), log)
            self.outputs[command] = log.read_text()
        return self.outputs[command]

    def _run(self, command: str, how: Run, log: Path) -> None:
        text = command
        for pattern, replacement in how.instead:
            text = re.sub(pattern, replacement, text, count=1)
        if IMAGENET in how.instead:  # each such run is its reader's first, and none of another's
            for run in (self.folder / "output").glob("mobilenet_v3_*"):
                shutil.rmtree(run)
        nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
        nowhere |= {"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
        environment = self.environment | ({} if text.startswith("pip ") else nowhere)
        with open(log, "w") as file:
            process = subprocess.Popen(
                ["bash", "-c", text],
                cwd=self.folder,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if how.background:
            self.behind[command] = process
            deadline = time.time() + 60
            while process.poll() is None and time.time() < deadline and not all(re.search(p, log.read_text()) for p in how.says):
                time.sleep(0.1)
            return
        try:
            status = process.wait(timeout=900)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # nothing that it started outlives it
        assert status == how.status, f"{text}: exit status {status}\n{log.read_text()[-3000:]}"
        if how.leaves is not None:
            how.leaves(self.folder)

    def end(self) -> None:
        """End the service, and wait for the launchers; each must end well."""
        for command, process in self.behind.items():
            if "serve" in command:
                process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, command


def without_measurement(finding: str) -> str:
    """``stage: place: hint (measured (bound))`` without the last bracket, which may hold others."""
    depth = 0
    for place in reversed(range(len(finding))):
        depth += {")": 1, "(": -1}.get(finding[place], 0)
        if depth == 0:
            return finding[:place].strip()
    return finding


def check(command: Command, how: Run, output: str, page: str) -> None:
    """Assert that a command printed what it owes: the patterns, and what its page shows of it, figures apart."""
    for pattern in how.says:
        assert re.search(pattern, output, re.M), f"{command.text} does not say {pattern}\n{output[-3000:]}"
    printed = {without_figures(line) for line in output.splitlines()}
    for line in command.shown[: how.shown]:
        assert without_figures(line) in printed, f"{command.document} shows what {command.text} does not print: {line}"
    if "--inject" in command.text and how.status == 1:
        finding = without_measurement(re.search(r"^first divergence: (.*)", output, re.M)[1])
        assert finding in " ".join(page.split()), f"{command.document} does not show {finding!r}"


def ci_targets() -> list[str]:
    """What .ci/run makes."""
    lines = re.findall(r"^make ([^#\n]+)", (ROOT / ".ci" / "run").read_text(), re.M)
    return [word for line in lines for word in line.split() if not word.startswith("-")]


def check_run(project: Project, command: Command) -> None:
    how = expected(command.text)
    if how.in_ci:
        weekly = (ROOT / ".github" / "workflows" / "weekly.yml").read_text()
        assert command.text.removeprefix("make ") in ci_targets() or re.search(rf"^      - run: {command.text}$", weekly, re.M)
        return
    check(command, how, project.run(command.text), (ROOT / command.document).read_text())


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("project"))
    yield project
    project.end()


def marked(command: Command) -> Any:
    weekly = [pytest.mark.weekly] if any(run.weekly for run in fitting(command.text)) else []
    return pytest.param(command, marks=[pytest.mark.slow, *weekly], id=f"{command.document}: {command.text}")


def of_group(compares: bool) -> Any:
    return pytest.mark.parametrize("command", [marked(c) for c in every_command() if bool(COMPARES.search(c.text)) == compares])


# A process of the tests takes a class: the commands that compare models need nothing of those that train, export and serve one, so
# that the two run beside each other, each in a copy of the project.
class TestCommandsThatCompareModels:
    @of_group(compares=True)
    def test_a_command_does_what_its_page_says(self, project, command):
        check_run(project, command)


class TestCommandsOfOneModel:
    @of_group(compares=False)
    def test_a_command_does_what_its_page_says(self, project, command):
        check_run(project, command)


def test_every_command_has_its_expectation_and_every_expectation_a_command():
    told = [command.text for command in every_command()]
    assert len(told) > 70
    for command in told:
        expected(command)
    shown = [command.text for command in every_command() if command.shown]
    assert len(shown) >= 6 and "make align" in shown, "the pages' blocks of output belong to commands"
    unused = [pattern for pattern in EXPECTED if not any(re.fullmatch(pattern, command) for command in told)]
    assert unused == []


def test_what_runs_weekly_says_where_else_it_is_shown():
    weekly = [command for command in every_command() if expected(command.text).weekly]
    assert 20 < len(weekly) < len(every_command()) / 2
    targets = ci_targets()
    for command in weekly:
        why = expected(command.text).weekly
        tests, made = re.findall(r"tests/\w+\.py", why), re.findall(r"\bmake ([\w-]+)", why)
        assert tests or made, f"{command.text}: {why}"
        assert all((ROOT / test).is_file() for test in tests) and set(made) <= set(targets), f"{command.text}: {why}"


def test_a_page_that_says_something_else_is_found_out():
    output = "step 1 forward ... FAILED\nfirst divergence: forward: features.3: residual missing (relative L2 1e-1 (bound 1e-12))\n"
    page = "Wrong: `forward: features.3: residual\nmissing`."
    command = Command("docs/tutorial.md", "python tools/align.py --inject no_residual --steps 1", ("step 9 forward ... FAILED",))
    how = Run((r"^first divergence: ",), status=1)
    check(command, how, output, page)
    for other in (
        (command, Run((r"no divergence",), status=1), output, page),
        (Command(command.document, command.text, ("step 1 forward ... passed",)), how, output, page),
        (command, how, output, page.replace("features.3", "features.4")),
        (command, how, output, page.replace("missing", "doubled")),
    ):
        with pytest.raises(AssertionError):
            check(*other)
