"""One reader for files of weights: types that numpy has not, checkpoints of trainers, wrappers; nothing in them is run."""

import argparse
import collections
import datetime
import enum
import io
import json
import os
import pathlib
import pickle
import pickletools
import subprocess
import sys
import time

import numpy as np
import paddle
import pytest
import safetensors.torch
import torch

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.inert_pickle import Left
from mobilenetv3_common.mindspore_checkpoint import write_ckpt
from mobilenetv3_common.pretrained import FIRST, prepared
from mobilenetv3_common.torch_file import modules_state
from mobilenetv3_common.weights_file import Weights, read_state, read_weights, written_as
from tests.conftest import ROOT

VALUES = torch.tensor([[1.5, -2.0, 0.25], [448.0, 0.0, -0.001953125]])  # all exact in bfloat16 and float8_e4m3fn
BIAS = torch.tensor([0.5, -1.0])
STATE = {"conv.weight": VALUES, "conv.bias": BIAS}


def equal(state, expected=STATE):
    return state.keys() == expected.keys() and all(np.array_equal(state[name], expected[name].numpy()) for name in expected)


# --- types ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float16, torch.float64])
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_types_of_few_bits_are_read_exactly(tmp_path, dtype, suffix):
    file, state = tmp_path / f"w{suffix}", {name: tensor.to(dtype) for name, tensor in STATE.items()}
    safetensors.torch.save_file(state, file) if suffix == ".safetensors" else torch.save(state, file)
    found = read_state(file)
    assert equal(found) and found["conv.weight"].dtype in (np.float16, np.float32, np.float64)


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu])
def test_other_float8_are_what_torch_says(tmp_path, dtype):
    numbers = torch.tensor([1.0, 2.0, 0.5, 64.0]).to(dtype)
    safetensors.torch.save_file({"w": numbers}, tmp_path / "w.safetensors")
    torch.save({"w": numbers}, tmp_path / "w.pth")
    for file in ("w.safetensors", "w.pth"):
        assert read_state(tmp_path / file)["w"].tolist() == numbers.float().tolist() == [1, 2, 0.5, 64]


@pytest.mark.parametrize("protocol", [2, 4])
def test_bfloat16_of_paddle_and_of_mindspore(tmp_path, protocol):
    paddle.save({"w": paddle.to_tensor(VALUES.numpy()).astype("bfloat16")}, str(tmp_path / "w.pdparams"), protocol=protocol)
    import ml_dtypes

    write_ckpt(tmp_path / "w.ckpt", {"w": VALUES.numpy().astype(ml_dtypes.bfloat16)})
    for file in ("w.pdparams", "w.ckpt"):
        assert equal(read_state(tmp_path / file), {"w": VALUES}), file


def quantized():
    return torch.quantize_per_tensor(VALUES, 0.1, 0, torch.qint8)


UNREAD = {
    "quantised": (quantized, "_rebuild_qtensor"),
    "sparse": (lambda: VALUES.to_sparse(), "_rebuild_sparse_tensor"),
    "without data": (lambda: VALUES.to("meta"), "_rebuild_meta_tensor"),
    "half complex": (lambda: VALUES.to(torch.complex32), "complex32"),
    "of numpy": (lambda: VALUES.numpy(), "numpy"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", UNREAD)
def test_a_type_that_is_not_read_is_named(tmp_path, case):
    make, said = UNREAD[case]
    torch.save({**STATE, "head.weight": make()}, tmp_path / "w.pth")
    with pytest.raises(UserError, match=rf"w\.pth: head\.weight is of type .*{said}.*save it as"):
        read_state(tmp_path / "w.pth")


def test_types_that_are_not_read_are_named_in_other_files(tmp_path):
    packed = torch.zeros(2, 2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    safetensors.torch.save_file({"w": packed}, tmp_path / "w.safetensors")
    paddle.save({"w": paddle.to_tensor(VALUES.numpy()).astype("float8_e4m3fn")}, str(tmp_path / "w.pdparams"))
    write_ckpt(tmp_path / "w.ckpt", {"w": VALUES.numpy()})
    (tmp_path / "w.ckpt").write_bytes((tmp_path / "w.ckpt").read_bytes().replace(b"Float32", b"HiFloat"))
    for file, said in (
        ("w.safetensors", "w is of type F4"),
        ("w.pdparams", "w is of type int8 or float8"),
        ("w.ckpt", "of type HiFloat"),
    ):
        with pytest.raises(UserError, match=said) as error:
            read_state(tmp_path / file)
        assert "damaged" not in error.value.line


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}, {"pickle_protocol": 4}])
def test_parameters_gradients_and_views_are_weights(tmp_path, options):
    whole = torch.arange(12.0).reshape(3, 4).requires_grad_()
    state = {"p": torch.nn.Parameter(VALUES.clone()), "turned": whole.t(), "row": whole[1], "buffer": torch.nn.Buffer(BIAS.clone())}
    torch.save(state, tmp_path / "w.pth", **options)
    assert equal(read_state(tmp_path / "w.pth"), {name: tensor.detach() for name, tensor in state.items()})


