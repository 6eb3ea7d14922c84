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
import logging
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_paddle.deploy.bundle import ONNX, ONNX_INT8, Bundle
from mobilenetv3_paddle.deploy.engines import OnnxRuntimeEngine, cpu_threads, create_engine
from mobilenetv3_paddle.deploy.predictor import Predictor, softmax
from mobilenetv3_paddle.deploy.timing import in_batches, side_by_side

AGREEMENT = 0.99
SLOWER = 1.05  # a ratio up to this is the measurement's spread
MAX_PICTURES = 256
MIN_PICTURES = 16
MIN_JUDGING = 100  # with fewer, 99 % cannot be told from less
EVERYTHING = "all convolutions and linear layers"
KEPT = (1, 2, 4, 8, 16, 32)  # layers that stay in float32
WORST = 5  # layers that are named
ALONE = 16  # calibrating pictures on which each layer is measured alone
MIN_STORED = 256  # smaller weights (biases, scales) stay float


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

    ``layers`` has the signal-to-noise ratio of the logits in dB with each layer alone in int8, the worst first.
    """

    chosen: str
    fp32_size: int
    calibrated_on: int = 0
    judged_on: int = 0
    trials: list[Trial] = field(default_factory=list)
    layers: dict[str, float] = field(default_factory=dict)

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
        worst = [f"{name} {ratio:.1f} dB" for name, ratio in list(self.layers.items())[:WORST]]
        lines += [f"layers that lose most, each alone in int8: {', '.join(worst)}"] if worst else []
        return "\n".join([*lines, *(f"warning: {one}" for one in self.warnings())])

    def good(self) -> list[Trial]:
        """Trials that name the judging pictures as fp32 does, in a smaller file."""
        return [t for t in self.trials if t.agreement >= AGREEMENT and t.size < self.fp32_size]

    def warnings(self) -> list[str]:
        """Why int8 is not to be preferred to fp32, or how little is known of it; empty where it is."""
        found = []
        kept = next(t for t in self.trials if t.name == self.chosen)
        if kept not in self.good():
            found.append(f"no choice names {AGREEMENT:.0%} of the pictures as fp32 does in a smaller file: use --precision fp32")
        elif kept.ratio > SLOWER:
            found.append(f"int8 takes {kept.ratio:.2f} of fp32's time here: it is smaller, and not faster")
        if self.judged_on < MIN_JUDGING:
            found.append(f"{self.judged_on} pictures cannot tell {AGREEMENT:.0%} from less: give {2 * MIN_JUDGING} or more")
        return found


def check_enough(pictures: Sequence[Path]) -> None:
    """Raise ``UserError`` where int8 cannot be calibrated and judged on so few pictures."""
    if len(pictures) < MIN_PICTURES:
        raise UserError(
            f"--calibration-data holds {len(pictures)} picture(s): int8 needs {MIN_PICTURES} at least, half of them to judge by"
        )


def quantize(bundle: Bundle, pictures: Sequence[Path], keep: str = "none") -> Quantized:
    """Add model_int8.onnx to an export.

    Args:
        bundle: with model.onnx.
        keep: ``auto`` also measures each layer alone in int8, and tries int8 arithmetic in all but the layers that lose most.
        pictures: such as the model will see, 16 or more; at most 256 of them are used, every second one to judge by.

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
    calibrating, judging = images[0::2], images[1::2]
    truth = softmax(in_batches(fp32, judging))
    result = Quantized("", bundle.path(ONNX).stat().st_size, len(calibrating), len(judging))
    with tempfile.TemporaryDirectory(prefix=".int8-", dir=bundle.folder) as work, _quiet():
        prepared = Path(work) / "prepared.onnx"
        # Batch normalisation goes into the convolutions. Symbolic shapes are for transformers, and sometimes end as "incomplete".
        quant_pre_process(str(bundle.path(ONNX)), str(prepared), skip_symbolic_shape=True)
        engines: dict[str, Any] = {"fp32": fp32}
        files: dict[str, Path] = {}
        choices = _choices(onnx.shape_inference.infer_shapes(onnx.load(str(prepared))))
        if keep == "auto":
            result.layers = _each_alone(bundle, prepared, choices[EVERYTHING], calibrating, Path(work))
            order = list(result.layers)
            kept = [count for count in KEPT if count < len(order)]
            choices |= {
                f"all but the {n} layers that lose most": [x for x in choices[EVERYTHING] if x not in order[:n]] for n in kept
            }
        for name, nodes in choices.items():
            files[name] = Path(work) / f"{len(files)}.onnx"
            _quantized(prepared, files[name], nodes, calibrating)
            engine = _engine(bundle, files[name])
            got = softmax(in_batches(engine, judging))
            engines[name] = engine
            result.trials.append(
                Trial(
                    name,
                    len(nodes),
                    files[name].stat().st_size,
                    float((got.argmax(1) == truth.argmax(1)).mean()),
                    float(np.abs(got - truth).max()),
                )
            )
        times = side_by_side(engines, judging[:1])
        for trial in result.trials:
            trial.ratio = times[trial.name] / times["fp32"]
        good = result.good()
        best = min(good, key=lambda t: t.ratio) if good else max(result.trials, key=lambda t: t.agreement)
        result.chosen = best.name
        shutil.move(str(files[best.name]), str(bundle.folder / ONNX_INT8))
    bundle.add(ONNX_INT8)
    bundle.int8 = {
        "arithmetic": best.name,
        "pictures": len(images),
        "calibrated_on": len(calibrating),
        "judged_on": len(judging),
        "warnings": result.warnings(),
        "tried": [asdict(t) for t in result.trials],
        "layers": result.layers,
    }
    bundle.write()
    return result


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
    choices = {"nothing (weights stored only)": [], "linear layers": list(linear)}
    taken = list(linear)
    for size in sorted(pointwise):
        taken = [*taken, *pointwise[size]]
        choices[f"linear, pointwise to {size} x {size}"] = taken
    choices[EVERYTHING] = [*taken, *others]
    return choices


