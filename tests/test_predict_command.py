"""tools/predict.py as a user runs it: names, JSON, annotated pictures, refusals, and a cold start without torch."""

from __future__ import annotations

import json
import re
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mobilenetv3_common.class_names import class_names
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.preprocess import eval_transform
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.weights import as_paddle, write_state
from mobilenetv3_paddle.deploy.annotate import annotated
from mobilenetv3_paddle.deploy.predictor import Prediction, Predictor, find_pictures, softmax, top_k
from tests.conftest import ROOT, run_command

CAT = ROOT / "lite_data/val/cat/cat_0.JPEG"


@pytest.fixture(scope="module")
def weights(small_state, tmp_path_factory):
    """The small model at half width, 1000 classes, as .pdparams and .safetensors."""
    folder = tmp_path_factory.mktemp("weights")
    write_state(folder / "small.pdparams", as_paddle(small_state))
    write_state(folder / "small.safetensors", small_state)
    return folder


def predict(*args, **options):
    return run_command("tools/predict.py", *args, **options)


def test_one_picture_as_a_table_and_as_json(weights):
    flags = ("--img-path", CAT, "--pretrained", weights / "small.pdparams", "--width-mult", "0.5")
    run = predict(*flags, "--topk", "3")
    assert run.returncode == 0 and run.stderr == "", run.stderr
    lines = run.stdout.splitlines()
    assert lines[0] == str(CAT) and len(lines) == 4
    names = class_names(1000)
    shares = [float(line.split(" %")[0]) for line in lines[1:]]
    assert shares == sorted(shares, reverse=True) and all(line.split("%  ")[1] in names for line in lines[1:])
    run = predict(*flags, "--topk", "1000", "--json")
    (row,) = json.loads(run.stdout)
    assert abs(sum(p["probability"] for p in row["predictions"]) - 1) < 1e-9
    assert row["predictions"][0]["name"] == lines[1].split("%  ")[1]


def test_a_folder_in_batches_and_annotated_pictures(weights, tmp_path):
    flags = (
        "--img-path",
        ROOT / "lite_data/val",
        CAT,
        "--pretrained",
        weights / "small.safetensors",
        "--width-mult",
        "0.5",
        "--json",
    )
    whole = predict(*flags, "--save-dir", tmp_path / "seen")
    single = predict(*flags, "--batch-size", "1")
    assert whole.returncode == single.returncode == 0, whole.stderr
    a, b = json.loads(whole.stdout), json.loads(single.stdout)
    assert len(a) == 17 and [r["picture"] for r in a] == [r["picture"] for r in b]
    for one, other in zip(a, b, strict=True):
        assert [p["index"] for p in one["predictions"]] == [p["index"] for p in other["predictions"]]
        assert one["predictions"][0]["probability"] == pytest.approx(other["predictions"][0]["probability"], abs=1e-5)
    pictures = sorted((tmp_path / "seen").iterdir())
    assert len(pictures) == 17
    with Image.open(pictures[0]) as picture:
        assert picture.height == 360 and picture.width > 500


def test_cold_start_takes_three_seconds_at_most_and_never_imports_torch(weights):
    """Processor time, since other tests share the cores; docs/benchmarks.md has the wall time."""
    code = (
        "import sys; sys.path.insert(0, 'tools'); import predict; status = predict.main(sys.argv[1:]); "
        "assert 'torch' not in sys.modules; sys.exit(status)"
    )
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = run_command("-c", code, "--img-path", CAT, "--pretrained", weights / "small.pdparams", "--width-mult", "0.5")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert run.returncode == 0, run.stderr
    assert min(times) < 3, times


def test_a_photograph_is_turned_upright_unless_told_not_to(weights, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera stood on its side: the picture is turned by 90 degrees when it is shown
    with Image.open(CAT) as photo:
        photo.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.png", exif=exif)
        photo.save(tmp_path / "upright.png")
        photo.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "lying.png")
    flags = ("--pretrained", weights / "small.safetensors", "--width-mult", "0.5", "--json", "--img-path", tmp_path)

    def found(*more):
        rows = json.loads(predict(*flags, *more).stdout)
        return {Path(row["picture"]).stem: row["predictions"] for row in rows}

    turned, left = found(), found("--no-exif-orientation")
    assert turned["turned"] == turned["upright"] != turned["lying"]
    assert left["turned"] == left["lying"] == turned["lying"]


def test_a_damaged_picture_is_named_and_the_others_are_predicted(weights, tmp_path):
    shutil.copy(CAT, tmp_path / "a.jpg")
    (tmp_path / "b.jpg").write_bytes(CAT.read_bytes()[:4000])
    (tmp_path / "c.jpg").write_text("no picture")
    shutil.copy(CAT, tmp_path / "d.jpg")
    run = predict("--img-path", tmp_path, "--pretrained", weights / "small.pdparams", "--width-mult", "0.5", "--json")
    assert run.returncode == 2
    assert [r["picture"].rsplit("/", 1)[1] for r in json.loads(run.stdout)] == ["a.jpg", "d.jpg"]
    assert re.search(r"b\.jpg is damaged", run.stderr) and "c.jpg is not a picture" in run.stderr
    assert run.stderr.count("\n") == 2


