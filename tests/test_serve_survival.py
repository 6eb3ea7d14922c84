"""What strangers, a full disk, signals or killed processes do to the service: it goes on, and honest clients see no failure."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter

from mobilenetv3_common import streams
from mobilenetv3_common.picture_format import Rules, TooLarge
from mobilenetv3_common.run_control import STOPS
from mobilenetv3_paddle.deploy.serving import server as workers
from tests.attacks import bmp_of_runs, tiff
from tests.conftest import ROOT
from tests.test_serve import CAT, ask, detail

PART = b'--x\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n'
NOISE = bytes(n * n * 7 % 251 for n in range(1000))


def form(*parts):
    return b"\r\n".join(parts) + b"\r\n--x--\r\n"


def held_up(running, work):
    """What a request gives, and the longest that the health path took meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        asked, longest = pool.submit(work), 0.0
        while not asked.done():
            start = time.monotonic()
            assert running.ask()[0] == 200
            longest = max(longest, time.monotonic() - start)
        return asked.result(), longest


CHARSETS = ["punycode", "idna", "undefined", "utf-7", "unicode_escape", "zlib_codec", "rot13", "\xff", "x" * 4000]


def test_nothing_that_a_client_names_chooses_a_decoder(service):
    """``charset=punycode`` with a field of 1 MB stopped the whole service for 84 s; ``undefined`` and ``idna`` gave 500."""
    running = service("--timeout", "4")
    file = PART % (b"f", b'; filename="c.jpg"') + CAT
    for charset in CHARSETS:
        kind = {"Content-Type": f"multipart/form-data; charset={charset}; boundary=x"}
        for name in (b"field", b"\xff\xfe", b"a-" + b"b" * 3000):
            status, _, content = running.predict(form(PART % (name, b"") + b"xn--\xff", file), **kind)
            assert status == 200, (charset, name[:10], content)
    attacks = {
        "a name": form(PART % (b"a" * 10**6, b"") + b"1"),
        "a value": form(PART % (b"a", b"") + b"a" * 10**6),
        "a file's name": form(PART % (b"a", b"; filename=" + b"a;" * 10**6) + CAT),
        "a name's charset": form(PART % (b"a", b"; filename*=punycode''" + b"a" * 10**6) + CAT),
        "heads": form((PART % (b"a", b"")).replace(b"\r\n\r\n", b"\r\nA: b" * 10**5 + b"\r\n\r\n")),
        "nearly boundaries": form(PART % (b"a", b'; filename="b"') + b"\r\n--" * 2_000_000),
        "line ends": form(PART % (b"a", b'; filename="b"') + b"\r" * 9_000_000),
        "what follows": form(file) + b"\r\n--" * 2000,
    }
    for name, body in attacks.items():
        kind = {"Content-Type": "multipart/form-data; charset=punycode; boundary=x"}
        (status, _, _), longest = held_up(running, lambda body=body, kind=kind: running.predict(body, **kind))
        assert status in (400, 413, 415) or (name == "what follows" and status == 200), (name, status)
        assert longest < 1, (name, longest)
    for boundary in ("b" * 71, '"\\"', "", "a;" * 5000):
        status, _, content = running.predict(form(file), **{"Content-Type": f"multipart/form-data; boundary={boundary}"})
        assert status == 400 and "the form cannot be read" in detail(content)
    for body in ("é".encode("utf-16"), b"\xff\xfe{\0}\0"):  # JSON is UTF-8, whatever its first bytes or its charset say
        kind = {"Content-Type": "application/json; charset=utf-16"}
        assert running.ask("POST", "/v2/models/mobilenet_v3_small/infer", body, kind)[0] == 400
    assert running.errors.read_text() == ""


@pytest.mark.parametrize("path", ["/predict", "/health", "/v2/models/mobilenet_v3_small/infer", "/metrics", "/nothing"])
@pytest.mark.parametrize(("coding", "refused"), [("gzip", True), ("identity, br", True), ("Identity", False), ("", False)])
def test_a_coded_body_is_refused_on_every_path(server, path, coding, refused):
    method = "POST" if path.startswith(("/predict", "/v2")) else "GET"
    status, _, content = ask(server, method, path, CAT, {"Content-Encoding": coding})
    assert (status == 415 and b"Content-Encoding" in content) == refused, content


