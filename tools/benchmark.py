"""Measure side by side in one run: python tools/benchmark.py inference | service | loader | index | train | data | align.

inference: the network of Paddle (dygraph, Paddle Inference with its own kernels and with oneDNN), ONNX Runtime in fp32 and
int8, OpenVINO in fp32 and bfloat16 where it is installed, the engine that ``--engine auto`` chooses, and torch (eager,
channels_last, torch.compile), at batch 1, 8 and 32, with equally many threads.

service: tools/serve.py, asked by wrk (``apt install wrk``) over 32 connections for ``--seconds``, beside tools/infer.py in one
process at batch 1 and 8, on the photographs of lite_data's validation; each with one engine thread and with one per core.

loader: the training pipeline (random crop, flip, normalise) of each framework's loader, with Pillow and OpenCV, from a folder
and from tar shards, beside torchvision's own transforms in torch's loader and, where it is installed, in webdataset's, on the
same JPEGs with the same workers.

index: listing empty files with ImageNet's names (``--pictures 1281167``), from class folders and from a list file: the first and
the later times, and the memory that the list adds to a further process and to a loader worker over an epoch.

train: an update of the engine, alone and watched by the doctor (``--watch``), beside a bare loop of forward, loss, backward and
update on the same batches.

data: tools/doctor.py data on small pictures (``--pictures 50000``), beside decoding them by the same processes.

align: the seconds of each alignment step.

Medians over the repeats; the ratios are what to look at, since machines are noisy.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import multiprocessing
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # not tools/, where a file is called as the doctor's package is

import mobilenetv3_common.quiet_ctrl_c  # noqa: E402, F401
from mobilenetv3_common.config_file import Parser  # noqa: E402
from mobilenetv3_common.errors import UserError, exit_on_user_error  # noqa: E402
from mobilenetv3_common.files import atomic_open  # noqa: E402
from mobilenetv3_common.index_cache import AT_LEAST  # noqa: E402
from mobilenetv3_common.train_config import MODELS  # noqa: E402
from mobilenetv3_paddle.deploy.report import processor_name  # noqa: E402


def side_by_side(cases: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Run every case in turn, ``repeats`` times over, so that a slow phase of the machine meets them all."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, case in cases.items():
            found[name].append(case())
    return found


def print_table(found: dict[str, list[float]], unit: str, base: str) -> None:
    """One row a case: median, spread, and the ratio to the base's median."""
    width = max(map(len, found))
    for name, values in found.items():
        ratio = statistics.median(values) / statistics.median(found[base])
        spread = f"{min(values):.4g} to {max(values):.4g}"
        print(f"{name:<{width}}  {statistics.median(values):8.4g} {unit}  ({spread})  {ratio:.2f} x {base}")


