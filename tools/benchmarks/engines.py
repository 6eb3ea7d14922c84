"""The network in every engine that is installed."""

from __future__ import annotations

import functools
import importlib
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open
from tools.benchmarks.models import ROOT, calibrated
from tools.benchmarks.turns import print_table, side_by_side

BATCHES = (1, 8, 32)


TITLES = {
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "onednn": "Paddle Inference, oneDNN",
    "paddle": "Paddle Inference",
}
AUTO = "--engine auto, here "
EAGER = "torch eager"


def title(engine: str, precision: str) -> str:
    """What the tables call an engine."""
    from mobilenetv3_paddle.deploy.engines import OF_ENGINE

    return TITLES[engine] if len(OF_ENGINE[engine]) == 1 else f"{TITLES[engine]} {precision}"


def exported_engines(bundle: Any, pictures: Path, threads: int) -> tuple[dict[str, Callable[[Any], Any]], set[str]]:
    """Every engine that is installed, and the one that ``--engine auto`` chooses; the names of those that hold on the pictures."""
    from mobilenetv3_paddle.deploy.engines import OF_ENGINE, create_engine
    from mobilenetv3_paddle.deploy.fastest import measure
    from mobilenetv3_paddle.deploy.predictor import find_pictures

    cases: dict[str, Callable[[Any], Any]] = {}
    for engine, precisions in OF_ENGINE.items():
        for precision in precisions:
            name = title(engine, precision)
            try:
                cases[name] = create_engine(bundle, engine, precision, threads)
            except UserError as error:  # it is not installed, or the processor has no bfloat16
                print(f"{name} is left out: {error.line}\n")
    found = measure(bundle, find_pictures([pictures]), threads)
    print(*(one.line() for one in found), sep="\n", end="\n\n")
    cases[AUTO + f"{found[0].engine} {found[0].precision}"] = create_engine(bundle, "auto", threads=threads)
    return cases, {title(one.engine, one.precision) for one in found if one.holds}


def inference_cases(
    folder: Path, model: str, pretrained: str | None, threads: int
) -> tuple[dict[str, Callable[[Any], Any]], set[str]]:
    """Engine -> a function of pictures, float32 (N, 3, 224, 224), all of the same weights; and the engines that hold."""
    importlib.import_module("mobilenetv3_ref")  # before torchvision, beside a CPU torch: it declares missing operators
    import numpy as np
    import torch

    from mobilenetv3_common.weights import as_torch
    from mobilenetv3_paddle.deploy.engines import DygraphEngine
    from mobilenetv3_paddle.deploy.export import export
    from mobilenetv3_paddle.deploy.predictor import find_pictures
    from mobilenetv3_paddle.deploy.quantize import quantize
    from mobilenetv3_paddle.deploy.trained import load_trained
    from mobilenetv3_ref.models import MODELS as BUILDERS

    trained = load_trained(pretrained or calibrated(folder, model))
    bundle, _ = export(trained, folder / "exported")
    lite_data = ROOT / "lite_data"
    print(quantize(bundle, find_pictures([lite_data])).line(), "\n")
    cases: dict[str, Callable[[Any], Any]] = {"Paddle dygraph": DygraphEngine(trained.layer)}
    exported, holding = exported_engines(bundle, lite_data / "val", threads)
    cases |= exported
    torch.set_num_threads(threads)
    state = as_torch({n: t.numpy() for n, t in trained.layer.state_dict().items()})
    networks = {}
    for name in (EAGER, "torch channels_last", "torch.compile"):
        network = BUILDERS[trained.model](num_classes=len(trained.classes)).eval()
        missing = network.load_state_dict({n: torch.from_numpy(a.copy()) for n, a in state.items()}, strict=False)
        assert not missing.unexpected_keys and all("num_batches" in key for key in missing.missing_keys)
        networks[name] = network.to(memory_format=torch.channels_last) if name == "torch channels_last" else network

    def run(network: Any, images: Any, last: bool = False) -> Any:
        with torch.inference_mode():
            tensor = torch.from_numpy(images)
            return network(tensor.to(memory_format=torch.channels_last) if last else tensor).numpy()

    cases[EAGER] = lambda images: run(networks[EAGER], images)
    cases["torch channels_last"] = lambda images: run(networks["torch channels_last"], images, True)
    compiled = torch.compile(networks["torch.compile"])
    size = trained.preset.crop_size
    probe = np.random.default_rng(0).standard_normal((2, 3, size, size)).astype(np.float32)
    try:
        run(compiled, probe)
        cases["torch.compile"] = lambda images: run(compiled, images)
    except Exception as error:  # it wants a C++ compiler, and not every machine has one
        print(f"torch.compile does not work here: {type(error).__name__}: {str(error).splitlines()[0][:120]}\n")
    truth = cases[EAGER](probe)
    for name, case in cases.items():
        difference = float(np.linalg.norm(case(probe) - truth) / np.linalg.norm(truth))
        if not difference < (0.5 if "int8" in name else 0.1 if "bf16" in name else 1e-3):
            raise RuntimeError(f"{name} does not compute what torch computes: relative L2 {difference:.1e}")
    return cases, holding


