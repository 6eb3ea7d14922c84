"""A training run as data, for both frameworks: everything that tools/train.py takes, one file a section."""

from mobilenetv3_common.train_config.config import TrainConfig
from mobilenetv3_common.train_config.learning_rate import SCHEDULES, WHOLE_RUN, ScheduleConfig
from mobilenetv3_common.train_config.model import MODELS
from mobilenetv3_common.train_config.optimizer import OPTIMIZERS, OptimizerConfig
from mobilenetv3_common.train_config.section import Section, flag_of, option

__all__ = [
    "MODELS",
    "OPTIMIZERS",
    "SCHEDULES",
    "WHOLE_RUN",
    "OptimizerConfig",
    "ScheduleConfig",
    "Section",
    "TrainConfig",
    "flag_of",
    "option",
]
