"""The settings of a run in sections: each stands alone, all together are a recipe's keys, and what is built from them has them."""

import dataclasses
import inspect

import pytest

from mobilenetv3_common import train_config
from mobilenetv3_common.config_file import Parser, add_flags, field_types, title_of
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_config import OptimizerConfig, ScheduleConfig, Section, TrainConfig, option
from mobilenetv3_common.train_config.learning_rate import LearningRateSettings
from mobilenetv3_common.train_config.optimizer import OptimizerNumbers
from projects.resnet50.config import ResNetConfig

SECTIONS = [kind for kind in TrainConfig.__bases__ if issubclass(kind, Section)]
NAMES = [entry.name for entry in dataclasses.fields(TrainConfig)]


def names_of(kind):
    return {entry.name for entry in dataclasses.fields(kind)}


def test_every_setting_stands_in_exactly_one_section_with_a_heading_and_a_file_of_its_own():
    assert len(SECTIONS) == 9 and TrainConfig.__bases__ == (*SECTIONS,)
    assert sorted(name for section in SECTIONS for name in names_of(section)) == sorted(NAMES)
    assert len({section.TITLE for section in SECTIONS} - {""}) == 9
    assert len({inspect.getsourcefile(section) for section in SECTIONS}) == 9
    assert "TITLE" not in field_types(TrainConfig), "no key of a recipe"


def test_the_help_shows_every_flag_below_its_sections_heading():
    parser = Parser(prog="train")
    add_flags(parser, TrainConfig)
    groups = {group.title: {a.dest for a in group._group_actions} for group in parser._action_groups if group._group_actions}
    groups.pop("options", None)
    assert groups == {section.TITLE: names_of(section) for section in SECTIONS}


def test_a_subclass_may_replace_a_setting_and_adds_to_a_section():
    assert title_of(ResNetConfig, "amp_level") == title_of(ResNetConfig, "loss_scale") == "precision and device"
    assert ResNetConfig().framework == "paddle" and title_of(ResNetConfig, "framework") == "model"
    with pytest.raises(UserError, match="--width-mult is MobileNetV3's"):
        ResNetConfig(width_mult=0.5)
    with pytest.raises(UserError, match="--resize-size must be at least --crop-size"):  # what the sections refuse holds too
        ResNetConfig(resize_size=32)


WRONG = {
    "model": {"width_mult": 0.0},
    "pictures": {"crop_size": 512},
    "augmentation": {"mixup_alpha": 1e-4},
    "epochs and batches": {"drop_last": False, "accumulate": 2},
    "optimizer": {"momentum": 1.0},
    "learning rate": {"lr_min": 1.0},
    "regularisation": {"sync_bn": True, "freeze_bn": True},
    "precision and device": {"threads": -1},
    "run": {"log_to": "nobody"},
}


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.TITLE)
def test_a_section_refuses_wrong_values_by_itself_and_in_the_whole(section):
    section()
    for kind in (section, TrainConfig):
        with pytest.raises(UserError):
            kind(**WRONG[section.TITLE])


def test_a_section_without_its_check_is_noticed(monkeypatch):
    """The test above fails where a section's own check is not called."""
    monkeypatch.delattr(LearningRateSettings, "check")
    LearningRateSettings(**WRONG["learning rate"])


