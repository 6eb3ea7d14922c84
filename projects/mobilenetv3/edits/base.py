"""The list of edits, and the files that they edit."""

from __future__ import annotations

from alignment.faults import Edits

EDITS = Edits()
fault, rewrite = EDITS.fault, EDITS.rewrite

PROJECT = "projects/mobilenetv3/project.py"
NET = "mobilenetv3_paddle/models/mobilenetv3.py"
NORM = "mobilenetv3_paddle/models/norm.py"
DROPOUT = "mobilenetv3_paddle/models/dropout.py"
DATASET = "mobilenetv3_paddle/data/dataset.py"
LOADER = "mobilenetv3_paddle/data/loader.py"
MIXING = "mobilenetv3_paddle/data/mixing.py"
TRANSFORMS = "mobilenetv3_paddle/data/transforms.py"
METRIC = "mobilenetv3_paddle/metric/accuracy.py"
LOSS = "mobilenetv3_paddle/loss/cross_entropy.py"
OPTIMIZER = "mobilenetv3_paddle/train/optimizer.py"
SCHEDULE = "mobilenetv3_paddle/train/schedule.py"
STEP = "mobilenetv3_paddle/train/step.py"
ENGINE = "mobilenetv3_paddle/train/engine.py"
EVALUATE = "mobilenetv3_paddle/train/evaluate.py"
BACKEND = "mobilenetv3_paddle/train/backend.py"
AVERAGE = "mobilenetv3_paddle/train/ema.py"
STATE = "mobilenetv3_paddle/train/state.py"
PREPROCESS = "mobilenetv3_common/preprocess.py"
PRESETS = "mobilenetv3_common/presets.py"
SAMPLING = "mobilenetv3_common/sampling.py"
IMAGE = "mobilenetv3_common/image.py"

INIT = "        self.apply(_init_weights)\n"  # the end of the network's constructor
FORWARD = "return self.classifier(paddle.flatten(features, 1))"
BLOCK = "return output + input if self.use_res_connect else output"
GATE = "return self.scale_activation(self.fc2(scale)) * input"
POOL = "        self.avgpool = nn.AdaptiveAvgPool2D(1)\n        self.classifier"
LAYERS = "        super().__init__(*layers)\n"  # the end of ConvNormActivation's constructor
BUILD = "return run.build_run(backend, config, ranks, builder)"


def after_init(line: str) -> tuple[str, str, str]:
    """One more line in the network's constructor."""
    return NET, INIT, f"{INIT}        {line}\n"


def built_run(*lines: str) -> tuple[str, str, str]:
    """A training run ``made`` that is changed after it is built."""
    body = "".join(f"    {line}\n" for line in lines)
    return ENGINE, BUILD, f"made = run.build_run(backend, config, ranks, builder)\n{body}    return made"


def configured(change: str) -> tuple[str, str, str]:
    """A training run with another recipe than it is given."""
    return ENGINE, BUILD, f'return run.build_run(backend, __import__("dataclasses").replace(config, {change}), ranks, builder)'
