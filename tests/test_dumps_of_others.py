"""Dumps that other tools wrote: sound pairs pass, a planted mistake is placed at its module, damaged files are one line.

The archives were written by the real tools (``dumps_of_others/make.py``). What msProbe writes for MindSpore stands here, written
after its documentation.
"""

from __future__ import annotations

import json
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from alignment.cli import main
from alignment.dumps.others.differing import apart
from alignment.dumps.others.printed import figure, numbers
from alignment.dumps.others.recording import Dumped, Figure

HERE = Path(__file__).parent / "dumps_of_others"
TOOLS = ("transformers", "transformers_repr", "msprobe", "msprobe_statistics", "padiff", "npy")


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    """The archives, unpacked."""
    made = tmp_path_factory.mktemp("others")
    for tool in TOOLS:
        with zipfile.ZipFile(HERE / f"{tool}.zip") as archive:
            archive.extractall(made / tool)
    return made


def audited(port, reference, place, *flags):
    """Exit status and alignment.json; none where nothing was written."""
    report = place / "report"
    given = ("--port-dump", str(port), "--reference-dump", str(reference), "--report", str(report))
    status = main(["audit", *given, *flags])
    return status, json.loads((report / "alignment.json").read_text()) if (report / "alignment.json").exists() else None


def one_line(capsys, *words):
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and all(word in said[0] for word in words), said


@pytest.mark.parametrize("tool", TOOLS)
def test_a_sound_pair_passes_and_says_what_was_not_checked(dumps, tmp_path, tool, capsys):
    status, found = audited(dumps / tool / "sound", dumps / tool / "reference", tmp_path)
    assert status == 0 and found["passed"] and found["first_divergence"] is None
    said = capsys.readouterr().out
    assert "not checked: " in said and "not held by dumps: anything in float64" in said
    assert len(found["steps"][0]["quantities"]) >= 13
    held = {"msprobe", "msprobe_statistics", "padiff"}
    assert (len(found["steps"][1]["quantities"]) == 16) == (tool in held)  # gradients of all parameters
    assert ("the weights (not both dumps hold them)" in said) == (tool not in held)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_planted_mistake_is_placed_at_its_module(dumps, tmp_path, tool):
    status, found = audited(dumps / tool / "mistake", dumps / tool / "reference", tmp_path)
    assert status == 1 and found["first_divergence"]["location"] == "blocks.1.act", found["first_divergence"]
    failed = [row["name"] for row in found["steps"][0]["quantities"] if not row["passed"]]
    assert failed and not any(name.startswith(("stem", "blocks.0")) for name in failed)


@pytest.mark.parametrize(("port", "reference"), [("padiff", "msprobe"), ("npy", "transformers"), ("transformers_repr", "padiff"),
                                                 ("msprobe_statistics", "transformers_repr")])  # fmt: skip
def test_two_tools_dumps_are_compared_with_each_other(dumps, tmp_path, port, reference):
    assert audited(dumps / port / "sound", dumps / reference / "reference", tmp_path)[0] == 0
    status, found = audited(dumps / port / "mistake", dumps / reference / "reference", tmp_path)
    assert status == 1 and found["first_divergence"]["location"] == "blocks.1.act"


# --- what is changed in one side's files ----------------------------------------------------------------------------------------


def changed_array(file, change):
    np.save(file, change(np.load(file)))


def test_a_weight_that_differs_is_named_before_what_follows_from_it(dumps, tmp_path):
    shutil.copytree(dumps / "padiff" / "sound", tmp_path / "port")
    tree = json.loads((tmp_path / "port" / "params.json").read_text())["tree"]
    file = Path(tree["children"][0]["weights"]["weight"]).name  # of whatever stands first
    changed_array(tmp_path / "port" / "weights" / file, lambda array: array * 1.01)
    status, found = audited(tmp_path / "port", dumps / "padiff" / "reference", tmp_path)
    assert status == 1 and found["localization"]["first"]["stage"] == "weights"


