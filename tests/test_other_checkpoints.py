"""Files of weights and records as they come from elsewhere: two networks in one dictionary, wrappers inside, notes among tensors,
files that are not what their names say, and numbers that no network computes with."""

import gzip
import io

import numpy as np
import pytest
import torch

from alignment.record_diff import main as compare
from mnv3.convert import main as convert
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import STAND_INS
from mobilenetv3_common.pretrained import not_usable, read_for
from mobilenetv3_common.weights_file import read_state, read_weights
from mobilenetv3_ref.models import mobilenet_v3_small
from tools.align import main as align
from tools.eval import main as evaluate
from tools.predict import main as predict

STATE = {"conv.weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "conv.bias": torch.tensor([0.5, -1.0]), "steps": torch.tensor(7)}
AVERAGE = {name: tensor + 1 for name, tensor in STATE.items()}


def under(prefix, state=STATE):
    return {prefix + name: tensor for name, tensor in state.items()}


def network():
    torch.manual_seed(0)
    return mobilenet_v3_small(num_classes=8, width_mult=0.25).state_dict()


def written(folder, content, name="w.pth"):
    torch.save(content, folder / name)
    return folder / name


# --- a network and its average in one dictionary -------------------------------------------------------------------------------

BOTH = {
    "Lightning's two modules": lambda: {"state_dict": under("model.") | under("ema_model.", AVERAGE)},
    "an average that wraps": lambda: {"state_dict": under("net.") | under("model_ema.module.", AVERAGE)},
    "an average beside the plain names": lambda: STATE | under("ema.", AVERAGE),
    "alone in the file, with a loss": lambda: under("model.") | under("swa_model.", AVERAGE) | {"loss.weight": torch.ones(3)},
}


@pytest.mark.parametrize("case", BOTH)
def test_a_network_and_its_average_in_one_dictionary_are_told_apart(tmp_path, case):
    path = written(tmp_path, BOTH[case]())
    for take, expected, kind in (("auto", AVERAGE, "averaged"), ("averaged", AVERAGE, "averaged"), ("raw", STATE, "raw")):
        read = read_weights(path, take)
        weight = next(array for name, array in read.state.items() if name.endswith("conv.weight"))
        assert np.array_equal(weight, expected["conv.weight"].numpy()) and read.kind == kind, take
        assert not any("ema" in name or "swa" in name for name in read.state)
        assert f"({kind})" in read.notes[0] and "left out" in read.notes[0]


def test_a_module_that_is_called_so_and_is_no_copy_is_no_average(tmp_path):
    path = written(tmp_path, under("model.") | {"ema.rate": torch.ones(2), "avg.pool.weight": torch.ones(2)})
    assert set(read_state(path)) == {*under("model."), "ema.rate", "avg.pool.weight"}


# --- wrappers inside, notes among tensors, metrics of other types --------------------------------------------------------------


@pytest.mark.parametrize("wrapper", ["_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module", "_orig_mod"])
def test_wrappers_are_taken_off_wherever_they_are(tmp_path, wrapper):
    inside = {name.replace("conv.", f"conv.{wrapper}."): tensor for name, tensor in STATE.items()}
    for content in (inside, under(f"{wrapper}."), {"state_dict": under(f"module.{wrapper}.", inside)}):
        read = read_weights(written(tmp_path, content))
        assert {"conv.weight", "conv.bias"} <= read.state.keys() and f"{wrapper}. " in read.notes[0]
    with pytest.raises(UserError, match=rf"there twice, with and without {wrapper}\.: save one"):
        read_state(written(tmp_path, {**STATE, **inside}))


NOTES = {
    "extra state of a layer": {"conv._extra_state": {"scale": 1.0}},
    "notes of a person": {"info": {"classes": ["cat", "dog"], "by": {"name": "x"}}},
    "an empty dictionary": {"metadata": {}},
}


@pytest.mark.parametrize("case", NOTES)
def test_dictionaries_without_tensors_among_the_tensors_are_left_out_and_said(tmp_path, case):
    read = read_weights(written(tmp_path, STATE | NOTES[case]))
    assert read.state.keys() == STATE.keys() and f"left out {next(iter(NOTES[case]))}" in read.notes[0]
    with pytest.raises(UserError, match="does not hold a dictionary of named arrays"):
        read_state(written(tmp_path, NOTES[case]))


@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.complex64])
def test_a_metric_beside_the_network_may_be_of_any_type_and_its_own_tensors_may_not(tmp_path, kind):
    odd = torch.ones(8, 8, dtype=kind)
    path = written(tmp_path, {"state_dict": under("net.", network()) | {"train_acc.confmat": odd}})
    assert convert([str(path), str(tmp_path / "w.pdparams")]) == 0
    path = written(tmp_path, under("net.", network() | {"classifier.3.weight": odd}))
    with pytest.raises(UserError, match=r"w\.pth: classifier\.3\.weight is of type .*, which weights are not"):
        read_for(path)


# --- files that are not what their names say -----------------------------------------------------------------------------------


@pytest.mark.parametrize("first", STAND_INS)
@pytest.mark.parametrize("name", ["w.pth", "w.pdparams", "w.safetensors", "w.ckpt", "w.npy", "w.npz"])
def test_what_stands_in_the_place_of_a_file_is_named(tmp_path, capsys, first, name):
    (tmp_path / name).write_bytes(first + b" of something\n" * 9)
    path = str(tmp_path / name)
    assert (compare([path, path]) if name.startswith("w.np") else convert([path, str(tmp_path / "out.safetensors")])) == 2
    assert capsys.readouterr().err == f"error: {path} is {STAND_INS[first]}\n"