# Each setting of the optimizer and of the schedule, changed, and what it has to become: written down a second time on purpose.
OPTIMIZER = {
    "optimizer": ("adamw", {"name": "adamw"}),
    "lr": (0.25, {"lr": 0.25}),
    "momentum": (0.5, {"momentum": 0.5}),
    "nesterov": (True, {"nesterov": True}),
    "alpha": (0.25, {"alpha": 0.25}),
    "beta1": (0.75, {"beta1": 0.75}),
    "beta2": (0.625, {"beta2": 0.625}),
    "eps": (0.125, {"eps": 0.125}),
    "weight_decay": (0.375, {"weight_decay": 0.375}),
    "norm_weight_decay": (0.0, {"norm_weight_decay": 0.0}),
    "bias_weight_decay": (0.5, {"bias_weight_decay": 0.5}),
    "l1_decay": (0.0625, {"l1_decay": 0.0625}),
    "layer_decay": (0.75, {"layer_decay": 0.75}),
    "scale_lr_from": (8, {"lr": 0.8}),
}
SCHEDULE = {
    "lr_schedule": ("constant", {"name": "constant"}),
    "epochs": (20, {"total": 140}),
    "lr_step_epochs": (3, {"step_size": 21}),
    "lr_gamma": (0.5, {"gamma": 0.5}),
    "lr_min": (0.05, {"lr_min": 0.05}),
    "lr_power": (2.0, {"power": 2.0}),
    "lr_restart_epochs": (4, {"restart": 28}),
    "lr_restart_factor": (3, {"restart_factor": 3}),
    "lr_rise": (0.5, {"rise": 0.5}),
    "lr_start_div": (5.0, {"start_div": 5.0}),
    "warmup_epochs": (2, {"warmup": 14}),
    "warmup_decay": (0.5, {"warmup_decay": 0.5}),
    "lr_milestones": ("2,4", {"milestones": (14, 28)}),
    "lr_unit": ("epoch", {"total": 10, "step_size": 30, "restart": 10}),
}


@pytest.mark.parametrize("name", OPTIMIZER)
def test_a_setting_of_the_optimizer_reaches_it(name):
    value, becomes = OPTIMIZER[name]
    before, after = (TrainConfig(**given).optimizer_config(64) for given in ({}, {name: value}))
    assert after == dataclasses.replace(before, **becomes) != before


@pytest.mark.parametrize("name", SCHEDULE)
def test_a_setting_of_the_schedule_reaches_it_in_its_unit(name):
    value, becomes = SCHEDULE[name]
    before, after = (TrainConfig(**given).schedule_config(7) for given in ({}, {name: value}))
    assert after == dataclasses.replace(before, **becomes) != before


def test_the_tables_above_are_complete():
    reached = {key for _, becomes in OPTIMIZER.values() for key in becomes} | {"rules"}
    assert reached == names_of(OptimizerConfig) and TrainConfig(param_groups="*bias:frozen").optimizer_config(1).rules
    assert {key for _, becomes in SCHEDULE.values() for key in becomes} == names_of(ScheduleConfig)
    assert names_of(OptimizerNumbers) <= {*OPTIMIZER}


def test_an_exponential_schedule_decays_by_its_factor_an_epoch_in_either_unit():
    given = {"lr_schedule": "exponential", "lr_gamma": 0.5}
    assert TrainConfig(**given).schedule_config(7).gamma == pytest.approx(0.5 ** (1 / 7), rel=1e-15)
    assert TrainConfig(**given, lr_unit="epoch").schedule_config(7).gamma == 0.5


def test_defaults_of_the_optimizer_and_of_the_schedule_are_the_settings_own():
    assert TrainConfig().optimizer_config(1) == OptimizerConfig()
    own = TrainConfig(lr_unit="epoch").schedule_config(7)
    differing = {name for name in names_of(ScheduleConfig) if getattr(own, name) != getattr(ScheduleConfig(), name)}
    assert differing == {"name", "total", "restart"}


def test_a_section_of_ones_own_is_a_class_with_options():
    @dataclasses.dataclass(frozen=True)
    class Colours(Section):
        TITLE = "colours"

        saturation: float = option(1.0, "times the saturation", within="[0, 2]")

        def check(self):
            train_config.section.require(self.saturation != 0.5, "--saturation must not be 0.5", self.saturation)

    @dataclasses.dataclass(frozen=True)
    class Mine(Colours, TrainConfig):
        pass

    assert Mine(saturation=2.0, lr=0.25).lr == 0.25 and title_of(Mine, "saturation") == "colours"
    for value, said in ((3.0, "must be from 0 to 2"), (0.5, "must not be 0.5")):
        with pytest.raises(UserError, match=f"--saturation {said}"):
            Mine(saturation=value)
