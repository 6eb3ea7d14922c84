"""Who may ask the service, what it notes of each request, and the flags that say so."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from mobilenetv3_paddle.deploy.serving.app import Access, Gate
from mobilenetv3_paddle.deploy.serving.server import Server
from mobilenetv3_paddle.deploy.serving.service import Metrics
from tests.conftest import ROOT
from tests.test_serve import detail


def test_token_hosts_clients_numbers_and_log(service, tmp_path):
    (tmp_path / "token").write_text("correct-horse-battery\n")
    running = service(
        "--token-file", str(tmp_path / "token"), "--allowed-hosts", "127.0.0.1", "example.org", "--max-per-client", "2",
        "--access-log", str(tmp_path / "log"), "--timeout", "5",
    )  # fmt: skip
    right = {"Authorization": "Bearer correct-horse-battery"}
    status, headers, content = running.predict()
    assert status == 401 and headers["www-authenticate"] == "Bearer" and "token" in detail(content)
    assert running.predict(Authorization="Bearer correct-horse-batterx")[0] == running.ask("GET", "/metrics")[0] == 401
    assert running.ask("GET", "/health")[0] == running.ask("GET", "/")[0] == 200
    status, headers, content = running.predict(**right, **{"X-Request-Id": "abc-1"})
    assert status == 200 and headers["x-request-id"] == "abc-1" and len(json.loads(content)["weights_sha256"]) == 64
    assert re.fullmatch("[0-9a-f]{32}", running.predict(**right, **{"X-Request-Id": 'a b\t"{}'})[1]["x-request-id"])
    assert running.predict(**right, Host="evil.example")[0] == 400
    assert running.predict(**right, Host="example.org:8000")[0] == 200
    running.mood.write_text("slow")
    with ThreadPoolExecutor(4) as pool:
        statuses = sorted(answer[0] for answer in pool.map(lambda _: running.predict(**right), range(4)))
    assert statuses == [200, 200, 429, 429]
    rows = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [row["status"] for row in rows][:5] == [401, 401, 401, 200, 200] and rows[5]["id"] == "abc-1"
    assert rows[5]["path"] == "/predict" and rows[5]["client"] == "127.0.0.1" and rows[5]["ms"] > 0 and rows[5]["bytes"] > 100
    assert "correct-horse" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("trusted", [False, True])
def test_a_client_is_called_as_its_proxy_says_only_where_the_proxy_is_trusted(service, tmp_path, monkeypatch, trusted):
    """uvicorn believed any client of the same machine, and whomever the environment named."""
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    flags = ["--trusted-proxies", "127.0.0.1"] if trusted else []
    running = service("--max-per-client", "1", "--access-log", str(tmp_path / "log"), *flags)
    running.mood.write_text("slow")
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(running.predict, **{"X-Forwarded-For": f"203.0.113.{number}"}) for number in range(3)]
        statuses = sorted(one.result()[0] for one in asked)
    assert statuses == ([200, 200, 200] if trusted else [200, 429, 429])
    running.end()  # then all of the log is written
    clients = {json.loads(line)["client"] for line in (tmp_path / "log").read_text().splitlines()}
    assert clients == ({f"203.0.113.{number}" for number in range(3)} if trusted else {"127.0.0.1"})


@pytest.mark.parametrize(
    ("lines", "client"),
    [
        ([], "127.0.0.1"),
        (["203.0.113.9"], "203.0.113.9"),
        (["1.2.3.4, 203.0.113.9"], "203.0.113.9"),
        (["1.2.3.4", "203.0.113.9"], "203.0.113.9"),
        (["1.2.3.4", "203.0.113.9, 10.0.0.1"], "203.0.113.9"),
        (["1.2.3.4", "203.0.113.9", "10.0.0.1"], "203.0.113.9"),
        (["203.0.113.9", ""], "10.0.0.1"),
    ],
)
def test_the_client_is_the_last_whom_no_trusted_proxy_names(lines, client):
    """Some fronts write a line of their own below the client's: its own line alone was believed."""

    async def well(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    async def nothing(message):
        pass

    said = []
    gate = Gate(well, Access(log=said.append), 9, Metrics(), lambda: False)
    served = Server(gate, None, 9, 1, 1, None, None, None, ["127.0.0.1", "10.0.0.1"]).config
    served.load()
    headers = [(b"x-forwarded-for", line.encode()) for line in lines]
    peer = client if client in ("127.0.0.1", "10.0.0.1") else "10.0.0.1"
    scope = {"type": "http", "method": "GET", "path": "/health", "headers": headers, "client": (peer, 1)}
    asyncio.run(served.loaded_app(scope, None, nothing))
    assert json.loads(said[0])["client"] == client


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--timeout", "nan"], "--timeout must be above 0 and finite"),
        (["--shutdown", "inf"], "--shutdown must be above 0 and finite"),
        (["--max-pixels", "-1"], "--max-pixels must be above 0"),
        (["--token-file", "nowhere"], "cannot read --token-file nowhere"),
        (["--token-file", "Makefile"], "one word of at least 16 characters"),
        (["--access-log", "/nowhere/log"], "cannot write --access-log /nowhere/log"),
    ],
)
def test_senseless_flags_are_a_line(flags, message):
    sys.path.insert(0, str(ROOT / "tools"))
    import serve

    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.chdir(ROOT) if hasattr(contextlib, "chdir") else contextlib.nullcontext():
        assert serve.main(["--model-dir", "nowhere", *flags]) == 2
    assert message in errors.getvalue() and errors.getvalue().count("\n") == 1


def test_another_host_is_a_warning(exported):
    process = subprocess.Popen(
        [sys.executable, "tools/serve.py", "--model-dir", str(exported), "--port", "0", "--host", "0.0.0.0"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    process.stdout.readline()
    process.terminate()
    assert "warning: --host 0.0.0.0 lets everyone" in process.communicate(timeout=20)[1]
