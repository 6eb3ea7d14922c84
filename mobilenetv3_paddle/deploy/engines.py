"""What runs an exported model: ONNX Runtime, OpenVINO, Paddle Inference with oneDNN, or with Paddle's own kernels.

Every engine takes the same float32 pictures and gives logits; softmax, class names and the rest are the same code for all
(``mobilenetv3_paddle.deploy.predictor``). A framework is imported only when an engine of it is made.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_paddle.deploy.bundle import ONNX, ONNX_INT8, PADDLE_PROGRAM, PADDLE_WEIGHTS, Bundle

ENGINES = ("onnxruntime", "openvino", "onednn", "paddle")
AUTO = "auto"  # the one that the export measured to be the fastest
DEFAULT_ENGINE = ENGINES[0]  # the fastest at batch 1: docs/benchmarks.md
PRECISIONS = ("fp32", "bf16", "int8")
SPIN_MICROSECONDS = "100"  # of ONNX Runtime's threads without work; in fact they sleep after up to 2 ms
SPIN_DURATION_SINCE = (1, 27)  # version of ONNX Runtime
OF_ENGINE = {"onnxruntime": ("fp32", "int8"), "openvino": ("fp32", "bf16"), "onednn": ("fp32",), "paddle": ("fp32",)}


class Engine(Protocol):
    """Attributes ``name`` (e.g. ``onnxruntime int8``) and ``version``; called with pictures, it gives logits."""

    name: str
    version: str

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """float32 (N, 3, H, W) to float32 (N, classes)."""


def cpu_threads() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def create_engine(
    bundle: Bundle, engine: str = DEFAULT_ENGINE, precision: str = "fp32", threads: int = 0, device: str = "cpu"
) -> Engine:
    """Load an exported model.

    Args:
        bundle: the export.
        engine: one of ``ENGINES``, or ``auto`` for the one, and the precision, that the export measured to be the fastest.
        precision: ``fp32``; ``int8`` where the export was made with it; ``bf16`` (bfloat16) of OpenVINO.
        threads: of the engine; 0 for every core this process may use.
        device: ``cpu`` or ``gpu``.

    Raises:
        UserError: the export lacks the file, or the engine cannot do what is asked.
    """
    if engine == AUTO:
        engine, precision = _measured(bundle, precision)
    if engine not in ENGINES:
        raise UserError(f"unknown engine {engine!r}: use one of {', '.join(ENGINES)}")
    if precision not in PRECISIONS:
        raise UserError(f"unknown precision {precision!r}: use one of {', '.join(PRECISIONS)}")
    if device not in ("cpu", "gpu"):
        raise UserError(f"unknown device {device!r}: use cpu or gpu")
    if precision not in OF_ENGINE[engine]:
        able = next(name for name, found in OF_ENGINE.items() if precision in found)
        raise UserError(f"--engine {engine} has no {precision} here: use --engine {able}")
    threads = threads or cpu_threads()
    if engine == "onnxruntime":
        return fits(OnnxRuntimeEngine(bundle, precision, threads, device), bundle)
    if engine == "openvino":
        return fits(OpenVinoEngine(bundle, precision, threads, device), bundle)
    if engine == "onednn" and device == "gpu":
        raise UserError("--engine onednn runs on a CPU: use --engine paddle with --device gpu")
    return fits(PaddleEngine(bundle, engine == "onednn", threads, device), bundle)


def _measured(bundle: Bundle, precision: str) -> tuple[str, str]:
    """Engine and precision that the export kept as the fastest."""
    if precision != "fp32":
        raise UserError(f"--engine auto chooses the precision itself: leave --precision {precision} out")
    try:
        found = bundle.fastest["engine"], bundle.fastest["precision"]
    except KeyError as error:
        raise UserError(f"{bundle.folder}: no engine was measured; export it with --engine auto, or name an engine") from error
    if found[0] not in ENGINES or found[1] not in PRECISIONS:
        raise UserError(f"{bundle.folder}: deploy.json names no engine that is known as the fastest; export the model again")
    return found


def fits(engine: Engine, bundle: Bundle) -> Engine:
    """An engine that takes the bundle's pictures and gives a logit for each of its classes, which is tried on a grey picture.

    Raises:
        UserError: it does not.
    """
    size = bundle.preset.crop_size
    try:
        shape = engine(np.zeros((1, 3, size, size), np.float32)).shape
    except Exception as error:
        raise UserError(f"{bundle.folder}: {engine.name} cannot run it on {size} x {size} pixels: export it again") from error
    if shape != (1, len(bundle.classes)):
        given = shape[-1] if shape else 0
        raise UserError(f"{bundle.folder}: the model has {given} classes, deploy.json names {len(bundle.classes)}: export it again")
    return engine


class OnnxRuntimeEngine:
    """ONNX Runtime, fp32 or int8."""

    def __init__(self, bundle: Bundle, precision: str, threads: int, device: str = "cpu", path: Path | None = None) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise UserError("--engine onnxruntime needs the package onnxruntime: pip install '.[deploy]'") from error
        path = path or bundle.path(ONNX_INT8 if precision == "int8" else ONNX)
        provider = "CUDAExecutionProvider" if device == "gpu" else "CPUExecutionProvider"
        if provider not in onnxruntime.get_available_providers():
            raise UserError("--device gpu: this ONNX Runtime has no CUDA (install onnxruntime-gpu)")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # Its threads wait for work in a loop (they spin), which is quick. Without a limit they also do so after a run, and while
        # the thread that they wait for has no core, and so take the cores from whatever else computes.
        if tuple(int(part) for part in onnxruntime.__version__.split(".")[:2]) >= SPIN_DURATION_SINCE:
            options.add_session_config_entry("session.intra_op.spin_duration_us", SPIN_MICROSECONDS)
        else:
            options.add_session_config_entry("session.force_spinning_stop", "1")  # after a run
        if precision == "int8":  # weights that are only stored in int8 become float now, not in every run
            options.add_session_config_entry("session.disable_quant_qdq", "1")
        self.name, self.version = f"onnxruntime {precision}", onnxruntime.__version__
        model = _for_cpu(path) if device == "cpu" else str(path)
        self._session = onnxruntime.InferenceSession(model, options, providers=[provider])
        self._input = self._session.get_inputs()[0].name

    def __call__(self, images: np.ndarray) -> np.ndarray:
        return self._session.run(None, {self._input: images})[0]


def _for_cpu(path: Path) -> bytes | str:
    """The model as it is computed fastest on a CPU; as it is where the package onnx is not installed."""
    try:
        from mobilenetv3_paddle.deploy.onnx_graph import for_cpu
    except ImportError:
        return str(path)
    return for_cpu(path)


class OpenVinoEngine:
    """OpenVINO on a CPU, from the ONNX model: fp32, or bfloat16 arithmetic where the processor has it."""

    def __init__(self, bundle: Bundle, precision: str, threads: int, device: str = "cpu") -> None:
        try:
            import openvino
        except ImportError as error:
            raise UserError("--engine openvino needs the package openvino: pip install '.[openvino]'") from error
        if device == "gpu":
            raise UserError("--engine openvino runs on a CPU here: use --engine onnxruntime with --device gpu")
        core = openvino.Core()
        if precision == "bf16" and "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            raise UserError("--precision bf16: this processor has no bfloat16 arithmetic; use --precision fp32")
        options = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": str(threads),
            "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
        }
        self.name, self.version = f"openvino {precision}", openvino.__version__
        self._request = core.compile_model(str(bundle.path(ONNX)), "CPU", options).create_infer_request()

    def __call__(self, images: np.ndarray) -> np.ndarray:
        found = self._request.infer([np.ascontiguousarray(images)])
        return np.array(found[0])


class PaddleEngine:
    """Paddle Inference, with oneDNN's kernels or Paddle's own."""

    def __init__(self, bundle: Bundle, onednn: bool, threads: int, device: str = "cpu", program: str = PADDLE_PROGRAM) -> None:
        import paddle
        from paddle import inference

        config = inference.Config(str(bundle.path(program)), str(bundle.path(PADDLE_WEIGHTS)))
        config.disable_glog_info()
        if device == "gpu":
            if not paddle.device.is_compiled_with_cuda() or paddle.device.cuda.device_count() < 1:
                raise UserError("--device gpu: this Paddle finds no GPU; use --device cpu")
            config.enable_use_gpu(256, 0)
        else:
            config.disable_gpu()
            config.set_cpu_math_library_num_threads(threads)
            # enable_memory_optim() makes create_predictor fail on Paddle 3's .json programs.
            config.enable_mkldnn() if onednn else config.disable_mkldnn()
        self.name, self.version = "onednn fp32" if onednn else "paddle fp32", paddle.__version__
        self._predictor: Any = inference.create_predictor(config)
        self._input = self._predictor.get_input_handle(self._predictor.get_input_names()[0])
        self._output = self._predictor.get_output_handle(self._predictor.get_output_names()[0])

    def __call__(self, images: np.ndarray) -> np.ndarray:
        self._input.reshape(list(images.shape))
        self._input.copy_from_cpu(np.ascontiguousarray(images))
        self._predictor.run()
        return self._output.copy_to_cpu()


class DygraphEngine:
    """The training engine itself: a Paddle layer in evaluation mode."""

    def __init__(self, model: Any) -> None:
        import paddle

        self.name, self.version = "dygraph fp32", paddle.__version__
        self._paddle, self._model = paddle, model
        model.eval()

    def __call__(self, images: np.ndarray) -> np.ndarray:
        with self._paddle.no_grad():
            return self._model(self._paddle.to_tensor(images)).numpy()
