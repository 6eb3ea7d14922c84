"""tools/doctor.py data: each check finds what was planted, and none finds anything in sound data."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alignment_doctor.cli import main
from alignment_doctor.data import checks, scan
from alignment_doctor.data.checks.classes import CIFAR10
from alignment_doctor.data.command import measured
from alignment_doctor.data.manifest import read as read_manifest
from alignment_doctor.data.measure import GOOD, ROW, measure_files
from alignment_doctor.data.near import pairs, recognisable
from alignment_doctor.data.subject import DataSubject, Expected
from alignment_doctor.findings import Finding, Verdict, checks_of, examine
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.digits import write_digits
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import decode_image
from tests.conftest import LITE_DATA, run_command

PICTURE = "train/cat/cat_0.JPEG"


def findings(folder, **expected):
    return {one.check.id: one.outcome for one in examine(checks, measured(str(folder), Expected(**expected)))}


def problems(folder, **expected):
    """Check -> its places, of the checks that find something."""
    return {id: outcome.where for id, outcome in findings(folder, **expected).items() if outcome.verdict is Verdict.FOUND}


def reencoded(path, **options):
    with Image.open(path) as picture:
        held = io.BytesIO()
        picture.convert("RGB").save(held, "JPEG", **options)
    return held.getvalue()


# --- sound data -----------------------------------------------------------------------------------------------------------


def test_sound_data_has_no_problem(lite_folders, tmp_path):
    assert problems(lite_folders, crop_size=224) == {}
    assert problems(LITE_DATA, crop_size=64) == {}
    assert problems(write_digits(tmp_path / "digits"), crop_size=32) == {}


def test_every_check_says_something_of_itself():
    ids = [one.id for one in checks_of(checks)]
    assert len(ids) == len(set(ids)) >= 17
    for one in checks_of(checks):
        assert one.items and one.measures and one.fix and one.id.startswith("data.")


# --- planted problems -----------------------------------------------------------------------------------------------------


def not_a_picture(folder):
    (folder / PICTURE).write_text("<html>404</html>")


def empty(folder):
    (folder / PICTURE).write_bytes(b"")


def truncated(folder):
    data = (folder / PICTURE).read_bytes()
    (folder / PICTURE).write_bytes(data[: len(data) // 2])


def constant(folder):
    Image.new("RGB", (300, 260), (127, 127, 127)).save(folder / PICTURE)


def not_finite(folder):
    levels = np.random.default_rng(0).uniform(0, 255, (300, 260)).astype(np.float32)
    levels[5, 7] = np.nan
    Image.fromarray(levels).save(folder / "train/cat/deep.tiff")


def sixteen_bits(folder):
    levels = np.random.default_rng(0).integers(0, 65535, (300, 260), dtype=np.uint16)
    Image.fromarray(levels).save(folder / "train/cat/deep.png")


def banner(folder):
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 600, 3), dtype=np.uint8)).save(folder / "train/cat/banner.png")


def thumbnail(folder):
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8)).save(folder / "train/cat/small.png")


def copied(folder):
    shutil.copy(folder / PICTURE, folder / "train/cat/again.JPEG")


def coded_again(folder):
    (folder / "train/cat/again.jpg").write_bytes(reencoded(folder / PICTURE, quality=60))


def in_both(folder):
    shutil.copy(folder / PICTURE, folder / "val/cat/new.JPEG")


def in_both_coded_again(folder):
    (folder / "val/cat/new.JPEG").write_bytes(reencoded(folder / PICTURE, quality=60))


def two_labels(folder):
    shutil.copy(folder / PICTURE, folder / "train/coffee/new.JPEG")


def two_labels_coded_again(folder):
    (folder / "train/coffee/new.jpg").write_bytes(reencoded(folder / PICTURE, quality=60))


def class_gone(folder):
    shutil.rmtree(folder / "val/astronaut")


def class_added(folder):
    shutil.copytree(folder / "val/cat", folder / "val/zebra")
    for path in (folder / "val/zebra").iterdir():
        with Image.open(path) as picture:
            picture.convert("RGB").transpose(Image.Transpose.ROTATE_180).save(path)


def gap_in_labels(folder):
    lines = [line for line in (LITE_DATA / "train_list.txt").read_text().splitlines() if not line.endswith(" 3")]
    (folder / "train_list.txt").write_text("\n".join(lines))


def rare(folder):
    rng = np.random.default_rng(0)
    for number in range(30):
        pixels = np.kron(rng.integers(0, 255, (10, 10, 3), dtype=np.uint8), np.ones((26, 26, 1), np.uint8))
        Image.fromarray(pixels).save(folder / f"train/cat/more_{number}.png")


def animation(folder):
    (folder / "train/cat/moving.gif").write_bytes(b"GIF89a")


def beside_the_classes(folder):
    shutil.copy(folder / PICTURE, folder / "train/loose.JPEG")


def not_a_class(folder):
    (folder / "train/.ipynb_checkpoints").mkdir()
    shutil.copy(folder / PICTURE, folder / "train/.ipynb_checkpoints/cat_0-checkpoint.JPEG")


def two_spellings(folder):
    (folder / "train/Cat").mkdir()
    shutil.move(folder / "train/cat/cat_1.JPEG", folder / "train/Cat/cat_1.JPEG")


def mirrored_in_both(folder):
    with Image.open(folder / PICTURE) as picture:
        picture.convert("RGB").transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(folder / "val/cat/new.png")


def turned_by_a_tag(folder):
    with Image.open(folder / PICTURE) as picture:
        tags = picture.getexif()
        tags[274] = 6
        picture.convert("RGB").save(folder / PICTURE, exif=tags)


def other_labels_in_validation(folder):
    lines = [line.rsplit(" ", 1) for line in (LITE_DATA / "val_list.txt").read_text().splitlines()]
    (folder / "val_list.txt").write_text("".join(f"{name} {(int(label) + 1) % 8}\n" for name, label in lines))
    shutil.copy(LITE_DATA / "train_list.txt", folder)


NOT_SEEN = (other_labels_in_validation,)  # a mistake of the planted list that no check of the data finds
CAT = (PICTURE,)
PLANTED = [
    (not_a_picture, "data.unreadable", CAT),
    (empty, "data.truncated", CAT),
    (truncated, "data.truncated", CAT),
    (constant, "data.constant", CAT),
    (not_finite, "data.not_finite", ("deep.tiff",)),
    (sixteen_bits, "data.depth", ("deep.png",)),
    (turned_by_a_tag, "data.orientation", CAT),
    (banner, "data.size", ("banner.png",)),
    (thumbnail, "data.size", ("small.png",)),
    (copied, "data.duplicates", (PICTURE, "again.JPEG")),
    (coded_again, "data.near_duplicates", (PICTURE, "again.jpg")),
    (in_both, "data.leak", (PICTURE, "val/cat/new.JPEG")),
    (in_both_coded_again, "data.leak", (PICTURE, "val/cat/new.JPEG")),
    (two_labels, "data.contradictory", (PICTURE, "train/coffee/new.JPEG")),
    (two_labels_coded_again, "data.contradictory", (PICTURE, "train/coffee/new.jpg")),
    (not_a_class, "data.folders", ("train: .ipynb_checkpoints is no class",)),
    (two_spellings, "data.folders", ("train: Cat and cat are one class",)),
    (mirrored_in_both, "data.leak", (PICTURE, "val/cat/new.png", "mirrored")),
    (class_gone, "data.class_numbers", ("cat: 1 in train, 0 in val",)),
    (class_added, "data.class_numbers", ("zebra",)),
    (gap_in_labels, "data.empty_classes", ("train: class flower",)),
    (rare, "data.imbalance", ("astronaut: 2 pictures",)),
    (animation, "data.ignored", ("moving.gif",)),
    (beside_the_classes, "data.ignored", ("loose.JPEG",)),
]
ALSO = {  # what else is true of the planted thing
    not_finite: {"data.depth"},
    class_added: {"data.empty_classes"},
    not_a_class: {"data.class_numbers", "data.duplicates", "data.contradictory"},
    two_spellings: {"data.class_numbers"},
    two_labels: {"data.duplicates"},
    two_labels_coded_again: {"data.near_duplicates"},
}


@pytest.mark.parametrize(("plant", "id", "said"), PLANTED, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_problem_is_found_and_nothing_else(lite_folders, plant, id, said):
    plant(lite_folders)
    found = problems(lite_folders, crop_size=224)
    assert all(any(text in place for place in found[id]) for text in said), found
    assert set(found) - ALSO.get(plant, set()) == {id}


def test_a_tag_that_turns_few_pictures_or_none_is_no_problem(lite_folders, monkeypatch):
    with Image.open(lite_folders / PICTURE) as picture:
        tags = picture.getexif()
        tags[274] = 1  # upright
        picture.convert("RGB").save(lite_folders / PICTURE, exif=tags)
    assert problems(lite_folders) == {}
    turned_by_a_tag(lite_folders)
    monkeypatch.setattr("alignment_doctor.data.checks.files.TURNED", 0.1)  # as of a data set of many pictures
    assert problems(lite_folders) == {}


def test_normalisation_in_another_unit_is_found():
    given = {"mean": (123.675, 116.28, 103.53), "std": (58.395, 57.12, 57.375)}
    assert set(problems(LITE_DATA, **given)) == {"data.normalisation"}
    swapped = {"mean": (0.229, 0.224, 0.225), "std": (0.0485, 0.0456, 0.0406)}
    assert set(problems(LITE_DATA, **swapped)) == {"data.normalisation"}


def test_one_picture_of_another_size_is_found(tmp_path):
    folder = write_digits(tmp_path / "digits", train_per_class=10, val_per_class=2)
    first = next((folder / "train/digit_0").iterdir())
    with Image.open(first) as picture:
        picture.resize((28, 32)).save(first)
    assert problems(folder) == {"data.size": (f"train/digit_0/{first.name}: 28 x 32, the others 32 x 32",)}


def counted(classes, train, val):
    """A data set of which only the counts are looked at."""
    indices = {}
    for split, each in (("train", train), ("val", val)):
        labels = tuple(label for label, count in enumerate(each) for _ in range(count))
        indices[split] = DatasetIndex(Path("x"), tuple(f"{split}/{n}" for n in range(len(labels))), labels, tuple(sorted(classes)))
    return DataSubject(Path("x"), indices, np.zeros(sum(map(len, indices.values())), ROW), {})


def test_counts_are_held_against_the_published_ones():
    (check,) = [one for one in checks_of(checks) if one.id == "data.published"]
    assert check.run(counted(CIFAR10, [5000] * 10, [1000] * 10)).verdict is Verdict.NONE
    short = Finding(check, check.run(counted(CIFAR10, [4999] + [5000] * 9, [1000] * 10))).outcome
    assert short.verdict is Verdict.FOUND
    assert "train: class airplane has 4999 pictures, published 5000" in short.where
    wordnet = [f"n{number:08d}" for number in range(1000)]
    each = [1300] * 895 + [732] + [1115] * 104  # 1,281,167 is checked by its own line
    found = check.run(counted(wordnet, each, [50] * 999 + [49]))
    assert "val: class n00000999 has 49 pictures, published 50" in found.where
    assert check.run(counted(["a", "b"], [3, 3], [1, 1])).verdict is Verdict.NOT_APPLICABLE


# --- manifest, subset, continuation ---------------------------------------------------------------------------------------


def test_a_manifest_names_what_differs_from_another_copy(lite_copy, tmp_path, capsys):
    manifest = str(tmp_path / "manifest.txt")
    assert main(["data", str(lite_copy), "--write-manifest", manifest, "--processes", "1"]) == 0
    again = ["data", str(lite_copy), "--compare-manifest", manifest, "--processes", "1"]
    assert main(again) == 0
    assert "32 pictures agree in content, label and order" in " ".join(capsys.readouterr().out.split())

    lists = (lite_copy / "train_list.txt").read_text().splitlines()
    (lite_copy / "train_list.txt").write_text("\n".join([lists[1], lists[0], *lists[2:]]))
    assert main(again) == 1
    assert "train train/astronaut/astronaut_1.JPEG: the order differs" in capsys.readouterr().out

    (lite_copy / "train_list.txt").write_text("\n".join([lists[0][:-1] + "5", *lists[1:-1]]))
    (lite_copy / PICTURE).write_bytes(reencoded(lite_copy / PICTURE, quality=90))
    assert main(again) == 1
    printed = capsys.readouterr().out
    for text in ("rocket_1.JPEG: missing here", "cat_0.JPEG: other content", "astronaut_0.JPEG: label 5, 0 in the manifest"):
        assert text in printed


def test_names_that_do_not_print_are_escaped_and_nothing_else_than_a_file_is_written_over(lite_folders, tmp_path, capsys):
    for name in (b"broken\xff\n.JPEG", b"whole\xff\n.JPEG"):
        with open(os.path.join(os.fsencode(lite_folders), b"train", b"cat", name), "wb") as file:
            file.write((lite_folders / PICTURE).read_bytes()[: None if name.startswith(b"whole") else 99])
    page, manifest, pipe = tmp_path / "d.html", tmp_path / "m.txt", tmp_path / "pipe"
    flags = ["--processes", "1", "--html", str(page), "--json", str(tmp_path / "d.json"), "--scan", str(tmp_path / "d.scan")]
    assert main(["data", str(lite_folders), *flags, "--write-manifest", str(manifest)]) == 1
    assert "train/cat/broken\\xff\\n.JPEG is damaged" in capsys.readouterr().out
    assert "broken\\xff\\n.JPEG" in page.read_text() and "whole\\xff\\n.JPEG" in manifest.read_text()
    assert "data.manifest" not in problems(lite_folders, manifest=read_manifest(manifest))
    assert main(["data", str(lite_folders), "--subset", "99", "--subset-dir", str(tmp_path / "small")]) == 2
    assert "a list file cannot hold such a name" in capsys.readouterr().err
    os.mkfifo(pipe)
    for flag, said in (
        ("--json", "is a pipe or a device"),
        ("--write-manifest", "a pipe or a device"),
        ("--compare-manifest", "no such"),
    ):
        assert main(["data", str(lite_folders), "--processes", "1", flag, str(pipe)]) == 2
        assert said in capsys.readouterr().err
    assert pipe.is_fifo()


def test_a_subset_is_a_small_data_set_of_all_classes(lite_folders, tmp_path):
    (lite_folders / "train/cat/broken.JPEG").write_bytes(b"no")
    target = tmp_path / "subset"
    flags = ["data", str(lite_folders), "--subset", "8", "--subset-dir", str(target), "--processes", "1"]
    assert main(flags) == 1  # the broken picture, which is not copied
    small = measured(str(target), Expected())
    assert {split: len(index) for split, index in small.indices.items()} == {"train": 8, "val": 8}
    assert (
        small.indices["train"].classes
        == small.indices["val"].classes
        == tuple(sorted(p.name for p in (LITE_DATA / "train").iterdir()))
    )
    assert sorted(small.indices["train"].labels) == list(range(8)) and small.good.all()
    assert small.class_name(0) == Path(small.names[0]).parent.name
    assert main(flags) == 2, "never written over"


def test_an_interrupted_scan_goes_on(lite_copy, tmp_path, monkeypatch):
    kept = tmp_path / "kept.sqlite"
    names = sorted(str(path.relative_to(lite_copy)) for path in lite_copy.rglob("*.JPEG"))
    (lite_copy / names[3]).write_bytes(b"broken")
    monkeypatch.setattr(scan, "CHUNK", 4)
    measured_names = []

    def stopping(root, chunk):
        if len(measured_names) >= 12:
            raise KeyboardInterrupt
        measured_names.extend(chunk)
        return measure_files(root, chunk)

    monkeypatch.setattr(scan, "measure_files", stopping)
    with pytest.raises(UserError, match="same command goes on") as stopped:
        scan.scan(lite_copy, names, 1, kept)
    assert stopped.value.status == 130 and len(measured_names) == 12

    monkeypatch.setattr(scan, "measure_files", lambda root, chunk: measured_names.extend(chunk) or measure_files(root, chunk))
    rows, errors = scan.scan(lite_copy, names, 1, kept)
    assert sorted(measured_names) == names, "each picture once"
    whole, wrong = measure_files(lite_copy, names)
    assert np.array_equal(rows, whole) and errors == wrong and list(errors) == [3]

    changed = names[7]
    os.utime(lite_copy / changed, ns=(1, 1))
    measured_names.clear()
    scan.scan(lite_copy, names, 1, kept)
    assert measured_names == [changed]


def test_several_processes_measure_what_one_measures():
    names = sorted(str(path.relative_to(LITE_DATA)) for path in LITE_DATA.rglob("*.JPEG"))
    one, _ = scan.scan(LITE_DATA, names, 1)
    assert np.array_equal(one, scan.scan(LITE_DATA, names, 2)[0]) and len(one) == 32


@pytest.mark.slow
def test_a_cluster_of_two_workers_measures_what_one_process_does(lite_folders, tmp_path, capsys):
    """Dask's own scheduler and workers, on this machine; it is no dependency of the project."""
    cluster = pytest.importorskip("distributed", reason="needs Dask's distributed").LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, protocol="tcp"
    )
    (lite_folders / PICTURE).write_bytes(b"broken")
    with cluster:
        flags = ["data", str(lite_folders), "--dask", cluster.scheduler_address, "--scan", str(tmp_path / "kept")]
        assert main([*flags, "--json", str(tmp_path / "d.json")]) == 1
        assert main(flags) == 1, "all of it is kept"
    alone = measured(str(lite_folders), Expected())
    names = sorted(set(alone.names))
    with scan.Kept(tmp_path / "kept") as kept:
        rows = np.frombuffer(b"".join(kept.known[name][0] for name in names), ROW)
    assert np.array_equal(rows, alone.rows[[alone.names.index(name) for name in names]])
    told = {one["id"]: one["where"] for one in json.loads((tmp_path / "d.json").read_text())["checks"] if one["where"]}
    assert list(told) == ["data.unreadable"] and PICTURE in told["data.unreadable"][0]
    capsys.readouterr()


