"""Settings of the epochs and of how many pictures make an update."""

from __future__ import annotations

from dataclasses import dataclass

from mobilenetv3_common.train_config.section import COUNT, Section, option, require


@dataclass(frozen=True)
class BatchSettings(Section):
    """Passes over the training data, batches and updates."""

    TITLE = "epochs and batches"

    epochs: int = option(10, "passes over the training data", within="[1, 1e6]")
    batch_size: int = option(32, "pictures a rank and forward pass", within="[1, 65536]")
    min_updates: int = option(
        1,
        "updates an epoch has at least: the batch is halved until it has, down to 8 (to 2 for one update), and a line says so",
        within=COUNT,
    )
    drop_last: bool = option(True, "leave the incomplete last batch of an epoch out")
    repeat_augment: int = option(
        1, "repeated augmentation: so many augmentations of each picture in a row, in an epoch as long as before", within="[1, 64]"
    )
    accumulate: int = option(1, "forward passes an update", within="[1, 65536]")

    def check(self) -> None:
        whole = self.drop_last or self.accumulate == 1
        require(whole, "--no-drop-last needs batches that are updates: --accumulate must be 1", self.accumulate)
