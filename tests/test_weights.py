"""Weights: bijective conversion, strict keys and shapes, no code from files, the published files over HTTP."""

import functools
import hashlib
import http.server
import os
import pickle
import threading

import numpy as np
import paddle
import pytest
import torch

from alignment.frameworks.paddle import Paddle
from alignment.frameworks.torch import Torch
from alignment.models.calibration import calibrated_state
from alignment.models.weights import copy_weights, load_file
from mobilenetv3_common import published as published_weights
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.published import fetch_published
from mobilenetv3_common.weights import canonical_state, is_statistic, own_state, read_state, with_counters, write_state
from mobilenetv3_paddle.models import MODELS
from mobilenetv3_ref.models import MODELS as REF_MODELS
from projects.mobilenetv3.project import PROJECT
from tests.conftest import LARGE, SMALL, run_command


@pytest.fixture(scope="module")
def sides():
    """Both frameworks with a small model of half the width."""
    return [(Torch(), REF_MODELS[SMALL](width_mult=0.5)), (Paddle(), MODELS[SMALL](width_mult=0.5))]


@pytest.fixture(scope="module")
def entries(sides):
    """Names and shapes of the Paddle model's state in both forms."""
    return Paddle().entries(sides[1][1])


def equal(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a)


def test_the_map_is_a_bijection(entries, small_state):
    canonical = {entry.canonical for entry in entries}
    assert len(canonical) == len({entry.own for entry in entries}) == len(entries) == 210
    assert [entry.canonical for entry in entries if entry.transposed] == ["classifier.0.weight", "classifier.3.weight"]
    assert equal(canonical_state(own_state(small_state, entries, "x"), entries, "x"), small_state)


@pytest.mark.parametrize("first", [".pth", ".safetensors"])
@pytest.mark.parametrize("second", [".pdparams", ".safetensors"])
def test_convert_there_and_back(tmp_path, small_state, first, second):
    start, there, back = tmp_path / f"a{first}", tmp_path / f"b{second}", tmp_path / "c.pth"
    write_state(start, with_counters(small_state))
    for source, target in ((start, there), (there, back)):
        from tools.convert_weights import main

        assert main([str(source), str(target), "--width-mult", "0.5"]) == 0
    assert equal(read_state(back), with_counters(small_state))
    model = MODELS[SMALL](width_mult=0.5)
    if second == ".pdparams":
        missing, unexpected = model.set_state_dict(paddle.load(str(there)))
        assert not missing and not unexpected
    reference = REF_MODELS[SMALL](width_mult=0.5)
    reference.load_state_dict(torch.load(back, weights_only=True), strict=True)


def test_files_that_paddle_and_torch_write_are_read(tmp_path, sides):
    model = MODELS[SMALL](width_mult=0.5)
    for protocol in (2, 4):
        paddle.save(model.state_dict(), str(tmp_path / "p.pdparams"), protocol=protocol)
        state = read_state(tmp_path / "p.pdparams")
        assert all(np.array_equal(v.numpy(), state[k]) for k, v in model.state_dict().items()) and len(state) == 210
    reference = REF_MODELS[SMALL](width_mult=0.5)
    torch.save({"model": reference.state_dict(), "epoch": 3}, tmp_path / "checkpoint.pth")
    assert len(load_file(tmp_path / "checkpoint.pth", sides)) == 210


def test_batch_norms_statistics_are_known_by_either_frameworks_names():
    for model in (MODELS[SMALL](width_mult=0.5), REF_MODELS[SMALL](width_mult=0.5)):
        assert sum(map(is_statistic, model.state_dict())) == 2 * 34
    assert is_statistic("running_mean") and is_statistic("_variance") and not is_statistic("token_mean")


def changed(state, **changes):
    """A state with keys removed (None) or replaced; a dot is written as two underscores."""
    result = dict(state)
    for key, value in changes.items():
        name = key.replace("__", ".")
        result.pop(name, None)
        if value is not None:
            result[name] = value
    return result


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classifier__3__bias": None}, r"1 missing key, first classifier.3.bias"),
        ({"extra__weight": np.zeros(3, np.float32)}, r"1 unexpected key, first extra.weight"),
        ({"classifier__3__bias": np.zeros(10, np.float32)}, r"classifier.3.bias: \(10,\), expected \(1000,\)"),
    ],
)
def test_weights_that_do_not_fit_are_refused(tmp_path, small_state, sides, changes, message):
    write_state(tmp_path / "w.pth", changed(small_state, **changes))
    with pytest.raises(UserError, match=message):
        load_file(tmp_path / "w.pth", sides)