def loader_cases(folder: Path, pictures: int, workers: int, batch_size: int) -> dict[str, Callable[[], float]]:
    """Images a second of one epoch of each loader, the start of its workers left out."""
    importlib.import_module("mobilenetv3_ref")  # before torchvision, beside a CPU torch: it declares missing operators
    import torch
    from torchvision import datasets, transforms

    from mobilenetv3_common.dataset_index import DatasetIndex, index_dataset
    from mobilenetv3_common.presets import IMAGENET_MEAN, IMAGENET_STD, TrainPreset
    from mobilenetv3_common.sampling import BatchPlan
    from mobilenetv3_common.shard_writer import write_shards

    torch.set_num_threads(1)
    index = index_dataset(folder, "train")
    size = sum(os.path.getsize(index.path(number)) for number in range(len(index)))
    write_shards({"train": index}, folder / "shards", size // (4 * max(1, workers)))
    sharded = index_dataset(folder / "shards", "train")
    own = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.PILToTensor(),
            transforms.ConvertImageDtype(torch.float32),
            transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD),
        ]
    )  # as in torchvision's references/classification/presets.py

    def torchvision_case() -> Iterable[Any]:
        dataset = datasets.ImageFolder(str(folder / "train"), own)
        return torch.utils.data.DataLoader(dataset, batch_size, shuffle=True, num_workers=workers, drop_last=True)

    def webdataset_case() -> Iterable[Any]:
        import webdataset

        urls = [str(path) for path in sorted((folder / "shards").glob("train-*.tar"))]
        pictures = webdataset.WebDataset(urls, shardshuffle=len(urls), empty_check=False).shuffle(1000).decode("pil")
        pictures = pictures.to_tuple("jpeg", "cls").map_tuple(own, int).batched(batch_size, partial=False)
        return torch.utils.data.DataLoader(pictures, None, num_workers=workers)

    def ours(framework: str, backend: str, index: DatasetIndex) -> Iterable[Any]:
        data = importlib.import_module(f"mobilenetv3_{framework}.data")
        dataset = data.ImageDataset(index, TrainPreset(), 0, backend)
        return data.build_loader(dataset, BatchPlan(len(index), batch_size, shuffle=True, drop_last=True), workers)

    def timed(make: Callable[[], Iterable[Any]]) -> float:
        batches = iter(make())
        next(batches)
        start = time.perf_counter()
        count = sum(1 for _ in batches)
        return count * batch_size / (time.perf_counter() - start)

    cases: dict[str, Callable[[], float]] = {"torchvision pil": lambda: timed(torchvision_case)}
    if importlib.util.find_spec("webdataset") is not None:
        cases["webdataset pil, shards"] = lambda: timed(webdataset_case)
    for framework in ("ref", "paddle"):
        for backend in ("pil", "cv2"):
            for name, listed in (("", index), (", shards", sharded)):
                make = functools.partial(ours, framework, backend, listed)
                cases[f"{framework} {backend}{name}"] = functools.partial(timed, make)
    return cases


def write_jpegs(folder: Path, pictures: int) -> None:
    """ImageNet-sized JPEGs (500 x 375) cut from lite_data's photographs, one class."""
    from PIL import Image

    sources = sorted((ROOT / "lite_data").glob("*/*/*.JPEG"))
    (folder / "train" / "all").mkdir(parents=True)
    for number in range(pictures):
        image = Image.open(sources[number % len(sources)]).convert("RGB").resize((500, 375), Image.Resampling.BICUBIC)
        image.save(folder / "train" / "all" / f"{number:05d}.JPEG", quality=90)


