"""tools/align.py and the step scripts as a user runs them: output files, exit status, refusals."""

import json
import os
import re
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
import reprod_log
from PIL import Image

from alignment.aligned import _find_line
from alignment.comparisons import NAMES
from alignment.finding import SHARED, Finding
from alignment.flags import parse_steps
from alignment.kinds import Kind
from alignment.models.calibration import calibrated_state
from alignment.record import load_record
from alignment.repair.regions import named_in_source
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import write_state
from mobilenetv3_paddle.train import optimizer
from tests.conftest import LARGE, SMALL, run_command
from tools.align import main


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """Steps 1 to 4 of the small model as ``make align`` runs them, whose steps 5 and 6 test_documented_commands.py looks at."""
    directory = tmp_path_factory.mktemp("result")
    return run_command("tools/align.py", "--steps", "1-4", "--result-dir", directory, timeout=600), directory


def test_all_steps_pass_and_the_table_says_so(whole_run):
    run, directory = whole_run
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stderr == ""
    table = [line for line in run.stdout.splitlines() if line.rstrip().endswith(" passed") and "..." not in line]
    assert [line.split()[1] for line in table] == list(NAMES.values())[:4]
    assert "Passed, as far as steps 1, 2, 3, 4 can tell; the others were not run." in run.stdout
    assert Image.open(directory / "alignment.png").size[0] > 500


def test_the_report_holds_figures_and_evidence(whole_run):
    report = json.loads((whole_run[1] / "alignment.json").read_text())
    assert report["passed"] is True and report["model"] == SMALL and report["first_divergence"] is None
    assert (report["project"], report["port"], report["reference"]) == ("mobilenetv3", "paddle", "torch")
    assert report["rests_on"] == list(NAMES.values())[:4] and report["not_run"] == {}
    assert report["versions"]["paddlepaddle"].startswith("3.")
    steps = {step["name"]: step for step in report["steps"]}
    assert list(steps) == list(NAMES.values())[:4] and [s["step"] for s in report["steps"]] == [1, 2, 3, 4]
    assert set(steps["forward"]["quantities"][0]) == {
        "name", "shape", "mean_abs_diff", "max_abs_diff", "paddle_error", "ref_error", "float64_diff", "flips", "noise",
        "passed", "reason",
    }  # fmt: skip
    for name in ("forward", "loss"):
        exact = [q["float64_diff"] for q in steps[name]["quantities"] if q["float64_diff"] is not None]
        assert len(exact) > 20 and max(exact) < 1e-12, name
    logits = [q for q in steps["forward"]["quantities"] if q["name"].startswith("eval.") and q["name"].endswith("logits")]
    assert max(q["mean_abs_diff"] for q in logits) <= 1e-5
    assert 0.5 < steps["forward"]["evidence"]["logits_std"] < 5
    assert all(q["max_abs_diff"] in (0, None) for q in steps["data"]["quantities"])
    assert 0 < steps["metric"]["evidence"]["top1"] < steps["metric"]["evidence"]["top5"] < 1


def test_the_guides_files_are_there_and_reprod_log_reads_them(whole_run):
    directory = whole_run[1]
    for record in ("data", "forward", "metric", "loss"):
        helper = reprod_log.ReprodDiffHelper()
        sides = [helper.load_info(str(directory / f"{record}_{side}.npy")) for side in ("paddle", "ref")]
        assert sides[0] and sides[0].keys() == sides[1].keys()
        helper.compare_info(*sides)
        for name, array in load_record(directory / f"{record}_ref.npy").items():
            assert array.shape == sides[0][name].shape
    for name in list(NAMES.values())[:4]:
        lines = (directory / "log" / f"{name}_diff.log").read_text().splitlines()
        assert "root INFO: " in lines[0] and "\tmean diff: check passed: True, value: " in lines[1]
        assert lines[-1].endswith("diff check passed")