def test_a_square_transposed_weight_of_the_wrong_layout_is_not_accepted_silently(small_state, entries):
    """Keys and shapes of a Paddle state are never taken for torch's: the statistics have other names."""
    with pytest.raises(UserError, match="missing key"):
        own_state(own_state(small_state, entries, "x"), entries, "x")


def test_a_counter_of_a_layer_without_statistics_is_refused(small_state, entries):
    with pytest.raises(UserError, match=r"1 unexpected key, first classifier.3.num_batches_tracked"):
        own_state({**small_state, "classifier.3.num_batches_tracked": np.zeros((), np.int64)}, entries, "x")


def test_weights_go_between_any_two_models(small_state):
    """From torch to Paddle, back, and within one framework; names that differ are given."""
    models = [MODELS[SMALL](width_mult=0.5), REF_MODELS[SMALL](width_mult=0.5), MODELS[SMALL](width_mult=0.5)]
    Torch().load(models[1], small_state)
    for source, target in ((1, 0), (0, 2), (2, 1)):
        copy_weights(models[source], models[target])
        framework = Torch() if target == 1 else Paddle()
        assert equal(framework.state(models[target]), small_state)
    renamed = torch.nn.ModuleDict({"head": torch.nn.Linear(4, 3)})
    port = paddle.nn.LayerDict({"fc": paddle.nn.Linear(4, 3)})
    with pytest.raises(UserError, match="missing key"):
        copy_weights(renamed, port)
    copy_weights(renamed, port, {"fc": "head"})
    assert np.array_equal(port["fc"].weight.numpy().T, renamed["head"].weight.detach().numpy())


def test_a_file_without_statistics_is_read_in_the_form_that_it_fits(tmp_path):
    """Nothing but shapes tells a .safetensors file of linear layers; what the suffix says is believed."""
    sides = [(Torch(), torch.nn.Linear(4, 3)), (Paddle(), paddle.nn.Linear(4, 3))]
    weight, bias = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros(3, np.float32)
    for name, array in (
        ("torch.safetensors", weight),
        ("paddle.safetensors", weight.T),
        ("x.pth", weight),
        ("x.pdparams", weight.T),
    ):
        write_state(tmp_path / name, {"weight": np.ascontiguousarray(array), "bias": bias})
        assert np.array_equal(load_file(tmp_path / name, sides)["weight"], weight)
    with pytest.raises(UserError, match=r"x.pdparams: neither side's framework \(PyTorch, PyTorch\) has files of this kind"):
        load_file(tmp_path / "x.pdparams", [sides[0], sides[0]])


def test_weights_of_the_other_model_are_refused(tmp_path):
    write_state(tmp_path / "large.safetensors", calibrated_state(PROJECT, LARGE, size=64))
    with pytest.raises(UserError, match="another model's"):
        load_file(tmp_path / "large.safetensors", [(Torch(), REF_MODELS[SMALL]()), (Paddle(), MODELS[SMALL]())])