# --- what trainers write ---------------------------------------------------------------------------------------------------


class Mode(enum.Enum):
    TRAIN = 1


class Tracker:
    """A class of a trainer's own, which is not there when its checkpoint is read."""

    def __init__(self):
        self.values = collections.deque([1.0, 2.0])


def arguments():
    return argparse.Namespace(
        model="mobilenetv3_small_100", lr=0.1, output=pathlib.Path("out"), started=datetime.datetime(2026, 1, 1), mode=Mode.TRAIN,
        device=torch.device("cpu"), dtype=torch.float16, tracker=Tracker(), groups={1, 2},
        table=collections.defaultdict(list, a=[1]),
        score=np.float64(0.5), history=np.arange(3), act=torch.nn.functional.relu,
    )  # fmt: skip


def averaged():
    return {name: tensor + 1 for name, tensor in STATE.items()}


def prefixed(prefix, state=STATE):
    return {prefix + name: tensor for name, tensor in state.items()}


def optimizer():
    parameter = torch.nn.Parameter(VALUES.clone())
    found = torch.optim.AdamW([parameter])
    parameter.sum().backward()
    found.step()
    return found.state_dict()


COUNT = torch.tensor(7)
RUNS = {
    "torchvision": lambda: {"model": STATE, "optimizer": optimizer(), "lr_scheduler": {"last": 3}, "epoch": 3, "args": arguments(),
        "model_ema": {"n_averaged": COUNT, **prefixed("module.", averaged())}, "scaler": {"scale": 2.0}},
    "timm": lambda: {"epoch": 3, "arch": "mobilenetv3_small_100", "state_dict": STATE, "optimizer": optimizer(), "version": 2,
        "args": arguments(), "amp_scaler": {}, "state_dict_ema": averaged(), "metric": 70.1},
    "MMEngine": lambda: {"meta": {"epoch": 3, "dataset_meta": {"classes": ["a"]}}, "state_dict": averaged(),
        "optimizer": optimizer(), "message_hub": {"log_scalars": {"loss": Tracker()}, "runtime_info": {}},
        "param_schedulers": [{"last": 3}],
        "ema_state_dict": {"steps": COUNT, **prefixed("module.")}},
    "Lightning": lambda: {"epoch": 3, "global_step": 30, "pytorch-lightning_version": "2.6.6", "state_dict": averaged(),
        "loops": {"fit_loop": {"state_dict": {}}}, "callbacks": {"ModelCheckpoint{}": {"best": torch.tensor(0.5)}},
        "optimizer_states": [optimizer()], "lr_schedulers": [], "hyper_parameters": arguments(),
        "current_model_state": STATE, "averaging_state": {"n_averaged": COUNT}},
    "nested": lambda: {"state": {"network": {"net": STATE, "ema": averaged()}}, "best": torch.tensor(0.7)},
}  # fmt: skip