@pytest.mark.parametrize(
    "path",
    ["/health", "/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready", "/v2/models/mobilenet_v3_small/ready",
     "/", "/metrics", "/docs", "/openapi.json", "/v2"],
)  # fmt: skip
def test_head_is_answered_as_get_without_a_body(server, path):
    """As load balancers and ``wget --spider`` ask."""
    status, headers, content = ask(server, "HEAD", path)
    assert status == 200 and content == b"" and int(headers["content-length"]) > 0
    assert headers["content-type"] == ask(server, "GET", path)[1]["content-type"]
    assert ask(server, "HEAD", "/predict")[0] == 405 and ask(server, "HEAD", "/nothing")[0] == 404


@pytest.fixture(scope="module")
def server(exported):
    from tests.test_serve import serving

    with serving(exported, "--timeout", "5") as (process, port):
        yield port
        assert process.poll() is None


# --- pictures ----------------------------------------------------------------------------------------------------------------

BOMBS = {
    "ends of lines, one row": bmp_of_runs(49_000_000, 1, 8, b"\1\1\0\0" * 300),
    "ends of lines": bmp_of_runs(7000, 7000, 8, b"\1\1\0\0" * 300),
    "runs of half bytes": bmp_of_runs(7000, 7000, 4, (b"\xff\1" * 28 + b"\0\0") * 7000),
    "a fax of damaged rows": tiff(1, 49_000_000, 3, NOISE),
    "a fax of wider rows": tiff(8, 6_000_000, 3, NOISE),
    "run lengths of rows": tiff(1, 49_000_000, 2, NOISE),
    "packed rows": tiff(1, 40_000_000, 32773, NOISE, bits=8),
}


def test_pictures_that_cost_much_are_refused_before_they_are_decoded_and_do_not_print(service):
    """A BMP of 1.6 kB held a decoder for 9 s, a TIFF of 1.1 kB for 274 s, and wrote 3 GB to standard error."""
    running = service("--timeout", "6", "--decoders", "1")
    for name, bomb in BOMBS.items():
        start = time.monotonic()
        status, _, content = running.predict(bomb)
        assert status == 413 and "too long to decode" in detail(content) and time.monotonic() - start < 1, (name, status)
    for allowed in (bmp_of_runs(640, 480, 8, b"\1\1\0\0" * 480), bmp_of_runs(64, 48, 4, b"\x20\1\0\0" * 48)):
        assert running.predict(allowed)[0] == 200
    for noisy in (tiff(8, 200_000, 3, NOISE), tiff(3000, 3000, 4, NOISE), tiff(300, 90_000, 3, NOISE)):
        assert running.predict(noisy)[0] in (200, 422)
    assert running.predict()[0] == 200 and running.metric("mobilenetv3_decoders_killed_total") == 0
    assert running.errors.read_text() == ""


def test_a_row_and_a_run_count_as_what_they_take():
    rules = Rules(pixels=50_000_000)
    rules.check_size("x", 7000, 7000, 0)
    rules.check_size("x", 200, 250_000, 0)
    for width, height, work in ((1, 300_000, 1), (4000, 3000, 200), (1, 49_000_000, 1)):
        with pytest.raises(TooLarge, match="too long to decode"):
            rules.check_size("x", width, height, 0, work)


# --- decoders ----------------------------------------------------------------------------------------------------------------


def test_a_picture_whose_decoder_is_killed_is_decoded_by_another_and_after_two_it_is_503(service):
    """29 of 7,705 valid pictures were called damaged while decoders were killed."""
    running = service("--timeout", "6", "--decoders", "2")
    stopped = running.family()[1:]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)  # so that it has the picture in hand when it is killed
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(running.predict)
        time.sleep(0.3)
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.3)
        status, headers, content = asked.result()
    assert status in (200, 503) and b"damaged" not in content
    if status == 503:  # both had it
        assert headers["retry-after"] == "5" and "decoders" in detail(content)
    deadline = time.monotonic() + 20
    while len(running.family()) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(running.family()) == 3
    assert running.predict()[0] == 200
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT):
        os.kill(running.family()[1], number)
        assert running.predict()[0] == 200, number


