"""Decoding, indexing and loading beyond what step 2 compares: odd pictures, bad input, workers, ranks."""

import ast
import gc
import io
import os
import threading
import time

import numpy as np
import pytest
from PIL import Image

import mobilenetv3_paddle.data as ours
import mobilenetv3_ref.data as theirs
from mobilenetv3_common.dataset_index import index_dataset, usable
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.sampling import BatchPlan, SampleKey
from tests.conftest import LITE_DATA, run_command

PHOTO = LITE_DATA / "val" / "cat" / "cat_0.JPEG"


def save(image: Image.Image, path, **options):
    image.save(path, "PNG" if path.suffix == ".png" else "JPEG", **options)
    return path


@pytest.mark.parametrize("backend", ["pil", "cv2"])
@pytest.mark.parametrize("mode", ["L", "CMYK", "RGBA", "P", "1"])
def test_every_colour_mode_becomes_rgb(tmp_path, mode, backend):
    with Image.open(PHOTO) as photo:
        path = save(photo.convert(mode), tmp_path / ("x.JPEG" if mode in ("L", "CMYK") else "x.png"))
    image = decode_image(path, backend)
    assert image.mode == "RGB" and image.size == Image.open(PHOTO).size
    if mode == "L":
        red, green, blue = np.asarray(image).transpose(2, 0, 1)
        assert (red == green).all() and (green == blue).all()
    for package, preset in ((ours, EvalPreset()), (theirs, EvalPreset())):
        assert tuple(package.eval_transform(image, preset).shape) == (3, 224, 224)


def test_backends_agree_on_a_photograph():
    pil, cv2 = (np.asarray(decode_image(PHOTO, backend), dtype=int) for backend in ("pil", "cv2"))
    # Both are RGB: swapped channels would differ by tens of levels. Decoders may round a level or two apart.
    assert np.abs(pil - cv2).mean() < 1 < np.abs(pil - cv2[..., ::-1]).mean()


