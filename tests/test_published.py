"""--pretrained torchvision in every command, from a local server in torchvision's place; without a network one line."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import sys
import threading

import pytest
import torch

from mobilenetv3_common import published
from mobilenetv3_common.class_names import class_names
from mobilenetv3_common.published import pretrained_file, with_published
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_ref.models import MODELS
from tests.conftest import ROOT

CAT = ROOT / "lite_data/val/cat/cat_0.JPEG"
SMALL, LARGE_V2 = "mobilenet_v3_small", "mobilenet_v3_large_v2"


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A server with files in the published ones' places; gives the paths that were asked for."""
    (tmp_path / "served").mkdir()
    (tmp_path / "kept").mkdir()
    for key in (SMALL, LARGE_V2):
        torch.manual_seed(0)
        torch.save(MODELS[key.removesuffix("_v2")]().state_dict(), tmp_path / "w")
        content = (tmp_path / "w").read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        (tmp_path / "served" / f"{key}-{digest[:8]}.pth").write_bytes(content)
        monkeypatch.setitem(published.PUBLISHED, key, (f"{key}-{digest[:8]}.pth", digest))
    asked: list[str] = []

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            asked.append(self.path)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path / "served")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(published, "TORCHVISION_HOST", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("MOBILENETV3_CACHE", str(tmp_path / "kept"))
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    yield asked
    server.shutdown()
    server.server_close()


def test_predict_needs_nothing_but_a_picture_and_fetches_once(host, capsys):
    import predict

    for _ in range(2):
        assert predict.main(["--img-path", str(CAT), "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert len(row["predictions"]) == 5 and all(p["name"] in class_names(1000) for p in row["predictions"])
    assert len(host) == 1 and host[0].startswith("/mobilenet_v3_small-")


def test_the_second_weights_have_their_own_preprocessing(host):
    from predict import parser

    from mobilenetv3_paddle.deploy.flags import load_weights

    trained = load_weights(parser().parse_args(["--img-path", "x", "--pretrained", "torchvision-v2"]))
    assert trained.model == "mobilenet_v3_large" and trained.preset.resize_size == 232
    config = TrainConfig(model="mobilenet_v3_large", pretrained="torchvision-v2")
    assert with_published(config, {}).resize_size == 232
    assert with_published(config, {"resize_size": 256}).resize_size == 256
    assert with_published(config, {}).pretrained == str(trained.path)


def test_train_and_eval_take_the_name(host, monkeypatch):
    import eval as evaluate
    import train

    import mobilenetv3_paddle.train as package

    seen = []
    monkeypatch.setattr(package, "train", lambda config, **_: seen.append(config.pretrained) or 0)
    monkeypatch.setattr(package, "evaluate_config", lambda config, ranks: seen.append(config.pretrained) or sys.exit(0))
    assert train.main(["--data-path", "lite_data", "--pretrained", "torchvision", "--model", SMALL]) == 0
    with pytest.raises(SystemExit):
        evaluate.main(["--data-path", "lite_data", "--pretrained", "torchvision", "--model", SMALL])
    assert len(host) == 1 and len(set(seen)) == 1 and seen[0].endswith(".pth")


def test_without_a_network_one_line_says_what_to_put_where(host, monkeypatch, capsys, tmp_path):
    import predict

    monkeypatch.setattr(published, "TORCHVISION_HOST", "http://127.0.0.1:9")
    assert predict.main(["--img-path", str(CAT)]) == 2
    error = capsys.readouterr().err
    name = published.PUBLISHED[SMALL][0]
    assert error.count("\n") == 1 and f"fetch it elsewhere and put it at {tmp_path / 'kept' / name}" in error
    (tmp_path / "kept" / name).write_bytes((tmp_path / "served" / name).read_bytes())
    assert pretrained_file("torchvision", SMALL) == str(tmp_path / "kept" / name)


def test_what_is_not_published_and_another_model_s_file_are_a_line(host, capsys, tmp_path):
    import predict

    for flags, message in (
        (["--pretrained", "torchvision-v2", "--model", SMALL], "publishes no such weights of mobilenet_v3_small"),
        (
            ["--pretrained", pretrained_file("torchvision", SMALL), "--model", "mobilenet_v3_large"],
            "holds mobilenet_v3_small; leave",
        ),
    ):
        assert predict.main(["--img-path", str(CAT), *flags]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and message in error