@pytest.mark.slow
@pytest.mark.weekly
def test_no_valid_picture_is_called_damaged_while_decoders_are_killed(service):
    running, stop = service("--timeout", "8", "--decoders", "2"), threading.Event()
    statuses: list[int] = []

    def client():
        while not stop.is_set():
            statuses.append(running.predict()[0])

    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    killed = 0
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(1.5)
        for pid in running.family()[1:][: 1 + killed % 2]:
            os.kill(pid, signal.SIGKILL)
            killed += 1
    stop.set()
    for thread in threads:
        thread.join()
    assert killed > 20 and len(statuses) > 500 and set(statuses) <= {200, 503}, {s: statuses.count(s) for s in set(statuses)}
    assert statuses.count(200) > 0.99 * len(statuses)


# --- streams, folders, signals -------------------------------------------------------------------------------------------------


def started(exported, redirection, *flags, kept=()):
    """The command with its streams as a shell redirects them, and its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = f"exec {sys.executable} tools/serve.py --model-dir {exported} --port {port} {' '.join(flags)} {redirection}"
    process = subprocess.Popen(["bash", "-c", command], cwd=ROOT, start_new_session=True, pass_fds=kept)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            if ask(port, "GET", "/health")[0] == 200:
                return process, port
        time.sleep(0.1)
    raise AssertionError(f"it does not answer: {process.poll()}")


@pytest.mark.parametrize(
    "redirection", [">&-", ">/dev/full", "<&- >&- 2>&-", "--access-log - >/dev/full", "--access-log /dev/full 2>/dev/full"]
)
def test_the_service_needs_none_of_its_streams(exported, redirection):
    process, port = started(exported, redirection, "--decoders", "1")
    try:
        assert [ask(port, "POST", "/predict", CAT)[0] for _ in range(3)] == [200] * 3
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        assert ask(port, "POST", "/predict", CAT)[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()


def full_pipe():
    """Both ends of a pipe that takes nothing more."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    return reading, writing