def test_a_failing_step_exits_1_names_the_place_and_still_writes(tmp_path, monkeypatch, capsys):
    import paddle

    from mobilenetv3_paddle.models import mobilenetv3

    original = mobilenetv3.InvertedResidual.forward
    count = iter(range(10**9))

    def forward(self, x):
        output = original(self, x)
        return output * (1 + 1e-4 * (next(count) % 11 == 6))  # the seventh block: features.7

    monkeypatch.setattr(mobilenetv3.InvertedResidual, "forward", forward)
    assert main(["--steps", "1", "--result-dir", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "FAILED" in out and "first divergence: forward: features.7: " in out
    report = json.loads((tmp_path / "alignment.json").read_text())
    assert report["passed"] is False and report["first_divergence"]["location"] == "features.7"
    assert report["localization"]["seconds"] <= 30
    assert report["localization"]["layers"] and (tmp_path / "report.html").stat().st_size > 20_000
    assert (tmp_path / "log" / "forward_diff.log").read_text().rstrip().endswith("diff check failed")
    assert paddle.get_default_dtype() == "float32"


@pytest.mark.slow
@pytest.mark.weekly  # the pages' commands are these scripts
@pytest.mark.parametrize("number", [3, 4])
def test_the_step_scripts_run_their_step(tmp_path, number):
    name = NAMES[number]
    run = run_command(f"scripts/0{number}_test_{name}.py", "--result-dir", tmp_path)
    assert run.returncode == 0 and f"{number} {name}" in run.stdout
    assert sorted(p.name for p in (tmp_path / "log").iterdir()) == [f"{name}_diff.log"]


@pytest.mark.slow
def test_the_large_model_and_cv2(tmp_path):
    arguments = ["--model", LARGE, "--steps", "3-4", "--image-backend", "cv2", "--result-dir", str(tmp_path)]
    assert main(arguments) == 0
    assert json.loads((tmp_path / "alignment.json").read_text())["model"] == LARGE


@pytest.mark.parametrize(("text", "steps"), [(None, [1, 2, 3, 4, 5, 6]), ("1-3", [1, 2, 3]), ("4", [4]), ("5,1-2", [1, 2, 5])])
def test_steps_are_parsed(text, steps):
    assert parse_steps(text, [1, 2, 3, 4, 5, 6]) == steps


@pytest.mark.parametrize("text", ["", "x", "0", "3-1", "1-9", "1;2", "-1"])
def test_wrong_steps_are_refused(text):
    with pytest.raises(UserError, match="--steps"):
        parse_steps(text, [1, 2, 3, 4, 5, 6])


def truncate(root: Path) -> None:
    path = root / "val" / "cat" / "cat_0.JPEG"
    path.write_bytes(path.read_bytes()[:5000])


BAD_DATA = {
    "missing folder": (lambda root: shutil.rmtree(root), "is not a folder"),
    "empty folder": (lambda root: [shutil.rmtree(root / s) for s in ("train", "val")], "has neither a folder val/"),
    "truncated JPEG": (truncate, "cat_0.JPEG is damaged"),
    "text named .JPEG": (lambda root: (root / "val/cat/cat_0.JPEG").write_text("text"), "cat_0.JPEG is not a picture"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_is_refused_in_one_line_before_anything_is_written(case, lite_folders, tmp_path, capsys):
    breaker, message = BAD_DATA[case]
    breaker(lite_folders)
    result = tmp_path / "result"
    result.mkdir()
    (result / "alignment.json").write_text("precious")
    assert main(["--data-path", str(lite_folders), "--result-dir", str(result), "--steps", "3"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1 and message in captured.err
    assert (result / "alignment.json").read_text() == "precious" and len(list(result.iterdir())) == 1


@pytest.mark.slow
def test_odd_pictures_align(lite_folders, tmp_path):
    """Greyscale, CMYK, RGBA and one-pixel pictures go through every step that sees pictures."""
    for number, (name, mode) in enumerate([("cat", "L"), ("coffee", "CMYK"), ("flower", "RGBA"), ("rocket", "RGB")]):
        path = lite_folders / "val" / name / f"{name}_0.JPEG"
        with Image.open(path) as image:
            changed = image.convert(mode) if number < 3 else Image.new("RGB", (1, 1), (9, 99, 199))
        if mode == "RGBA":
            path.unlink()
            path = path.with_suffix(".png")
        changed.save(path)
    assert main(["--data-path", str(lite_folders), "--result-dir", str(tmp_path / "r"), "--steps", "2"]) == 0


REFUSED = {
    "missing weights": (["--weights", "gone.pth"], "no such weights file: gone.pth"),
    "unknown kind of weights": (["--weights", "README.md"], "unknown kind of weights file"),
    "v2 of the small model": (["--weights", "torchvision-v2"], "published weights of mobilenet_v3_small (those are: torchvision)"),
    "no such model": (
        ["--model", "mobilenet_v4"],
        "unknown model 'mobilenet_v4': use one of mobilenet_v3_small, mobilenet_v3_large",
    ),
    "no GPU": (["--device", "gpu"], "--device gpu: this Paddle finds no GPU"),
    "another device": (["--device", "tpu"], "unknown device 'tpu'"),
    "negative seed": (["--seed", "-1"], "--seed must be 0 or more"),
    "no such step": (["--steps", "7"], "the steps are 1 to 6"),
    "no such fault": (["--inject", "gremlins"], "--inject gremlins: no such fault; --inject list names them"),
    "a mistyped fault": (["--inject", "batchnorm_eps"], "--inject batchnorm_eps: no such fault; did you mean batch_norm_eps"),
    "no such fault to bench": (["--bench-faults", "--inject", "gremlins"], "--inject gremlins: no such fault"),
    "no PaDiff there": (["--bench-faults", "--padiff", "docs"], "docs has no PaDiff"),
    "another model to bench": (["--bench-faults", "--model", "mobilenet_v3_large"], "--model does not go with --bench-faults"),
    "PaDiff without the benchmark": (["--padiff", "docs"], "--padiff goes with --bench-faults"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_are_refused_in_one_line(case, tmp_path, capsys):
    import paddle

    if case == "no GPU" and paddle.device.is_compiled_with_cuda():
        pytest.skip("this Paddle has CUDA")
    arguments, message = REFUSED[case]
    assert main([*arguments, "--result-dir", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1 and message in captured.err
    assert not list(tmp_path.iterdir())


def test_a_fault_is_injected_and_found(tmp_path, capfd):
    assert main(["--inject", "ties_count_as_right", "--steps", "3,4", "--result-dir", str(tmp_path)]) == 1
    out = capfd.readouterr().out
    assert "injected on purpose: ties_count_as_right" in out
    assert "first divergence: metric: top_k_correct: " in out
    assert re.search(r"^  kind: ties_right, see mobilenetv3_paddle/metric/accuracy\.py:\d+\n  next: correct it there", out, re.M)
    report = json.loads((tmp_path / "alignment.json").read_text())
    assert report["localization"]["first"]["kind"] == "ties_right"


@pytest.mark.parametrize(
    ("stage", "place", "line"),
    [
        ("data", "apply_op:Solarize", r"mobilenetv3_paddle/data/transforms\.py:\d+"),  # the shared sampling has such an entry, too
        ("data", "random_erasing_box: erase ratio", r"mobilenetv3_common/sampling\.py:\d+"),  # both sides draw it there
        ("train", "sampling.DropoutStream", r"mobilenetv3_common/sampling\.py:\d+"),
        ("data", "BatchPlan.place", r"mobilenetv3_common/sampling\.py:\d+"),
        ("train", "resume.optimizer", ""),  # shared code has an `optimizer`, of which this does not speak
        ("data", "order", ""),
        ("update", "optimizer.rmsprop", r"mobilenetv3_paddle/train/optimizer\.py:\d+"),
        ("data", "no_such_name", ""),
        ("forward", "features.0", ""),
    ],
)
def test_what_a_finding_names_is_looked_up_in_the_part_that_is_wrong(stage, place, line, context):
    assert re.fullmatch(line, named_in_source(context(), Finding(stage, place, Kind.UNKNOWN, "")))


@pytest.mark.parametrize(
    ("stage", "place", "file"),
    [
        ("backward", "param_groups.rate_factors: decay by depth", "param_groups"),
        ("train", "run.fitted", "run"),  # the port has a function `run`, of which this does not speak
        ("data", "Samples.__getitem__", "samples"),  # and a loader with such a method
    ],
)
def test_the_line_of_a_mistake_in_shared_code_is_one_of_shared_code(stage, place, file, context):
    wrong = Finding(stage, place, Kind.UNKNOWN, "", f"against powers by hand; {SHARED}")
    assert wrong.shared and re.fullmatch(rf"mobilenetv3_common/{file}\.py:\d+", found := named_in_source(context(), wrong)), found
    _find_line(context(), wrong)
    assert wrong.source == found


def test_a_setting_that_is_passed_otherwise_is_found_at_its_line(tmp_path, monkeypatch, context):
    wrong = Finding("update", "optimizer.rmsprop", Kind.MOMENTUM, "momentum and alpha (rho) are swapped")
    file = Path(optimizer.__file__)
    assert (
        named_in_source(context(), wrong) != f"mobilenetv3_paddle/train/optimizer.py:{line_of(file, 'momentum=config.momentum,')}"
    )
    text = file.read_text().replace("alpha=config.alpha,", "alpha=config.momentum,")
    changed = tmp_path / "optimizer.py"
    changed.write_text(text.replace("        momentum=config.momentum,\n", "        momentum=config.alpha,\n"))
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: read(changed if self == file else self))
    line = line_of(changed, "alpha=config.momentum,")
    assert named_in_source(context(), wrong) == f"mobilenetv3_paddle/train/optimizer.py:{line}"


def line_of(file, text):
    return next(number for number, line in enumerate(file.read_text().splitlines(), start=1) if line.strip() == text)


def test_localize_makes_the_table_of_a_sound_port(tmp_path, capsys):
    assert main(["--localize", "--steps", "4", "--result-dir", str(tmp_path)]) == 0
    assert "InvertedResidual" in capsys.readouterr().out
    assert json.loads((tmp_path / "alignment.json").read_text())["localization"]["first"] is None


def test_json_alone_is_on_standard_output_and_in_a_file(tmp_path, capsys):
    """Of a whole project, whether the port is right or broken on purpose in a copy of its source."""
    file, result = tmp_path / "a.json", tmp_path / "result"
    assert main(["--steps", "3", "--json", "--json-file", str(file), "--result-dir", str(result)]) == 0
    streams = capsys.readouterr()
    assert json.loads(streams.out)["passed"] is True and "step 3 metric ... passed" in streams.err
    assert streams.out == file.read_text() == (result / "alignment.json").read_text()
    assert main(["--steps", "3", "--json-file", str(tmp_path / "no" / "a.json"), "--result-dir", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err and not (tmp_path / "none").exists()


@pytest.mark.slow
def test_json_of_an_edited_copy_is_alone_on_standard_output(tmp_path):
    done = run_command("tools/align.py", "--steps", "3", "--inject", "top5_is_top1", "--json", "--result-dir", tmp_path)
    assert done.returncode == 1 and json.loads(done.stdout)["first_divergence"]["location"] == "top_k_correct", done.stderr


@pytest.mark.slow
def test_the_faults_are_listed_and_one_is_benched(tmp_path, capsys):
    assert main(["--inject", "list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) >= 40 and len({line.split()[1] for line in listed}) >= 8
    assert main(["--bench-faults", "--inject", "ties_count_as_right", "--result-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "detected 1 of 1 (100 %), located exactly 1 of 1 (100 %), right hint 1 of 1" in out
    (outcome,) = json.loads((tmp_path / "faults.json").read_text())
    assert outcome["detected"] and outcome["located"] and outcome["hinted"] and outcome["seconds"] > 0
    assert outcome["reprod_log"] == "", "no ties on photographs: the guide's files cannot show it"


@pytest.mark.parametrize(
    ("suffix", "options"),
    [
        pytest.param(".pth", {"num_classes": 10}, marks=[pytest.mark.slow, pytest.mark.weekly]),
        pytest.param(".pdparams", {"width_mult": 0.75}, marks=[pytest.mark.slow, pytest.mark.weekly]),
        pytest.param(".pdparams", {"reduced_tail": True, "num_classes": 12}, marks=pytest.mark.slow),
    ],
)
def test_class_count_and_width_come_from_the_weights(suffix, options, tmp_path, capsys):
    from mobilenetv3_common.weights import as_paddle
    from projects.mobilenetv3.project import PROJECT

    state = calibrated_state(PROJECT, SMALL, size=96, **options)
    file = tmp_path / f"weights{suffix}"
    write_state(file, state if suffix == ".pth" else as_paddle(state))
    assert main(["--weights", str(file), "--result-dir", str(tmp_path / "r"), "--steps", "1,4"]) == 0
    out = capsys.readouterr().out
    assert f"{file} weights" in out and out.count(" passed") >= 4
    assert "2,542,856" not in out


def test_weights_that_do_not_fit_are_refused(tmp_path, small_state, capsys):
    write_state(tmp_path / "cut.safetensors", {k: v for k, v in small_state.items() if not k.startswith("features.5.")})
    assert main(["--weights", str(tmp_path / "cut.safetensors"), "--result-dir", str(tmp_path / "r")]) == 2
    captured = capsys.readouterr().err
    assert "missing keys, first features.5." in captured and "of another width or class count" in captured
    write_state(tmp_path / "other.safetensors", {"fc.weight": np.zeros((3, 4), np.float32)})
    assert main(["--weights", str(tmp_path / "other.safetensors"), "--result-dir", str(tmp_path / "r")]) == 2
    assert "the weights have no classifier.3.weight: are they another model's?" in capsys.readouterr().err


def test_a_directory_without_write_permission_is_refused(tmp_path, capsys):
    if os.geteuid() == 0:  # root may write anywhere; a file in the directory's place is refused alike
        (tmp_path / "locked").write_text("")
    else:
        (tmp_path / "locked").mkdir()
        (tmp_path / "locked").chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert main(["--result-dir", str(tmp_path / "locked"), "--steps", "4"]) == 2
    assert "cannot write in directory" in capsys.readouterr().err


def test_help_answers_without_importing_a_framework():
    code = "import sys; from tools import align\ntry: align.main(['--help'])\nexcept SystemExit: print('paddle' in sys.modules)"
    run = run_command("-c", code)
    assert run.returncode == 0 and "--image-backend" in run.stdout and run.stdout.rstrip().endswith("False")
    assert "usage: python tools/align.py" in run.stdout