def write_small(folder: Path, pictures: int, size: int) -> None:
    """Square JPEGs, each two random crops of lite_data's photographs, one over the other: ten classes, a sixth for validation."""
    import numpy as np
    from PIL import Image

    root = ROOT / "lite_data"
    sources = [Image.open(path).convert("RGB") for path in sorted(root.glob("*/*/*.JPEG"))]
    rng = np.random.default_rng(0)
    for number in range(pictures):
        place = folder / ("val" if number % 6 == 0 else "train") / str(number // 6 % 10)
        place.mkdir(parents=True, exist_ok=True)
        crops = []
        for source in (sources[choice] for choice in rng.choice(len(sources), 2, replace=False)):
            side = int(rng.integers(64, min(source.size)))
            left, top = (int(rng.integers(0, length - side + 1)) for length in source.size)
            crops.append(source.resize((size, size), Image.Resampling.BILINEAR, (left, top, left + side, top + side)))
        Image.blend(crops[0], crops[1], 0.5).save(place / f"{number:05d}.JPEG", quality=90)


def write_names(folder: Path, pictures: int) -> list[str]:
    """Empty files with ImageNet's names in up to 1,000 class folders; gives the lines of a list file."""
    classes = min(1000, pictures)
    lines = []
    for number in range(pictures):
        label = number * classes // pictures
        name = f"train/n{label:08d}/n{label:08d}_{number}.JPEG"
        if number == 0 or label != (number - 1) * classes // pictures:
            (folder / name).parent.mkdir(parents=True)
        os.close(os.open(folder / name, os.O_CREAT | os.O_WRONLY))
        lines.append(f"{name} {label}")
    time.sleep(3)  # a folder that has just changed is listed again (mobilenetv3_common.index_cache)
    return lines


_index: Any = None  # what a forked worker inherits


def memory() -> tuple[float, float]:
    """MiB that this process has for itself, and MiB with what it shares."""
    found = dict(line.split(":") for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    private, all_of = (
        sum(int(found[name].split()[0]) for name in names) / 1024 for names in (("Private_Clean", "Private_Dirty"), ("Rss",))
    )
    return private, all_of


def _epoch() -> tuple[float, float]:
    before = memory()
    for number in range(len(_index)):
        _index.path(number)
        _index.labels[number]
    after = memory()
    return after[0] - before[0], after[1] - before[1]


def listed(folder: Path) -> tuple[float, float, tuple[float, float]]:
    """Seconds of listing a split, MiB that it adds to this process, and what ``memory`` grows by in a worker over an epoch."""
    global _index
    from mobilenetv3_common.dataset_index import index_dataset

    before, start = memory()[0], time.perf_counter()
    _index = index_dataset(folder, "train")
    seconds, added = time.perf_counter() - start, memory()[0] - before
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return seconds, added, pool.submit(_epoch).result()


def index(folder: Path, pictures: int, repeats: int) -> dict[str, list[float]]:
    """Seconds and MiB of each form of the list; every process that lists is a new one."""
    os.environ["MOBILENETV3_CACHE"] = str(folder / "cache")
    lines, found = write_names(folder / "data", pictures), dict[str, list[float]]()
    for form in ("class folders", "list file"):
        if form == "list file":
            (folder / "data" / "train_list.txt").write_text("\n".join(lines))
        rows = []
        for _ in range(1 + repeats):
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                rows.append(pool.submit(listed, folder / "data").result())
        found |= {
            f"{form}: first time, s": [rows[0][0]],
            f"{form}: later times, s": [row[0] for row in rows[1:]],
            f"{form}: a further process, MiB": [row[1] for row in rows[1:]],
            f"{form}: a worker over an epoch, its own memory, MiB": [row[2][0] for row in rows[1:]],
            f"{form}: the same with the mapped file, MiB": [row[2][1] for row in rows[1:]],
        }
    for name, values in found.items():
        print(f"{name:<60}  {statistics.median(values):8.3g}  ({min(values):.3g} to {max(values):.3g})")
    return found


def train(framework: str, model: str, batch_size: int, size: int, repeats: int) -> dict[str, list[float]]:
    """Milliseconds an update: the engine's, the bare loop's on the same network and batch, and the watched engine's."""
    from doctor.watch.training import Watching
    from mobilenetv3_common.train_config import TrainConfig
    from mobilenetv3_common.train_log import TrainLog

    package = importlib.import_module(f"mobilenetv3_{framework}.train")
    root = str(ROOT / "lite_data")
    config = TrainConfig(
        framework=framework, model=model, data_path=root, batch_size=min(batch_size, 16), crop_size=size, workers=0
    )
    config = replace(config, resize_size=max(size, 256), epochs=10_000)
    run = package.build_run(config, package.Ranks())
    batch, _ = next(package.micro_batches(run))
    clear = run.optimizer.clear_grad if framework == "paddle" else run.optimizer.zero_grad
    run.train_mode()
    watched = package.build_run(config, package.Ranks())
    watched.observer = Watching()
    watched.train_mode()

    def engine(run: Any) -> float:
        start = time.perf_counter()
        package.update(run, [(batch, 0)])
        passed = 1e3 * (time.perf_counter() - start)
        if run.iteration == run.updates_per_epoch:
            run.epoch, run.iteration = run.epoch + 1, 0
        return passed

    def bare() -> float:
        start = time.perf_counter()
        loss = run.criterion(run.model(batch[0]), batch[1])
        loss.backward()
        run.optimizer.step()
        clear()
        float(loss.detach())
        return 1e3 * (time.perf_counter() - start)

    cases: dict[str, Callable[[], float]] = {
        "engine": functools.partial(engine, run),
        "bare loop": bare,
        "engine, watched": functools.partial(engine, watched),
    }
    with watched.observer.observing(watched, TrainLog(None, config.epochs, watched.updates_per_epoch)):
        for case in cases.values():
            case()
        measured = side_by_side({f"{framework} {name}": case for name, case in cases.items()}, repeats)
    return measured


def data_cases(folder: Path, processes: int) -> dict[str, Callable[[], float]]:
    """Pictures a second of decoding alone, and of all that ``tools/doctor.py data`` does, its table included."""
    import contextlib
    import io

    from joblib import Parallel, delayed

    from doctor.cli import main as doctor
    from doctor.data.scan import CHUNK

    names = [str(path) for path in sorted(folder.glob("*/*/*"))]
    chunks = [names[start : start + CHUNK] for start in range(0, len(names), CHUNK)]

    def decoding() -> None:
        Parallel(n_jobs=processes)(delayed(decoded)(chunk) for chunk in chunks)

    def examined() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            doctor(["data", str(folder), "--processes", str(processes)])

    def timed(work: Callable[[], None]) -> float:
        start = time.perf_counter()
        work()
        return len(names) / (time.perf_counter() - start)

    return {"decoding": functools.partial(timed, decoding), "doctor data": functools.partial(timed, examined)}


def decoded(names: list[str]) -> None:
    """Decode pictures to RGB."""
    import numpy as np
    from PIL import Image

    for name in names:
        with Image.open(name) as image:
            np.asarray(image.convert("RGB"))


BATCHES = (1, 8, 32)


def calibrated(folder: Path, model: str) -> str:
    """A file of random weights with calibrated statistics."""
    from alignment.calibration import calibrated_state
    from mobilenetv3_common.weights import write_state

    path = str(folder / "calibrated.safetensors")
    write_state(path, calibrated_state(_project(), model))
    return path


LOAD = """
local requests, sent = {}, 0
function init()
  for path in io.lines("PATHS") do
    local file = io.open(path, "rb")
    requests[#requests + 1] = wrk.format("POST", "/predict", nil, file:read("*a"))
    file:close()
  end
end
function request()
  sent = sent % #requests + 1
  return requests[sent]
end
"""


def service_cases(folder: Path, args: Any) -> dict[str, Callable[[], float]]:
    """Pictures a second of the service and of tools/infer.py, by their commands."""
    wrk = shutil.which("wrk")
    if wrk is None:
        raise UserError("service: needs wrk, which sends the requests: apt install wrk")
    from mobilenetv3_paddle.deploy.export import export
    from mobilenetv3_paddle.deploy.predictor import find_pictures
    from mobilenetv3_paddle.deploy.trained import load_trained

    exported, pictures = folder / "exported", ROOT / "lite_data" / "val"
    export(load_trained(args.pretrained or calibrated(folder, args.model)), exported)
    (folder / "paths").write_text("".join(f"{path}\n" for path in find_pictures([pictures])))
    (folder / "load.lua").write_text(LOAD.replace("PATHS", str(folder / "paths")))

    def load(port: str, seconds: int) -> float:
        command = [wrk, "-t1", "-c32", f"-d{seconds}s", "-s", str(folder / "load.lua"), f"http://127.0.0.1:{port}/"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = re.search(r"Requests/sec: +([0-9.]+)", said)
        if found is None or "Non-2xx" in said or "Socket errors" in said:
            raise RuntimeError(f"the service did not answer every request:\n{said}")
        return float(found[1])

    def service(threads: int) -> float:
        command = [sys.executable, "tools/serve.py", "--model-dir", str(exported), "--port", "0", "--threads", str(threads)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                port = process.stdout.readline().rstrip("/\n").rpartition(":")[2]
                load(port, 1)
                return load(port, args.seconds)
            finally:
                process.terminate()

    def infer(threads: int, batch: int) -> float:
        command = [sys.executable, "tools/infer.py", "--model-dir", str(exported), "--img-path", str(pictures), "--benchmark"]
        command += ["--threads", str(threads), "--batch-size", str(batch), "--warmup", "3", "--repeats", "40"]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        found = re.search(r"pictures/s *: ([0-9.]+)", said)
        assert found is not None, said
        return float(found[1])

    cases: dict[str, Callable[[], float]] = {}
    for threads in sorted({args.threads} if args.threads else {1, len(os.sched_getaffinity(0))}):
        words = f"{threads} engine thread{'s' * (threads > 1)}"
        cases[f"service, {words}"] = functools.partial(service, threads)
        for batch in (1, 8):
            cases[f"infer.py, batch {batch}, {words}"] = functools.partial(infer, threads, batch)
    return cases


def exported_engines(bundle: Any, pictures: Path, threads: int) -> dict[str, Callable[[Any], Any]]:
    """Every engine that is installed, and the one that ``--engine auto`` chooses by these pictures."""
    from mobilenetv3_paddle.deploy.engines import OF_ENGINE, create_engine
    from mobilenetv3_paddle.deploy.fastest import measure
    from mobilenetv3_paddle.deploy.predictor import find_pictures

    titles = {
        "onnxruntime": "ONNX Runtime",
        "openvino": "OpenVINO",
        "onednn": "Paddle Inference, oneDNN",
        "paddle": "Paddle Inference",
    }
    cases: dict[str, Callable[[Any], Any]] = {}
    for engine, precisions in OF_ENGINE.items():
        for precision in precisions:
            name = titles[engine] if len(precisions) == 1 else f"{titles[engine]} {precision}"
            try:
                cases[name] = create_engine(bundle, engine, precision, threads)
            except UserError as error:  # it is not installed, or the processor has no bfloat16
                print(f"{name} is left out: {error.line}\n")
    print(*(one.line() for one in measure(bundle, find_pictures([pictures]))), sep="\n", end="\n\n")
    chosen = f"{bundle.fastest['engine']} {bundle.fastest['precision']}"
    cases[f"--engine auto, here {chosen}"] = create_engine(bundle, "auto", threads=threads)
    return cases


def inference_cases(folder: Path, model: str, pretrained: str | None, threads: int) -> dict[str, Callable[[Any], Any]]:
    """Engine -> a function of pictures, float32 (N, 3, 224, 224); all of the same weights, checked against each other."""
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
    cases |= exported_engines(bundle, lite_data / "val", threads)
    torch.set_num_threads(threads)
    state = as_torch({n: t.numpy() for n, t in trained.layer.state_dict().items()})
    networks = {}
    for name in ("torch eager", "torch channels_last", "torch.compile"):
        network = BUILDERS[trained.model](num_classes=len(trained.classes)).eval()
        missing = network.load_state_dict({n: torch.from_numpy(a.copy()) for n, a in state.items()}, strict=False)
        assert not missing.unexpected_keys and all("num_batches" in key for key in missing.missing_keys)
        networks[name] = network.to(memory_format=torch.channels_last) if name == "torch channels_last" else network

    def run(network: Any, images: Any, last: bool = False) -> Any:
        with torch.inference_mode():
            tensor = torch.from_numpy(images)
            return network(tensor.to(memory_format=torch.channels_last) if last else tensor).numpy()

    cases["torch eager"] = lambda images: run(networks["torch eager"], images)
    cases["torch channels_last"] = lambda images: run(networks["torch channels_last"], images, True)
    compiled = torch.compile(networks["torch.compile"])
    size = trained.preset.crop_size
    probe = np.random.default_rng(0).standard_normal((2, 3, size, size)).astype(np.float32)
    try:
        run(compiled, probe)
        cases["torch.compile"] = lambda images: run(compiled, images)
    except Exception as error:  # it wants a C++ compiler, and not every machine has one
        print(f"torch.compile does not work here: {type(error).__name__}: {str(error).splitlines()[0][:120]}\n")
    truth = cases["torch eager"](probe)
    for name, case in cases.items():
        difference = float(np.linalg.norm(case(probe) - truth) / np.linalg.norm(truth))
        if not difference < (0.5 if "int8" in name else 0.1 if "bf16" in name else 1e-3):
            raise RuntimeError(f"{name} does not compute what torch computes: relative L2 {difference:.1e}")
    return cases


def inference(folder: Path, args: Any) -> dict[str, list[float]]:
    """Milliseconds a picture, as ``engine, batch N``."""
    import numpy as np

    from mobilenetv3_paddle.deploy.timing import settle, warm_up

    threads = args.threads or len(os.sched_getaffinity(0))
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # Paddle dygraph's; the others are told
    cases = inference_cases(folder, args.model, args.pretrained, threads)
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
        print_table(measured, "ms a picture", "torch eager")
        print()
        found |= {f"{name}, batch {batch}": values for name, values in measured.items()}
    return found


def draw_inference(path: str, found: dict[str, list[float]], title: str) -> None:
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


def _project() -> Any:
    """MobileNetV3's alignment project."""
    from alignment.project import load_project

    return load_project(ROOT / "projects" / "mobilenetv3" / "project.py")


def align_cases(model: str) -> dict[str, Callable[[], float]]:
    """Seconds of each alignment step."""
    from alignment.steps import NAMES, run_step
    from alignment.steps.context import Context

    context = Context(_project(), model)

    def seconds(number: int) -> float:
        return run_step(number, context).seconds

    return {f"step {number} {name}": functools.partial(seconds, number) for number, name in NAMES.items()}


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    parser = Parser(description=__doc__)
    parser.add_argument("what", choices=("inference", "service", "loader", "index", "train", "data", "align"))
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="(default: 5)")
    parser.add_argument("--seconds", type=int, default=8, metavar="N", help="service: of each load (default: 8)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="decoding processes (default: 2)")
    parser.add_argument("--pictures", type=int, default=640, metavar="N", help="loader, index, data: files (default: 640)")
    parser.add_argument("--batch-size", type=int, default=16, metavar="N", help="(default: 16)")
    parser.add_argument("--size", type=int, default=0, metavar="N", help="pixels of a side (default: train 224, data 64)")
    parser.add_argument("--model", choices=MODELS, default=MODELS[0], help="architecture")
    parser.add_argument("--pretrained", metavar="FILE", help="inference, service: weights (default: calibrated random ones)")
    parser.add_argument(
        "--threads", type=int, default=0, metavar="N", help="inference, service: of the engines (default: see above)"
    )
    parser.add_argument("--plot", metavar="FILE.png", help="inference: draw the medians here")
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    args = parser.parse_args(argv)
    if args.repeats < 1 or args.seconds < 1 or args.threads < 0 or args.size < 0:
        raise UserError("--repeats and --seconds must be at least 1, --threads and --size 0 or more")
    if args.what == "index" and args.pictures < AT_LEAST:
        raise UserError(f"index: --pictures must be at least {AT_LEAST}, found {args.pictures}: a shorter list is not stored")
    if args.plot and args.what != "inference":
        raise UserError("--plot draws inference alone")
    found: dict[str, list[float]] = {}
    if args.what == "inference":
        with tempfile.TemporaryDirectory() as folder:
            found = inference(Path(folder), args)
        if args.plot:
            draw_inference(args.plot, found, f"{args.model}, {processor_name()}")
    elif args.what == "service":
        with tempfile.TemporaryDirectory() as folder:
            cases = service_cases(Path(folder), args)
            found = side_by_side(cases, args.repeats)
        print_table(found, "pictures/s", next(name for name in cases if name.startswith("infer.py")))
    elif args.what == "align":
        found = side_by_side(align_cases(args.model), args.repeats)
        print_table(found, "s", "step 1 forward")
    elif args.what == "loader":
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        with tempfile.TemporaryDirectory() as folder:
            write_jpegs(Path(folder), args.pictures)
            found = side_by_side(loader_cases(Path(folder), args.pictures, args.workers, args.batch_size), args.repeats)
        print_table(found, "images/s", "torchvision pil")
    elif args.what == "index":
        with tempfile.TemporaryDirectory() as folder:
            found = index(Path(folder), args.pictures, args.repeats)
    elif args.what == "data":
        with tempfile.TemporaryDirectory() as folder:
            write_small(Path(folder), args.pictures, args.size or 64)
            found = side_by_side(data_cases(Path(folder), args.workers), args.repeats)
        print_table(found, "pictures/s", "decoding")
    else:
        for framework in ("ref", "paddle"):
            measured = train(framework, args.model, args.batch_size, args.size or 224, args.repeats)
            print_table(measured, "ms", f"{framework} bare loop")
            found |= measured
    if args.json:
        with atomic_open(args.json, "w") as file:
            json.dump(found, file)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