def test_a_line_for_a_reader_that_stands_still_waits_for_nobody(monkeypatch):
    reading, writing = full_pipe()
    with open(reading, "rb", buffering=0) as reader, open(writing, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        streams.tell("lost")
        streams.put(writing, "lost")
        assert not streams.takes(writing)
        while select.select([reader], [], [], 0)[0]:
            assert set(os.read(reading, 4096)) == {ord("x")}
        streams.tell("one")
        streams.put(writing, "two")
        assert os.read(reading, 4096) == b"one\ntwo\n"
        reader.close()
        streams.put(writing, "nobody reads")


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_service_goes_on_while_the_reader_of_its_streams_stands_still(exported, workers):
    """Its first line, a warning, or a line of the access log waited for a pipe that was full, and all requests with it."""
    reading, writing = full_pipe()
    try:
        flags = "--workers", workers, "--decoders", "1", "--access-log", "-"
        process, port = started(exported, f">&{writing} 2>&1", *flags, kept=(writing,))
        try:
            assert [ask(port, "POST", "/predict", CAT)[0] for _ in range(3)] == [200] * 3
            first = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(first[0]), signal.SIGKILL)  # a worker, or the decoder of the only process that serves
            deadline = time.monotonic() + 40
            while first == Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                assert time.monotonic() < deadline, "it is not replaced"
                time.sleep(0.1)
            assert ask(port, "POST", "/predict", CAT)[0] == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(40) == 0
        finally:
            process.kill()
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.slow
@pytest.mark.parametrize("redirection", [">/dev/null 2>/dev/full", ">&- 2>&-", ">/dev/full 2>/dev/full"])
def test_workers_are_replaced_without_streams_and_without_a_temporary_folder(exported, redirection):
    """The supervisor died of its own warning, and /metrics was 500 while its folder was full or gone."""
    process, port = started(exported, redirection, "--workers", "2", "--decoders", "1")
    try:
        text = ask(port, "GET", "/metrics")[2].decode()
        assert not [name for name in os.listdir("/tmp") if name.startswith("mobilenetv3-workers")]
        first = set(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        os.kill(int(min(first, key=int)), signal.SIGKILL)
        deadline, statuses = time.monotonic() + 40, set()
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, http.client.HTTPException):
                statuses.add(ask(port, "POST", "/predict", CAT)[0])
            status, _, content = ask(port, "GET", "/metrics")
            text = content.decode()
            assert status == 200
            now = set(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
            if len(now) == 2 and now != first and len(set(re.findall(r'resident_memory_bytes{worker="(\d)"}', text))) == 2:
                break
        assert now != first and len(now) == 2 and statuses == {200}
        assert set(re.findall(r'resident_memory_bytes{worker="(\d)"}', text)) == {"0", "1"}
        process.send_signal(signal.SIGHUP)
        assert process.wait(20) == 0
    finally:
        process.kill()


ONE_ANSWERS = """
import os, sys, time
_, number, _, *boards = map(int, os.environ["MOBILENETV3_WORKER"].split(","))
seen = sys.argv[1]
if number == 1:
    os.write(boards[number], b"1")
    open(seen, "w").close()
    time.sleep(60)
while not os.path.exists(seen):
    time.sleep(.001)
if os.path.exists(seen + ".again"):  # the one that takes its place
    os.write(boards[number], b"1")
    time.sleep(60)
open(seen + ".again", "w").close()
"""


def test_a_worker_that_ends_just_after_another_answered_is_replaced(tmp_path):
    """The supervisor looked at the workers one by one: the end of the first was seen, and the answer of the second was not yet."""
    handlers = {number: signal.getsignal(number) for number in STOPS}
    begun = []

    def on_start():
        begun.append(True)
        raise KeyboardInterrupt

    try:
        for turn in range(5):
            command = [sys.executable, "-S", "-c", ONE_ANSWERS, str(tmp_path / str(turn))]
            with socket.socket() as sock, pytest.raises(KeyboardInterrupt):
                workers.supervise(command, 2, sock, 1.0, on_start)
        assert len(begun) == 5
        with socket.socket() as sock, pytest.raises(workers.UserError, match="a worker ended before it answered"):
            workers.supervise([sys.executable, "-c", "pass"], 2, sock, 1.0, on_start)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


WRITES = """
import os, sys, time
_, number, _, *boards = map(int, os.environ["MOBILENETV3_WORKER"].split(","))
with open(sys.argv[1], "a") as file:
    file.write(f"{number} {os.getpid()}\\n")
while True:
    os.pwrite(boards[number], b"1", 0)
    time.sleep((0.02, 0.3)[number])
"""


def test_a_worker_that_stands_still_is_replaced_and_a_slow_one_is_not(tmp_path, monkeypatch):
    """Stopped by SIGSTOP, or in a call that does not come back: it kept its connections, and nobody missed it."""
    monkeypatch.setattr(workers, "SILENT", 1.0)
    handlers = {number: signal.getsignal(number) for number in STOPS}
    seen = tmp_path / "seen"

    def begun():
        return [tuple(map(int, line.split())) for line in seen.read_text().splitlines()]

    def stop_one():
        os.kill(next(pid for number, pid in begun() if number == 0), signal.SIGSTOP)
        deadline = time.monotonic() + 30
        while [number for number, _ in begun()].count(0) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    try:
        with socket.socket() as sock:
            command = [sys.executable, "-S", "-c", WRITES, str(seen)]
            workers.supervise(command, 2, sock, 1.0, lambda: threading.Thread(target=stop_one).start())
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert [number for number, _ in begun()].count(0) == 2 and [number for number, _ in begun()].count(1) == 1
    assert not [pid for _, pid in begun() if Path(f"/proc/{pid}").exists()]


def test_a_worker_whose_parent_ended_before_it_began_does_not_stay():
    code = "from mobilenetv3_paddle.deploy.serving.server import Place; print(Place.mine())"
    for parent, said in ((1, ""), (os.getpid(), "Place(")):
        with socket.socket() as sock:
            place = {workers.PLACE: f"{parent},0,{sock.fileno()}"}
            run = subprocess.run(
                [sys.executable, "-c", code], cwd=ROOT, env=os.environ | place, pass_fds=[sock.fileno()], capture_output=True,
                text=True, timeout=60, check=False,
            )  # fmt: skip
        assert run.returncode == 0 and run.stdout[:6] == said, run.stderr


def test_two_services_that_begin_on_one_port_at_once_are_a_line():
    """Both are bound to it as long as neither listens; the later one ended with a traceback."""

    async def nothing(scope, receive, send):
        raise AssertionError("nobody asks")

    one = workers.listening("127.0.0.1", 0)
    other = workers.listening("127.0.0.1", one.getsockname()[1])
    with one, other:
        one.listen()
        done = [lambda: None] * 3
        with pytest.raises(workers.UserError, match=r"cannot listen on port \d+: Address already in use"):
            workers.Server(nothing, other, 9, 1, 1, *done).run(sockets=[other])


def test_a_board_gives_the_last_text_whole_or_nothing():
    board = workers._board()
    assert workers.read(board) == b""
    for text in (b"longer than the next", b"short", b""):
        workers.write(board, text)
        assert workers.read(board) == text
    workers.write(board, b"whole")
    os.pwrite(board, b"W", 8)
    assert workers.read(board) == b""
    os.close(board)


def test_no_counter_goes_down_whichever_worker_shows_it():
    """The worker that answered showed its values of now, and the next one those that it had written a second before."""
    boards = tuple(workers._board() for _ in range(2))
    places = [workers.Place(number, None, boards) for number in range(2)]
    registries = [CollectorRegistry() for _ in places]
    counters = [Counter("answers", "all", registry=registry) for registry in registries]
    previous: dict[str, float] = {}
    for turn in range(6):
        counters[turn % 3 % 2].inc()
        found = places[turn % 2].together(registries[turn % 2]).decode()
        shown = {n: float(v) for n, v in re.findall(r'^answers_total{worker="(\d)"} (\S+)$', found, re.M)}
        assert shown[str(turn % 2)] == counters[turn % 2]._value.get(), "of now"
        assert all(shown[n] >= before for n, before in previous.items()), (previous, shown)
        previous = shown
    assert previous == {"0": 3.0, "1": 2.0}
    for board in boards:
        os.close(board)


ENDINGS = {
    "SIGHUP": [signal.SIGHUP],
    "SIGTERM twice": [signal.SIGTERM, signal.SIGTERM],
    "SIGINT twice": [signal.SIGINT, signal.SIGINT],
    "all": [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGINT],
}


def until_refused(port):
    """Wait until the end has begun, however busy the machine is: no new connection is taken."""
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.02)
    raise AssertionError("the service still takes connections")


