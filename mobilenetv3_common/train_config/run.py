"""Settings of a run's course: seed, files, evaluation, checkpoints, and what ends or repeats it."""

from __future__ import annotations

from dataclasses import dataclass

from mobilenetv3_common.tracking import TRACKERS, trackers_of
from mobilenetv3_common.train_config.section import COUNT, SWITCHABLE, Section, option


@dataclass(frozen=True)
class RunSettings(Section):
    """Seed, output, resuming, logging, checkpoints and evaluation."""

    TITLE = "run"

    seed: int = option(0, "of order, augmentation, dropout and fresh weights, 0 or more", within="[0, 4294967295]")
    output_dir: str = option("output", "checkpoints, logs and the effective config go here", metavar="DIR")
    resume: str | None = option(
        None, "continue from a run's folder or a checkpoint; auto: from output_dir if it has one", metavar="DIR|auto"
    )
    rank_timeout: float = option(
        1800.0,
        "seconds that a rank waits for the others (at most: 30 inside a backward pass of Paddle's on a CPU)",
        within="[1, 1e6]",
    )
    new_data: bool = option(False, "resume on other pictures than the checkpoint's, of the same classes")
    print_every: int = option(10, "updates between log lines", within=COUNT)
    save_every: int = option(0, "updates between checkpoints besides those at the end of each epoch, 0 for none", within=SWITCHABLE)
    keep: int = option(3, "checkpoints kept besides latest and best", within=COUNT)
    keep_best: int = option(1, "best checkpoints kept by top-1: best, and with 2 or more top_TOP1_update_N", within="[1, 1e4]")
    early_stop: int = option(0, "evaluations in a row without a better top-1 that end the run, 0 for never", within=SWITCHABLE)
    eval_raw: bool = option(False, "with a moving average, evaluate the weights themselves too")
    eval_every: int = option(1, "epochs between evaluations; the last is always evaluated", within=COUNT)
    check_every: int = option(1, "updates between checks that logits and gradients are finite", within=COUNT)
    log_to: str | None = option(
        None, f"experiment trackers that get the figures too: one or more of {', '.join(TRACKERS)}", metavar="NAME,NAME"
    )
    roll_back: int = option(
        0, "how often a run that diverges goes back to its last good checkpoint and on with a lower rate", within="[0, 1000]"
    )
    roll_back_factor: float = option(0.5, "what --roll-back multiplies the learning rates by each time", within="(0, 1)")

    def check(self) -> None:
        trackers_of(self.log_to)  # refuses what is no tracker
