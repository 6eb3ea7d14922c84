"""Weights in several files: an index of shards, a folder of a trainer; nothing outside their folder is read."""

import json
import os

import numpy as np
import pytest
import safetensors.torch
import torch

from alignment_doctor.cli import main as doctor
from mnv3.convert import main as convert
from mobilenetv3_common import sharded_weights
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import read_state, write_state
from mobilenetv3_common.weights_file import read_weights, written_as

STATE = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.ones(2), "b.weight": torch.full((3, 2), 0.5)}
SHARDS = {"a.weight": 1, "a.bias": 1, "b.weight": 2}


def split(folder, state, shards, kind="safetensors", named=None):
    """A folder with an index of two shards, as Hugging Face's ``save_pretrained`` writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    stem, end = ("model", "safetensors") if kind == "safetensors" else ("pytorch_model", "bin")
    files = {number: f"{stem}-{number:05}-of-00002.{end}" for number in (1, 2)}
    for number, name in files.items():
        part = {key: tensor.contiguous() for key, tensor in state.items() if shards[key] == number}
        safetensors.torch.save_file(part, folder / name) if kind == "safetensors" else torch.save(part, folder / name)
    weight_map = {key: files[number] for key, number in shards.items()} | (named or {})
    index = folder / f"{stem}.{end}.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 68}, "weight_map": weight_map}))
    return index


def equal(found, expected=STATE):
    return found.keys() == expected.keys() and all(np.array_equal(found[name], expected[name].float().numpy()) for name in expected)


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_shards_are_read_by_their_index_and_by_their_folder(tmp_path, kind):
    index = split(tmp_path / "m", STATE, SHARDS, kind)
    assert equal(read_state(index)) and equal(read_state(tmp_path / "m"))
    assert written_as(index) == written_as(tmp_path / "m") == (".safetensors" if kind == "safetensors" else ".pth")


def test_wrappers_and_types_over_shards(tmp_path):
    state = {f"module.{name}": tensor.to(torch.bfloat16) for name, tensor in STATE.items()}
    index = split(tmp_path, state, {f"module.{name}": number for name, number in SHARDS.items()})
    read = read_weights(index)
    assert equal(read.state) and read.notes == ["without module. in the names"]


def test_the_links_of_a_cache_are_followed(tmp_path):
    index = split(tmp_path / "blobs", STATE, SHARDS)
    here = tmp_path / "snapshots" / "0123abc"
    here.mkdir(parents=True)
    for number, file in enumerate(sorted(index.parent.iterdir())):
        file.rename(index.parent / f"blob{number}")
        (here / file.name).symlink_to(f"../../blobs/blob{number}")
    assert equal(read_state(here / index.name)) and equal(read_state(here))


OUTSIDE = ["../other.safetensors", "/etc/passwd", "sub/x.safetensors", "..\\x.safetensors", "", ".", "model.safetensors.index.json"]


@pytest.mark.parametrize("shard", OUTSIDE)
def test_an_index_names_files_beside_it_alone(tmp_path, shard):
    safetensors.torch.save_file(STATE, tmp_path / "other.safetensors")
    (tmp_path / "m" / "sub").mkdir(parents=True)
    safetensors.torch.save_file(STATE, tmp_path / "m" / "sub" / "x.safetensors")
    with pytest.raises(UserError, match="no file of weights beside it"):
        read_state(split(tmp_path / "m", STATE, SHARDS, named={"b.weight": shard}))


def test_a_link_out_of_the_folder_is_not_followed(tmp_path, monkeypatch):
    index = split(tmp_path / "m", STATE, SHARDS)
    shard = tmp_path / "m" / "model-00002-of-00002.safetensors"
    shard.rename(tmp_path / "elsewhere.safetensors")
    shard.symlink_to("../elsewhere.safetensors")
    with pytest.raises(UserError, match="a link to another folder"):
        read_state(index)
    monkeypatch.setattr(sharded_weights.Path, "resolve", lambda self: self.absolute())
    assert equal(read_state(index)), "without the check it is followed"


TEXTS = {
    "no JSON": ("{", "no index of weights"),
    "deep": ("[" * 200_000, "no index of weights"),
    "a list": ("[1]", "no index of weights"),
    "no map": ('{"metadata": {}}', "no index of weights"),
    "an empty map": ('{"weight_map": {}}', "no index of weights"),
    "a number": ('{"weight_map": {"a": 1}}', "no index of weights"),
    "a list of files": ('{"weight_map": {"a": ["x.bin"]}}', "no index of weights"),
    "no text": (b"\xff\xfe\x00", "no index of weights"),
    "a missing shard": ('{"weight_map": {"a": "x.safetensors"}}', "is missing"),
    "a zero byte": ('{"weight_map": {"a": "x\\u0000.safetensors"}}', "no file of weights beside it"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_an_index_that_is_none_is_a_line(tmp_path, case):
    text, said = TEXTS[case]
    file = tmp_path / "model.safetensors.index.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=said) as error:
        read_state(file)
    assert "\n" not in error.value.line and len(error.value.line) < 400


def test_a_large_index_a_missing_tensor_and_a_damaged_shard_are_lines(tmp_path, monkeypatch):
    index = split(tmp_path, STATE, SHARDS, named={"b.bias": "model-00002-of-00002.safetensors"})
    with pytest.raises(UserError, match=r"does not hold b\.bias"):
        read_state(index)
    index = split(tmp_path, STATE, SHARDS)
    shard = tmp_path / "model-00001-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"model-00001-of-00002\.safetensors is damaged"):
        read_state(index)
    monkeypatch.setattr(sharded_weights, "LARGEST_INDEX", 10)
    with pytest.raises(UserError, match="more than 10 bytes"):
        read_state(index)


def test_a_folder_of_mmengine_with_deepspeed_is_read_and_parts_of_tensors_are_not(tmp_path):
    folder = tmp_path / "epoch_1.pth"
    folder.mkdir()
    torch.save({"module": STATE, "epoch": 1, "optimizer": None}, folder / "mp_rank_00_model_states.pt")
    torch.save({"optimizer_state_dict": {}}, folder / "zero_pp_rank_0_mp_rank_00_optim_states.pt")
    assert equal(read_state(folder))
    for name in sharded_weights.PARTS:
        (folder / name).write_bytes(b"")
        with pytest.raises(UserError, match=f"parts of tensors, one file for each process .{name}"):
            read_state(folder)
        os.unlink(folder / name)
    torch.save(STATE, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"holds pytorch_model\.bin and mp_rank_00_model_states\.pt: give the file"):
        read_state(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty is a folder: give the file"):
        read_state(tmp_path / "empty")


def test_safetensors_are_read_tensor_by_tensor(tmp_path):
    state = {"none": torch.zeros(0, 3), "one": torch.tensor(2.0), "many": torch.arange(1_000.0)}
    safetensors.torch.save_file(state, tmp_path / "w.safetensors", metadata={"format": "pt"})
    assert equal(read_state(tmp_path / "w.safetensors"), state)


def test_every_tool_reads_them(small_state, tmp_path):
    state = {name: torch.from_numpy(np.array(array)) for name, array in small_state.items()}
    index = split(tmp_path / "m", state, {name: 1 + number % 2 for number, name in enumerate(state)})
    write_state(tmp_path / "whole.safetensors", {name: tensor.numpy() for name, tensor in state.items()})
    for name, source in (("a", index), ("b", tmp_path / "whole.safetensors"), ("c", tmp_path / "m")):
        assert convert([str(source), str(tmp_path / f"{name}.pdparams")]) == 0
    assert len({(tmp_path / f"{name}.pdparams").read_bytes() for name in "abc"}) == 1
    assert doctor(["weights", str(tmp_path / "whole.safetensors"), str(tmp_path / "m")]) in (0, 1)