@pytest.mark.parametrize("ending", ENDINGS)
def test_signals_in_whatever_order_end_the_service_after_the_upload_under_way(service, ending):
    """SIGHUP dropped it; a second signal answered it with 500."""
    running = service("--timeout", "8", "--shutdown", "6", "--decoders", "1")
    with socket.create_connection(("127.0.0.1", running.port), 10) as connection:
        connection.sendall(f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(CAT)}\r\n\r\n".encode() + CAT[:1000])
        time.sleep(0.3)
        for number in ENDINGS[ending]:
            running.process.send_signal(number)
            time.sleep(0.3)
        until_refused(running.port)
        connection.sendall(CAT[1000:])
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200") and b"connection: close" in answer.lower()
    assert running.process.wait(10) == 0 and running.errors.read_text() == ""


def test_an_upload_that_outlasts_the_end_is_told_so(service):
    running = service("--timeout", "20", "--shutdown", "1", "--decoders", "1")
    with socket.create_connection(("127.0.0.1", running.port), 10) as connection:
        connection.sendall(f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(CAT)}\r\n\r\n".encode() + CAT[:1000])
        time.sleep(0.3)
        running.process.send_signal(signal.SIGTERM)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 503") and json.loads(answer.partition(b"\r\n\r\n")[2])["detail"].startswith(
        "the service is"
    )
    assert running.process.wait(10) == 0


@pytest.mark.slow
def test_a_hangup_and_ctrl_c_end_all_workers_after_the_upload_under_way(exported):
    for numbers in ([signal.SIGHUP, signal.SIGHUP], [signal.SIGINT, signal.SIGTERM, signal.SIGINT]):
        process, port = started(exported, "2>/dev/null", "--workers", "2", "--decoders", "1", "--shutdown", "6")
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.sendall(f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(CAT)}\r\n\r\n".encode() + CAT[:1000])
            time.sleep(0.3)
            for number in numbers:
                os.killpg(process.pid, number)  # as a terminal does
                time.sleep(0.3)
            connection.sendall(CAT[1000:])
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200"), answer[:100]
        assert process.wait(10) == 0
