"""Someone who comes from PaddlePaddle/models (tutorials/mobilenetv3_prod): its commands, flags and TIPC configs, tried here.

The commands are those that its README files print, with the paths of this project's tools and data. Each works, or is answered with
one line that says what takes its place.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

import mnv3.export
import mnv3.infer
import mnv3.predict
import mnv3.train
from mobilenetv3_common.config_file import Parser, make_config
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.other_spellings import ELSEWHERE, SAME, translated
from mobilenetv3_common.train_config import TrainConfig
from tests import test_tipc
from tests.conftest import LITE_DATA, ROOT, run_command
from tests.test_tipc import project, results, run  # noqa: F401

TRAIN = "--data-path=./ILSVRC2012 --lr=0.1 --batch-size=256"


def settings(command: str) -> TrainConfig:
    flags = vars(mnv3.train.parser().parse_args(shlex.split(command)))
    for name in ("watch", "config", "test_only"):
        flags.pop(name, None)
    return make_config(TrainConfig, None, flags)


FLAGS = {
    "-b 64 -j 3": {"batch_size": 64, "workers": 3},
    "-b64 -j3": {"batch_size": 64, "workers": 3},
    "--opt rmsprop --wd 0.00004": {"optimizer": "rmsprop", "weight_decay": 0.00004},
    "--lr-step-size 2 --lr-gamma 0.973": {"lr_schedule": "step", "lr_unit": "epoch", "lr_step_epochs": 2, "lr_gamma": 0.973},
    "--lr-schedule cosine --lr-step-size=2": {"lr_schedule": "cosine", "lr_step_epochs": 2},
    "--print-freq=5": {"print_every": 5},
    "--amp_level=O2": {"amp_level": "O2"},
    "--use-gpu=True": {"device": "gpu"},
    "--use_gpu False": {"device": "cpu"},
    "--output_dir out --sync-bn --random-erase 0.2": {"output_dir": "out", "sync_bn": True, "random_erase": 0.2},
    "--lr-warmup-epochs 5 --lr-warmup-decay=0.01": {"warmup_epochs": 5, "warmup_decay": 0.01},
    "--val-resize-size 232 --clip-grad-norm 1 --use-deterministic-algorithms": {
        "resize_size": 232,
        "clip_norm": 1.0,
        "deterministic": True,
    },
    "--sync-bn=False --auto-augment ra": {"sync_bn": False, "auto_augment": "ra"},
    TRAIN: {"data_path": "./ILSVRC2012", "lr": 0.1, "batch_size": 256},
    "--model mobilenet_v3_small --lr 0.8 --epochs 120 --workers=6": {"lr": 0.8, "epochs": 120, "workers": 6},
}


@pytest.mark.parametrize("flags", FLAGS)
def test_the_trainers_flags_are_taken(flags):
    made = settings(flags)
    assert {name: getattr(made, name) for name in FLAGS[flags]} == FLAGS[flags]


ANSWERS = {
    ("train", "--start-epoch 3"): "--start-epoch: a checkpoint knows its epoch: give --resume DIR",
    ("train", "--apex"): "--apex: mixed precision is --amp-level O1",
    ("train", "--amp"): "--amp: mixed precision is --amp-level O1",
    ("train", "--cache-dataset"): "--cache-dataset: the list of pictures is kept by itself",
    ("train", "--world-size 2"): "--world-size: the launcher tells it",
    ("train", "--dist_url=env://"): "--dist_url: the launcher tells it",
    ("train", "--model-ema --model-ema-decay 0.9"): "--model-ema: a moving average of the weights is --ema-decay X",
    ("train", "--train-crop-size 176"): "--train-crop-size: training and evaluation have one size: --crop-size N",
    ("export", "--use_gpu=False"): "--use_gpu: an export needs no device: leave it out",
    ("predict", "--img-path p --framework ref"): "--framework: Paddle computes, with weights of either framework",
    ("train", "--pact_quant"): "--pact_quant: quantisation-aware training (PACT) needs PaddleSlim, which does not run on Paddle 3",
    ("train", "--use-gpu=perhaps"): "--use-gpu takes True or False, found perhaps",
    ("train", "--use-gpu"): "--use-gpu takes True or False, found nothing",
    ("export", "--device=gpu"): "--device: an export needs no device: leave it out",
    ("export", "--model_path=infer/ --batch_num=20"): "--model_path: weights are exported and quantised in one go",
    ("infer", "--model-dir=e --img-path=p --max-batch-size 8"): "--max-batch-size: no largest batch has to be known before",
    ("infer", "--model-dir=e --img-path=p --resize-size 256"): "--resize-size: an exported model knows its preprocessing",
    ("infer", "--onnx_file ./model.onnx --img_path p"): "--onnx_file: a model is its folder, with deploy.json in it",
}


@pytest.mark.parametrize(("tool", "flags"), ANSWERS)
def test_what_is_said_in_another_way_here_is_one_line(tool, flags, capsys):
    main = {"train": mnv3.train, "export": mnv3.export, "infer": mnv3.infer, "predict": mnv3.predict}[tool].main
    assert main(shlex.split(flags)) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {ANSWERS[tool, flags]}") and error.count("\n") == 1, error


def test_the_other_tools_flags_are_taken():
    made = mnv3.export.parser().parse_args(["--save-inference-dir=./infer", "--img-size", "192", "--num-classes", "10"])
    assert (made.output_dir, made.crop_size, made.num_classes) == ("./infer", 192, 10)
    made = mnv3.infer.parser().parse_args(["--model_dir", "e", "--img_path=p", "--use-gpu=False", "--benchmark=True"])
    assert (made.model_dir, made.img_path, made.device, made.benchmark) == ("e", ["p"], "cpu", True)
    assert mnv3.infer.parser().parse_args(["--model-dir", "e", "--img-path", "p", "--benchmark", "False"]).benchmark is False
    assert mnv3.predict.parser().parse_args(["--img-path=p", "--num-classes=1000"]).num_classes == 1000


def test_a_spelling_is_translated_only_where_the_flag_is_missing():
    parser = Parser()
    parser.add_argument("--opt")
    parser.add_argument("--no_dash")
    made = parser.parse_args(["--opt=-b", "--no_dash=-j"])
    assert (made.opt, made.no_dash) == ("-b", "-j")
    for flag in (*SAME, *ELSEWHERE, "--lr-step-size", "--use-gpu"):
        assert translated([flag, "1"], {"--other": None}, []) == [flag, "1"], "no command without the flag that it stands for"
    assert translated(["--", "--amp_level"], {"--amp-level": None}, []) == ["--", "--amp_level"]
    with pytest.raises(UserError, match=r"did you mean --lr\?"):
        mnv3.train.parser().parse_args(["--lrr", "1"])


# --- imports -----------------------------------------------------------------------------------------------------------------


def in_environment(code: str, *arguments: str) -> subprocess.CompletedProcess:
    """Run Python as an environment that ``install`` has prepared begins: its .pth file has one line, run first."""
    from mobilenetv3_common.at_import import LINE

    return run_command("-c", f"{LINE}\n{code}", *arguments)


@pytest.mark.parametrize(
    "code",
    [
        "import torchvision",
        "from torchvision.models import mobilenet_v3_small; mobilenet_v3_small()",
        "import torch, torchvision.ops",
    ],
)
def test_torchvision_is_imported_in_a_users_own_script(code):
    done = in_environment(f"{code}\nimport torchvision; print(torchvision.__version__)")
    assert done.returncode == 0 and done.stdout.startswith("0."), done.stderr


def test_nothing_is_imported_before_it_is_asked_for():
    code = "import sys, importlib.util; importlib.util.find_spec('torchvision')"
    assert in_environment(f"{code}; print('torch' in sys.modules, 'paddle' in sys.modules)").stdout == "False False\n"
    assert "No module named 'torchvision_'" in in_environment("import torchvision_").stderr


def test_a_copy_of_the_project_is_imported_in_place_of_what_the_environment_began_with(tmp_path):
    """A changed copy that is examined must be the one that runs, in its shared code, too."""
    from mobilenetv3_common.at_import import LINE

    (tmp_path / "mobilenetv3_common").mkdir()
    (tmp_path / "mobilenetv3_common" / "__init__.py").write_text("")
    for before in ("", "import torchvision; "):
        code = f"{LINE}{before}sys.path.insert(0, {str(tmp_path)!r}); import mobilenetv3_common; print(mobilenetv3_common.__file__)"
        run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        assert run.stdout.strip() == str(tmp_path / "mobilenetv3_common" / "__init__.py")


def test_the_environments_file_does_no_harm_without_the_project(tmp_path, monkeypatch):
    import sysconfig

    from mobilenetv3_common import at_import

    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"purelib": str(tmp_path)})
    line = Path(at_import.install()).read_text()
    assert line == at_import.LINE and line.count("\n") == 1 and (tmp_path / at_import.PTH).is_file()
    done = subprocess.run([sys.executable, "-S", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize(("flag", "fix"), [("--gpus=0,1", "--nproc_per_node 2"), ("--gpus=0,1,2,3", "--nproc_per_node 4")])
def test_gpus_that_are_not_there_are_one_line_of_the_launcher(flag, fix, tmp_path):
    import paddle

    if paddle.device.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 1:
        pytest.skip("this machine has these GPUs")
    code = "import runpy; runpy.run_module('paddle.distributed.launch', run_name='__main__', alter_sys=True)"
    done = in_environment(code, flag, f"--log_dir={tmp_path}", "tools/train.py", "--data-path=./ILSVRC2012", "--lr=0.4")
    last = done.stderr.strip().splitlines()[-1]
    assert (
        done.returncode == 2
        and "Traceback" not in done.stderr
        and fix in last
        and last.startswith(f"error: {flag.replace('=', ' ')}")
    )


# --- the TIPC configs ----------------------------------------------------------------------------------------------------------

BEGIN = "model_name:mobilenet_v3_small\npython:python3.7\n"
RUNS = (
    "--epochs:lite_train_lite_infer=5|whole_train_whole_infer=90\n--output-dir:./output/\n"
    "--batch-size:lite_train_lite_infer=4|whole_train_whole_infer=128\n--pretrained:null\ntrain_model_name:latest.pdparams\n"
    "--data-path:./lite_data\n##\n"
)
AFTER = (
    "##\n===eval_params===\neval:train.py --test-only\n##\n===infer_params===\n--save-inference-dir:./output/infer/\n"
    "--pretrained:\nnorm_export:tools/export_model.py --model=mobilenet_v3_small\n##\ntrain_model:./weights/small.pdparams\n"
    "infer_export:tools/export_model.py --model=mobilenet_v3_small\n##\ninference:deploy/inference_python/infer.py\n"
    "--use-gpu:True|False\n--batch-size:1\n--model-dir:./output/infer/\n--img-path:./images/demo.jpg\n--benchmark:True"
)


def trains(gpus: str, trainer: str, command: str) -> str:
    return f"===train_params===\n{BEGIN}gpu_list:{gpus}\nuse-gpu:True|True\n{RUNS}trainer:{trainer}\n{trainer}:{command}\n{AFTER}"


PROGRAM = "--model_filename:inference.pdmodel\n--params_filename:inference.pdiparams\n"
CONFIGS = {  # name: (its text, the script and mode that its page gives, how many steps run)
    "train_infer_python": (
        trains("0|0,1", "norm_train", "train.py"), "test_train_inference_python.sh", "lite_train_lite_infer", 18
    ),
    "win_train_infer_python": (
        trains("0", "norm_train", "train.py --workers=0"), "test_train_inference_python.sh", "lite_train_lite_infer", 9
    ),
    "train_amp_infer_python": (
        trains("0|0,1", "amp_train", "train.py --amp_level=O2"), "test_train_inference_python.sh", "lite_train_lite_infer", 12
    ),
    "train_fleet_infer_python": (
        trains("192.168.0.1,192.168.0.2;0,1", "fleet_train", "train.py"), "test_train_inference_python.sh",
        "lite_train_lite_infer", 10
    ),
    "train_pact_infer_python": (
        trains("0|0,1", "pact_train", "train.py --pact_quant"), "test_train_inference_python.sh", "lite_train_lite_infer",
        "quantisation-aware training (PACT) needs PaddleSlim",
    ),
    "train_ptq_infer_python": (
        f"===ptq_params===\n{BEGIN}--use_gpu:True\n--model_path:infer/\n--output_dir:./infer_ptq/\n--data_dir:./test_images/lite_data/\n"
        "--batch_num:1\n--batch_size:1\n##\ntrainer:PTQ\nPTQ:deploy/ptq_python/post_quant.py\n##\n"
        "inference:deploy/inference_python/infer.py\n--use-gpu:True|False\n--batch-size:1\n--model-dir:./infer_ptq/\n"
        "--img-path:./images/demo.jpg\n--benchmark:True\n", "test_ptq_inference_python.sh", "whole_infer", 5
    ),
    "paddle2onnx_infer_python": (
        f"===paddle2onnx_params===\n{BEGIN}2onnx: paddle2onnx\n--model_dir:./infer/\n{PROGRAM}--save_file:./model.onnx\n"
        "--opset_version:10\n--enable_onnx_checker:True\ninference:deploy/onnx_python/infer.py\n--onnx_file:./model.onnx\n"
        "--img_path:./lite_data/test/demo.jpg", "test_paddle2onnx.sh", "paddle2onnx_infer", 5
    ),
    "serving_infer_python": (
        f"===serving_params===\n{BEGIN}trans_model:-m paddle_serving_client.convert\n--dirname:./infer/\n{PROGRAM}"
        "serving_dir:./deploy/serving_python\nweb_service:web_service.py --config=config.yml \n"
        '--opt op.imagenet.local_service_conf.devices:"0"|null\npipline:pipeline_http_client.py\n--image_dir:../../lite_data/test/',
        "test_serving_infer_python.sh", "serving_infer", 3
    ),
    "serving_infer_cpp": (
        f"===serving_params===\n{BEGIN}serving_dir:./deploy/serving_cpp\n--op:GeneralClasOp\ncpp_client:serving_client.py\n",
        "test_serving_infer_cpp.sh", "serving_infer", "Paddle Serving's C++ server is not built for Paddle 3",
    ),
    "inference_cpp": (
        "# model load config\nmodel_name mobilenet_v3_small\nuse_gpu  0\n\ncls_model_path  ./infer/inference.pdmodel\n",
        "test_inference_cpp.sh", "", "the C++ demo needs OpenCV",
    ),
    "lite_arm_cpu_cpp": (
        "runtime_device:arm_cpu\nclas_model_file:mobilenet_v3_small.nb\n--precision_list:FP32\n", "test_lite_arm_cpu_cpp.sh", "",
        "Paddle Lite has no converter for Paddle 3",
    ),
}  # fmt: skip


def ran(project: Path, name: str, file: str, **env: str) -> subprocess.CompletedProcess:  # noqa: F811
    text, script, mode, _ = CONFIGS[name]
    (project / f"test_tipc/configs/mobilenet_v3_small/{file}.txt").write_text(text)
    return run(project, script, f"{file}.txt", mode, **env)


@pytest.mark.parametrize("name", CONFIGS)
def test_its_tipc_configs_run_through_the_chains_here(name, project):  # noqa: F811
    done = ran(project, name, name)  # in the place of this project's own
    expected = CONFIGS[name][3]
    if isinstance(expected, str):
        assert done.returncode == 2 and expected in done.stderr and done.stderr.count("\n") == 1, done.stderr
        return
    assert done.returncode == 0, done.stderr
    assert len(results(project, CONFIGS[name][2])) == expected and f"{expected} of {expected} steps successful" in done.stdout
    assert done.stderr.startswith("note: ") and "taken from the default config: " in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    for line in (project / "notes").read_text().splitlines():
        words = line.split()
        test_tipc.parse(words[next(i for i, word in enumerate(words) if word.startswith("tools/")) :])
    notes = (project / "notes").read_text()
    for wanted in {"train_amp_infer_python": ["--amp_level=O2"], "win_train_infer_python": ["--workers=0"]}.get(name, []):
        assert wanted in notes and "--amp-level O1" not in notes
    if name == "train_amp_infer_python":  # without a GPU the reference trains, by its own launcher
        assert "-m torch.distributed.run --nproc-per-node 2 tools/train.py" in notes and "paddle.distributed" not in notes
    if "lite_train" in CONFIGS[name][2]:
        assert "--epochs 5 --batch-size 4" in notes and "--test-only" in notes and "latest.safetensors" in notes


def test_what_fails_in_such_a_chain_fails_it(project):  # noqa: F811
    done = ran(project, "paddle2onnx_infer_python", "theirs", FAIL="tools/infer.py")
    assert done.returncode == 1 and "Run failed with command" in done.stdout


# --- the commands of its README files, run -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory, small_state) -> Path:
    """Its folders by their names: data, weights in Paddle's format, one picture."""
    from mobilenetv3_common.weights import write_state

    folder = tmp_path_factory.mktemp("place")
    shutil.copytree(LITE_DATA, folder / "lite_data")
    with tarfile.open(folder / "lite_data.tar", "w") as file:
        file.add(folder / "lite_data", "lite_data")
    (folder / "images").mkdir()
    shutil.copy(LITE_DATA / "val/cat/cat_0.JPEG", folder / "images/demo.jpg")
    write_state(folder / "small.pdparams", small_state)
    return folder


