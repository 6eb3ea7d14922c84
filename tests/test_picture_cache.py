"""Pictures that are kept decoded are the decoder's; pictures decoded in part are those of a smaller file."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import mobilenetv3_paddle.data as ours
import mobilenetv3_ref.data as theirs
from mobilenetv3_common import training
from mobilenetv3_common.checkpoint import LATEST, read_checkpoint
from mobilenetv3_common.dataset_index import index_dataset
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import decode_image, decode_pixels
from mobilenetv3_common.picture_cache import DATA, TABLE, PictureCache
from mobilenetv3_common.picture_format import Rules
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_common.sampling import BatchPlan, RunPlan
from mobilenetv3_common.train_config import TrainConfig
from tests import numpy_backend
from tests.conftest import LITE_DATA, ROOT
from tests.test_train_survives import CONFIG_OF, Unheard

ALL = 10**9


@pytest.mark.parametrize(
    ("package", "backend", "workers"), [(ours, "pil", 0), (ours, "cv2", 2), (theirs, "cv2", 0), (theirs, "pil", 2)]
)
def test_a_run_with_kept_pictures_is_the_run_without(package, backend, workers, tmp_path, monkeypatch):
    index = index_dataset(LITE_DATA, "train")

    def loaded(cache):
        dataset = package.ImageDataset(index, TrainPreset(crop_size=48, auto_augment="ra"), 3, backend)
        dataset.cache = cache
        loader = package.build_loader(dataset, RunPlan(BatchPlan(len(index), 4, 3, True, True), 3), workers)
        return [np.asarray(tensor) for batch in loader for tensor in batch]

    plain = loaded(None)
    for limit in (ALL, 2_000_000):  # the second holds some of them
        kept = loaded(PictureCache(tmp_path / str(limit), "x", len(index), limit))
        assert all(np.array_equal(one, other) for one, other in zip(plain, kept, strict=True))
        assert 500_000 < os.path.getsize(tmp_path / str(limit) / DATA) <= limit
    cache = PictureCache(tmp_path / str(ALL), "x", len(index), ALL)
    assert all(cache.get(number, index.path(number)) is not None for number in range(16))
    if workers == 0:  # nothing is decoded any more
        monkeypatch.setattr(package.ImageDataset, "decode", None)
        assert all(np.array_equal(one, other) for one, other in zip(plain, loaded(cache), strict=True))


def test_the_setting_reaches_a_run_and_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "StopRequest", Unheard)
    for name, more in (("plain", {}), ("kept", {"picture_cache": str(tmp_path / "c"), "picture_cache_gb": 0.005})):
        config = dataclasses.replace(CONFIG_OF, output_dir=str(tmp_path / name), **more)
        assert training.train(numpy_backend, config) == 0
    assert 0 < (tmp_path / "c" / DATA).stat().st_size <= 5_000_000
    one, other = (read_checkpoint(tmp_path / name / LATEST) for name in ("plain", "kept"))
    assert all(np.array_equal(one.arrays[name], other.arrays[name]) for name in one.arrays)


def kept(folder, path, pixels, content="x", limit=ALL):
    cache = PictureCache(folder, content, 4, limit)
    cache.put(2, path, pixels)
    return cache


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "a.png"
    Image.new("RGB", (5, 4), (1, 2, 3)).save(path)
    return path


def test_what_is_not_the_picture_is_not_given(picture, tmp_path):
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    cache = kept(tmp_path / "c", picture, pixels)
    assert (cache.get(2, picture) == pixels).all() and cache.get(1, picture) is None
    assert cache.get(2, tmp_path / "gone.png") is None
    for name, place in ((DATA, 7), (TABLE, 64 + 2 * 48), (TABLE, 64 + 2 * 48 + 17), (TABLE, 64 + 2 * 48 + 40)):
        whole = bytearray((tmp_path / "c" / name).read_bytes())
        for damage in (lambda data, at: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], lambda data, at: data[:at]):
            (tmp_path / "c" / name).write_bytes(damage(bytes(whole), place))
            assert cache.get(2, picture) is None, (name, place)
        (tmp_path / "c" / name).write_bytes(whole)
        assert (cache.get(2, picture) == pixels).all()
    Image.new("RGB", (5, 4)).save(picture)
    assert cache.get(2, picture) is None, "the file is another one"
    cache.put(2, picture, pixels + 1)
    assert (cache.get(2, picture) == pixels + 1).all()


def test_no_more_bytes_are_kept_than_asked(picture, tmp_path):
    pixels = np.ones((4, 5, 3), dtype=np.uint8)
    cache = PictureCache(tmp_path / "c", "x", 4, 150)
    for number in range(4):
        cache.put(number, picture, pixels)
    assert [cache.get(number, picture) is not None for number in range(4)] == [True, True, False, False]
    assert (tmp_path / "c" / DATA).stat().st_size == 120


def test_another_content_empties_the_folder_unless_it_is_in_use(picture, tmp_path):
    pixels = np.ones((4, 5, 3), dtype=np.uint8)
    cache = kept(tmp_path / "c", picture, pixels)
    for other in ({"content": "y"}, {"limit": 10**6}):
        with pytest.raises(UserError, match=r"in use by a run with other pictures.*give another folder"):
            kept(tmp_path / "c", picture, pixels, **other)
    assert PictureCache(tmp_path / "c", "x", 4, ALL).get(2, picture) is not None, "ranks share it"
    del cache
    assert PictureCache(tmp_path / "c", "y", 4, ALL).get(2, picture) is None
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot keep pictures in .*give another --picture-cache"):
        PictureCache(tmp_path / "file" / "c", "x", 4, ALL)


def test_a_full_disk_is_one_warning(picture, tmp_path):
    code = (
        "import numpy as np, resource, signal, sys; from mobilenetv3_common.picture_cache import PictureCache as C\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); c = C(sys.argv[2], 'x', 9, 10**9)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "for n in range(9): c.put(n, sys.argv[1], np.ones((10, 10, 3), np.uint8))\n"
        "print([c.get(n, sys.argv[1]) is not None for n in range(9)].count(True))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, picture, tmp_path / "c"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.stdout == "3\n" and run.stderr.count("\n") == 1 and "warning: no more pictures are kept" in run.stderr, run.stderr


@pytest.mark.parametrize("decoder", [lambda path, rules: np.asarray(decode_image(path, "pil", rules)), decode_pixels])
@pytest.mark.parametrize(("size", "by"), [((160, 120), 1), ((257, 150), 2), ((256, 256), 4), ((625, 513), 8), ((75, 225), 1)])
def test_large_jpegs_are_decoded_in_part(decoder, size, by, tmp_path):
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 255, (3, 4, 3), dtype=np.uint8)).resize(size, Image.Resampling.BICUBIC)
    image.save(tmp_path / "x.jpg", quality=95)
    rules = Rules(reduce_to=64)
    assert rules.reduction(*size) == by
    found, whole = decoder(tmp_path / "x.jpg", rules), decoder(tmp_path / "x.jpg", Rules())
    assert whole.shape == (size[1], size[0], 3) and found.shape == (-(-size[1] // by), -(-size[0] // by), 3)
    smaller = np.asarray(Image.fromarray(whole).resize(found.shape[1::-1], Image.Resampling.BOX), dtype=int)
    assert np.abs(smaller - found).mean() < 4, "the same picture"
    image.save(tmp_path / "x.png")
    assert decoder(tmp_path / "x.png", rules).shape == whole.shape, "JPEG alone"


@pytest.mark.parametrize("package", [ours, theirs])
def test_reduced_decoding_is_for_training_and_off_by_default(package, tmp_path):
    assert TrainConfig().train_preset.reduce_to is None
    config = TrainConfig(reduced_decoding=True, resize_size=64, crop_size=32)
    (tmp_path / "train" / "a").mkdir(parents=True)
    Image.open(LITE_DATA / "train/cat/cat_0.JPEG").resize((300, 200)).save(tmp_path / "train" / "a" / "x.jpg")
    index = index_dataset(tmp_path, "train")
    sizes = {}
    for name, preset in (("train", config.train_preset), ("off", TrainConfig().train_preset), ("eval", config.eval_preset)):
        sizes[name] = package.ImageDataset(index, preset).decode(index.path(0)).size
    assert sizes == {"train": (150, 100), "off": (300, 200), "eval": (300, 200)}