@pytest.mark.parametrize("trainer", RUNS)
def test_raw_and_averaged_weights_are_told_apart_and_chosen(tmp_path, trainer, capsys):
    torch.save(RUNS[trainer](), tmp_path / "run.pth.tar")
    for take, expected in (("auto", averaged()), ("averaged", averaged()), ("raw", STATE)):
        assert equal(read_state(tmp_path / "run.pth.tar", take), expected), take
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and all(line.startswith(f"note: {tmp_path}/run.pth.tar: took ") for line in lines), lines
    assert "(averaged)" in lines[0] and "(raw)" in lines[1]


def test_what_is_left_out_is_said_with_its_class(tmp_path):
    torch.save(RUNS["torchvision"](), tmp_path / "run.pth")
    said = "; ".join(read_weights(tmp_path / "run.pth").notes)
    assert "took model_ema (averaged), without module. in the names, left out args (argparse.Namespace), model, optimizer" in said
    assert read_weights(tmp_path / "run.pth").trained_as == "mobilenetv3_small_100"


WRAPPED = {
    "data parallel": lambda: prefixed("module."),
    "compiled": lambda: prefixed("_orig_mod."),
    "compiled and parallel": lambda: {"state_dict": prefixed("module._orig_mod.")},
    "a compiled part": lambda: {"state_dict": {"conv._orig_mod.weight": VALUES, "conv._orig_mod.bias": BIAS}},
    "parallel twice": lambda: prefixed("module.module."),
}


@pytest.mark.parametrize("case", WRAPPED)
def test_wrappers_are_taken_off_and_said(tmp_path, case, capsys):
    torch.save(WRAPPED[case](), tmp_path / "w.pth")
    assert equal(read_state(tmp_path / "w.pth"))
    assert capsys.readouterr().err.count("\n") == 1


def test_a_module_of_that_name_is_no_wrapper(tmp_path):
    torch.save({**prefixed("module."), "head.weight": VALUES}, tmp_path / "w.pth")
    assert set(read_state(tmp_path / "w.pth")) == {"module.conv.weight", "module.conv.bias", "head.weight"}


def test_a_whole_model_gives_its_weights_though_its_class_is_not_read(tmp_path):
    source = (
        "import sys, torch\nclass Net(torch.nn.Sequential):\n    pass\nnet = Net(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))\n"
    )
    source += "torch.save(net, sys.argv[1]); torch.save({'model': net, 'epoch': 3}, sys.argv[2]); "
    source += "torch.save(net.state_dict(), sys.argv[3])"
    files = [tmp_path / f"{name}.pth" for name in ("whole", "inside", "state")]
    subprocess.run([sys.executable, "-c", source, *map(str, files)], check=True, cwd=ROOT)  # __main__.Net is not there here
    expected = {name: torch.from_numpy(array) for name, array in read_state(files[2]).items()}
    assert len(expected) == 7 and equal(read_state(files[0]), expected) and equal(read_state(files[1]), expected)


def test_nested_checkpoints_of_paddle(tmp_path):
    tensors = {name: paddle.to_tensor(tensor.numpy()) for name, tensor in STATE.items()}
    more = {name: paddle.to_tensor(tensor.numpy()) for name, tensor in averaged().items()}
    paddle.save({"model": tensors, "ema": more, "epoch": 3}, str(tmp_path / "w.pdparams"))
    assert equal(read_state(tmp_path / "w.pdparams", "raw")) and equal(read_state(tmp_path / "w.pdparams"), averaged())
    arrays = {name: tensor.numpy() for name, tensor in STATE.items()}
    for protocol in (2, 4):
        (tmp_path / "a.pdparams").write_bytes(pickle.dumps({"state_dict": arrays, "args": argparse.Namespace(lr=1)}, protocol))
        assert equal(read_state(tmp_path / "a.pdparams"))


def test_what_a_file_is_follows_from_its_content(tmp_path):
    torch.save({"state_dict": STATE}, tmp_path / "epoch=3-step=30.ckpt")
    safetensors.torch.save_file(STATE, tmp_path / "pytorch_model.bin")
    (tmp_path / "w.pth").write_bytes(pickle.dumps({name: tensor.numpy() for name, tensor in STATE.items()}, 4))
    for file, kind in (("epoch=3-step=30.ckpt", ".pth"), ("pytorch_model.bin", ".safetensors"), ("w.pth", ".pdparams")):
        assert equal(read_state(tmp_path / file)) and written_as(tmp_path / file) == kind