def exported():
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)), buffer)
    return buffer.getvalue()


def npz():
    buffer = io.BytesIO()
    np.savez(buffer, x=np.ones(3))
    return buffer.getvalue()


ARCHIVES = {
    "an exported program": (exported, "archive/"),
    "arrays of numpy": (npz, r"x\.npy"),
    "an empty one": (lambda: b"PK\5\6" + bytes(18), "it is empty"),
}


@pytest.mark.parametrize("case", ARCHIVES)
@pytest.mark.parametrize("name", ["w.pt", "w.pth"])
def test_an_archive_of_another_program_is_not_called_damaged(tmp_path, case, name):
    make, said = ARCHIVES[case]
    (tmp_path / name).write_bytes(make())
    with pytest.raises(UserError, match=rf"is an archive that torch\.save has not written \(.*{said}") as error:
        read_state(tmp_path / name)
    assert "damaged" not in error.value.line


def test_a_gzip_of_a_sound_file_is_a_line(tmp_path):
    path = written(tmp_path, STATE)
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(UserError, match="compressed with gzip: unpack it first"):
        read_state(path)


# --- numbers that no network computes with -------------------------------------------------------------------------------------

UNUSABLE = {
    "NaN": ("features.3.block.0.0.weight", float("nan"), "has values that are not finite"),
    "infinity": ("classifier.3.bias", float("inf"), "has values that are not finite"),
    "minus infinity in statistics": ("features.0.1.running_mean", float("-inf"), "has values that are not finite"),
    "a variance below zero": ("features.1.block.0.1.running_var", -1.0, "is a variance below zero"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_network_of_such_weights_names_nothing(tmp_path, capsys, case):
    """Paddle's ReLU6 of NaN is 0: such a network gave every class the same probability, without a word, and status 0."""
    name, value, said = UNUSABLE[case]
    state = network()
    state[name].view(-1)[0] = value
    path = str(written(tmp_path, {"model": state}))
    capsys.readouterr()
    for command in (
        lambda: predict(["--img-path", "lite_data/val/cat/cat_0.JPEG", "--pretrained", path]),
        lambda: evaluate(["--data-path", "lite_data", "--width-mult", "0.25", "--pretrained", path]),
    ):
        assert command() == 2
        heard = capsys.readouterr()
        assert (
            f"error: {path}: {name} {said}" in heard.err
            and "warning" not in heard.err
            and "%" not in heard.out
            and "top1" not in heard.out
        )
    assert convert([path, str(tmp_path / "w.pdparams")]) == 0, "a conversion changes no number"
    assert f"warning: {name} {said}" in capsys.readouterr().err


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_alignment_does_not_compare_with_such_weights(tmp_path, capsys, value):
    """Both sides give NaN, which no comparison passes: it was a difference, and status 1."""
    state = network()
    state["classifier.3.weight"].view(-1)[0] = value
    path = str(written(tmp_path, state))
    assert align(["--weights", path, "--steps", "1", "--result-dir", str(tmp_path / "r")]) == 2
    assert "classifier.3.weight has values that are not finite: nothing can be compared with them" in capsys.readouterr().err


def test_a_mask_of_minus_infinity_is_no_broken_weight():
    mask = {"attention.mask": np.full((2, 2), -np.inf, np.float32)}
    assert not_usable(mask, masks=True) == "" and not_usable(mask) != ""
    assert not_usable({"attention.mask": np.array([-np.inf, np.nan])}, masks=True) != ""


def test_sound_extremes_are_usable():
    state = {name: tensor.numpy() for name, tensor in network().items()}
    state["features.0.1.running_var"] = np.zeros(8, np.float32)
    state["classifier.3.bias"] = np.full(8, 3e38, np.float32)
    assert not_usable(state) == ""


# --- records -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "status"),
    [
        (np.array(["a", "b"], "U1"), np.array(["a", "b"], "U9"), 0),
        (np.array([b"a", b"b"], "S4"), np.array([b"a", b"b"], "S1"), 0),
        (np.array(["a", "b"], "U1"), np.array(["a", "c"], "U9"), 1),
        (np.array(["a"], "U1"), np.array([b"a"], "S1"), 1),
        (np.array([["a", "bb"] * 300_000]), np.asfortranarray([["a", "bb"] * 300_000]).astype("U3"), 0),
    ],
)
def test_text_is_compared_by_its_characters(tmp_path, one, other, status):
    """The room for the longest name of a list is part of numpy's type."""
    for name, array in (("a.npz", one), ("b.npz", other)):
        np.savez(tmp_path / name, x=array)
    assert compare([str(tmp_path / "a.npz"), str(tmp_path / "b.npz")]) == status


@pytest.mark.parametrize("key", [1, True, -3])
def test_a_key_that_is_no_name_is_refused_by_its_type(tmp_path, capsys, key):
    np.save(tmp_path / "r.npy", np.array({key: np.float32(1), "1": np.float32(2)}, dtype=object), allow_pickle=True)
    assert compare([str(tmp_path / "r.npy"), str(tmp_path / "r.npy")]) == 2
    assert f"{key!r} is a key of type {type(key).__name__}, not a name" in capsys.readouterr().err
