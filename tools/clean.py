"""Write the reproduction alone: python tools/clean.py --output-dir final

The guide ends with a repository without the reference, the logs and the checks. This command writes one: Paddle's package, what it
shares, the commands, recipes, scripts, TIPC chains and sample pictures, with a README of their commands. Nothing here is changed.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the code of this folder, wherever another is installed

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from mobilenetv3_common.config_file import Parser
from mobilenetv3_common.errors import UserError, exit_on_user_error

ROOT = Path(__file__).resolve().parents[1]
TOOLS = (
    "train",
    "eval",
    "predict",
    "export_model",
    "infer",
    "serve",
    "lr_find",
    "make_shards",
    "prepare_lite_data",
    "prepare_digits",
)
COMMANDS = ("__init__", "train", "eval", "predict", "export", "infer", "serve", "lr_find")
KEPT = (
    "mobilenetv3_common", "mobilenetv3_paddle", "configs", "test_tipc", "lite_data", "deploy", "LICENSE", "constraints.txt",
    "scripts/train.sh", "scripts/train_dist.sh", ".gitignore",
    *(f"tools/{name}.py" for name in TOOLS), *(f"mnv3/{name}.py" for name in COMMANDS), "mnv3/py.typed",
)  # fmt: skip
LEFT = ("__pycache__", "output", "*.pyc")
README = """# MobileNetV3 in PaddlePaddle

Set up: `python -m venv .venv && .venv/bin/pip install -c constraints.txt -e '.[deploy]'`, then `. .venv/bin/activate`.

```
python tools/train.py --config configs/lite.yaml --data-path lite_data
python tools/eval.py --config configs/lite.yaml --data-path lite_data --pretrained output/lite/best.safetensors
python tools/predict.py --img-path lite_data/val --pretrained output/lite/best.safetensors
python tools/export_model.py --pretrained output/lite/best.safetensors --output-dir exported
python tools/infer.py --model-dir exported --img-path lite_data/val
bash test_tipc/prepare.sh test_tipc/configs/mobilenet_v3_small/train_infer_python.txt lite_train_lite_infer
bash test_tipc/test_train_inference_python.sh test_tipc/configs/mobilenet_v3_small/train_infer_python.txt lite_train_lite_infer
```

The recipes are in `configs/`. Written from version {version} by tools/clean.py: the reference, the alignment, its records and logs,
and the tests are left out.
"""
PYPROJECT = """[build-system]
requires = ["setuptools>=68"]
build-backend = "setuptools.build_meta"

[project]
name = "mobilenetv3-paddle"
version = "{version}"
requires-python = ">=3.10,<3.14"
dependencies = [{needed}, "paddlepaddle>=3.3,<4"]

[project.optional-dependencies]
deploy = [{deploy}]

[tool.setuptools.packages.find]
include = ["mobilenetv3_*", "mnv3*"]
"""


def write_final(target: Path) -> list[str]:
    """Write the reproduction into a folder that is new or empty; returns what was written, in order.

    Raises:
        UserError: the folder holds something, or lies in a folder that is copied.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"--output-dir {target} is not empty: give a new folder, so that nothing is written over")
    if any(target.resolve().is_relative_to(ROOT / name) for name in KEPT):
        raise UserError(f"--output-dir {target} lies inside of what is copied: give another folder")
    for name in KEPT:
        source, place = ROOT / name, target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, place, ignore=shutil.ignore_patterns(*LEFT))
        else:
            shutil.copy2(source, place)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    from mobilenetv3_common import __version__

    listed = {name: re.search(rf"^{name} = \[(.*)\]", project, re.M)[1] for name in ("dependencies", "deploy")}  # type: ignore[index]
    about = {"version": __version__, "needed": listed["dependencies"], "deploy": listed["deploy"]}
    (target / "pyproject.toml").write_text(PYPROJECT.format(**about), encoding="utf-8")
    (target / "README.md").write_text(README.format(**about), encoding="utf-8")
    return sorted({path.relative_to(target).parts[0] for path in target.rglob("*") if path.is_file()})


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    parser = Parser(description=__doc__)
    parser.add_argument("--output-dir", type=Path, required=True, metavar="DIR", help="a new folder")
    args = parser.parse_args(argv)
    print(f"{args.output_dir}: {', '.join(write_final(args.output_dir))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
