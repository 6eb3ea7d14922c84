"""What strangers do to a service: pictures that cost much, connections that say nothing, clients that leave; and what breaks
inside: decoders, the engine. It goes on, says so, and ends when it is told to."""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from tests.attacks import BLP, EPS, chunk, flat, jpeg_of_scans, png
from tests.conftest import ROOT
from tests.test_protocol import as_bytes
from tests.test_serve import CAT, detail

HEAD = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n"


def avif():
    data = bytearray(flat("AVIF", 64, 64))
    data[-30:] = bytes(30)
    return bytes(data)


def tagged_jpeg():
    """Two million comments of no length before the picture."""
    return CAT[:2] + b"\xff\xfe\0\2" * 2_000_000 + CAT[2:]


def chunked_png():
    """Half a million empty chunks before the picture."""
    return png(30, 30)[:33] + chunk(b"teST", b"") * 500_000 + png(30, 30)[33:]


ATTACKS = {
    "a row of pixels": (lambda: png(200_000, 1), {200, 504}),
    "a thousand scans": (lambda: jpeg_of_scans(1000, 1500), {413, 504}),
    "99 scans of many pixels": (lambda: jpeg_of_scans(88, 2400), {200, 413, 504}),
    "a large WebP": (lambda: flat("WEBP", 7000, 7000), {413, 504}),
    "a large PNG": (lambda: png(7000, 7000), {200, 413, 504}),
    "EPS": (lambda: EPS, {415}),
    "BLP": (lambda: BLP, {415}),
    "AVIF": (avif, {415}),
    "comments": (tagged_jpeg, {200, 413, 422, 504}),
    "chunks": (chunked_png, {200, 413, 422, 504}),
}


@pytest.mark.slow
def test_attackers_are_answered_in_time_and_others_notice_nothing(service):
    seconds = 4.0
    running = service("--timeout", str(seconds), "--max-upload", "20")
    files = {name: make() for name, (make, _) in ATTACKS.items()}
    assert running.predict()[0] == 200
    before, most = running.memory(), []
    end, found, slow, honest, health = time.monotonic() + 8, [], [], [], []

    def attacker(names):
        while time.monotonic() < end:
            for name in names:
                start = time.monotonic()
                status = running.predict(files[name])[0]
                if time.monotonic() - start > seconds + 1:
                    slow.append((name, time.monotonic() - start))
                found.append((name, status))

    def client():
        while time.monotonic() < end:
            start = time.monotonic()
            status = running.predict()[0]
            honest.append((status, time.monotonic() - start))
            time.sleep(max(0.0, 0.2 - (time.monotonic() - start)))

    def watcher():
        while time.monotonic() < end:
            start = time.monotonic()
            status = running.ask()[0]
            health.append((status, time.monotonic() - start))
            most.append(running.memory())
            time.sleep(0.1)

    orders = [list(files), list(reversed(files))]
    threads = [threading.Thread(target=attacker, args=[names]) for names in orders]
    threads += [threading.Thread(target=client), threading.Thread(target=watcher)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not slow
    for name, (_, allowed) in ATTACKS.items():
        statuses = {status for what, status in found if what == name}
        assert statuses and statuses <= allowed, (name, statuses)
    assert len(honest) >= 12 and {status for status, _ in honest} == {200} and max(s for _, s in honest) < seconds, honest
    assert {status for status, _ in health} == {200} and max(s for _, s in health) < 1, health
    assert max(most) - before < 500, "MiB"
    assert running.end() < 4


def test_a_decoder_that_hangs_or_dies_is_replaced(service):
    running = service("--timeout", "1", "--decoders", "2")
    for number in (signal.SIGSTOP, signal.SIGKILL):
        first = set(running.family()[1:])
        assert len(first) == 2
        for pid in first:
            os.kill(pid, number)
        statuses = [running.predict()[0] for _ in range(3)]
        assert set(statuses) <= {200, 503, 504}, statuses
        assert number == signal.SIGKILL or 504 in statuses, statuses  # the death of an idle decoder is noticed
        for _ in range(50):
            if running.predict()[0] == 200 and running.ask()[0] == 200:
                break
            time.sleep(0.1)
        assert running.predict()[0] == 200
    assert running.metric("mobilenetv3_decoders_killed_total") >= 2


def test_a_hung_engine_is_504_then_503_at_once_and_health_tells(service):
    running = service("--timeout", "1", "--shutdown", "2")
    assert running.ask("GET", "/health/live")[0] == running.ask("GET", "/health/ready")[0] == 200
    assert running.predict()[0] == 200
    running.mood.write_text("hang")
    start = time.perf_counter()
    status, _, content = running.predict()
    assert status == 504 and "not answered within 1 s" in detail(content) and 0.9 < time.perf_counter() - start < 2
    time.sleep(0.6)
    start = time.perf_counter()
    status, headers, content = running.predict()
    assert status == 503 and "engine" in detail(content) and headers["retry-after"] == "5" and time.perf_counter() - start < 0.5
    for path in ("/health", "/health/live", "/health/ready"):
        assert running.ask("GET", path)[0] == 503, path
    assert running.end() < 3.5


def test_a_failing_engine_is_503_unready_but_alive_and_recovers(service):
    running = service("--timeout", "2")
    running.mood.write_text("fail")
    for _ in range(3):
        status, _, content = running.predict()
        assert status == 503 and "the engine failed: out of order" in detail(content)
    assert running.ask("GET", "/health/ready")[0] == running.ask("GET", "/health")[0] == 503
    assert running.ask("GET", "/health/live")[0] == 200
    running.mood.write_text("")
    assert running.predict()[0] == 200
    assert running.ask("GET", "/health/ready")[0] == 200


def test_silent_and_slow_connections_are_closed(service):
    running = service("--timeout", "1")

    def closed_after(first, more, pause=0.2):
        with socket.create_connection(("127.0.0.1", running.port), 10) as connection:
            start = time.perf_counter()
            connection.sendall(first)
            connection.settimeout(pause)
            while time.perf_counter() - start < 8:
                with contextlib.suppress(TimeoutError):
                    try:
                        if connection.recv(4096) == b"":
                            break
                        continue
                    except OSError as error:
                        if isinstance(error, TimeoutError):
                            raise
                        break
                with contextlib.suppress(OSError):
                    connection.sendall(more)
            return time.perf_counter() - start

    assert closed_after(b"", b"") < 3, "a connection that says nothing"
    assert closed_after(b"GET /health HTTP/1.1\r\nHost: x\r\n", b"X-A: 1\r\n") < 3, "a head that never ends"
    assert closed_after(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"") < 4, "a client that keeps its connection and is silent"
    assert closed_after(HEAD + b"\r\n", b"x") < 5, "a body of a byte now and then"
    with socket.create_connection(("127.0.0.1", running.port), 10) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"y" * 40_000)
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