def test_a_gradient_that_differs_alone_is_placed_in_the_backward_pass(dumps, tmp_path):
    shutil.copytree(dumps / "msprobe_statistics" / "sound", tmp_path / "port")
    table = next((tmp_path / "port").rglob("dump.json"))
    content = json.loads(table.read_text())
    for name in ("Module.blocks.1.fc1.Linear.parameters_grad.0", "Module.blocks.0.fc1.Linear.parameters_grad.0"):
        held = content["data"].get(name) or content["data"][name.replace("Linear", "Otherwise")]
        held["weight"][0]["Norm"] *= 2
    table.write_text(json.dumps(content))
    status, found = audited(tmp_path / "port", dumps / "msprobe_statistics" / "reference", tmp_path)
    first = found["localization"]["first"]
    assert status == 1 and (first["stage"], first["location"]) == ("backward", "blocks.1.fc1.weight")


def test_an_operation_between_modules_is_placed_in_the_module_around_them(dumps, tmp_path):
    """A residual connection that is left out: every module agrees until one is given something else."""
    shutil.copytree(dumps / "transformers" / "sound", tmp_path / "port")
    from safetensors.numpy import load_file, save_file

    for file in sorted((tmp_path / "port").glob("Net.blocks.1*.safetensors")) + sorted(
        (tmp_path / "port").glob("Net.head*.safetensors")
    ):
        save_file({"data": load_file(file)["data"] + np.float32(0.5)}, file)
    status, found = audited(tmp_path / "port", dumps / "transformers" / "reference", tmp_path)
    first = found["localization"]["first"]
    assert status == 1 and "blocks.0.fc2, which agrees, and blocks.1" in first["hint"], first


def test_other_inputs_are_no_verdict(dumps, tmp_path, capsys):
    shutil.copytree(dumps / "transformers" / "sound", tmp_path / "port")
    from safetensors.numpy import load_file, save_file

    file = tmp_path / "port" / "Net_inputs_args_0.safetensors"
    save_file({"data": load_file(file)["data"] + 1}, file)
    assert audited(tmp_path / "port", dumps / "transformers" / "reference", tmp_path) == (2, None)
    one_line(capsys, "the two dumps were made with other inputs")


def test_numbered_files_say_the_order(tmp_path):
    for side in ("port", "reference"):
        (tmp_path / side).mkdir()
        for n, name in enumerate(("stem", "a", "head")):
            np.save(tmp_path / side / f"{n:03}_{name}.npy", np.full((2, 3), n + 1.0, "float32") * (1 + (side == "port" and n > 0)))
    status, found = audited(tmp_path / "port", tmp_path / "reference", tmp_path)
    assert status == 1 and found["first_divergence"]["location"] == "a" and "stem" in found["first_divergence"]["hint"]


def test_modules_of_other_names_are_paired_by_a_map_or_by_order(dumps, tmp_path, capsys):
    """Written after msProbe's documentation for MindSpore: cells, gamma and beta."""
    source = next((dumps / "msprobe_statistics" / "sound").rglob("dump.json"))
    text = source.read_text().replace("Module.", "Cell.").replace("blocks.", "layer.").replace('"pytorch"', '"mindspore"')
    (tmp_path / "port").mkdir()
    (tmp_path / "port" / "dump.json").write_text(text.replace("Cell.stem.", "Cell.embed."))
    (tmp_path / "names.yaml").write_text("layer: blocks\nembed: stem\n")
    reference = dumps / "msprobe_statistics" / "reference"
    for flags in (("--names", str(tmp_path / "names.yaml")), ()):
        status, found = audited(tmp_path / "port", reference, tmp_path, *flags)
        assert status == 0 and len(found["steps"][0]["quantities"]) == 40, (flags, capsys.readouterr().out)


# --- damaged and hostile files --------------------------------------------------------------------------------------------------


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path("ran"),))


def _first(folder, pattern):
    return sorted(folder.rglob(pattern))[0]


