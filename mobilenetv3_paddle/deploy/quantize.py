"""Post-training static quantisation of the ONNX model, in which what is quantised is chosen by measuring.

Int8 everywhere makes MobileNetV3 slower: its depthwise convolutions, hardswishes and squeeze-excitations have little
arithmetic and much traffic, and every step between int8 and float costs. So all weights are stored in int8, which makes the
file a quarter, and int8 arithmetic is tried for the last layers, then the pointwise convolutions on ever larger maps, then
everything; the fastest that still names pictures as fp32 does is kept. Half of the pictures calibrate, the other half, which the
quantiser has never seen, judge.

Weights that are only stored in int8 become float again when ONNX Runtime loads the file, where it is told not to look for
quantised patterns (``session.disable_quant_qdq``, which ``mobilenetv3_paddle.deploy.engines.OnnxRuntimeEngine`` sets);
the quantised operators are in the file as such (``QLinearConv``, ``QGemm``).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mobilenetv3_common.counted import counted
from mobilenetv3_common.errors import UserError
from mobilenetv3_paddle.deploy.bundle import ONNX, ONNX_INT8, Bundle
from mobilenetv3_paddle.deploy.engines import OnnxRuntimeEngine, cpu_threads, create_engine
from mobilenetv3_paddle.deploy.int8_graph import quantized
from mobilenetv3_paddle.deploy.int8_layers import Inside, Judge, LayerCost, Load, along, each_alone, explained
from mobilenetv3_paddle.deploy.predictor import Predictor, softmax
from mobilenetv3_paddle.deploy.timing import in_batches, side_by_side

AGREEMENT = 0.99
SLOWER = 1.05  # a ratio up to this is the measurement's spread
MAX_PICTURES = 256
MIN_PICTURES = 16
MIN_JUDGING = 100  # with fewer, 99 % cannot be told from less
ALL, AS_KEPT = "int8, all layers", "int8, as kept"
LARGE = 0.9  # of fp32's size, above which a file is hardly smaller
BUSY = 1.2  # the same arithmetic takes as long on an idle machine, to a twentieth or so
STORED = "nothing (weights stored only)"
EVERYTHING = "all convolutions and linear layers"
KEPT = (1, 2, 4, 8, 16, 32)  # layers that stay in float32
WORST = 5  # layers that are named


@dataclass
class Trial:
    """One choice of what is quantised.

    Attributes:
        name: in words.
        operators: how many compute in int8.
        size: bytes of the file.
        agreement: share of the judging pictures with fp32's likeliest class.
        max_probability_diff: from fp32's, over them.
        ratio: median time at batch 1 over fp32's.
    """

    name: str
    operators: int
    size: int
    agreement: float
    max_probability_diff: float
    ratio: float = 0.0


@dataclass
class Quantized:
    """What was tried, which was kept, and how many pictures calibrated and judged.

    ``layers`` has what each layer costs in int8, the worst first, where that was measured; ``inside`` the error along the network.
    """

    chosen: str
    fp32_size: int
    calibrated_on: int = 0
    judged_on: int = 0
    trials: list[Trial] = field(default_factory=list)
    layers: dict[str, LayerCost] = field(default_factory=dict)
    inside: Inside | None = None
    fp32_milliseconds: float = 0.0

    def line(self) -> str:
        """The table, as text."""
        head = ("operators", "size", "top-1 as fp32", "max prob diff", "time / fp32")
        lines = ["{:42} {:>9} {:>10} {:>13} {:>13} {:>11}".format("int8 arithmetic in", *head)]
        for t in self.trials:
            mark = " <- kept" if t.name == self.chosen else ""
            lines.append(
                f"{t.name:42} {t.operators:9} {t.size / self.fp32_size:9.2f}x {t.agreement:13.1%} {t.max_probability_diff:13.4f} "
                f"{t.ratio:11.2f}{mark}"
            )
        lines.append(f"calibrated on {self.calibrated_on} pictures, judged on {self.judged_on} others")
        worst = [f"{name} {layer.alone.ratio:.1f} dB" for name, layer in list(self.layers.items())[:WORST]]
        lines += [f"layers that lose most, each alone in int8: {', '.join(worst)}"] if worst else []
        bad = [name for name, layer in self.layers.items() if layer.bad]
        lines += [f"bad, left in float32 wherever not everything is in int8: {', '.join(bad)}"] if bad else []
        return "\n".join([*lines, *(f"warning: {one}" for one in self.warnings())])

    def good(self) -> list[Trial]:
        """Trials that name the judging pictures as fp32 does, in a smaller file."""
        return [t for t in self.trials if t.agreement >= AGREEMENT and t.size < self.fp32_size]

    def choose(self) -> None:
        """The fastest of the good trials; where no time can be believed, the one with the fewest operators in int8."""
        good = self.good()
        if not good:
            best = max(self.trials, key=lambda t: t.agreement)
        else:
            best = min(good, key=lambda t: t.ratio if self.control() is None else t.operators)
        self.chosen = best.name

    def worth(self) -> tuple[bool, str]:
        """Whether int8 is to be preferred to fp32 on this machine, and why, in words."""
        kept = next(t for t in self.trials if t.name == self.chosen)
        if kept not in self.good():
            return False, f"no choice names {AGREEMENT:.0%} of the pictures as fp32 does in a smaller file: use --precision fp32"
        share, control = kept.size / self.fp32_size, self.control()
        small = f"{share:.2f} of fp32's size"
        if share > LARGE and (control is not None or kept.ratio > 1 / SLOWER):
            return False, f"the file has {small}, and nothing is known to be faster"
        if control is not None:
            busy = f"float arithmetic itself took {control:.2f} of fp32's time, so the machine is busy"
            return True, f"{small}; its time is not known: {busy}"
        if kept.ratio > SLOWER:
            return False, f"int8 takes {kept.ratio:.2f} of fp32's time here: it is smaller, and not faster"
        return True, f"{small} and {kept.ratio:.2f} of its time, {kept.agreement:.1%} of the pictures named as fp32 does"

    def control(self) -> float | None:
        """Time over fp32's of what computes as fp32 does, where the two are so far apart that no time can be believed."""
        found = next((t.ratio for t in self.trials if t.name == STORED), 1.0)
        return None if 1 / BUSY <= found <= BUSY else found

    def doubts(self) -> list[str]:
        """How little is known of the agreement; empty where enough pictures judged."""
        few = f"{self.judged_on} pictures are too few to show an agreement of {AGREEMENT:.0%}: give {2 * MIN_JUDGING} or more"
        return [few] if self.judged_on < MIN_JUDGING else []

    def warnings(self) -> list[str]:
        """Why int8 is not to be preferred to fp32, or how little is known of it; empty where it is."""
        good, why = self.worth()
        return [*([] if good and self.control() is None else [why]), *self.doubts()]


