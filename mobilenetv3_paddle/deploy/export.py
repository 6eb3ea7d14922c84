"""A trained network to files that inference engines read, checked on the spot against the network it came from."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import gone_on_failure, sha256_of
from mobilenetv3_paddle.deploy.bundle import (
    DEPLOY_JSON,
    FILES,
    OLD_PROGRAM,
    ONNX,
    PADDLE_PROGRAM,
    PADDLE_WEIGHTS,
    Bundle,
    read_bundle,
)  # fmt: skip
from mobilenetv3_paddle.deploy.engines import DygraphEngine, PaddleEngine, create_engine
from mobilenetv3_paddle.deploy.predictor import softmax
from mobilenetv3_paddle.deploy.trained import Trained

MAX_PROBABILITY_DIFF = 1e-5
MAX_LOGIT_DIFF = 1e-4  # relative L2; probabilities near 0 and 1 hardly move with their logits
CHECKED_BATCHES = (1, 3, 8)
FAINTER = (1.0, 0.3, 0.1, 0.03, 0.01)  # contrasts of the random pictures, until the network is certain of few of them
CERTAIN = 0.999
FORMATS = ("paddle", "onnx")
ONNX_OUTPUT = "logits"


def export(
    trained: Trained,
    folder: str | Path,
    formats: tuple[str, ...] = FORMATS,
    also: Callable[[Bundle], None] = lambda bundle: None,
) -> tuple[Bundle, dict[str, EngineDifference]]:
    """Write a network for the engines into a folder, with deploy.json beside it.

    Everything is made and checked in a folder of its own, and moved only then: an export that fails leaves what was there.

    Args:
        trained: the network and what belongs to it.
        folder: made if need be.
        formats: ``paddle`` (Paddle Inference: inference.json and inference.pdiparams) is always made; ``onnx`` from it;
            ``pdmodel`` adds the program in Paddle 2's format (inference.pdmodel), which takes the same weights.
        also: what else belongs to the export, such as int8: it adds its files to the bundle before anything is moved.

    Returns:
        The export, and for each engine the largest differences from the network.

    Raises:
        UserError: a package is missing, the folder cannot be written, or an engine does not agree with the network.
    """
    versions = {"paddlepaddle": paddle.__version__}
    with gone_on_failure(folder) as folder, _work_folder(folder) as work:
        bundle = Bundle(
            trained.model, trained.preset, trained.image_backend, trained.classes, trained.path.name, trained.sha256,
            versions=versions, folder=work,
        )  # fmt: skip
        _save_paddle(trained, bundle)
        if "pdmodel" in formats:
            _save_old_program(trained, bundle)
        if "onnx" in formats:
            _save_onnx(bundle)
        differences = check(bundle, trained.layer)
        bundle.write()
        also(bundle)
        for name in (*bundle.files, DEPLOY_JSON):
            shutil.move(str(bundle.folder / name), str(folder / name))
    for name in set(FILES) - set(bundle.files):  # of an earlier export: another network's
        (folder / name).unlink(missing_ok=True)
    return read_bundle(folder), differences


@contextlib.contextmanager
def _work_folder(folder: Path) -> Iterator[Path]:
    """A folder within the folder, which goes in the end."""
    for leftover in folder.glob(".export-*"):  # of an export that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=folder) as work:
        yield Path(work)


def _save_paddle(trained: Trained, bundle: Bundle) -> None:
    _save_program(trained, bundle.folder)
    for name in (PADDLE_PROGRAM, PADDLE_WEIGHTS):
        bundle.add(name)


def _save_program(trained: Trained, folder: Path) -> None:
    size = trained.preset.crop_size
    spec = paddle.static.InputSpec([None, 3, size, size], "float32", "images")
    paddle.jit.save(trained.layer, str(folder / "inference"), input_spec=[spec])


def _save_old_program(trained: Trained, bundle: Bundle) -> None:
    """The program in the intermediate representation of Paddle 2; the weights beside it are those of the new one."""
    with tempfile.TemporaryDirectory(dir=bundle.folder) as work:
        with paddle.pir_utils.OldIrGuard():
            _save_program(trained, Path(work))
        if sha256_of(Path(work) / PADDLE_WEIGHTS) != bundle.files[PADDLE_WEIGHTS]:
            raise UserError(f"--formats pdmodel: Paddle {paddle.__version__} stores other weights for it: leave pdmodel out")
        shutil.move(str(Path(work) / OLD_PROGRAM), str(bundle.folder / OLD_PROGRAM))
    bundle.add(OLD_PROGRAM)


def _save_onnx(bundle: Bundle) -> None:
    try:
        import onnx
        import paddle2onnx
    except ImportError as error:
        raise UserError(f"ONNX needs the package {error.name}: pip install '.[deploy]', or --formats paddle") from error
    files = [str(bundle.path(name)) for name in (PADDLE_PROGRAM, PADDLE_WEIGHTS)]
    target = bundle.folder / ONNX
    with quiet_output():
        paddle2onnx.export(*files, save_file=str(target), opset_version=17, enable_onnx_checker=True, verbose=False)
    _name_output(onnx, target)
    bundle.versions |= {"paddle2onnx": paddle2onnx.__version__, "onnx": onnx.__version__}
    bundle.add(ONNX)


def _name_output(onnx: Any, path: Path) -> None:
    """Call the output ``logits``, whatever the converter called it: clients ask for it by name."""
    model = onnx.load(str(path))
    (output,) = model.graph.output
    for node in model.graph.node:
        node.output[:] = [ONNX_OUTPUT if name == output.name else name for name in node.output]
    output.name = ONNX_OUTPUT
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


@contextlib.contextmanager
def quiet_output() -> Iterator[None]:
    """Keep what compiled code and its Python helpers print from the terminal; it is shown where the block raises."""
    with tempfile.TemporaryFile() as kept:
        sys.stdout.flush()
        sys.stderr.flush()
        saved = [os.dup(number) for number in (1, 2)]
        try:
            for number in (1, 2):
                os.dup2(kept.fileno(), number)
            yield
        except BaseException:
            kept.seek(0)
            os.write(saved[1], kept.read())
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, old in zip((1, 2), saved, strict=True):
                os.dup2(old, number)
                os.close(old)


def unsaturated(truth: Callable[[np.ndarray], np.ndarray], drawn: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The pictures, fainter where the network is certain of most of them, and its logits: probabilities of 0 and 1 always agree."""
    tried = []
    for contrast in FAINTER:
        inputs = [images * np.float32(contrast) for images in drawn]
        expected = [truth(images) for images in inputs]
        certain = float(np.median(np.concatenate([softmax(logits).max(1) for logits in expected])))
        tried.append((certain, inputs, expected))
        if certain < CERTAIN:
            break
    _, inputs, expected = min(tried, key=lambda one: one[0])
    return inputs, expected