def test_cv2_ignores_the_orientation_tag_as_pillow_does(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    with Image.open(PHOTO) as photo:
        path = save(photo, tmp_path / "turned.JPEG", exif=exif)
    assert decode_image(path, "cv2").size == decode_image(path, "pil").size == Image.open(PHOTO).size


@pytest.mark.parametrize("backend", ["pil", "cv2"])
def test_one_pixel_works(tmp_path, backend):
    image = decode_image(save(Image.new("RGB", (1, 1), (200, 100, 50)), tmp_path / "dot.JPEG"), backend)
    key = SampleKey(0, 0, 0)
    from mobilenetv3_common.sampling import sample_params

    params = sample_params(TrainPreset(), 0, key, 1, 1)
    for package in (ours, theirs):
        assert tuple(package.eval_transform(image, EvalPreset()).shape) == (3, 224, 224)
        assert tuple(package.train_transform(image, TrainPreset(), params).shape) == (3, 224, 224)


@pytest.mark.parametrize("backend", ["pil", "cv2"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda photo: photo[: len(photo) // 2], "damaged"),
        (lambda photo: photo[:-2], "damaged"),
        (lambda photo: b"this is no picture\n" * 50, "not a picture"),
        (lambda photo: b"", "not a picture"),
    ],
)
def test_damaged_pictures_are_named(tmp_path, content, message, backend):
    path = tmp_path / "bad.JPEG"
    path.write_bytes(content(PHOTO.read_bytes()))
    with pytest.raises(UserError, match=rf"bad\.JPEG.*{message}"):
        decode_image(path, backend)


EPOCH = """
import sys
from pathlib import Path

import {package}.data as package
from mobilenetv3_common.dataset_index import index_dataset
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.sampling import BatchPlan

index = index_dataset(Path(sys.argv[1]), "val")
loader = package.build_loader(package.ImageDataset(index, EvalPreset()), BatchPlan(len(index), 4), num_workers=2)
seen = 0
try:
    for batch in loader:
        seen += 1
except UserError as error:
    print(repr((error.line, seen)))
"""


@pytest.mark.parametrize("package", ["mobilenetv3_paddle", "mobilenetv3_ref"])
def test_a_worker_names_the_damaged_picture(lite_folders, package):
    """In a process of its own: an epoch that ends in the middle leaves threads behind, and workers that are forked while one
    of them holds a lock of Paddle's wait for that lock for ever."""
    last = sorted((lite_folders / "val").glob("*/*"))[-1]
    last.write_text("no picture")
    line, batches_before = ast.literal_eval(run_command("-c", EPOCH.format(package=package), lite_folders).stdout)
    assert line.endswith(f"{last.name} is not a picture (JPEG, PNG, WebP, BMP, GIF or TIFF): remove it or replace it")
    assert batches_before == 3, "good batches are used first"
    assert "\n" not in line and "Traceback" not in line


class Freed:
    """Garbage of the training process that only the collector frees; whoever frees it leaves a file."""

    def __init__(self, folder):
        self.folder, self.myself = folder, self

    def __del__(self):
        (self.folder / str(os.getpid())).touch()


class Collecting:
    """A dataset whose workers collect garbage with every sample."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __getattr__(self, name):
        return getattr(self.dataset, name)

    def __getitem__(self, key):
        gc.collect()
        return self.dataset[key]


@pytest.mark.parametrize("package", [ours, theirs], ids=["paddle", "torch"])
def test_workers_do_not_free_what_the_training_process_has(tmp_path, package):
    """Paddle takes a lock to free a tensor, and a fork copies a lock that is held: the worker would wait for ever."""
    index = index_dataset(LITE_DATA, "val")
    loader = package.build_loader(Collecting(package.ImageDataset(index, EvalPreset())), BatchPlan(len(index), 8), 1)
    gc.collect()
    gc.disable()  # nothing frees it here before the workers are forked
    try:
        Freed(tmp_path)
        assert len(list(loader)) == 2
    finally:
        gc.enable()
    assert not list(tmp_path.iterdir())
    gc.collect()
    assert [file.name for file in tmp_path.iterdir()] == [str(os.getpid())]


def batches(package, preset, workers=0, backend="pil", mix_group=None, **plan):
    index = index_dataset(LITE_DATA, "train")
    dataset = package.ImageDataset(index, preset, 5, backend)
    loader = package.build_loader(dataset, BatchPlan(len(index), seed=5, shuffle=True, **plan), workers, mix_group)
    return [[np.asarray(tensor) for tensor in batch] for batch in loader]


@pytest.mark.parametrize("package", [ours, theirs])
@pytest.mark.parametrize("backend", ["pil", "cv2"])
@pytest.mark.parametrize(
    "preset",
    [
        TrainPreset(auto_augment="ta_wide", random_erase_prob=0.5, mixup_alpha=0.2),
        TrainPreset(auto_augment="ta_wide", random_erase_prob=0.5),
        TrainPreset(auto_augment="ta_wide", mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6)),
        EvalPreset(std=(0.4, 0.5, 0.6)),
        EvalPreset(tta="flip"),
    ],
    ids=["mixed", "erased", "plain", "evaluation", "views"],
)
def test_workers_change_nothing(package, backend, preset):
    alone, helped = (batches(package, preset, workers, backend, batch_size=4) for workers in (0, 2))
    for a, b in zip(alone, helped, strict=True):
        assert all((x == y).all() for x, y in zip(a, b, strict=True))


def test_ranks_change_nothing_even_with_mixing():
    preset = TrainPreset(mixup_alpha=0.2, cutmix_alpha=1.0)
    single = batches(ours, preset, batch_size=8, mix_group=4)
    ranks = [batches(ours, preset, batch_size=4, mix_group=4, rank=r, world_size=2) for r in range(2)]
    for step, (a, b) in enumerate(zip(*ranks, strict=True)):
        for whole, left, right in zip(single[step], a, b, strict=True):
            assert (whole == np.concatenate([left, right])).all()


def test_both_layouts_list_the_same(lite_copy, lite_folders):
    lists, folders = index_dataset(LITE_DATA, "val"), index_dataset(lite_folders, "val")
    assert (lists.names, lists.labels) == (folders.names, folders.labels)
    assert folders.classes[1] == "cat" and folders.classes == lists.classes and folders.num_classes == 8


def test_list_files_name_their_classes_in_classes_txt(lite_copy):
    (lite_copy / "classes.txt").unlink()
    assert index_dataset(lite_copy, "val").classes == tuple("01234567")
    (lite_copy / "classes.txt").write_text("astronaut\ncat\n")
    with pytest.raises(UserError, match=r"classes.txt names 2 classes, but a list has label 7"):
        index_dataset(lite_copy, "val")


def damage(name, text):
    return lambda root: (root / name).write_text(text)


def remove_pictures(root):
    for path in (root / "val" / "cat").iterdir():
        path.unlink()


def remove_folder(root):
    import shutil

    shutil.rmtree(root / "val")
    (root / "val").mkdir()


@pytest.mark.parametrize(
    ("breaker", "message"),
    [
        (damage("val_list.txt", "val/cat/cat_0.JPEG one\n"), r"val_list.txt:1: expected 'relative/path label'"),
        (damage("val_list.txt", "val/cat/cat_0.JPEG -1\n"), r"val_list.txt:1: expected"),
        (damage("val_list.txt", "val/cat/cat_0.JPEG\n"), r"val_list.txt:1: expected"),
        (damage("val_list.txt", "\nval/cat/gone.JPEG 1\n"), r"val_list.txt:2: no such file .*gone.JPEG"),
        (damage("val_list.txt", "\n"), "lists no picture"),
    ],
)
def test_bad_lists_are_refused(lite_copy, breaker, message):
    breaker(lite_copy)
    with pytest.raises(UserError, match=message):
        index_dataset(lite_copy, "val")


@pytest.mark.parametrize(("breaker", "message"), [(remove_pictures, "no picture"), (remove_folder, "holds no class folder")])
def test_bad_folders_are_refused(lite_folders, breaker, message):
    breaker(lite_folders)
    with pytest.raises(UserError, match=message):
        usable(index_dataset(lite_folders, "val"), strict=True)


def test_missing_data_and_labels_outside_the_model_are_refused(tmp_path):
    with pytest.raises(UserError, match="not a folder"):
        index_dataset(tmp_path / "gone", "val")
    with pytest.raises(UserError, match="neither a folder val/ nor a file"):
        index_dataset(tmp_path, "val")
    with pytest.raises(UserError, match="label 5, but the model has 5 classes"):
        index_dataset(LITE_DATA, "val", num_classes=5)


def test_opencv_is_quiet_in_workers():
    """Threads inside forked workers can deadlock."""
    code = (
        "import cv2, mobilenetv3_paddle.data as d; from mobilenetv3_common.dataset_index import index_dataset;"
        "from mobilenetv3_common.presets import EvalPreset; from mobilenetv3_common.sampling import BatchPlan;"
        "i = index_dataset('lite_data', 'val'); d.build_loader(d.ImageDataset(i, EvalPreset(), 0, 'cv2'), BatchPlan(len(i), 4));"
        "print('threads', cv2.getNumThreads(), cv2.ocl.useOpenCL())"
    )
    assert "threads 1 False" in run_command("-c", code).stdout


def test_lite_data_matches_its_manifest_and_can_be_made_anew(tmp_path, lite_copy):
    made = run_command("tools/prepare_lite_data.py", "--output-dir", tmp_path / "new")
    assert made.returncode == 0, made.stderr
    names = sorted(p.relative_to(LITE_DATA) for p in LITE_DATA.rglob("*") if p.is_file())
    assert names == sorted(p.relative_to(tmp_path / "new") for p in (tmp_path / "new").rglob("*") if p.is_file())
    for name in names:
        if name.suffix == ".JPEG":
            old, new = (Image.open(root / name) for root in (LITE_DATA, tmp_path / "new"))
            assert old.size == new.size and min(old.size) >= 224
            assert np.abs(np.asarray(old, int) - np.asarray(new, int)).mean() < 2
    assert len([name for name in names if name.suffix == ".JPEG"]) == 32
    (lite_copy / "train" / "cat" / "cat_0.JPEG").write_bytes(io.BytesIO(b"x").getvalue())
    spoilt = run_command("tools/prepare_lite_data.py", "--check", "--output-dir", lite_copy)
    assert spoilt.returncode == 2 and "cat_0.JPEG differs from its SHA-256" in spoilt.stderr


def test_a_loop_without_workers_that_ends_early_leaves_no_thread():
    """Paddle's thread that reads would wait for room in its queue as long as the process lives, and keep what it has read."""
    index = index_dataset(LITE_DATA, "val")
    dataset = ours.ImageDataset(index, EvalPreset(36, 32), 0)
    before = threading.active_count()
    for _ in range(3):
        batches = iter(ours.build_loader(dataset, BatchPlan(len(index), 1, 0, shuffle=False)))
        next(batches)
        batches.close()
    until = time.monotonic() + 20
    while threading.active_count() > before:
        assert time.monotonic() < until, threading.enumerate()
        time.sleep(0.05)
    whole = ours.build_loader(dataset, BatchPlan(len(index), 4, 0, shuffle=False))
    assert [number for _, _, numbers in whole for number in numbers.numpy().tolist()] == list(range(len(index)))