REFUSED = {
    "two networks": ({"generator": STATE, "discriminator": STATE}, "auto", r"several sets of weights \(generator, discriminator\)"),
    "no average": ({"model": STATE, "epoch": 3}, "averaged", "holds no moving average"),
    "a plain file as an average": (STATE, "averaged", "does not say that it is a moving average"),
    "an average alone": ({"model_ema": STATE}, "raw", "holds a moving average alone"),
    "the optimizer alone": ({"optimizer": {"state": {0: {"step": VALUES}}}}, "auto", "does not hold a dictionary of named arrays"),
    "numbers alone": ({"accuracy": torch.tensor(0.5), "epoch": 3}, "auto", "does not hold a dictionary of named arrays"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_choice_that_cannot_be_made_is_refused_in_one_line(tmp_path, case):
    content, take, said = REFUSED[case]
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(UserError, match=said) as error:
        read_state(tmp_path / "w.pth", take)
    assert "\n" not in error.value.line


# --- nothing is run, and nothing is believed -------------------------------------------------------------------------------


class Calls:
    """Unpickling this calls a function."""

    def __init__(self, function, *given):
        self.reduced = function, given

    def __reduce__(self):
        return self.reduced


BOMBS = {
    "a command": lambda trace: Calls(os.system, f"touch {trace}"),
    "an expression": lambda trace: Calls(eval, f"open({str(trace)!r}, 'w')"),
    "a process": lambda trace: Calls(subprocess.Popen, ["touch", str(trace)]),
    "an import": lambda trace: Calls(__import__, "antigravity"),
    "a file": lambda trace: Calls(open, str(trace), "w"),
}


@pytest.mark.parametrize("case", BOMBS)
@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}, {"pickle_protocol": 4}])
def test_nothing_in_a_checkpoint_is_run(tmp_path, case, options):
    trace, file = tmp_path / "exploded", tmp_path / "w.pth"
    torch.save({"model": STATE, "args": BOMBS[case](trace)}, file, **options)
    with pytest.raises(UserError, match=r"w\.pth is not read: it asks for .*, which could run code"):
        read_state(file)
    assert not trace.exists()


def test_a_class_that_acts_when_it_is_made_is_left_unmade(tmp_path, capsys):
    """A stranger's class is neither imported nor called: its code would have run in ``torch.load``."""
    (tmp_path / "stranger.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\nclass State:\n    pass\n")
    code = f"import sys, torch; sys.path.insert(0, {str(tmp_path)!r}); import stranger; "
    code += "torch.save({'model': {'w': torch.ones(2)}, 'state': stranger.State()}, sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "w.pth")], check=True, cwd=ROOT)
    (tmp_path / "imported").unlink()
    assert read_state(tmp_path / "w.pth")["w"].tolist() == [1, 1]
    assert not (tmp_path / "imported").exists() and "state (stranger.State)" in capsys.readouterr().err


def test_a_program_is_not_run(tmp_path):
    torch.jit.script(torch.nn.Linear(3, 2)).save(str(tmp_path / "w.pt"))
    with pytest.raises(UserError, match="is a TorchScript program, which is not run"):
        read_state(tmp_path / "w.pt")


class Reaching:
    """A tensor that claims another place in its data than it has."""

    def __init__(self, size, stride, offset=0):
        self.form = offset, size, stride

    def __reduce__(self):
        storage = torch.storage.TypedStorage(wrap_storage=torch.ones(4).untyped_storage(), dtype=torch.float32, _internal=True)
        return torch._utils._rebuild_tensor_v2, (storage, *self.form, False, collections.OrderedDict())