def compared(measured: dict[str, list[float]], holding: set[str]) -> str:
    """The default engine and the chosen one beside torch eager and the fastest engine whose predictions hold.

    Args:
        measured: engine -> its times.
        holding: the engines to compare with; of the others the table above says that they do not hold.
    """
    from mobilenetv3_paddle.deploy.engines import DEFAULT_ENGINE

    times = {name: statistics.median(values) for name, values in measured.items()}
    fastest = min(holding & times.keys(), key=lambda name: times[name])
    lines = [f"the fastest engine of the export whose predictions hold: {fastest}"]
    for words, name in (
        ("the default engine", title(DEFAULT_ENGINE, "fp32")),
        ("--engine auto", next(name for name in times if name.startswith(AUTO))),
    ):
        over_eager, over_fastest = (times[name] / times[base] for base in (EAGER, fastest))
        lines.append(f"{words}: {over_fastest:.3f} of the time of the fastest, {over_eager:.3f} of that of {EAGER}")
    return "\n".join(lines)


def inference(folder: Path, args: Any) -> dict[str, list[float]]:
    """Milliseconds a picture, as ``engine, batch N``."""
    import numpy as np

    from mobilenetv3_paddle.deploy.timing import settle, warm_up

    threads = args.threads or len(os.sched_getaffinity(0))
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # Paddle dygraph's; the others are told
    cases, holding = inference_cases(folder, args.model, args.pretrained, threads)
    found: dict[str, list[float]] = {}
    for batch in BATCHES:
        images = np.random.default_rng(0).standard_normal((batch, 3, 224, 224)).astype(np.float32)
        inner = max(1, 32 // batch)

        def timed(case: Callable[[Any], Any], images: Any = images, inner: int = inner) -> float:
            settle()
            warm_up(functools.partial(case, images))
            start = time.perf_counter()
            for _ in range(inner):
                case(images)
            return 1e3 * (time.perf_counter() - start) / inner / len(images)

        measured = side_by_side({name: functools.partial(timed, case) for name, case in cases.items()}, args.repeats)
        print(f"batch {batch}, {threads} threads")
        print_table(measured, "ms a picture", EAGER)
        print(compared(measured, holding), "\n")
        found |= {f"{name}, batch {batch}": values for name, values in measured.items()}
    return found


def draw(path: str, found: dict[str, list[float]], title: str) -> None:
    """Bars of the medians, one group a batch size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(key.rsplit(", batch", 1)[0] for key in found))
    figure, axes = plt.subplots(1, len(BATCHES), figsize=(12, 4), layout="constrained", sharey=True)
    for axis, batch in zip(axes, BATCHES, strict=True):
        values = [statistics.median(found[f"{name}, batch {batch}"]) for name in names]
        colours = ["#bc4c00" if name.startswith("torch") else "#0969da" for name in names]
        bars = axis.barh(names, values, color=colours)
        axis.bar_label(bars, [f" {value:.2f}" for value in values])
        axis.set(title=f"batch {batch}", xlabel="ms a picture", xlim=(0, max(values) * 1.2))
    axes[0].invert_yaxis()
    figure.suptitle(title)
    with atomic_open(path) as file:
        figure.savefig(file, format="png", dpi=100)
    plt.close(figure)