def test_a_cluster_that_cannot_be_used_is_one_line_and_status_2(lite_folders, capsys, monkeypatch):
    monkeypatch.setattr(scan, "ANSWER", 0.2)
    assert main(["data", str(lite_folders), "--dask", "tcp://127.0.0.1:9"]) == 2
    said = capsys.readouterr().err
    assert "no scheduler of Dask answers there" in said or "--dask needs joblib and Dask's distributed" in said
    assert said.count("\n") == 1


def test_what_the_doctor_can_decode_is_what_training_can(lite_folders):
    damages = {"cut.JPEG": lambda data: data[:-4000], "half.JPEG": lambda data: data[:100], "text.JPEG": lambda _: b"text"}
    whole = (lite_folders / PICTURE).read_bytes()
    for name, damage in {"whole.JPEG": lambda data: data, **damages}.items():
        (lite_folders / name).write_bytes(damage(whole))
        rows, _ = measure_files(lite_folders, [name])
        try:
            decode_image(lite_folders / name)
            assert rows["state"][0] == GOOD
        except UserError:
            assert rows["state"][0] != GOOD, name


def test_near_pictures_are_those_that_a_full_comparison_finds():
    rng = np.random.default_rng(0)
    thumbs = rng.integers(0, 255, (400, 16, 16)).astype(np.uint8)
    thumbs[300:] = np.clip(thumbs[:100].astype(int) + rng.integers(-2, 3, (100, 16, 16)), 0, 255)
    thumbs[399] = 7  # empty, and so no picture's double
    among = recognisable(thumbs, np.arange(400))
    assert among.samples.tolist() == list(range(399))
    np.testing.assert_allclose(among.contrast, thumbs[:399].reshape(399, -1).std(1), rtol=1e-6)
    found = pairs(thumbs, among, 0.07)
    assert set(zip(found.first.tolist(), found.second.tolist(), strict=True)) == {(n, n + 300) for n in range(99)}
    assert found.complete and len(pairs(thumbs, among, 0.0).first) == 0