@pytest.mark.parametrize(
    "form", [((5,), (1,)), ((2,), (4,)), ((2, 2), (2, 1), 1), ((2,), (-1,), 1), ((-1,), (1,)), ((1 << 20, 1 << 20), (0, 0))]
)
def test_a_tensor_that_reaches_beyond_its_data_is_refused(tmp_path, form):
    """torch itself enlarges the data: what was not in the file would be read as weights, and 4 TB would be asked for."""
    torch.save({"w": Reaching(*form)}, tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"w\.pth is not read: a tensor of shape .* (reaches beyond its data|repeats)"):
        read_state(tmp_path / "w.pth")
    torch.save({"w": Reaching((2, 2), (2, 1))}, tmp_path / "w.pth")
    assert read_state(tmp_path / "w.pth")["w"].tolist() == [[1, 1], [1, 1]]


# --- files that say less, or more, than they hold ----------------------------------------------------------------------------

MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # of torch before 1.6
NESTED = b")" + b"2\x86" * 40  # a tuple of a tuple, forty deep: written out, 2**40 of them


def old_parts(state):
    """The pickles of a file that torch wrote before 1.6, and what follows them."""
    file = io.BytesIO()
    torch.save(state, file, _use_new_zipfile_serialization=False)
    data, parts = file.getvalue(), []
    for _ in range(5):
        *_, (_, _, end) = pickletools.genops(data)
        parts.append(data[: end + 1])
        data = data[end + 1 :]
    return parts, data


HOSTILE = {
    "no data.pth": lambda: b"".join([*old_parts(STATE)[0][:4], pickle.dumps([], 2)]),
    "a version that grows.pth": lambda: MAGIC + b"\x80\x02" + NESTED + b".",
    "bytes that are not there.pth": lambda: MAGIC + b"\x80\x05\x96" + (3 << 30).to_bytes(8, "little"),
    "a nested key.pth": lambda: MAGIC + b"\x80\x02}" + NESTED + b"K\x01s.",
    "a nested key of a set.pth": lambda: MAGIC + b"\x80\x04\x8f(" + NESTED + b"\x90.",
    "a type that grows.pdparams": lambda: b"\x80\x02cnumpy\ndtype\n" + NESTED + b"\x85R.",
    "many axes.safetensors": lambda: _safetensors_of([1] * 65, 4),
    "a size beyond all.safetensors": lambda: _safetensors_of([0, 2**63], 0),
}


def _safetensors_of(shape, length):
    header = json.dumps({"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, length]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(length)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_says_what_it_does_not_hold_is_refused_at_once(tmp_path, name):
    (tmp_path / name).write_bytes(HOSTILE[name]())
    start = time.monotonic()
    with pytest.raises(UserError, match=name.partition(".")[0]):
        read_weights(tmp_path / name)
    assert time.monotonic() - start < 5


def test_the_old_format_is_read_where_its_data_are_there(tmp_path):
    parts, data = old_parts(STATE)
    (tmp_path / "w.pth").write_bytes(b"".join(parts) + data)
    assert equal(read_state(tmp_path / "w.pth"))


def test_modules_within_modules_have_names_of_bounded_length():
    model = Left()
    for _ in range(9):
        outer = Left()
        outer.state = {"_modules": {"m" * 200: model}}
        model = outer
    with pytest.raises(UserError, match="more than 1000 characters"):
        modules_state(model)


def test_an_average_is_found_below_its_name_and_weights_that_are_there_twice_are_refused(tmp_path):
    other = {name: tensor + 1 for name, tensor in STATE.items()}
    torch.save({"model": STATE, "ema": {"module": other}}, tmp_path / "nested.pth")
    assert equal(read_weights(tmp_path / "nested.pth").state, other)
    assert equal(read_weights(tmp_path / "nested.pth", "raw").state)
    torch.save({**STATE, **{f"_orig_mod.{name}": tensor for name, tensor in other.items()}}, tmp_path / "twice.pth")
    with pytest.raises(UserError, match=r"twice\.pth: the weights are there twice"):
        read_weights(tmp_path / "twice.pth")


@pytest.mark.parametrize("dtype", ["int8", "bool", "complex64"])
def test_weights_of_no_floating_type_are_named(dtype):
    state = {FIRST: np.ones((16, 3, 3, 3), dtype), "steps": np.array(3)}
    with pytest.raises(UserError, match=rf"w\.pth: features\.0\.0\.weight is of type {dtype}"):
        prepared(Weights(state), "w.pth")