class Bomb:
    """Unpickling this creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_malicious_pdparams_runs_nothing(tmp_path, protocol):
    path, trace = tmp_path / "bomb.pdparams", tmp_path / "exploded"
    path.write_bytes(pickle.dumps({"weight": Bomb(trace)}, protocol=protocol))
    with pytest.raises(UserError, match=r"bomb.pdparams is not read: it asks for posix.system, which could run code"):
        read_state(path)
    assert not trace.exists()
    paddle.load(str(path))
    assert trace.exists(), "paddle.load runs it, or this test shows nothing"


def test_a_malicious_pth_runs_nothing(tmp_path):
    path, trace = tmp_path / "bomb.pth", tmp_path / "exploded"
    torch.save({"weight": Bomb(trace)}, path)
    with pytest.raises(UserError, match=r"bomb.pth is not read"):
        read_state(path)
    assert not trace.exists()


@pytest.mark.parametrize("suffix", [".pth", ".pdparams", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"no weights at all", None])
def test_damaged_files_are_refused(tmp_path, small_state, suffix, content):
    path = tmp_path / f"w{suffix}"
    write_state(path, small_state)
    path.write_bytes(path.read_bytes()[:-1000] if content is None else content)
    with pytest.raises(UserError, match=rf"w{suffix} "):
        read_state(path)


@pytest.mark.parametrize("content", [{"a": [1, 2]}, [1, 2], {}, {"a": np.array([None])}])
def test_other_contents_are_refused(tmp_path, content):
    (tmp_path / "w.pdparams").write_bytes(pickle.dumps(content))
    with pytest.raises(UserError, match=r"w\.pdparams"):
        read_state(tmp_path / "w.pdparams")


def test_convert_command_refuses_in_one_line_and_overwrites_nothing(tmp_path):
    target = tmp_path / "kept.pdparams"
    target.write_text("precious")
    (tmp_path / "bad.pth").write_text("x")
    for arguments in (["gone.pth", target], [tmp_path / "bad.pth", target], [tmp_path / "bad.pth", tmp_path / "x.onnx"]):
        result = run_command("tools/convert_weights.py", *arguments)
        assert result.returncode == 2 and result.stderr.count("\n") == 1 and result.stderr.startswith("error: "), result.stderr
    assert target.read_text() == "precious"


# --- the published files -------------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path):
    """A local stand-in for the host of the published files."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        truncate = False

        def log_message(self, *args):
            pass

        def copyfile(self, source, outputfile):
            content = source.read()
            outputfile.write(content[: len(content) // 2] if Quiet.truncate else content)

    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{httpd.server_port}", Quiet
    httpd.shutdown()
    thread.join()


@pytest.fixture
def published(server, tmp_path, monkeypatch):
    """A served file in the published one's place, with its own digest."""
    folder, url, handler = server
    torch.save(REF_MODELS[SMALL]().state_dict(), tmp_path / "w.pth")
    content = (tmp_path / "w.pth").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    name = f"mobilenet_v3_small-{digest[:8]}.pth"
    (folder / name).write_bytes(content)
    monkeypatch.setitem(published_weights.PUBLISHED, SMALL, (name, digest))
    keep = tmp_path / "kept"
    keep.mkdir()
    return lambda: fetch_published(SMALL, url, keep), folder / name, keep, handler


def test_published_weights_are_fetched_checked_and_kept(published):
    fetch, served, keep, _ = published
    path = fetch()
    assert path.parent == keep and path.read_bytes() == served.read_bytes()
    assert len(load_file(path, [(Torch(), REF_MODELS[SMALL]())])) == 210
    served.unlink()
    assert fetch() == path, "a kept file needs no network"
    path.write_bytes(b"damaged meanwhile")
    with pytest.raises(UserError, match="cannot fetch"):
        fetch()


def test_a_truncated_download_is_not_kept(published):
    fetch, _, keep, handler = published
    handler.truncate = True
    with pytest.raises(UserError, match="broke off"):
        fetch()
    assert not list(keep.iterdir())


def test_a_tampered_file_is_not_kept(published):
    fetch, served, keep, _ = published
    content = bytearray(served.read_bytes())
    content[5000] ^= 1
    served.write_bytes(content)
    with pytest.raises(UserError, match="is not the published file: SHA-256"):
        fetch()
    assert not list(keep.iterdir())


def test_the_published_names_and_digests():
    assert published_weights.PUBLISHED[SMALL] == (
        "mobilenet_v3_small-047dcff4.pth",
        "047dcff4addef86ea5bc2eff13c9614dc11f47ab1160d0a71a25e7db994f4e1f",
    )
    assert published_weights.PUBLISHED[LARGE][0] == "mobilenet_v3_large-8738ca79.pth"
    assert published_weights.PUBLISHED[LARGE + "_v2"][0] == "mobilenet_v3_large-5c1a4163.pth"


def test_calibrated_weights_are_deterministic(small_state):
    assert equal(calibrated_state(PROJECT, SMALL, size=96, width_mult=0.5), small_state)
    other = calibrated_state(PROJECT, SMALL, seed=1, size=96, width_mult=0.5)
    assert not np.array_equal(other["features.0.0.weight"], small_state["features.0.0.weight"])