REFUSED = {
    "no such picture": (["--img-path", "gone.jpg", "--pretrained", "README.md"], "no such picture or folder: gone.jpg"),
    "no picture in it": (["--img-path", "docs/examples", "--pretrained", "README.md"], "docs/examples has no pictures"),
    "no such weights": (["--img-path", str(CAT), "--pretrained", "gone.pdparams"], "no such weights file: gone.pdparams"),
    "no weights": (["--img-path", str(CAT), "--pretrained", "README.md"], "unknown kind of weights file"),
    "no flag": (["--pretrained", "README.md"], "the following arguments are required: --img-path"),
    "unknown flag": (["--img-path", str(CAT), "--pretrained", "x", "--top", "5"], "unrecognized arguments"),
    "no class": (["--img-path", str(CAT), "--pretrained", "x.pth", "--topk", "0"], "--topk must be at least 1, found 0"),
}


def test_files_are_predicted_in_batches_as_they_come_and_the_unusable_are_told(tmp_path):
    sizes, bad = [], []

    def engine(batch):
        sizes.append(len(batch))
        return batch.mean(axis=(2, 3))

    paths = []
    for number in range(5):
        paths.append(tmp_path / f"{number}.png")
        Image.new("RGB", (40, 40), ["red", "green", "blue"][number % 3]).save(paths[-1])
    paths[3].write_bytes(b"no picture")
    predictor = Predictor(engine, EvalPreset(32, 32), ("red", "green", "blue"))
    found = predictor.predict_files(paths, 2, 1, lambda error: bad.append(error.line))
    assert sizes == [] and next(found)[0] == paths[0] and sizes == [2], "the first batch alone so far"
    rest = list(found)
    assert [(path, one.name) for path, (one,) in rest] == [(paths[1], "green"), (paths[2], "blue"), (paths[4], "green")]
    assert sizes == [2, 1, 1] and len(bad) == 1 and str(paths[3]) in bad[0]
    assert len(predictor.times) == 3


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_one_line(case):
    arguments, message = REFUSED[case]
    run = predict(*arguments)
    assert run.returncode == 2 and run.stdout == ""
    assert run.stderr.startswith("error: ") and run.stderr.count("\n") == 1 and message in run.stderr


def test_weights_of_another_width_are_refused(weights):
    run = predict("--img-path", CAT, "--pretrained", weights / "small.pdparams", "--width-mult", "0.75")
    assert run.returncode == 2 and "of another width or class count" in run.stderr and run.stderr.count("\n") == 1


def test_class_names_of_a_file_must_fit(tmp_path):
    (tmp_path / "names.txt").write_text("cat\n\ndog\n")
    assert class_names(2, tmp_path / "names.txt") == ("cat", "dog")
    with pytest.raises(UserError, match="has 2 class names, but the model has 3 classes"):
        class_names(3, tmp_path / "names.txt")
    assert class_names(1000)[281] == "tabby" and class_names(7) == tuple("0123456")


def test_top_k_and_softmax():
    probabilities = softmax(np.array([[0.0, 1.0, 1.0], [1e4, 0.0, -1e4]], np.float32))
    assert np.allclose(probabilities.sum(1), 1) and probabilities[1, 0] == 1
    assert [p.index for p in top_k(probabilities, "abc", 2)[0]] == [1, 2], "of equals the smaller number"
    draw = np.random.default_rng(0)
    for k in (0, 1, 2, 5, 6, 9):
        for rows in (draw.random((4, 6)), draw.integers(0, 3, (4, 6)) / 2, np.zeros((0, 6))):
            order = np.argsort(-rows, axis=1, kind="stable")[:, :k]
            expected = [[(i, "abcdef"[i], row[i]) for i in best] for row, best in zip(rows, order, strict=True)]
            assert [[(p.index, p.name, p.probability) for p in row] for row in top_k(rows, "abcdef", k)] == expected
    with pytest.raises(UserError, match="not finite"):
        softmax(np.array([[np.nan, 0.0]]))


def test_find_pictures_keeps_the_order_of_what_is_named(tmp_path):
    for name in ("b.png", "a.jpg", "text.txt"):
        (tmp_path / name).write_bytes(b"x")
    assert [p.name for p in find_pictures([tmp_path, tmp_path / "b.png"])] == ["a.jpg", "b.png", "b.png"]


def test_an_annotated_picture_shows_bars_as_long_as_its_probabilities():
    found = [Prediction(0, "a very long class name that does not fit into the panel beside it", 0.75), Prediction(1, "b", 0.25)]
    picture = np.asarray(annotated(Image.new("RGB", (300, 200), "black"), found))
    blue = (picture == (9, 105, 218)).all(-1).any(0).sum()
    grey = (picture == (140, 149, 159)).all(-1).any(0).sum()
    assert 2.8 < blue / grey < 3.2


def test_the_shared_preprocessing_is_torchvisions():
    """The same pixels to the last bit, in every size that rounds differently."""
    from mobilenetv3_ref.data import eval_transform as reference

    image = decode_image(CAT)
    for size in ((301, 200), (200, 301), (256, 256), (257, 256), (40, 1000), (1, 1), (224, 225)):
        for preset in (EvalPreset(), EvalPreset(225, 224), EvalPreset(97, 64)):
            picture = image.resize(size)
            assert np.array_equal(eval_transform(picture, preset), reference(picture, preset).numpy()), (size, preset)