def check_enough(pictures: Sequence[Path]) -> None:
    """Raise ``UserError`` where int8 cannot be calibrated and judged on so few pictures."""
    if len(pictures) < MIN_PICTURES:
        raise UserError(
            f"--calibration-data holds {counted(len(pictures), 'picture')}: int8 needs {MIN_PICTURES} at least, "
            "half of them to judge by"
        )


def quantize(bundle: Bundle, pictures: Sequence[Path], keep: str = "none", explain: bool = False) -> Quantized:
    """Add model_int8.onnx to an export.

    Args:
        bundle: with model.onnx.
        pictures: such as the model will see, 16 or more; at most 256 of them are used, every second one to judge by.
        keep: ``auto`` also measures each layer alone in int8, and tries int8 arithmetic in all but the layers that lose most;
            layers that are bad stay in float32, with their weights, in every other choice, too.
        explain: whether to measure, of every layer, also what all but it cost, and the error along the network; needs ``auto``.

    Raises:
        UserError: a package is missing, there are too few pictures, or one cannot be used.
    """
    check_enough(pictures)
    try:
        import onnx
        from onnxruntime.quantization.shape_inference import quant_pre_process
    except ImportError as error:
        raise UserError(f"int8 needs the package {error.name}: pip install '.[deploy]'") from error
    fp32 = create_engine(bundle, "onnxruntime")
    predictor = Predictor(fp32, bundle.preset, bundle.classes, bundle.image_backend)
    step = max(1, len(pictures) // MAX_PICTURES)
    images = np.stack([predictor.preprocess(predictor.decode(path)) for path in pictures[::step][:MAX_PICTURES]])
    judge = Judge(fp32, images[0::2], images[1::2])
    load = functools.partial(_engine, bundle)
    result = Quantized("", bundle.path(ONNX).stat().st_size, len(images[0::2]), len(images[1::2]))
    with tempfile.TemporaryDirectory(prefix=".int8-", dir=bundle.folder) as work, _quiet():
        prepared = Path(work) / "prepared.onnx"
        # Batch normalisation goes into the convolutions. Symbolic shapes are for transformers, and sometimes end as "incomplete".
        quant_pre_process(str(bundle.path(ONNX)), str(prepared), skip_symbolic_shape=True)
        choices = _choices(onnx.shape_inference.infer_shapes(onnx.load(str(prepared))))
        if keep == "auto":
            result.layers = each_alone(prepared, choices[EVERYTHING], images[0::2], judge, load)
            choices = _with_kept(choices, result.layers)
        files = _try_all(result, prepared, choices, images[0::2], judge, load)
        if explain:
            result.layers = explained(prepared, result.layers, images[0::2], judge, load)
            result.inside = along(prepared, {ALL: files[EVERYTHING], AS_KEPT: files[result.chosen]}, judge, load)
        shutil.move(str(files[result.chosen]), str(bundle.folder / ONNX_INT8))
    bundle.add(ONNX_INT8)
    bundle.int8 = {
        "arithmetic": result.chosen,
        "pictures": len(images),
        "calibrated_on": result.calibrated_on,
        "judged_on": result.judged_on,
        "warnings": result.warnings(),
        "tried": [asdict(t) for t in result.trials],
        "layers": {name: asdict(layer) for name, layer in result.layers.items()},
    }
    bundle.write()
    return result


def _with_kept(choices: dict[str, list[str]], layers: dict[str, LayerCost]) -> dict[str, list[str]]:
    """The choices without the layers that are bad, but for that of everything, and those of all but the layers that lose most."""
    order, bad = list(layers), [name for name, layer in layers.items() if layer.bad]
    counts = sorted({n for n in (*KEPT, len(bad)) if max(1, len(bad)) <= n < len(order)})
    return (
        {name: [x for x in nodes if x not in bad or name == EVERYTHING] for name, nodes in choices.items()}
        | {f"all but the {n} layers that lose most": [x for x in order if x not in order[:n]] for n in counts}
    )  # fmt: skip


def _try_all(
    result: Quantized, prepared: Path, choices: dict[str, list[str]], images: np.ndarray, judge: Judge, load: Load
) -> dict[str, Path]:
    """Measure every choice, and choose; gives the file of each."""
    truth = judge.probabilities
    engines: dict[str, Any] = {"fp32": judge.engine}
    files: dict[str, Path] = {}
    bad = [name for name, layer in result.layers.items() if layer.bad]
    for name, nodes in choices.items():
        files[name] = prepared.with_name(f"{len(files)}.onnx")
        quantized(prepared, files[name], nodes, images, kept=() if name == EVERYTHING else bad)
        engines[name] = load(files[name])
        got = softmax(in_batches(engines[name], judge.judging))
        same, apart = float((got.argmax(1) == truth.argmax(1)).mean()), float(np.abs(got - truth).max())
        result.trials.append(Trial(name, len(nodes), files[name].stat().st_size, same, apart))
    times = side_by_side(engines, judge.judging[:1])
    result.fp32_milliseconds = times["fp32"]
    for trial in result.trials:
        trial.ratio = times[trial.name] / times["fp32"]
    result.choose()
    return files


def _choices(model: Any) -> dict[str, list[str]]:
    """Names of the nodes that compute in int8, from few to all."""
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in [*model.graph.value_info, *model.graph.output]}
    weights = {i.name: list(i.dims) for i in model.graph.initializer}
    linear: list[str] = []
    others: list[str] = []
    pointwise: dict[int, list[str]] = {}
    for node in model.graph.node:
        if node.op_type in ("Gemm", "MatMul"):
            linear.append(node.name)
        elif node.op_type == "Conv":
            groups = next((a.i for a in node.attribute if a.name == "group"), 1)
            size = (shapes.get(node.output[0]) or [0, 0, 0, 0])[2]
            if groups == 1 and weights[node.input[1]][2:] == [1, 1] and size > 1:
                pointwise.setdefault(size, []).append(node.name)
            else:
                others.append(node.name)
    choices = {STORED: [], "linear layers": list(linear)}
    taken = list(linear)
    for size in sorted(pointwise):
        taken = [*taken, *pointwise[size]]
        choices[f"linear, pointwise to {size} x {size}"] = taken
    choices[EVERYTHING] = [*taken, *others]
    return choices


def _engine(bundle: Bundle, path: Path) -> OnnxRuntimeEngine:
    return OnnxRuntimeEngine(bundle, "int8", cpu_threads(), path=path)


@contextlib.contextmanager
def _quiet() -> Any:
    """Without the quantiser's advice to prepare the model, which has been done."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
