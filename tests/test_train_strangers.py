"""What strangers give a run, and how they end it: each is a right run, or one line that names the thing and the fix."""

import contextlib
import dataclasses
import os
import pty
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import mobilenetv3_paddle.train as ours
import mobilenetv3_ref.train as theirs
from mobilenetv3_common.checkpoint import LATEST, CheckpointFolder, find_checkpoint, read_checkpoint
from mobilenetv3_common.config_file import make_config
from mobilenetv3_common.dataset_index import index_dataset, index_splits
from mobilenetv3_common.errors import UserError, WorkerError
from mobilenetv3_common.loader_workers import delivered
from mobilenetv3_common.run_lock import LOCK, run_lock
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.train_log import TEXT_LOG, TrainLog, read_json_lines
from mobilenetv3_common.training import save
from tests.conftest import ROOT
from tests.test_train_survives import CONFIG_OF, FIGURES, quiet, run_numpy, wait_for  # noqa: F401
from tests.training import QUICK

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


# --- list files ---


def rewrite(data, split, change, end="\n"):
    path = data / f"{split}_list.txt"
    path.write_bytes((end.join(change(path.read_text().splitlines())) + end).encode())


def relabel(change):
    return lambda lines: [f"{line.split()[0]} {change(int(line.split()[1]))}" for line in lines]


@pytest.mark.parametrize(
    ("change", "end"),
    [
        (lambda lines: lines, "\r\n"),
        (lambda lines: [line.replace(" ", "\t") for line in lines], "\n"),
        (lambda lines: [f"  {line.replace(' ', '   ')} " for line in lines], "\n\n"),
        (lambda lines: [f"./{line}" for line in lines], "\n"),
    ],
    ids=["carriage returns", "tabs", "blanks", "dots"],
)
def test_lists_of_other_writers_are_read(lite_copy, change, end):
    plain = index_splits(lite_copy)
    for split in ("train", "val"):
        rewrite(lite_copy, split, change, end)
    for one, other in zip(index_splits(lite_copy), plain, strict=True):
        assert [os.path.normpath(name) for name in one.names] == list(other.names)
        assert list(one.labels) == list(other.labels) and one.classes == other.classes


def test_names_with_blanks_other_scripts_and_whole_paths_are_read(lite_copy):
    (lite_copy / "train" / "cat").rename(lite_copy / "train" / "кот и 猫")
    rewrite(lite_copy, "train", lambda lines: [f"{lite_copy}/{line.replace('train/cat', 'train/кот и 猫')}" for line in lines])
    index = index_splits(lite_copy)[0]
    assert len(index) == 16 and sum("猫" in name for name in index.names) == 2
    assert all(os.path.isfile(index.path(number)) for number in range(16))


TWICE = r"train_list\.txt:17: .*astronaut_0\.JPEG is in line 1 already: remove one"
LISTS = {
    "a picture twice": ("train", lambda lines: [*lines, lines[0]], TWICE),
    "a picture in two classes": ("train", lambda lines: [*lines, f"{lines[0].split()[0]} 5"], TWICE),
    "a picture under two names": ("train", lambda lines: [*lines, f"./train/../{lines[0]}"], TWICE),
    "a picture twice in validation": ("val", lambda lines: [*lines, "", lines[3]], r"val_list\.txt:18: .* is in line 4 already"),
    "a number below 0": ("train", relabel(lambda label: label - 1), r"train_list\.txt:1: expected 'relative/path label'"),
    "numbers with a point": ("train", relabel(float), r"train_list\.txt:1: expected 'relative/path label'"),
    "backslashes": ("train", lambda lines: [x.replace("/", "\\") for x in lines], r"txt:1: .*one with / in place of each"),
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_lists_that_are_mixed_up_are_refused(lite_copy, name):
    split, change, said = LISTS[name]
    rewrite(lite_copy, split, change)
    with pytest.raises(UserError, match=said):
        index_splits(lite_copy)


def test_what_a_switch_allows_of_lists_is_no_error(lite_copy):
    for split in ("train", "val"):
        rewrite(lite_copy, split, lambda lines: [line for line in lines if " 3" not in line])
    assert [len(index) for index in index_splits(lite_copy, num_classes=8)] == [14, 14], "no class is missed in validation alone"
    assert [len(index) for index in index_splits(lite_copy, match="subset")] == [14, 14]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            relabel(lambda label: label + 1),
            r"no picture with label 0, and its last label is 8: count labels from 0, or give --num",
        ),
        (relabel(lambda label: 0), r"train_list\.txt has one class, '0', from which nothing can be learnt"),
    ],
    ids=["counted from 1", "one class"],
)
def test_numbers_that_are_no_classes_are_refused(lite_copy, change, said):
    (lite_copy / "classes.txt").unlink()
    for split in ("train", "val"):
        rewrite(lite_copy, split, change)
    with pytest.raises(UserError, match=said):
        index_splits(lite_copy)
    assert index_splits(lite_copy, num_classes=100)[0].num_classes == 100


