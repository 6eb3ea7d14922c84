"""The static page that computes in the browser: its numbers are the tools' own, in Node.js and in a real Chromium."""

from __future__ import annotations

import contextlib
import functools
import http.server
import io
import json
import shutil
import subprocess
import threading

import numpy as np
import pytest
from PIL import Image

from mobilenetv3_common.image import decode_bytes
from mobilenetv3_common.picture_format import PREDICTION
from mobilenetv3_common.preprocess import eval_transform
from mobilenetv3_paddle.deploy.bundle import read_bundle
from mobilenetv3_paddle.deploy.engines import create_engine
from mobilenetv3_paddle.deploy.predictor import Predictor
from tests.browser import PHONE, browser, opened
from tests.conftest import LITE_DATA, ROOT

WEB = ROOT / "deploy/web"
ENGINE = ROOT / ".cache/ort-web"
CAT = LITE_DATA / "val/cat/cat_0.JPEG"
SIZES = [(300, 200), (199, 333), (64, 48), (1000, 3), (3, 1000), (256, 256), (224, 521), (1, 1), (640, 427)]

NODE = """
import {readFile, writeFile} from "node:fs/promises";
const {prepared} = await import(process.argv[1]);
for (const {file, width, height, preset} of JSON.parse(await readFile(process.argv[2], "utf8"))) {
  const out = prepared({width, height, data: new Uint8ClampedArray(await readFile(file))}, preset);
  await writeFile(file + ".out", Buffer.from(out.buffer));
}
"""


def in_node(pictures, preset, folder, module):
    """What a module's ``prepared`` makes of pictures."""
    node = shutil.which("node") or pytest.skip("needs Node.js")
    about = {name: getattr(preset, name) for name in ("resize_size", "crop_size", "mean", "std")}
    jobs = []
    for number, picture in enumerate(pictures):
        file = folder / f"{number}.rgba"
        file.write_bytes(picture.convert("RGBA").tobytes())
        jobs.append({"file": str(file), "width": picture.width, "height": picture.height, "preset": about})
    (folder / "jobs.json").write_text(json.dumps(jobs))
    command = [node, "--input-type=module", "-e", NODE, str(module), str(folder / "jobs.json")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    size = preset.crop_size
    return [np.frombuffer((folder / f"{n}.rgba.out").read_bytes(), np.float32).reshape(3, size, size) for n in range(len(jobs))]


@pytest.mark.parametrize("broken", [None, ("Math.max(scale, 1)", "1"), ("BITS = 22", "BITS = 7"), ("% 2 === 0 ?", "% 2 === 1 ?")])
def test_a_picture_is_prepared_in_javascript_to_the_last_bit_as_in_python(exported, tmp_path, broken):
    preset = read_bundle(exported).preset
    draw = np.random.default_rng(0)
    pictures = [Image.fromarray(draw.integers(0, 256, (height, width, 3), np.uint8)) for width, height in SIZES]
    module = WEB / "mobilenetv3.mjs"
    if broken:
        text = module.read_text()
        assert text.count(broken[0]) == 1
        module = tmp_path / "broken.mjs"
        module.write_text(text.replace(*broken))
    found = in_node(pictures, preset, tmp_path, module)
    equal = [np.array_equal(got, eval_transform(picture, preset)) for got, picture in zip(found, pictures, strict=True)]
    assert all(equal) is (broken is None), equal


@contextlib.contextmanager
def files_at(folder):
    """A plain file server; gives its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


@pytest.fixture
def page(exported, tmp_path):
    """The folder that ``make page`` writes."""
    if not ENGINE.is_dir():
        pytest.skip("needs onnxruntime-web: make ort-web")
    options = [f"MODEL_DIR={exported}", f"PAGE_DIR={tmp_path / 'page'}"]
    subprocess.run(["make", "-s", "-o", "ort-web", "page", *options], cwd=ROOT, check=True, timeout=60)
    return tmp_path / "page"


def answers(tab, file):
    """Choose a file and give the classes that the page shows: name -> probability."""
    tab.set_input_files("#file", file)
    tab.wait_for_selector("#classes li, #error:not(:empty)", timeout=30_000)
    assert not tab.inner_text("#error")
    return dict(tab.evaluate("[...document.querySelectorAll('progress')].map(bar => [bar.ariaLabel, bar.value])"))


@pytest.mark.slow
def test_the_page_names_pictures_in_a_real_browser_as_onnx_runtime_does(chromium, exported, page):
    bundle = read_bundle(exported)
    predictor = Predictor(create_engine(bundle), bundle.preset, bundle.classes)
    turned = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    upright = decode_bytes(CAT.read_bytes(), "the cat", rules=PREDICTION)
    upright.save(turned, "PNG", exif=exif)
    files = {"cat.jpg": ("image/jpeg", CAT.read_bytes(), 1e-3), "turned.png": ("image/png", turned.getvalue(), 1e-5)}
    with files_at(page) as address, opened(chromium, address, viewport=PHONE) as tab:
        for name, (kind, data, apart) in files.items():
            (expected,) = predictor.predict([data], 5)
            found = answers(tab, {"name": name, "mimeType": kind, "buffer": data})
            wanted = {one.name: one.probability for one in expected}
            assert list(found) == list(wanted), kind
            assert max(abs(found[one] - wanted[one]) for one in wanted) < apart, (found, wanted)
        tab.set_input_files("#file", {"name": "text.png", "mimeType": "image/png", "buffer": b"no picture"})
        tab.wait_for_selector("#error:not(:empty)")
        assert "text.png is not a picture that this browser can read" in tab.inner_text("#error")
        assert tab.locator("#classes li").count() == 0
        assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