def test_few_descriptors_many_connections_and_still_an_answer(service):
    running = service("--timeout", "3", "--decoders", "2", descriptors=64)
    idle = []
    try:
        for _ in range(200):
            idle.append(socket.create_connection(("127.0.0.1", running.port), 5))
        start = time.perf_counter()
        assert running.predict()[0] == 200 and time.perf_counter() - start < 3
        time.sleep(1.5)
        assert running.predict()[0] == 200
    finally:
        for connection in idle:
            connection.close()
    assert running.errors.stat().st_size < 10_000, running.errors.read_text()[:1000]


CHUNKED = b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
LENGTH = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(CAT)}\r\n\r\n".encode()


def answered(port, data):
    """Status of the first answer to raw bytes, 0 for a connection that is closed, and the seconds it took."""
    start = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port), 10) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(data)
        found = re.match(rb"HTTP/1\.1 (\d+)", connection.recv(100))
        return int(found[1]) if found else 0, time.perf_counter() - start
    return 0, time.perf_counter() - start


def test_bodies_whose_framing_is_an_attack_are_refused_at_once(service):
    running = service("--timeout", "4")
    for digits in (b"F" * 18, b"7" + b"F" * 15, b"1" + b"F" * 8, b"F" * 30):
        status, seconds = answered(running.port, CHUNKED + digits + b"\r\nabc")
        assert status == 400 and seconds < 2, digits
    status, seconds = answered(running.port, CHUNKED + b"1\r\na\r\n" * 2_000_000)
    assert status in (0, 400) and seconds < 2
    parts = (b"400\r\n" + CAT[at : at + 1024] + b"\r\n" for at in range(0, len(CAT) - 1024, 1024))
    rest = CAT[len(CAT) // 1024 * 1024 :] if len(CAT) % 1024 else b""
    whole = CHUNKED + b"".join(parts) + (b"%x\r\n" % len(rest) + rest + b"\r\n" if rest else b"") + b"0\r\n\r\n"
    assert answered(running.port, whole)[0] == 200
    assert running.predict()[0] == 200 and running.errors.read_text() == ""


@pytest.mark.slow
def test_sigterm_ends_a_service_under_attack_in_time(service):
    states = {
        "pictures in a pipeline": LENGTH + CAT + (LENGTH + CAT) * 200,
        "answers that nobody reads": b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 5000,
        "trailers without end": CHUNKED + b"%x\r\n" % len(CAT) + CAT + b"\r\n0\r\nX-A: 1\r\n",
        "a chunk without end": CHUNKED + b"FFFFFFF\r\nabc",
        "a form without end": LENGTH.replace(b"\r\n\r\n", b"\r\nContent-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"),
        "a JPEG of fill bytes": b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 9000003\r\n\r\n\xff\xd8\xff"
        + b"\xff" * 9_000_000,
        "an engine that hangs": LENGTH + CAT,
    }
    running = service("--timeout", "8", "--shutdown", "1", "--decoders", "1")
    with contextlib.ExitStack() as stack:
        for name, data in states.items():
            running.mood.write_text("hang" if "hangs" in name else "")
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", running.port), 5))
            connection.settimeout(0.5)
            with contextlib.suppress(TimeoutError):
                connection.sendall(data)
            time.sleep(0.1)
        assert running.end() < 3


def test_too_few_descriptors_are_a_line(exported, tmp_path):
    run = subprocess.run(
        ["bash", "-c", f"ulimit -n 24; exec {sys.executable} tools/serve.py --model-dir {exported} --port 0"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert run.returncode == 2 and run.stderr.count("\n") == 1 and "raise it (ulimit -n" in run.stderr, run.stderr


@pytest.mark.parametrize("blocks", [0, 1, 64])
def test_a_limit_of_the_size_of_files_is_a_line_of_several_workers_and_nothing_to_one(exported, blocks):
    """The limit holds for memory, too: no worker could say that it answers, and all were replaced for ever."""
    command = f"ulimit -f {blocks}; exec {sys.executable} tools/serve.py --model-dir {exported} --port 0 --decoders 1"
    several = subprocess.run(
        ["bash", "-c", f"{command} --workers 2"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert several.returncode == 2 and several.stderr.count("\n") == 1 and "raise the limit (ulimit -f)" in several.stderr
    if blocks == 0:
        with subprocess.Popen(["bash", "-c", command], cwd=ROOT, stdout=subprocess.PIPE, text=True) as one:
            try:
                port = int(one.stdout.readline().rstrip("/\n").rpartition(":")[2])
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
                connection.request("POST", "/predict", CAT)
                assert connection.getresponse().status == 200
            finally:
                one.terminate()
        assert one.returncode == 0


def test_clients_that_break_off_are_no_failures_and_are_not_computed(service):
    running = service("--timeout", "5")
    running.mood.write_text("slow")
    count = len(running.runs()) + 1  # beside those that warm up
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(running.predict)  # the engine is busy for 0.7 s
        while len(running.runs()) < count:
            time.sleep(0.02)
        for _ in range(8):
            with socket.create_connection(("127.0.0.1", running.port), 5) as connection:
                connection.sendall(HEAD.replace(b"5000", str(len(CAT)).encode()) + b"\r\n" + CAT)
                time.sleep(0.02)
        with socket.create_connection(("127.0.0.1", running.port), 5) as connection:
            connection.sendall(HEAD + b"\r\n" + CAT[:100])  # broken off in the upload
        assert held.result()[0] == 200
    time.sleep(1)
    assert len(running.runs()) == count, running.runs()
    text = running.ask("GET", "/metrics")[2].decode()
    assert 'requests_total{status="499"} 9.0' in text and 'status="500"' not in text
    assert running.metric("mobilenetv3_active_requests") == 0
    assert running.errors.read_text() == ""


def test_clients_that_break_off_behind_a_further_request_are_not_computed(service):
    """Their connections are not read any more until the first request is answered. One closes, one half-closes, one resets."""
    running = service("--timeout", "5", "--shutdown", "1")
    count = len(running.runs()) + 1
    running.mood.write_text("hang")
    request = HEAD.replace(b"5000", str(len(CAT)).encode()) + b"\r\n" + CAT
    with ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as stack:
        held = pool.submit(running.predict)
        while len(running.runs()) < count:
            time.sleep(0.02)
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", running.port), 5)) for _ in range(3)]
        for _ in range(2):
            for client in clients:
                client.sendall(request)
            time.sleep(0.3)
        assert running.metric("mobilenetv3_waiting") == 3
        clients[0].close()
        clients[1].shutdown(socket.SHUT_WR)
        clients[2].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        clients[2].close()
        time.sleep(1.5)
        assert running.metric("mobilenetv3_waiting") == 0 and running.metric("mobilenetv3_active_requests") == 1
        assert 'requests_total{status="499"} 3.0' in running.ask("GET", "/metrics")[2].decode()
        assert held.result()[0] == 504
    assert len(running.runs()) == count


def test_tensors_of_clients_that_break_off_do_not_pile_up_behind_an_engine_that_hangs(service):
    running = service("--timeout", "5", "--shutdown", "2")
    headers, body = as_bytes(np.zeros((32, 3, 224, 224), np.float32))
    head = "POST /v2/models/mobilenet_v3_small/infer HTTP/1.1\r\nHost: x\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in {**headers, "Content-Length": len(body)}.items()) + "\r\n"
    running.mood.write_text("hang")
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(running.predict)
        while "hang 1" not in running.runs():
            time.sleep(0.02)
        before = running.memory()
        for _ in range(10):  # 18 MiB each
            with socket.create_connection(("127.0.0.1", running.port), 5) as connection:
                connection.sendall(head.encode() + body)
                time.sleep(0.05)
        time.sleep(0.2)
        assert running.metric("mobilenetv3_waiting") == 0 and running.metric("mobilenetv3_active_requests") == 1
        assert running.memory() - before < 90
        assert held.result()[0] == 504
    assert 'requests_total{status="499"} 10.0' in running.ask("GET", "/metrics")[2].decode()


def test_sigterm_ends_every_state_in_time_and_tells_clients_to_close(service):
    running = service("--timeout", "8", "--shutdown", "3", "--decoders", "2")
    kept = http.client.HTTPConnection("127.0.0.1", running.port, timeout=10)
    kept.request("GET", "/health")
    kept.getresponse().read()
    with contextlib.ExitStack() as stack:
        for first in (b"", b"POST /pre", HEAD + b"\r\n" + CAT[:10]):
            stack.enter_context(socket.create_connection(("127.0.0.1", running.port), 5)).sendall(first)
        running.mood.write_text("slow")
        kept.request("POST", "/predict", CAT)
        time.sleep(0.3)
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(running.end)
            answer = kept.getresponse()
            assert answer.status == 200 and answer.headers["connection"] == "close"
            assert ended.result() < 4.5
    assert running.process.returncode == 0


def test_sigterm_ends_decoders_that_hang(service):
    running = service("--timeout", "8", "--shutdown", "1")
    for pid in running.family()[1:]:
        os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: contextlib.suppress(OSError, http.client.HTTPException).__enter__() or running.process.wait(20))
        connection = socket.create_connection(("127.0.0.1", running.port), 5)
        connection.sendall(HEAD.replace(b"5000", str(len(CAT)).encode()) + b"\r\n" + CAT)
        time.sleep(0.3)
        assert running.end() < 2.8
        connection.close()
        asked.result()


@pytest.mark.slow
def test_pictures_of_ordinary_size_pass_while_a_large_one_is_decoded(service):
    """A photograph of 18 million pixels has a lane of its own."""
    buffer = io.BytesIO()
    Image.effect_noise((4500, 4000), 60).convert("RGB").save(buffer, "JPEG", quality=40, progressive=True)
    large = buffer.getvalue()
    running = service("--timeout", "10", "--max-upload", "40", "--decoders", "2")
    with ThreadPoolExecutor(3) as pool:
        heavy = [pool.submit(running.predict, large) for _ in range(2)]
        time.sleep(0.2)
        start = time.perf_counter()
        assert running.predict()[0] == 200 and time.perf_counter() - start < 1.5
        assert not all(job.done() for job in heavy)
        assert {job.result()[0] for job in heavy} == {200}