def test_another_encoding_and_another_unicode_form_are_named(lite_copy):
    (lite_copy / "train" / "cat").rename(lite_copy / "train" / "ne\u0301")
    rewrite(lite_copy, "train", lambda lines: [line.replace("/cat/", "/n\u00e9/") for line in lines])
    with pytest.raises(UserError, match=r"train_list\.txt:3: no such file, but one whose name is the same in another Unicode form"):
        index_splits(lite_copy)
    path = lite_copy / "train_list.txt"
    path.write_bytes(path.read_text().encode("utf-16"))
    with pytest.raises(UserError, match=r"cannot read .*train_list\.txt: .*: save it as UTF-8"):
        index_splits(lite_copy)


def test_many_names_of_one_hash_are_told_apart_by_themselves(lite_copy, monkeypatch):
    """A hash says where to look; only equal names are one picture."""
    monkeypatch.setattr("mobilenetv3_common.dataset_index.hash", lambda name: 7, raising=False)
    assert len(index_splits(lite_copy)[0]) == 16


# --- class folders ---


def beside(name, of="cat"):
    return lambda data: [shutil.copytree(data / split / of, data / split / name) for split in ("train", "val")]


def moved(split, before, after):
    return lambda data: (data / split / before).rename(data / split / after)


def in_one_more_folder(data):
    for split in ("train", "val"):
        (data / split).rename(data / "away")
        (data / split).mkdir()
        (data / "away").rename(data / split / "images")


def flat(data):
    for path in sorted((data / "val").rglob("*.JPEG")):
        path.rename(data / "val" / path.name)
    for path in list((data / "val").iterdir()):
        if path.is_dir():
            path.rmdir()


