"""Train MobileNetV3 on ImageNet folders or list files.

    python tools/train.py --config configs/lite.yaml --data-path lite_data
    python -m paddle.distributed.launch --nproc_per_node 2 tools/train.py --config ...
    torchrun --nproc-per-node 2 tools/train.py --framework ref --config ...

Every setting is a key of the recipe and a flag; a flag wins. Exit status: 0 trained to the end, 2 the input cannot be
used, a loader worker was lost or the run diverged (its last good checkpoint is kept), 143, 130 or 129 stopped by
SIGTERM, Ctrl-C or a closed terminal after a checkpoint, 1 another rank was lost.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from mnv3.eval import FLAGS as EVALUATION_FLAGS
from mnv3.eval import evaluate
from mobilenetv3_common.config_file import Parser, add_flags, make_config
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.observer import Observer
from mobilenetv3_common.packages import training_package
from mobilenetv3_common.published import with_published
from mobilenetv3_common.train_config import TrainConfig


def parser() -> Parser:
    """The flags: those of this command, and every setting of a run."""
    made = Parser(description=__doc__)
    made.add_argument("--config", metavar="FILE", help="a recipe of configs/, or the config.yaml of an earlier run")
    made.add_argument("--watch", action="store_true", help="look for training mistakes during the run: docs/doctor.md")
    made.add_argument("--test-only", action="store_true", help="evaluate --pretrained and do not train, as tools/eval.py does")
    add_flags(made, TrainConfig)
    return made


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    flags = vars(parser().parse_args(argv))
    watch, recipe = flags.pop("watch"), flags.pop("config")
    if flags.pop("test_only"):
        return evaluate_only(recipe, flags)
    config = make_config(TrainConfig, recipe, flags)
    if not config.data_path:
        raise UserError("--data-path is missing: give a folder with train/ and val/, or train_list.txt and val_list.txt")
    config = with_published(config, flags)
    if config.threads:
        os.environ["OMP_NUM_THREADS"] = str(config.threads)  # before a framework is imported
    package = training_package(config.framework)
    return package.train(config, observer=_watching() if watch else None)


def evaluate_only(recipe: str | None, flags: dict[str, Any]) -> int:
    """``tools/eval.py`` with those of these flags that an evaluation has."""
    return evaluate(recipe, {name: value for name, value in flags.items() if name in EVALUATION_FLAGS})


def _watching() -> Observer:
    """Watches the run; imported by name and only where asked for, since training does without the doctor.

    Raises:
        UserError: the doctor is not part of this repository.
    """
    try:
        return importlib.import_module("alignment_doctor.watch.training").Watching()
    except ModuleNotFoundError as error:
        if error.name != "alignment_doctor":
            raise
        raise UserError("--watch: this repository has no doctor (alignment_doctor): leave the flag out") from error


if __name__ == "__main__":
    sys.exit(main())