def command(place: Path, line: str) -> subprocess.CompletedProcess:
    """A printed command in that place, ``python`` and the tools' paths being this environment's."""
    name, *words = shlex.split(line)
    words = [str(ROOT / word) if word.endswith(".py") else word for word in words]
    assert name == "python"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, *words], cwd=place, env=env, capture_output=True, text=True, timeout=600, check=False
    )  # fmt: skip


@pytest.mark.slow
def test_the_printed_commands_work(place):
    subprocess.run(["tar", "-xf", "lite_data.tar"], cwd=place, check=True)
    done = command(
        place, "python tools/train.py --data-path=./lite_data --lr=0.1 --batch-size=256 -j 0 --epochs 1 --output-dir ./output/"
    )
    assert done.returncode == 0 and (place / "output/latest.safetensors").is_file(), done.stderr
    done = command(place, "python tools/train.py --test-only --data-path=./lite_data --pretrained=./output/latest.safetensors")
    assert done.returncode == 0 and "top1: " in done.stdout and "samples: 16" in done.stdout, done.stderr
    evaluated = command(place, "python tools/eval.py --data-path=./lite_data --pretrained=./output/latest.safetensors")
    assert evaluated.stdout == done.stdout
    for device in ("", " --device=cpu"):
        done = command(
            place, f"python tools/predict.py --pretrained=./small.pdparams --img-path=images/demo.jpg{device} --width-mult=0.5"
        )
        assert done.returncode == 0 and done.stdout.count(" %  ") == 5, done.stderr
    done = command(
        place,
        'python tools/export_model.py --pretrained=./output/latest.safetensors --save-inference-dir="./infer" '
        "--model=mobilenet_v3_small --formats paddle,pdmodel,onnx",
    )
    assert done.returncode == 0 and "pdmodel: probabilities differ from the network's by" in done.stdout, done.stderr
    assert {path.name for path in (place / "infer").iterdir()} >= {"inference.pdmodel", "inference.pdiparams", "inference.json"}
    done = command(
        place, "python tools/infer.py --model-dir=./infer/ --img-path=./images/demo.jpg --use-gpu=False --benchmark=True"
    )
    assert done.returncode == 0 and "pictures/s" in done.stdout, done.stderr
    wrong = command(place, "python tools/export_model.py --pretrained=./output/latest.safetensors --num-classes 1000")
    assert wrong.returncode == 2 and "has 8 classes; leave --num-classes out" in wrong.stderr


@pytest.mark.slow
def test_the_exported_pdmodel_goes_through_paddle2onnx_as_its_page_prints_it(place):
    """paddle2onnx's own command, on the files of Paddle 2's format."""
    onnxruntime = pytest.importorskip("onnxruntime")
    if not (place / "infer/inference.pdmodel").is_file():
        line = "python tools/export_model.py --pretrained=./small.pdparams --save-inference-dir=./infer --formats pdmodel"
        assert command(place, line).returncode == 0
    words = "--model_dir=./infer/ --model_filename=inference.pdmodel --params_filename=inference.pdiparams --save_file=./model.onnx"
    code = f"import sys; sys.argv = ['paddle2onnx', *{[*words.split(), '--opset_version=10', '--enable_onnx_checker=True']!r}]"
    done = command(place, f'python -c "{code}; from paddle2onnx.command import main; main()"')
    assert done.returncode == 0 and (place / "model.onnx").is_file(), done.stdout + done.stderr
    session = onnxruntime.InferenceSession(str(place / "model.onnx"), providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {session.get_inputs()[0].name: np.zeros((1, 3, 224, 224), np.float32)})
    assert logits.shape[0] == 1 and np.isfinite(logits).all()