FOLDERS = {
    "one name in two forms": (lambda data: (moved("train", "cat", "n\u00e9")(data), moved("train", "flower", "ne\u0301")(data)),
                              r"have one name in two Unicode forms: put the pictures into one of them"),
    "case": (moved("val", "cat", "Cat"), r"lacks class 'cat' .*; 'Cat' and 'cat' differ in case, spaces or Unicode form alone"),
    "a blank": (moved("val", "cat", "cat "), r"'cat ' and 'cat' differ in case"),
    "other forms": (lambda data: (moved("train", "cat", "n\u00e9")(data), moved("val", "cat", "ne\u0301")(data)),
                    r"'ne\\u0301' and 'n\\xe9' differ in case"),
    "one more folder": (in_one_more_folder, r"train has one class, 'images', from which nothing can be learnt"),
    "no folder": (flat, r"val holds pictures, but no class folder: move each into val/CLASS/, or list them .* in val_list\.txt"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_that_are_mixed_up_are_refused(lite_folders, name):
    change, said = FOLDERS[name]
    change(lite_folders)
    with pytest.raises(UserError, match=said):
        index_splits(lite_folders)


def test_files_of_other_programs_and_letters_as_classes_are_no_error(lite_folders):
    expected = list(index_dataset(lite_folders, "train").names)
    for name in ("Thumbs.db", ".DS_Store", "notes.txt"):
        (lite_folders / "train" / "cat" / name).write_bytes(b"x")
        (lite_folders / "train" / name).write_bytes(b"x")
    assert list(index_splits(lite_folders)[0].names) == expected
    for split in ("train", "val"):  # a set of handwritten letters has both
        (lite_folders / split / "cat").rename(lite_folders / split / "a")
        (lite_folders / split / "coffee").rename(lite_folders / split / "A")
    assert {"a", "A"} < set(index_splits(lite_folders)[1].classes)


def test_the_list_of_a_large_split_keeps_what_is_odd_about_it(lite_folders, monkeypatch, tmp_path):
    monkeypatch.setenv("MOBILENETV3_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("mobilenetv3_common.index_cache.AT_LEAST", 1)
    moved("train", "cat", "n\u00e9")(lite_folders)
    moved("train", "flower", "ne\u0301")(lite_folders)
    for path in [lite_folders, *lite_folders.rglob("*")]:
        os.utime(path, (1e9, 1e9))
    for _ in range(2):
        with pytest.raises(UserError, match="one name in two Unicode forms"):
            index_splits(lite_folders)
    assert list((tmp_path / "cache" / "index").iterdir())


# --- recipes ---


def recipe(tmp_path, text):
    (tmp_path / "r.yaml").write_text(text, encoding="utf-8")
    return make_config(TrainConfig, tmp_path / "r.yaml", {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lr: 0.1\nepochs: 3\nlr: 0.5\n", r"r\.yaml:3: lr is set in line 1 already: remove one of the two"),
        ('{"lr": 0.1, "lr": 0.2}', r"r\.yaml:1: lr is set in line 1 already"),
        ("epochs: 010\n", r"r\.yaml:1: YAML reads 010 as no decimal number: write epochs in decimal digits"),
        ("lr: 1\nepochs: 0x10\n", r"r\.yaml:2: YAML reads 0x10 as no decimal"),
        ("epochs: 1:30\n", "reads 1:30 as no decimal"),
        ("lr: 1:30.5\n", "reads 1:30.5 as no decimal"),
        ("epochs: 1e3\n", "epochs must be int, found '1e3'"),
        ("lr:\t0.1\n", "line 1, column 4"),
        ("optimizer:\n  name: sgd\n", "optimizer must be str, found {'name': 'sgd'}"),
        ("optimizer.lr: 1\n", "unknown key 'optimizer.lr'"),
        ("auto_augment: off\n", "auto_augment must be none or str, found False: write it in quotes"),
        ("lr_milestones: 30\n", "found 30: write it in quotes"),
        ("lr_milestones: [30, 60]\n", r"found \[30, 60\]: write '1,2,3'"),
        ("lr: 0.1\n---\nlr: 0.2\n", "is not YAML: expected a single document"),
    ],
)  # fmt: skip
def test_recipes_that_yaml_reads_otherwise_than_they_look_are_refused(tmp_path, text, said):
    with pytest.raises(UserError, match=said):
        recipe(tmp_path, text)


def test_recipes_that_say_it_in_another_way_are_read(tmp_path):
    assert recipe(tmp_path, "lr: 1e-3\nlr_min: 1E-5\n").lr == 1e-3
    assert recipe(tmp_path, "lr: &a 0.25\nlr_min: *a\n").lr_min == 0.25
    assert recipe(tmp_path, "<<: {lr: 0.3}\nepochs: 1_000\n") == TrainConfig(lr=0.3, epochs=1000)
    assert recipe(tmp_path, "\ufefflr: 0.5\r\nresume: none\r\nauto_augment: None\r\n") == TrainConfig(lr=0.5)
    assert recipe(tmp_path, "lr_schedule: multistep\nlr_milestones: 3,6\n").milestones == (3, 6)


def test_a_home_folder_is_meant_wherever_it_is_written(tmp_path, monkeypatch):
    """No shell replaces it behind ``--output-dir=`` or in a recipe."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "r.yaml").write_text("data_path: ~/data\nclass_weights: balanced\n")
    config = make_config(TrainConfig, tmp_path / "r.yaml", {"output_dir": "~/runs", "resume": "auto"})
    assert (config.data_path, config.output_dir, config.resume) == (f"{tmp_path}/data", f"{tmp_path}/runs", "auto")


# --- folders of runs ---


@pytest.mark.usefixtures("quiet")
def test_a_run_whose_latest_checkpoint_is_gone_goes_on_from_the_newest_numbered_one(tmp_path):
    folder = tmp_path / "out"
    assert run_numpy(folder) == 0
    (folder / LATEST).unlink()
    (folder / "update_000000008.safetensors").unlink()
    assert find_checkpoint("auto", folder) == find_checkpoint(str(folder), "elsewhere") == folder / "update_000000004.safetensors"
    assert run_numpy(folder, resume="auto") == 0
    assert read_checkpoint(folder / LATEST).meta["update"] == 8 and not list(folder.glob("earlier_*"))
    assert [entry["update"] for entry in read_json_lines(folder)] == list(range(1, 9))
    for path in folder.glob("*.safetensors"):
        path.unlink()
    assert find_checkpoint("auto", folder) is None
    with pytest.raises(UserError, match=rf"the folder holds no {LATEST}, and no other checkpoint of a run"):
        find_checkpoint(str(folder), "elsewhere")


@pytest.mark.parametrize("package", [ours, theirs])
def test_weights_of_another_width_or_model_are_said_to_be_that(package, tmp_path):
    config = TrainConfig(data_path="lite_data", crop_size=32, resize_size=32, batch_size=4, workers=0, width_mult=0.35)
    save(package.build_run(config, package.Ranks()), CheckpointFolder(tmp_path), best=False)
    for change in ({"width_mult": 0.5}, {"model": "mobilenet_v3_large"}):
        other = dataclasses.replace(config, pretrained=str(tmp_path / LATEST), **change)
        for reset in (False, True):
            with pytest.raises(UserError, match="are they another model's, or of another width") as told:
                package.build_run(dataclasses.replace(other, reset_classifier=reset), package.Ranks())
            assert "is for 8 classes, the model has 8" not in str(told.value)


def test_a_lock_that_another_machine_left_behind_locks_nothing(tmp_path):
    (tmp_path / LOCK).write_text("process 1 on another-machine\n")
    with run_lock(tmp_path):
        assert (tmp_path / LOCK).read_text().startswith(f"process {os.getpid()} on ")
    assert not (tmp_path / LOCK).exists()


RACE = """
import os, sys, time
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.run_lock import run_lock
held = 0
for _ in range(150):
    try:
        with run_lock(sys.argv[1] + "/run"):
            inside = os.open(sys.argv[1] + "/inside", os.O_CREAT | os.O_EXCL)  # raises where another one is inside as well
            held += 1
            os.unlink(sys.argv[1] + "/inside")
            os.close(inside)
    except UserError:
        time.sleep(0.0003)
assert held, "never"
"""


def test_of_runs_that_begin_in_one_folder_at_one_instant_one_has_it(tmp_path):
    racers = [subprocess.Popen([sys.executable, "-c", RACE, tmp_path], cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in "abcd"]
    told = [racer.communicate(timeout=60)[1] for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 4, told


@pytest.mark.parametrize("ending", [False, True])
def test_scalars_that_cannot_be_written_at_the_end_are_one_line(tmp_path, ending, capsys):
    """TensorBoard's writer holds its points back until it is closed."""

    class Full:
        def add_scalar(self, *point):
            pass

        def close(self):
            raise OSError(28, "No space left on device")

    log = TrainLog(tmp_path, 1, 4)
    log._writers[:] = [Full()]
    with pytest.raises(UserError, match=r"train\.csv") if ending else contextlib.nullcontext(), contextlib.closing(log):
        if ending:
            os.symlink("/dev/full", tmp_path / "train.csv")
        log.train(0, 1, 1, FIGURES)
    told = capsys.readouterr().err
    assert told == (
        "" if ending else f"warning: {tmp_path}/{{tensorboardx,visualdl}} lacks the last points: No space left on device\n"
    )


# --- terminals ---

ON_NUMPY = """
import os, sys, time
from mobilenetv3_common import train_log, training
from mobilenetv3_common.errors import exit_on_user_error
from mobilenetv3_common.train_config import TrainConfig
from tests import numpy_backend
train_log.SCALARS = {}
step = numpy_backend.apply_update
def slow(*args):
    time.sleep(0.05)
    return step(*args)
numpy_backend.apply_update = slow
config = TrainConfig("numpy", data_path="lite_data", crop_size=16, resize_size=16, batch_size=4, workers=0, lr=0.01, print_every=1,
                     output_dir=sys.argv[1], epochs=int(sys.argv[2]))
sys.exit(exit_on_user_error(training.train)(numpy_backend, config))
"""


def in_a_terminal(folder, epochs, **options):
    """A run whose controlling terminal the test holds: the process, and the test's end of it."""
    pid, mine = pty.fork()
    if pid == 0:
        # Whatever the tests themselves run under.
        signal.signal(signal.SIGHUP, signal.SIG_IGN if options.get("ignore") else signal.SIG_DFL)
        os.chdir(ROOT)
        os.execve(sys.executable, [sys.executable, "-c", ON_NUMPY, str(folder), str(epochs)], ENVIRONMENT)
    return pid, mine


def shown(terminal):
    """What a terminal has shown since the last look; a program waits where nobody looks."""
    with contextlib.suppress(BlockingIOError):
        os.set_blocking(terminal, False)
        return os.read(terminal, 1 << 16)
    return b""


def text_log(folder):
    return (folder / TEXT_LOG).read_text() if (folder / TEXT_LOG).exists() else ""


@pytest.mark.parametrize("ignored", [False, True], ids=["closed", "closed, but nohup"])
def test_a_closed_terminal_saves_first_and_one_that_nobody_needs_costs_nothing(tmp_path, ignored):
    pid, mine = in_a_terminal(tmp_path, 400 if not ignored else 4, ignore=ignored)
    wait_for(lambda: shown(mine) is not None and text_log(tmp_path).count("iter") > 2)
    os.close(mine)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    meta = read_checkpoint(tmp_path / LATEST).meta
    if ignored:
        assert status == 0 and meta["update"] == 16
        assert "nobody reads the standard output any more: the run goes on" in text_log(tmp_path)
    else:
        assert status == 128 + signal.SIGHUP and 2 < meta["update"] < 1600
        assert f"stopped by signal 1 at update {meta['update']}; go on with --resume auto" in text_log(tmp_path)


def test_a_reader_of_the_output_that_ends_costs_no_run(tmp_path):
    run = subprocess.Popen(
        [sys.executable, "-c", ON_NUMPY, tmp_path, "4"], cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert b"16 training" in run.stdout.readline()
    run.stdout.close()
    assert run.wait(60) == 0 and run.stderr.read() == b""
    assert len(read_json_lines(tmp_path)) == 16 and text_log(tmp_path).count("iter") == 16
    assert text_log(tmp_path).count("nobody reads the standard output") == 1


AT_IMPORT = """
import builtins, os, runpy, signal, sys
real, module = builtins.__import__, sys.argv[1]
def watched(name, *args, **options):
    if name == module:
        os.kill(os.getpid(), signal.SIGINT)
    return real(name, *args, **options)
builtins.__import__ = watched
place, sys.argv = sys.argv[2], [sys.argv[2], *sys.argv[3:]]
runpy.run_path(place, run_name="__main__")
"""


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("mobilenetv3_common.config_file", ("tools/train.py", "--data-path", "lite_data")),
        ("paddle.base", ("tools/train.py", "--data-path", "lite_data")),
        pytest.param("torch._C", ("tools/train.py", "--data-path", "lite_data", "--framework", "ref"), marks=pytest.mark.slow),
        pytest.param("paddle.base", ("tools/predict.py", "--img-path", "lite_data"), marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_while_a_command_is_imported_is_one_line(module, command):
    run = subprocess.run(
        [sys.executable, "-c", AT_IMPORT, module, *command], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr, run.stdout) == (130, "stopped by Ctrl-C\n", "")


def test_another_program_keeps_its_own_ctrl_c():
    told = "import signal; from tools import train; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert subprocess.run([sys.executable, "-c", told], cwd=ROOT, env=ENVIRONMENT, capture_output=True).stdout == b"True\n"


# --- loader workers ---


@pytest.mark.slow
@pytest.mark.parametrize("package", ["paddle", "ref"])
def test_a_loader_worker_that_is_killed_is_one_line(package, tmp_path):
    """As the system does where memory runs out."""
    kill = "import os, signal, sys\nfrom mobilenetv3_common.samples import Samples\n"
    kill += (
        "Samples._picture = lambda *args: os.kill(os.getpid(), signal.SIGKILL)\nfrom tools.train import main\nsys.exit(main())\n"
    )
    flags = [*QUICK, "--workers", "1", "--framework", package, "--output-dir", str(tmp_path / "out")]
    run = subprocess.run(
        [sys.executable, "-c", kill, *flags], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
    )
    last = run.stderr.splitlines()[-1]
    assert run.returncode == 2 and "Traceback" not in run.stderr and len(run.stderr.splitlines()) == 1, run.stderr
    assert last.startswith("error: a loader worker has ended, perhaps because memory") and "--resume auto" in last


@pytest.mark.slow
@pytest.mark.parametrize("package", ["paddle", "ref"])
@pytest.mark.parametrize(("size", "workers"), [("64k", 2), ("300k", 1), ("1500k", 2)], ids=["none", "little", "some"])
def test_shared_memory_that_cannot_be_had_is_one_line(package, size, workers, tmp_path):
    """With 64 kB and two workers the queue of the second cannot be made: Paddle's process stayed for ever."""
    flags = [
        *QUICK,
        "--workers",
        str(workers),
        "--batch-size",
        "8",
        "--crop-size",
        "128",
        "--resize-size",
        "128",
        "--framework",
        package,
    ]
    command = f'mount -t tmpfs -o size={size} tmpfs /dev/shm || exit 99; exec "$@"'
    run = subprocess.run(
        ["unshare", "-m", "bash", "-c", command, "bash", sys.executable, "tools/train.py", *flags, "--output-dir", str(tmp_path)],
        cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if run.returncode in (1, 99) and "error:" not in run.stderr and "Traceback" not in run.stderr:
        pytest.skip("no right to make a /dev/shm of its own")
    assert run.returncode == 2 and len(run.stderr.splitlines()) == 1, run.stderr
    assert run.stderr.startswith("error: the loader's workers get no shared memory") and "--shm-size" in run.stderr


def test_other_errors_of_a_loader_are_raised_as_they_are():
    def loader(error):
        yield 1
        raise error

    for error in (RuntimeError("shapes differ"), OSError(2, "No such file", "x"), UserError("a line"), KeyError("x")):
        batches = delivered(loader(error))
        assert next(batches) == 1
        with pytest.raises(type(error)) as told:
            next(batches)
        assert told.value is error
    with pytest.raises(WorkerError):
        list(delivered(loader(RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed."))))


def test_pictures_of_every_kind_train(lite_folders, tmp_path, monkeypatch, quiet):  # noqa: F811
    from PIL import Image

    paths = sorted((lite_folders / "train").rglob("*.JPEG"))
    Image.open(paths[0]).convert("CMYK").save(paths[0], "JPEG")
    Image.open(paths[1]).save(paths[1], "PNG")  # the name says otherwise
    palette = Image.open(paths[2]).convert("P")
    palette.save(paths[2].with_suffix(".png"), transparency=3)
    Image.new("RGB", (1, 1)).save(paths[3], "JPEG")
    Image.new("LA", (3, 900)).save(paths[4].with_suffix(".png"))
    for path in (paths[2], paths[4]):
        path.unlink()
    assert run_numpy(tmp_path / "out", data_path=str(lite_folders)) == 0
    assert all(np.isfinite(entry["loss"]) for entry in read_json_lines(tmp_path / "out"))
    paths[5].write_bytes(b"")
    with pytest.raises(UserError, match=rf"{paths[5].name} is not a picture"):
        run_numpy(tmp_path / "again", data_path=str(lite_folders))