class EngineDifference(NamedTuple):
    """The largest difference of an engine from the network: of a probability, and of the logits of a batch in relative L2."""

    probability: float = 0.0
    logits: float = 0.0


def _relative(got: np.ndarray, right: np.ndarray) -> float:
    """Relative L2 distance; 0 of zeros from zeros."""
    apart, size = (float(np.linalg.norm(array.astype(np.float64))) for array in (got - right, right))
    return apart / size if size else (0.0 if apart == 0 else np.inf)


def check(bundle: Bundle, layer: paddle.nn.Layer) -> dict[str, EngineDifference]:
    """Hold every engine that has its file against the network, on random pictures in batches of 1, 3 and 8.

    Returns:
        Engine -> largest differences. Where the network is certain of every picture those of the logits alone say something.

    Raises:
        UserError: a probability differs by more than 1e-5, or the logits by more than 1e-4 in relative L2.
    """
    names = ["onednn", "paddle"] + (["onnxruntime"] if ONNX in bundle.files else [])
    truth = DygraphEngine(layer)
    size = bundle.preset.crop_size
    generator = np.random.default_rng(0)
    found: dict[str, EngineDifference] = {}
    drawn = [generator.standard_normal((n, 3, size, size)).astype(np.float32) for n in CHECKED_BATCHES]
    inputs, expected = unsaturated(truth, drawn)
    engines = {name: create_engine(bundle, name) for name in names}
    if OLD_PROGRAM in bundle.files:
        engines["pdmodel"] = PaddleEngine(bundle, onednn=False, threads=1, program=OLD_PROGRAM)
    for name, engine in engines.items():
        for images, right in zip(inputs, expected, strict=True):
            got = engine(images)
            apart, before = float(np.abs(softmax(got) - softmax(right)).max()), found.get(name, EngineDifference())
            worst = found[name] = EngineDifference(max(before.probability, apart), max(before.logits, _relative(got, right)))
            if not (worst.probability <= MAX_PROBABILITY_DIFF and worst.logits <= MAX_LOGIT_DIFF):
                words = f"{worst.probability:.1e} in a probability, {worst.logits:.1e} in the logits"
                raise UserError(f"the export is not the network: {name} differs by {words}")
    return found
