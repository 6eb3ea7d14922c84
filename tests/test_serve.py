"""The service under real HTTP: answers, limits, batching, load, shutdown, and its page in a real browser."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from mobilenetv3_common import __version__
from mobilenetv3_paddle.deploy.bundle import read_bundle
from mobilenetv3_paddle.deploy.engines import create_engine
from mobilenetv3_paddle.deploy.predictor import Predictor
from tests.browser import PHONE, browser, contrast, opened, tab_stops
from tests.conftest import ROOT

CAT, ROCKET = ((ROOT / f"lite_data/val/{name}/{name}_0.JPEG").read_bytes() for name in ("cat", "rocket"))


@contextlib.contextmanager
def serving(exported, *flags):
    """The command on a free port; gives process and port, and ends it."""
    process = subprocess.Popen(
        [sys.executable, "tools/serve.py", "--model-dir", str(exported), "--port", "0", *flags],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
        assert found, line + process.stderr.read()
        port = int(found[1])
        for _ in range(200):
            with contextlib.suppress(OSError):
                if ask(port, "GET", "/health")[0] == 200:
                    break
            time.sleep(0.05)
        yield process, port
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


@pytest.fixture(scope="module")
def server(exported):
    with serving(exported, "--timeout", "2", "--max-upload", "1") as (process, port):
        yield port
        assert process.poll() is None, "it crashed: " + process.stderr.read()


def ask(port, method, path, body=None, headers=None, timeout=30):
    """Status, headers and body of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def detail(content):
    return json.loads(content)["detail"]


def metric(port, name):
    """Sum of a metric's samples."""
    text = ask(port, "GET", "/metrics")[2].decode()
    return sum(float(value) for value in re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.M))


def test_a_picture_as_bytes_and_as_a_form(server, exported):
    bundle = read_bundle(exported)
    (expected,) = Predictor(create_engine(bundle), bundle.preset, bundle.classes).predict([CAT], 3)
    status, headers, content = ask(server, "POST", "/predict?topk=3", CAT)
    assert status == 200 and headers["content-type"] == "application/json"
    found = json.loads(content)
    assert found["model"] == "mobilenet_v3_small"
    assert [p["name"] for p in found["predictions"]] == [p.name for p in expected]
    assert found["predictions"][0]["probability"] == pytest.approx(expected[0].probability, abs=1e-6)
    form = b'--x\r\nContent-Disposition: form-data; name="file"; filename="c.jpg"\r\n\r\n' + CAT + b"\r\n--x--\r\n"
    status, _, again = ask(server, "POST", "/predict?topk=3", form, {"Content-Type": "multipart/form-data; boundary=x"})
    assert status == 200 and json.loads(again)["predictions"] == found["predictions"]


def test_health_and_metrics(server, exported):
    status, _, content = ask(server, "GET", "/health")
    digest = read_bundle(exported).weights_sha256
    about = {"status": "ok", "model": "mobilenet_v3_small", "weights_sha256": digest, "version": __version__}
    assert status == 200 and json.loads(content) == about | {"engine": "onnxruntime fp32", "classes": 1000}
    before = metric(server, "mobilenetv3_requests_total"), metric(server, "mobilenetv3_request_seconds_count")
    ask(server, "POST", "/predict", CAT)
    ask(server, "POST", "/predict", b"text")
    assert metric(server, "mobilenetv3_requests_total") == before[0] + 2
    assert metric(server, "mobilenetv3_request_seconds_count") == before[1] + 2
    text = ask(server, "GET", "/metrics")[2].decode()
    assert 'mobilenetv3_requests_total{status="415"}' in text and "process_resident_memory_bytes" in text


def png(width, height):
    """A valid picture of one colour: few bytes, many pixels."""
    buffer = io.BytesIO()
    Image.new("1", (width, height)).save(buffer, "PNG")
    return buffer.getvalue()