def _cut(pattern):
    def damage(folder):
        file = _first(folder, pattern)
        file.write_bytes(file.read_bytes()[:-40])

    return damage


def _pickled(pattern):
    def damage(folder):
        _first(folder, pattern).write_bytes(pickle.dumps(Evil()))

    return damage


def _table(pattern, change):
    def damage(folder):
        file = _first(folder, pattern)
        content = json.loads(file.read_text())
        change(content)
        file.write_text(json.dumps(content))

    return damage


def _nested(folder):
    _first(folder, "*FULL_TENSORS.json").write_text('{"module_path":"N","children":[' * 100_000)


def _object_array(folder):
    np.save(folder / "stem.npy", np.array(Evil(), dtype=object), allow_pickle=True)


def _without_shape(content):
    next(iter(content["data"].values()))["output"][0]["shape"] = [-1]


def _archive(folder):
    with zipfile.ZipFile(_first(folder, "Module.stem*output*.pt"), "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Evil()))
        archive.writestr("archive/version", "3")


TREE = "*FULL_TENSORS.json"
DAMAGES = {
    "tree cut short": ("transformers", _cut(TREE), "cut short or damaged"),
    "tree of depth": ("transformers", _nested, "cut short or damaged"),
    "tree without a name": ("transformers", _table(TREE, lambda one: one.pop("module_path")), "module_path is a NoneType"),
    "children that are none": ("transformers", _table(TREE, lambda one: one.update(children=3)), "children is a int"),
    "safetensors cut short": ("transformers", _cut("*stem_outputs.safetensors"), "damaged"),
    "safetensors missing": ("transformers", lambda folder: _first(folder, "*stem_outputs*").unlink(), "is missing: copy the whole"),
    "table cut short": ("msprobe", _cut("dump.json"), "cut short or damaged"),
    "data that are none": ("msprobe", _table("dump.json", lambda one: one.update(data=[])), "data is a list"),
    "a shape that is none": ("msprobe_statistics", _table("dump.json", _without_shape), "expected a list of sizes"),
    "pt that runs code": ("msprobe", _archive, "holds no tensor"),
    "pickle for pt": ("msprobe", _pickled("Module.stem*output*.pt"), "is damaged"),
    "pt cut short": ("msprobe", _cut("Module.stem*output*.pt"), "damaged"),
    "report cut short": ("padiff", _cut("report.json"), "cut short or damaged"),
    "tree that is none": ("padiff", _table("report.json", lambda one: one.update(tree={})), "tree is a dict"),
    "npy that runs code": ("npy", _object_array, "stem.npy"),
    "npy cut short": ("npy", _cut("stem.npy"), "damaged"),
    "pickle for npy": ("npy", _pickled("stem.npy"), "is not a record"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_or_hostile_file_is_one_line(dumps, tmp_path, capsys, case, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tool, damage, words = DAMAGES[case]
    shutil.copytree(dumps / tool / "sound", tmp_path / "port")
    damage(tmp_path / "port")
    assert audited(tmp_path / "port", dumps / tool / "reference", tmp_path) == (2, None)
    one_line(capsys, words)
    assert not (tmp_path / "ran").exists()


def test_a_table_names_no_file_outside_its_folder(dumps, tmp_path, capsys):
    shutil.copytree(dumps / "padiff" / "sound", tmp_path / "port")
    np.save(tmp_path / "secret.npy", np.zeros(3))
    file = tmp_path / "port" / "report.json"
    content = json.loads(file.read_text())
    content["tree"][0]["fwd_outputs"][0]["path"] = "../../secret.npy"
    file.write_text(json.dumps(content))
    assert audited(tmp_path / "port", dumps / "padiff" / "reference", tmp_path) == (2, None)
    one_line(capsys, "tensors/secret.npy", "missing")


def test_dumps_that_do_not_go_together_are_one_line(dumps, tmp_path, capsys):
    npy = dumps / "npy" / "sound"
    assert audited(npy, npy, tmp_path, "--training") == (2, None)
    one_line(capsys, "--training")
    (tmp_path / "empty").mkdir()
    assert audited(tmp_path / "empty", npy, tmp_path) == (2, None)
    one_line(capsys, "no dump here")
    (tmp_path / "other").mkdir()
    np.save(tmp_path / "other" / "else.npy", np.zeros(3, "float32"))
    assert audited(tmp_path / "other", npy, tmp_path) == (2, None)
    one_line(capsys, "no module in common", "--names")
    shutil.copytree(dumps / "msprobe_statistics" / "sound" / "step0", tmp_path / "two" / "step0")
    shutil.copytree(dumps / "msprobe_statistics" / "sound" / "step0", tmp_path / "two" / "step1")
    assert audited(tmp_path / "two", npy, tmp_path) == (2, None)
    one_line(capsys, "2 dumps of msProbe", "step0")


# --- values ---------------------------------------------------------------------------------------------------------------------


def test_what_is_printed_is_compared_to_its_last_digit():
    assert figure("tensor(8.2116e-02)") == Figure(0.082116, 0.5 * 10**-6)
    lines = ["tensor([[ 1.0000e+00, -2.5000e-01],", "        [nan, inf]], dtype=torch.bfloat16, grad_fn=<AddBackward0>)"]
    assert [one.value for one in numbers(lines)][:2] == [1.0, -0.25] and len(numbers(lines)) == 4
    ours, theirs = (
        Dumped((2,), "float32", None, numbers([text])) for text in ("tensor([1.0000, 2.0000])", "tensor([1.0001, 2.0000])")
    )
    assert apart(ours, theirs).share < 1e-12 < apart(ours, Dumped((2,), "", None, numbers(["tensor([1.0003, 2.0000])"]))).share


def test_a_printed_tensor_that_was_shortened_is_compared_with_a_whole_one():
    torch = pytest.importorskip("torch")
    array = np.random.default_rng(0).standard_normal((30, 50)).astype("float32")
    printed = Dumped((30, 50), "float32", None, numbers(str(torch.from_numpy(array)).splitlines()))
    assert len(printed.printed) == 36 and apart(Dumped((30, 50), "float32", lambda: array), printed).share < 1e-6
    other = array.copy()
    other[-1, -1] += 0.01
    assert apart(Dumped((30, 50), "float32", lambda: other), printed).share > 1e-4


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_on_one_side_alone_never_passes(bad):
    whole = np.ones((2, 3), "float32")
    broken = whole.copy()
    broken[0, 0] = bad
    given = [Dumped((2, 3), "float32", lambda array=array: array) for array in (broken, whole)]
    assert apart(*given).problem and not apart(given[0], given[0]).problem


def test_shapes_never_broadcast_and_a_matrix_is_turned_only_where_asked():
    a = np.arange(6, dtype="float32").reshape(2, 3)
    ours, theirs = Dumped((3, 2), "float32", lambda: a.T), Dumped((2, 3), "float32", lambda: a)
    assert apart(ours, theirs).problem and not apart(ours, theirs, turned=True).problem
    assert apart(Dumped((1, 3), "", lambda: a[:1]), theirs).problem


@pytest.mark.parametrize(("dtype", "passes"), [("float32", False), ("bfloat16", True)])
def test_the_bound_is_that_of_the_tensors_type(tmp_path, dtype, passes):
    for side, number in (("port", 2.01), ("reference", 2.0)):
        made = {"shape": "torch.Size([2])", "dtype": f"torch.{dtype}", "value": [f"tensor([1.0000e+00, {number:.4e}])"]}
        content = {"module_path": "N", "children": [{"module_path": "N.a", "outputs": made}]}
        (tmp_path / side).mkdir()
        (tmp_path / side / "N_debug_tree_FULL_TENSORS.json").write_text(json.dumps(content))
    assert (audited(tmp_path / "port", tmp_path / "reference", tmp_path)[0] == 0) is passes
