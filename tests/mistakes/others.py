"""The planted mistakes of torch's loops and of pictures, as public checkers see them: python -m tests.mistakes.others.

Wanted beside the project: torchtest, lightning, cleanvision; one that is not installed is left out. A checker counts as seeing a
mistake where it raises, warns or marks something that it does not on the sound loop or the sound pictures.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from tests import test_doctor_data as on_data
from tests import watched
from tests.conftest import LITE_DATA
from tests.mistakes.planted import MISTAKES


class Built(Exception):
    """Carries the model and the optimizer of a loop, as they stand before its first update."""


def built(name: str) -> tuple[Any, Any]:
    def stop(model: Any, optimizer: Any, *_rest: Any, **_more: Any) -> None:
        raise Built(model, optimizer)

    kept, watched.Watch = watched.Watch, stop  # type: ignore[misc,assignment]
    try:
        watched.loop("torch", name)
    except Built as made:
        return made.args[0], made.args[1]
    finally:
        watched.Watch = kept  # type: ignore[misc]
    raise AssertionError("the loop makes no watch")


def loss_of(name: str) -> Callable[[Any, Any], Any]:
    """The loop's own loss."""
    odd = watched.ODD_LOSSES.get(name)
    return cross_entropy if odd is None else lambda made, labels: odd(watched.OnTorch, made, labels.numpy())


def anomaly(name: str) -> set[str]:
    """``torch.autograd.set_detect_anomaly`` around the whole loop."""
    with torch.autograd.set_detect_anomaly(True):
        watched.loop("torch", name, accumulate=2 if name == "lost" else 1)
    return set()


def torchtest(name: str) -> set[str]:
    """Its suite on the loop's model and optimizer: variables change, nothing is NaN or infinite."""
    from torchtest import test_suite

    model, optimizer = built(name)
    pictures, labels = watched.batches(1)[0]
    batch = [torch.tensor(pictures), torch.tensor(labels)]
    test_suite(model, loss_of(name), optimizer, batch, test_vars_change=True, test_nan_vals=True, test_inf_vals=True, device="cpu")
    return set()


def lightning(name: str) -> set[str]:
    """Its Trainer with ``overfit_batches`` and ``detect_anomaly`` on the loop's model and optimizer; what it warns of."""
    import lightning as pl

    logging.disable(logging.INFO)
    model, optimizer = built(name)

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = model.eval() if name == "evaluation_mode" else model

        def training_step(self, batch: Any, _number: int) -> Any:
            return loss_of(name)(self.net(batch[0]), batch[1])

        validation_step = training_step

        def configure_optimizers(self) -> Any:
            return optimizer

    held = [(torch.tensor(pictures), torch.tensor(labels)) for pictures, labels in watched.batches(3)]
    data = torch.utils.data.DataLoader(held, batch_size=None)  # type: ignore[arg-type]
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(max_epochs=2, accelerator="cpu", overfit_batches=1, detect_anomaly=True, **quiet)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trainer.fit(Module(), data, data)
    return {str(one.message)[:80] for one in told}


def cleanvision(folder: Path) -> set[str]:
    """What it marks in a folder of pictures."""
    from cleanvision import Imagelab

    lab = Imagelab(data_path=str(folder))
    lab.find_issues()
    marked = lab.issues[[column for column in lab.issues if column.startswith("is_")]]
    return {f"{Path(path).relative_to(folder)} {kind}" for path, row in marked.iterrows() for kind in row.index[row.to_numpy(bool)]}


def said(checker: Callable[[Any], set[str]], subject: Any) -> set[str]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return checker(subject)
        except Exception as error:  # noqa: BLE001 (whatever it raises is its verdict)
            return {f"raises {type(error).__name__}: {str(error).splitlines()[0][:90]}"}


def pictures(name: str, folder: Path) -> Path:
    copy = folder / (name or "sound")
    for split in ("train", "val"):
        shutil.copytree(LITE_DATA / split, copy / split)
    plants = [*(plant for plant, *_ in on_data.PLANTED), *on_data.NOT_SEEN]
    for plant in plants:
        if plant.__name__ == name:
            plant(copy)
    return copy


def main() -> None:
    loops = [one.name for one in MISTAKES if one.by == "watch"]
    folders = [one.name for one in MISTAKES if one.by == "data"]
    for checker in (anomaly, torchtest, lightning):
        if checker is not anomaly and importlib.util.find_spec(checker.__name__) is None:
            continue
        sound = said(checker, "")
        found = {name: told for name in loops if (told := said(checker, name) - sound)}
        print(f"{checker.__name__}: {len(found)} of {len(loops)} loops; of the sound one: {sorted(sound) or 'nothing'}", flush=True)
        print(*(f"  {name}: {min(told)}" for name, told in found.items()), sep="\n", flush=True)
    if importlib.util.find_spec("cleanvision") is None:
        return
    with tempfile.TemporaryDirectory() as place:
        sound = said(cleanvision, pictures("", Path(place)))
        found = {name: told for name in folders if (told := said(cleanvision, pictures(name, Path(place))) - sound)}
    print(f"cleanvision: {len(found)} of {len(folders)} folders; of the sound one: {sorted(sound) or 'nothing'}")
    print(*(f"  {name}: {min(told)}" for name, told in found.items()), sep="\n")


if __name__ == "__main__":
    main()