REFUSED = {
    "nothing": (b"", 400, "the request holds no picture"),
    "text": (b"hello, this is text", 415, "this is not a picture"),
    "a JPEG cut short": (CAT[: len(CAT) // 2], 422, "the picture is damaged"),
    "a decompression bomb": (png(12_000, 9_000), 413, "12000 x 9000 pixels, more than 50,000,000"),
    "a greater bomb": (png(20_000, 20_000), 413, "too many pixels"),
    "too many bytes": (bytes(2 * 2**20), 413, "the picture is larger than 1,048,576 bytes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_usable_picture_gets_its_own_status(server, case):
    body, expected, words = REFUSED[case]
    status, _, content = ask(server, "POST", "/predict", body)
    assert status == expected and words in detail(content)


def test_a_hundred_megabytes_are_refused_and_not_kept(server):
    before = metric(server, "process_resident_memory_bytes")
    status, _, content = ask(server, "POST", "/predict", bytes(100 * 2**20))
    assert status == 413 and "larger than 1,048,576 bytes" in detail(content)
    assert metric(server, "process_resident_memory_bytes") - before < 20 * 2**20


def test_one_who_announces_a_hundred_megabytes_and_stops_is_let_go(server):
    with socket.create_connection(("127.0.0.1", server), 10) as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 104857600\r\n\r\n" + bytes(1000))
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")


def test_an_upload_of_unknown_length_is_cut_off_at_the_limit(server):
    with socket.create_connection(("127.0.0.1", server), 10) as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(40):
            connection.sendall(b"10000\r\n" + bytes(0x10000) + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")
    assert ask(server, "GET", "/health")[0] == 200


def test_a_slow_client_is_let_go(server):
    with socket.create_connection(("127.0.0.1", server), 10) as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n" + CAT[:10])
        start = time.perf_counter()
        assert connection.recv(4096).startswith(b"HTTP/1.1 408")
        assert 1.5 < time.perf_counter() - start < 6
    assert metric(server, "mobilenetv3_active_requests") == 0


def test_other_requests_are_refused(server):
    assert ask(server, "GET", "/predict")[0] == 405
    assert ask(server, "POST", "/predict?topk=0", CAT)[0] == 422
    assert ask(server, "GET", "/nothing")[0] == 404
    for path in ("/predict/", "/health/"):  # no redirect: its address would be made of the Host header
        assert ask(server, "POST", path, CAT, {"Host": "evil.example"})[0] == 404, path
    form = {"Content-Type": "multipart/form-data"}
    assert ask(server, "POST", "/predict", b"--x--", form)[0] == 400


@pytest.mark.parametrize("asked", ["GET /health", "GET /metrics", "GET /nothing", "POST /predict"])
def test_a_client_that_sends_nothing_more_gets_its_answer(server, asked):
    """As ``nc -N`` does: it closes its half of the connection behind its request."""
    with socket.create_connection(("127.0.0.1", server), 10) as connection:
        connection.sendall(f"{asked} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n".encode())
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    status, expected = answer.split(b" ")[1], {"GET /nothing": b"404", "POST /predict": b"400"}.get(asked, b"200")
    assert status == expected and answer.partition(b"\r\n\r\n")[2], answer


def test_concurrent_requests_keep_their_answers(server, exported):
    pictures = [p.read_bytes() for p in sorted((ROOT / "lite_data").glob("*/*/*.JPEG"))]
    alone = [json.loads(ask(server, "POST", "/predict", picture)[2])["predictions"] for picture in pictures]
    requests = metric(server, "mobilenetv3_batch_size_sum")
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda i: ask(server, "POST", "/predict", pictures[i % 32]), range(256)))
    assert [status for status, _, _ in answers] == [200] * 256
    for number, (_, _, content) in enumerate(answers):
        found, right = json.loads(content)["predictions"], alone[number % 32]
        assert [p["index"] for p in found] == [p["index"] for p in right]
        assert np.allclose([p["probability"] for p in found], [p["probability"] for p in right], atol=1e-6)
    assert metric(server, "mobilenetv3_batch_size_sum") - requests == 256


@pytest.mark.parametrize("body", [CAT, CAT[:9000], b"no picture", b""])
def test_numbers_of_classes_that_mean_the_same_get_the_same_answer(server, body):
    def told(query):
        status, headers, content = ask(server, "POST", f"/predict{query}", body)
        return status, headers["content-type"], json.loads(content)

    before = metric(server, "mobilenetv3_request_seconds_count")
    assert told("") == told("?topk=5") == told("?topk=05")
    assert metric(server, "mobilenetv3_request_seconds_count") == before + 3


@pytest.mark.parametrize("query", ["?topk=0", "?topk=1001", "?topk=-1", "?topk=", "?topk=3.5", "?topk=x", "?topk=" + "9" * 9000])
def test_wrong_numbers_of_classes_are_refused(server, query):
    status, _, content = ask(server, "POST", f"/predict{query}", CAT)
    assert status == 422 and json.loads(content)["detail"][0]["loc"] == ["query", "topk"]


def test_a_full_queue_refuses_and_says_when_to_come_again(exported):
    with serving(exported, "--max-queue", "4", "--decoders", "1") as (_, port):
        with ThreadPoolExecutor(64) as pool:
            answers = list(pool.map(lambda _: ask(port, "POST", "/predict", CAT), range(400)))
        counts = {status: sum(s == status for s, _, _ in answers) for status in {s for s, _, _ in answers}}
        assert set(counts) == {200, 503} and counts[200] >= 4, counts  # those that the queue has room for at least
        refused = next(headers for status, headers, _ in answers if status == 503)
        assert refused["retry-after"] == "1"
        assert ask(port, "POST", "/predict", CAT)[0] == 200


def test_memory_stays_steady(server):
    def resident():
        return metric(server, "process_resident_memory_bytes") / 2**20

    def load(count):
        with ThreadPoolExecutor(16) as pool:
            assert {status for status, _, _ in pool.map(lambda _: ask(server, "POST", "/predict", CAT), range(count))} == {200}

    load(300)
    before = resident()
    load(600)
    assert resident() - before < 40, "MiB"


def test_sigterm_under_load_answers_all_that_was_accepted(exported):
    with serving(exported) as (process, port):
        lost, answered, refused = [], [], []
        stop = threading.Event()

        def client():
            while not stop.is_set():
                try:
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
                    connection.connect()
                except OSError:
                    refused.append(1)
                    return
                try:
                    connection.request("POST", "/predict", CAT, {"Connection": "close"})
                    answered.append(connection.getresponse().status)
                except (OSError, http.client.HTTPException) as error:
                    lost.append(error)
                finally:
                    connection.close()

        threads = [threading.Thread(target=client) for _ in range(16)]
        for thread in threads:
            thread.start()
        time.sleep(1.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        stop.set()
        for thread in threads:
            thread.join()
    assert len(answered) > 30 and set(answered) == {200}
    # A connection that the kernel took but the service never did is reset; it was not accepted.
    assert len(lost) <= 16 and all(isinstance(e, (ConnectionResetError, http.client.RemoteDisconnected)) for e in lost), lost


def test_a_taken_port_and_wrong_limits_are_refused_in_one_line(exported, server):
    for flags, message in (
        (["--port", str(server)], f"cannot listen on 127.0.0.1 port {server}: Address already in use"),
        (["--max-batch", "0"], "must be above 0"),
        (["--port", "70000"], "--port must be from 0 to 65,535, found 70000"),
        (["--host", "256.1.1.1"], "cannot listen on 256.1.1.1"),
    ):
        run = subprocess.run(
            [sys.executable, "tools/serve.py", "--model-dir", str(exported), *flags],
            cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, env=os.environ,
        )  # fmt: skip
        assert run.returncode == 2 and run.stderr.startswith("error: ") and run.stderr.count("\n") == 1, run.stderr
        assert message in run.stderr


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


@pytest.fixture
def address(server):
    return f"http://127.0.0.1:{server}/"


def test_the_page_names_a_chosen_picture(chromium, address):
    with opened(chromium, address) as page:
        page.set_input_files("#file", str(ROOT / "lite_data/val/cat/cat_0.JPEG"))
        page.wait_for_selector("#classes li")
        assert page.locator("#classes li").count() == 5
        assert page.evaluate("document.getElementById('preview').naturalWidth") > 100
        shares = [float(text.split("\n")[-1].rstrip(" %")) for text in page.locator("#classes li").all_inner_texts()]
        assert shares == sorted(shares, reverse=True) and shares[0] > 0


def test_the_page_takes_a_dropped_picture(chromium, address):
    with opened(chromium, address) as page:
        page.evaluate(
            """async bytes => {
                const transfer = new DataTransfer();
                transfer.items.add(new File([new Uint8Array(bytes)], "cat.jpg", {type: "image/jpeg"}));
                for (const kind of ["dragenter", "dragover", "drop"])
                  document.getElementById("drop").dispatchEvent(
                    new DragEvent(kind, {dataTransfer: transfer, bubbles: true, cancelable: true}));
            }""",
            list(CAT),
        )
        page.wait_for_selector("#classes li")
        assert page.get_attribute("#preview", "alt") == "cat.jpg"


def test_the_page_says_what_is_wrong(chromium, address, tmp_path):
    (tmp_path / "text.txt").write_text("no picture")
    page = chromium.new_page()  # the browser itself notes a status of 415 in its console
    page.goto(address)
    page.set_input_files("#file", str(tmp_path / "text.txt"))
    page.wait_for_function("document.getElementById('error').textContent !== ''")
    assert page.inner_text("#error").startswith("this is not a picture") and page.locator("#classes li").count() == 0
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_readable_and_reachable(chromium, address, scheme):
    with opened(chromium, address, color_scheme=scheme, viewport=PHONE) as page:
        for selector in ("h1", "footer", "#drop"):
            assert contrast(page, selector) >= 4.5
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        stops = tab_stops(page)
        assert [tag for tag, _ in stops][:3] == ["INPUT", "A", "A"]
        page.focus("#file")
        assert page.evaluate("getComputedStyle(document.getElementById('drop')).outlineStyle") == "solid"
