"""Audit what exporters and optimisers make of other people's networks, with random weights: every line of the table is one audit.

    python scripts/audit_exports.py [--library torchvision|timm|paddle] [--network NAME] [--result-dir output/exports]

It needs torchvision, timm, onnxscript, onnxsim and onnxslim (pip install) for what it makes with them; what is missing is left out
and said. Nothing is downloaded. It goes on where it was stopped: audits that exports.jsonl has are not made again. At the end it
prints the table of docs/exported.md.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from alignment.audit.exported import ModulesSide, measured, step_of
from alignment.frameworks import framework
from alignment.frameworks._onnx_files import read
from alignment.report.table import exact_difference, float32_ratio
from mobilenetv3_common.errors import UserError

# Library -> network -> arguments and the side of its pictures.
NETWORKS: dict[str, dict[str, tuple[dict[str, Any], int]]] = {
    "torchvision": {
        "mobilenet_v3_small": ({}, 64), "resnet18": ({}, 64), "squeezenet1_1": ({}, 64), "shufflenet_v2_x0_5": ({}, 64),
        "efficientnet_b0": ({}, 64), "regnet_y_400mf": ({}, 64), "mnasnet0_5": ({}, 64), "convnext_tiny": ({}, 64),
        "vit_b_16": ({"image_size": 64}, 64),
    },
    "timm": {
        "tf_mobilenetv3_small_minimal_100": ({}, 65), "tf_efficientnet_lite0": ({}, 64), "tf_mixnet_s": ({}, 65),
        "mixnet_s": ({}, 64), "vit_tiny_patch16_224": ({"img_size": 64}, 64), "convnext_atto": ({}, 64), "resnet10t": ({}, 64),
        "ghostnet_050": ({}, 64), "mobilevit_xxs": ({}, 64), "regnetx_002": ({}, 64), "repvgg_a0": ({}, 64),
        "poolformer_s12": ({}, 64),
    },
    "paddle": {
        "mobilenet_v3_small": ({}, 64), "resnet18": ({}, 64), "squeezenet1_1": ({}, 64), "shufflenet_v2_x0_25": ({}, 64),
        "mobilenet_v2": ({}, 64), "mobilenet_v1": ({}, 64),
    },
}  # fmt: skip
LEVELS = {"ORT basic": "ORT_ENABLE_BASIC", "ORT extended": "ORT_ENABLE_EXTENDED", "ORT all": "ORT_ENABLE_ALL"}
OPTIMISERS = ("none", "onnxsim", "onnxslim", *LEVELS)


def drawn(model: Any) -> Any:
    """A torch model in evaluation mode whose normalisations have drawn statistics and weights: none is 0 or 1."""
    import torch

    for module in model.modules():
        for name, low, high in (("running_mean", -0.5, 0.5), ("running_var", 0.2, 1.5)):
            if getattr(module, name, None) is not None:
                getattr(module, name).uniform_(low, high)
        if getattr(module, "running_var", None) is not None and module.weight is not None:
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.uniform_(module.bias, -0.5, 0.5)
    return model.eval()


def made(library: str, name: str, settings: dict[str, Any]) -> Any:
    """A network with random weights."""
    if library == "paddle":
        import paddle

        paddle.seed(0)
        model = getattr(paddle.vision.models, name)(**settings)
        model.eval()
        return model
    import torch

    torch.manual_seed(0)
    if library == "timm":
        import timm

        return drawn(timm.create_model(name, pretrained=False, **settings))
    import torchvision

    return drawn(getattr(torchvision.models, name)(weights=None, **settings))


def export_torch(model: Any, x: np.ndarray, path: Path, dynamo: bool) -> None:
    import torch

    more: dict[str, Any] = {"external_data": False} if dynamo else {}
    torch.onnx.export(model, (torch.from_numpy(x),), str(path), dynamo=dynamo, input_names=["x"], opset_version=18, **more)


def export_paddle(model: Any, x: np.ndarray, path: Path) -> None:
    import paddle

    spec = [paddle.static.InputSpec(list(x.shape), "float32", "x")]
    paddle.onnx.export(model, str(path.with_suffix("")), input_spec=spec, opset_version=16)


EXPORTERS: dict[str, dict[str, Callable[[Any, np.ndarray, Path], None]]] = {
    "torch": {
        "torch, dynamo": lambda model, x, path: export_torch(model, x, path, True),
        "torch, script": lambda model, x, path: export_torch(model, x, path, False),
    },
    "paddle": {"paddle2onnx": export_paddle},
}


def optimised(source: Path, target: Path, optimiser: str) -> None:
    """Write what an optimiser makes of a file."""
    model = onnx.load(str(source))
    if optimiser == "onnxsim":
        import onnxsim

        model, _ = onnxsim.simplify(model)
    elif optimiser == "onnxslim":
        import onnxslim

        model = onnxslim.slim(model)
    elif optimiser in LEVELS:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[optimiser])
        options.optimized_model_filepath, options.log_severity_level = str(target), 4
        onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
        return
    onnx.save(model, str(target))


def audited(path: Path, side: ModulesSide, x: np.ndarray) -> dict[str, Any]:
    """Verdict and figures of one file."""
    try:
        one = measured(read("--port", path), side, (x,))
    except UserError as error:
        return {"verdict": "refused", "words": str(error).replace(str(path), "FILE")}
    step = step_of(one)
    found = [finding.line() for finding in one.findings()]
    figures = {"exact": exact_difference(step), "float32": float32_ratio(step.quantities)}
    words = [*found, *step.problems, *(f"{row.name}: {row.reason}" for row in step.quantities if not row.passed)]
    return {"verdict": "silent" if step.passed and not found else "FOUND", "words": "; ".join(words[:3])} | figures


def rows_of(library: str, name: str, known: set[str], folder: Path) -> Iterable[dict[str, Any]]:
    """The audits of one network that are not known yet."""
    kind = "paddle" if library == "paddle" else "torch"
    wanted = {(exporter, optimiser) for exporter in EXPORTERS[kind] for optimiser in OPTIMISERS}
    if all(" | ".join((library, name, *pair)) in known for pair in wanted):
        return
    settings, size = NETWORKS[library][name]
    model = made(library, name, settings)
    x = np.random.default_rng(0).standard_normal((2, 3, size, size)).astype(np.float32)
    side = ModulesSide("--reference", framework(kind), model, "random")
    for exporter, export in EXPORTERS[kind].items():
        source = folder / f"{name}.onnx"
        source.unlink(missing_ok=True)
        failed = attempted(lambda export=export, source=source: export(model, x, source))  # type: ignore[misc]
        for optimiser in OPTIMISERS:
            key = " | ".join((library, name, exporter, optimiser))
            if key in known:
                continue
            target, start = folder / f"{name}_optimised.onnx", time.perf_counter()
            words = failed or attempted(
                lambda optimiser=optimiser, source=source, target=target: optimised(source, target, optimiser)
            )  # type: ignore[misc]
            row = {"verdict": "not made", "words": words} if words else audited(target, side, x)
            yield {"key": key, **row, "seconds": round(time.perf_counter() - start, 1)}


def attempted(make: Callable[[], object]) -> str:
    """What somebody else's exporter or optimiser raised, in one line; empty where it worked."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            make()
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    return ""


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a line for each network and exporter, a column for each optimiser."""
    by: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
    for row in rows:
        library, name, exporter, optimiser = row["key"].split(" | ")
        by.setdefault((library, name, exporter), {})[optimiser] = row
    lines = [f"| network | exporter | {' | '.join(OPTIMISERS)} | worst, exact mode | worst, float32 |"]
    lines.append("|" + "---|" * (len(OPTIMISERS) + 4))
    for (library, name, exporter), found in by.items():
        cells = [found[one]["verdict"] if one in found else "-" for one in OPTIMISERS]
        exact = max((one["exact"] for one in found.values() if one.get("exact") is not None), default=None)
        float32 = max((one["float32"] for one in found.values() if one.get("float32") is not None), default=None)
        figures = ["-" if exact is None else f"{exact:.1e}", "-" if float32 is None else f"{float32:.1f} x"]
        lines.append(f"| {library} {name} | {exporter} | {' | '.join([*cells, *figures])} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--library", choices=NETWORKS, help="only its networks")
    parser.add_argument("--network", help="only this one")
    parser.add_argument("--result-dir", type=Path, default=Path("output/exports"), help="default: output/exports")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    args.result_dir.mkdir(parents=True, exist_ok=True)
    log = args.result_dir / "exports.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []
    for library, networks in NETWORKS.items():
        if args.library not in (None, library):
            continue
        if importlib.util.find_spec(library) is None:
            print(f"{library} is not installed: its networks are left out")
            continue
        for name in networks if args.network is None else [args.network] if args.network in networks else []:
            with tempfile.TemporaryDirectory() as folder:
                for row in rows_of(library, name, {one["key"] for one in rows}, Path(folder)):
                    rows.append(row)
                    with log.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                    print(f"{row['key']}: {row['verdict']} {row['words'][:200]}", flush=True)
    print(table(rows))
    return int(any(row["verdict"] == "FOUND" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
