"""Plant every mistake of the list in both frameworks, run the doctor, and print what it found, when, and if it named the cause.

python -m tests.mistakes.run [--by watch check data ranks] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tests import test_doctor_check as on_check
from tests import test_doctor_data as on_data
from tests import test_doctor_initialisation as on_initialisation
from tests import test_doctor_watch as on_watch
from tests import test_doctor_workers as on_workers
from tests.conftest import LITE_DATA
from tests.mistakes.planted import MISTAKES, Mistake
from tests.watched import loop

SOON = 2  # updates


@dataclass(frozen=True)
class Result:
    """What the doctor said of one mistake.

    Attributes:
        mistake, framework: what was planted.
        said: the checks that found a problem, the first one first.
        updates: in which it showed, 0 before training; None where nothing was found.
        named: whether one of the checks names the right cause.
    """

    mistake: Mistake
    framework: str
    said: tuple[str, ...]
    updates: int | None

    @property
    def found(self) -> bool:
        """Before training, or within two updates."""
        return self.updates is not None and self.updates <= SOON

    @property
    def named(self) -> bool:
        return self.found and self.said[0] in self.mistake.causes


def watched(mistake: Mistake, framework: str) -> Result:
    told = loop(framework, mistake.name, accumulate=2 if mistake.name == "lost" else 1)
    events = sorted(told.events.values(), key=lambda event: (event.update, event.check not in mistake.causes))
    updates = events[0].update - mistake.begins + 1 if events else None
    first = [event.check for event in events if event.update == events[0].update]
    return Result(mistake, framework, tuple(first), updates)


def over_ranks(mistake: Mistake, framework: str) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        events = on_watch.events_of_ranks(framework, mistake.name, Path(folder))
    return Result(mistake, framework, tuple(check for check, *_ in events), events[0][1] if events else None)


def checked(mistake: Mistake, framework: str) -> Result:
    name = "ref" if framework == "torch" else framework
    found = _checks(name).get(mistake.name, lambda: on_check.problems(name, **_code(mistake.name)))()
    said = sorted(found, key=lambda check: check not in mistake.causes)
    return Result(mistake, framework, tuple(said), 0 if said else None)


def _code(name: str) -> dict:
    changes, _check, _said, settings = on_check.CODE[name]
    return {"changes": changes, **settings}


def _checks(framework: str) -> dict[str, Callable[[], dict]]:
    """Mistakes that are not among the changes of the training code."""
    hooked, problems = on_check.hooked, on_check.problems
    softmax = __import__("torch" if framework == "ref" else "paddle").nn.functional.softmax

    def not_loaded() -> dict:
        import torch

        from mobilenetv3_ref.models import MODELS

        with tempfile.TemporaryDirectory() as folder:
            start = Path(folder) / "start.pth"
            torch.save(MODELS["mobilenet_v3_small"](8, width_mult=0.5).state_dict(), start)
            return problems(framework, changes=on_check.forgets_the_weights, pretrained=str(start))

    def same_order() -> dict:
        import mobilenetv3_common.run as run

        kept = run.BatchPlan
        run.BatchPlan = lambda size, batch_size, seed, shuffle, *rest, **more: kept(size, batch_size, seed, False, *rest, **more)
        try:
            return problems(framework)
        finally:
            run.BatchPlan = kept

    def changed(change: Callable) -> Callable:
        models = __import__(f"mobilenetv3_{framework}.models", fromlist=["MODELS"])

        def build(num_classes: int):
            model = models.MODELS["mobilenet_v3_small"](num_classes, width_mult=0.5)
            change(model)
            return model

        return build

    def zero(model) -> None:
        weight = model.classifier[0].weight
        weight.data.zero_() if framework == "ref" else weight.set_value(np.zeros(weight.shape, np.float32))

    def frozen(model) -> None:
        for parameter in model.features[0].parameters():
            parameter.stop_gradient = True
            parameter.requires_grad = False

    def unused(model) -> None:
        layers = __import__("torch" if framework == "ref" else "paddle").nn
        model.spare = layers.Linear(4, 4)

    return {
        "cut_gradient": lambda: problems(framework, hooked(framework, lambda o: o.detach(), lambda model: model.features[3])),
        "mixes_its_batch": lambda: problems(framework, hooked(framework, lambda output: output - output.mean(0))),
        "large_logits": lambda: problems(framework, hooked(framework, lambda output: output * 20000.0)),
        "softmax_twice": lambda: problems(framework, hooked(framework, lambda output: softmax(output, -1))),
        "zero_weights": lambda: problems(framework, changed(zero)),
        "frozen_by_mistake": lambda: problems(framework, changed(frozen)),
        "multiplied_by_zero": lambda: problems(framework, hooked(framework, lambda o: o * 0.0, lambda model: model.features[3])),
        **{name: lambda given=plan: problems(framework, **given) for name, (plan, *_) in on_check.PLANS.items()},
        "unseeded": lambda: problems(framework, on_check.unseeded(framework)),
        "unused_layer": lambda: problems(framework, changed(unused)),
        "stock_initialisation": lambda: problems(framework, on_initialisation.stock(framework)),
        "fan_in": lambda: problems(framework, on_initialisation.broken(framework, "fan_in for fan_out")),
        "wide_linear": lambda: problems(framework, on_initialisation.broken(framework, "a wider linear layer")),
        "not_loaded": not_loaded,
        "same_order": same_order,
        "tiny_rate": lambda: problems(framework, lr=1e-9),
        "huge_rate": lambda: problems(framework, lr=1e3),
        "workers_alike": lambda: problems(framework, changes=on_workers.brightening(on_workers.own, fixed=True), workers=2),
    }


def examined(mistake: Mistake, framework: str) -> Result:
    plant = next(
        plant for plant, *_ in [*on_data.PLANTED, *((plant,) for plant in on_data.NOT_SEEN)] if plant.__name__ == mistake.name
    )
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "data"
        shutil.copytree(LITE_DATA, copy)
        for name in ("train_list.txt", "val_list.txt"):
            (copy / name).unlink()
        plant(copy)
        with contextlib.redirect_stderr(io.StringIO()):
            said = sorted(on_data.problems(copy, crop_size=224), key=lambda check: check not in mistake.causes)
    return Result(mistake, framework, tuple(said), 0 if said else None)


BY = {"watch": watched, "ranks": over_ranks, "check": checked, "data": examined}


def results(by: Sequence[str]) -> list[Result]:
    """Run the list; what looks at pictures alone is run once, and counts for both frameworks."""
    made = []
    for mistake in MISTAKES:
        if mistake.by in by:
            made += [BY[mistake.by](mistake, framework) for framework in mistake.frameworks]
            print(*(line(one) for one in made if one.mistake is mistake), sep="\n", flush=True)
    return made


def line(result: Result) -> str:
    when = "not found" if result.updates is None else f"update {result.updates}" if result.updates else "before"
    cause = "cause named" if result.named else "cause not named" if result.found else ""
    return f"{result.mistake.by:6} {result.framework:7} {result.mistake.name:22} {when:10} {' '.join(result.said) or '-'}  {cause}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--by", nargs="+", choices=BY, default=list(BY))
    parser.add_argument("--json", metavar="FILE")
    flags = parser.parse_args()
    made = results(flags.by)
    found, named = sum(one.found for one in made), sum(one.named for one in made)
    print(f"{len(made)} planted: {found} found ({found / len(made):.1%}), {named} with the right cause ({named / len(made):.1%})")
    if flags.json:
        Path(flags.json).write_text(json.dumps([asdict(one) | {"found": one.found, "named": one.named} for one in made], indent=1))


if __name__ == "__main__":
    main()