# --- the command ----------------------------------------------------------------------------------------------------------


def test_the_command_prints_a_table_and_writes_page_and_json(lite_folders, tmp_path):
    truncated(lite_folders)
    page, figures = tmp_path / "data.html", tmp_path / "data.json"
    run = run_command("tools/doctor.py", "data", lite_folders, "--html", page, "--json", figures, "--framework", "ref")
    assert run.returncode == 1, run.stderr
    assert f"{PICTURE} is damaged or cut short" in run.stdout and "what to do: copy the file again" in run.stdout
    written = json.loads(figures.read_text())
    assert written["problems"] == 1 and written["facts"]["per_class"]["train"]["cat"] == 2
    text = page.read_text()
    assert text.count('src="data:image/jpeg;base64,') == 2 * 15 and "training transforms of ref" in text
    assert "http://" not in text and "https://" not in text and "<script" not in text


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["data", "nowhere"], "data path nowhere is not a folder"),
        (["data", "docs"], "has neither train/ nor val/"),
        (["data", "lite_data", "--mean", "1,2"], "--mean must be three numbers"),
        (["data", "lite_data", "--std", "0,0,0"], "--std must be above 0"),
        (["data", "lite_data", "--compare-manifest", "README.md"], "README.md is not a manifest"),
        (["data", "lite_data", "--scan", "README.md"], "--scan README.md cannot be used"),
        (["data", "lite_data", "--subset", "3"], "--subset N and --subset-dir DIR belong together"),
        (["data", "lite_data", "--html", "nowhere/x.html"], "there is no folder nowhere"),
        (["data", "lite_data", "--processes", "0"], "--processes must be at least 1"),
        (["data", "lite_data", "--near", "2"], "--near must be from 0 to below 1"),
        (["data"], "the following arguments are required: DIR"),
        (["look"], "'look' is neither the folder of a run nor a command: use one of run, data, weights"),
    ],
)
def test_bad_input_is_one_line_and_status_2(flags, said, capsys, monkeypatch):
    monkeypatch.chdir(LITE_DATA.parent)
    assert main(flags) == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1 and not printed.out