def _each_alone(bundle: Bundle, prepared: Path, nodes: Sequence[str], images: np.ndarray, work: Path) -> dict[str, float]:
    """Signal-to-noise ratio of the logits in dB with each node alone in int8, the worst first; judging pictures are not seen."""
    from onnxruntime.quantization.qdq_loss_debug import compute_signal_to_quantization_noice_ratio

    right = in_batches(_engine(bundle, prepared), images[:ALONE])
    found: dict[str, float] = {}
    for node in nodes:
        _quantized(prepared, work / "alone.onnx", [node], images, stored=False)
        made = in_batches(_engine(bundle, work / "alone.onnx"), images[:ALONE])
        found[node] = round(float(compute_signal_to_quantization_noice_ratio([right], [made])), 2)
    return dict(sorted(found.items(), key=lambda one: one[1]))


def _quantized(source: Path, target: Path, nodes: list[str], images: np.ndarray, stored: bool = True) -> None:
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self, name: str) -> None:
            self.feeds = iter([{name: image[None]} for image in images])

        def get_next(self) -> dict | None:  # type: ignore[override]
            return next(self.feeds, None)

    if nodes:
        name = onnx.load(str(source)).graph.input[0].name
        quantize_static(
            str(source), str(target), Reader(name), quant_format=QuantFormat.QOperator, per_channel=True,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, nodes_to_quantize=nodes,
            calibrate_method=CalibrationMethod.MinMax, calibration_cache_path=source.with_name("ranges.json"),
        )  # fmt: skip
        source = target
    if stored:
        onnx.save(_stored_in_int8(onnx.load(str(source))), str(target))


def _stored_in_int8(model: Any) -> Any:
    """Float weights of convolutions and linear layers as int8, one scale an output channel, with a node that scales them back."""
    from onnx import helper, numpy_helper

    users: dict[str, list[tuple[Any, int]]] = {}
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            users.setdefault(name, []).append((node, place))
    kept, nodes = [], []
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        by = users.get(tensor.name, [])
        fits = by and all(node.op_type in ("Conv", "Gemm") and place == 1 for node, place in by)
        if array.dtype != np.float32 or array.size < MIN_STORED or not fits:
            kept.append(tensor)
            continue
        transposed = next((a.i for a in by[0][0].attribute if a.name == "transB"), 0)
        axis = 1 if by[0][0].op_type == "Gemm" and not transposed else 0
        others = tuple(i for i in range(array.ndim) if i != axis)
        scale = np.maximum(np.abs(array).max(others) / 127, 1e-12).astype(np.float32)
        levels = np.clip(np.rint(array / np.expand_dims(scale, others)), -127, 127).astype(np.int8)
        kept += [numpy_helper.from_array(levels, f"{tensor.name}_int8"), numpy_helper.from_array(scale, f"{tensor.name}_scale")]
        inputs = [f"{tensor.name}_int8", f"{tensor.name}_scale"]
        nodes.append(helper.make_node("DequantizeLinear", inputs, [tensor.name], name=f"scale_{tensor.name}", axis=axis))
    nodes += list(model.graph.node)
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.initializer.extend(kept)
    model.graph.node.extend(nodes)
    return model


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
