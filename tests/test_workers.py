"""Several workers behind one socket, the service's page with a token, and deploy/: nginx, Docker, Kubernetes, alerts."""

from __future__ import annotations

import contextlib
import http.client
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import yaml

from mobilenetv3_common.errors import UserError
from mobilenetv3_paddle.deploy.bundle import read_bundle
from mobilenetv3_paddle.deploy.triton import write_repository
from tests.browser import browser
from tests.conftest import ROOT
from tests.test_protocol import MODEL, ONE, as_bytes, infer
from tests.test_serve import CAT, ask, serving
from tests.test_tipc import tool

TOKEN = "correct-horse-battery"
DEPLOY = ROOT / "deploy"


def program(name):
    """A program of the system's, or one that ``make service-tools`` unpacked."""
    places = [os.environ["PATH"], "/usr/sbin", *(str(ROOT / ".cache/tools/usr" / folder) for folder in ("bin", "sbin"))]
    return shutil.which(name, path=os.pathsep.join(places))


def family(pid):
    """The workers of a parent."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def numbered(port):
    """Answers by worker, from /metrics."""
    text = ask(port, "GET", "/metrics")[2].decode()
    return {n: float(v) for n, v in re.findall(r'^mobilenetv3_requests_total{status="200",worker="(\d)"} (\S+)$', text, re.M)}


@pytest.mark.slow
def test_workers_share_the_load_are_replaced_and_end_together(exported):
    with serving(exported, "--workers", "2", "--decoders", "1", "--shutdown", "5") as (process, port):
        workers = family(process.pid)
        assert len(workers) == 2
        end, seen = time.monotonic() + 20, set()
        while seen < {"0", "1"} and time.monotonic() < end:  # one client alone may always meet the same worker
            with ThreadPoolExecutor(8) as clients:
                answers = list(clients.map(lambda _: ask(port, "POST", "/predict", CAT)[0], range(16)))
            assert answers == [200] * 16
            seen |= set(numbered(port))  # a worker knows of the others what they wrote a second ago: one answer has not all
        assert seen == {"0", "1"}, "one worker had all"
        os.kill(workers[0], signal.SIGKILL)
        statuses = set()
        while len(set(family(process.pid)) - set(workers)) < 1 and time.monotonic() < end + 20:
            with contextlib.suppress(OSError):
                statuses.add(ask(port, "POST", "/predict", CAT)[0])
        assert statuses == {200} and len(family(process.pid)) == 2
        left = family(process.pid)
        left += [child for worker in left for child in family(worker)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert "worker 0 ended: another starts" in process.stderr.read()
    time.sleep(0.3)
    assert not [pid for pid in left if Path(f"/proc/{pid}").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text()]


@pytest.mark.slow
def test_a_worker_whose_engine_hangs_is_replaced_and_workers_end_with_a_killed_parent(exported, tmp_path):
    (tmp_path / "mood").write_text("")
    process = subprocess.Popen(
        [sys.executable, "tests/moody_service.py", str(exported), str(tmp_path / "mood"), "--workers", "2", "--timeout", "1",
         "--shutdown", "2"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        port = int(re.search(r":(\d+)/ with 2 workers", process.stdout.readline())[1])
        first = set(family(process.pid))
        (tmp_path / "mood").write_text("hang")
        end = time.monotonic() + 30
        # A worker that ends by force may cut an answer short.
        while first <= set(family(process.pid)) and time.monotonic() < end:
            with contextlib.suppress(OSError, http.client.HTTPException):
                ask(port, "POST", "/predict", CAT)
        assert not first <= set(family(process.pid)), "a hung worker goes on"
        (tmp_path / "mood").write_text("")  # before another starts, which takes a second
        found = 0
        while found != 200 and time.monotonic() < end + 30:
            with contextlib.suppress(OSError, http.client.HTTPException):
                found = ask(port, "POST", "/predict", CAT)[0]
        assert found == 200
        left = family(process.pid)
    finally:
        process.kill()
    end = time.monotonic() + 10
    while [pid for pid in left if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.slow
def test_workers_that_cannot_start_are_a_line(exported):
    code = (
        "import sys; from mnv3 import serve; import mobilenetv3_paddle.deploy.serving.server as w; "
        "start = w._start; w._start = lambda command, *rest: start([sys.executable, '-c', 'raise SystemExit(3)'], *rest); "
        f"sys.exit(serve.main(['--model-dir', {str(exported)!r}, '--port', '0', '--workers', '2']))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 2 and run.stderr.startswith("error: a worker ended before it answered") and run.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def locked(exported, tmp_path_factory):
    """A service with a token, behind whatever stands on this machine."""
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(TOKEN)
    with serving(exported, "--token-file", str(file), "--trusted-proxies", "127.0.0.1", "--max-upload", "8") as (_, port):
        yield port


def test_the_page_works_with_a_token(locked):
    with browser() as chromium:
        page = chromium.new_page()
        page.goto(f"http://127.0.0.1:{locked}/")
        assert page.locator("#metrics").count() == 0
        page.set_input_files("#file", str(ROOT / "lite_data/val/cat/cat_0.JPEG"))
        page.wait_for_function("document.getElementById('error').textContent === 'this service needs a token'")
        page.fill("#token", "another-token-than-that")
        page.set_input_files("#file", str(ROOT / "lite_data/val/cat/cat_0.JPEG"))
        page.wait_for_function("document.getElementById('error').textContent === 'this is not the token'")
        page.fill("#token", TOKEN)
        page.set_input_files("#file", str(ROOT / "lite_data/val/cat/cat_0.JPEG"))
        page.wait_for_selector("#classes li")
        assert page.locator("#classes li").count() == 5 and page.inner_text("#error") == ""
        page.reload()
        assert page.input_value("#token") == TOKEN, "it is kept in this tab"
        page.close()


# --- nginx -----------------------------------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@pytest.fixture(scope="module")
def stack():
    with contextlib.ExitStack() as found:
        yield found


@pytest.fixture(scope="module")
def front(locked, stack):
    """deploy/nginx.conf as it is, but for its ports and places."""
    nginx = program("nginx")
    if nginx is None:
        pytest.skip("needs nginx: make service-tools, or apt install nginx")
    folder, port = Path(stack.enter_context(tempfile.TemporaryDirectory())), free_port()
    folder.chmod(0o755)  # root's nginx works as another user
    text = (DEPLOY / "nginx.conf").read_text()
    here = {"listen 8080": f"listen 127.0.0.1:{port}", "127.0.0.1:8000": f"127.0.0.1:{locked}", "/tmp": str(folder)}
    for before, after in (here | {"rate=50r/s": "rate=1r/s", "burst=100": "burst=40"}).items():
        assert before in text
        text = text.replace(before, after)
    (folder / "nginx.conf").write_text(text)
    process = subprocess.Popen([nginx, "-p", str(folder), "-c", str(folder / "nginx.conf")], stderr=(folder / "errors").open("w"))
    try:
        for _ in range(100):
            with contextlib.suppress(OSError):
                if ask(port, "GET", "/health")[0] == 200:
                    break
            time.sleep(0.05)
        yield port
        assert process.poll() is None, (folder / "errors").read_text()
    finally:
        process.terminate()
        process.wait(10)


@pytest.mark.slow
def test_nginx_passes_on_what_the_service_takes(front, locked):
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert ask(front, "POST", "/predict", CAT)[0] == 401
    status, headers, content = ask(front, "POST", "/predict", CAT, right)
    assert status == 200 and re.fullmatch("[0-9a-f]{32}", headers["x-request-id"])
    direct = json.loads(ask(locked, "POST", "/predict", CAT, right)[2])["predictions"]
    assert [p["index"] for p in json.loads(content)["predictions"]] == [p["index"] for p in direct]
    headers, body = as_bytes(ONE, [{"name": "logits", "parameters": {"binary_data": True}}])
    status, answer, raw = infer(front, body, headers | right)
    assert status == 200 and len(raw) == 4000 and answer["model_name"] == "mobilenet_v3_small"
    assert ask(front, "GET", MODEL + "/ready")[0] == 200 and ask(front, "GET", "/metrics", headers=right)[0] == 403


@pytest.mark.slow
def test_nginx_bounds_uploads_heads_and_requests(front):
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert ask(front, "POST", "/predict", bytes(25 * 2**20), right)[0] == 413
    with socket.create_connection(("127.0.0.1", front), 5) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"y" * 40_000 + b"\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400")
    statuses = [ask(front, "GET", "/health/live")[0] for _ in range(100)]
    assert set(statuses) == {200, 429} and statuses.count(429) > 10


def front_command(folder, *more):
    return [sys.executable, str(DEPLOY / "front.py"), "--model-dir", str(folder), *more]


def test_the_front_without_nginx_and_on_a_taken_port_is_a_line(tmp_path):
    copy = tmp_path / "deploy" / "front.py"  # its own folder has no unpacked nginx beside it
    copy.parent.mkdir()
    copy.write_text((DEPLOY / "front.py").read_text().replace('"/usr/sbin"', '"/nowhere"'))
    environment = os.environ | {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(copy), "--model-dir", "exported"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert (run.returncode, run.stderr.count("\n")) == (2, 1) and "make service-tools" in run.stderr
    (tmp_path / "nginx").write_text("#!/bin/sh\n")
    (tmp_path / "nginx").chmod(0o755)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command += ["--port", str(taken.getsockname()[1])]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert (run.returncode, run.stderr.count("\n")) == (2, 1) and "--port" in run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_the_front_and_the_service_start_and_end_together(exported, by):
    if program("nginx") is None:
        pytest.skip("needs nginx: make service-tools, or apt install nginx")
    port = free_port()
    process = subprocess.Popen(
        front_command(exported, "--port", str(port), "--decoders", "1"), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=os.environ | {"PATH": f"{Path(program('nginx')).parent}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip
    try:
        line = process.stdout.readline()
        assert line.startswith(f"http://127.0.0.1:{port}/ by nginx"), line or process.stderr.read()
        left = family(process.pid)
        assert len(left) == 2
        status, headers, _ = ask(port, "POST", "/predict", CAT)
        assert status == 200 and {name.lower(): value for name, value in headers.items()}["server"] == "nginx"
        left += [child for one in left for child in family(one)]
        process.send_signal(by)
        assert process.wait(30) == 0, process.stderr.read()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    time.sleep(0.3)
    assert not [pid for pid in left if Path(f"/proc/{pid}").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text()]


# --- other files of deploy/ ------------------------------------------------------------------------------------------------


def test_the_alerts_fire_on_faults_and_are_silent_else():
    promtool = program("promtool")
    if promtool is None:
        pytest.skip("needs promtool: make service-tools, or apt install prometheus")
    for command in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts.test.yaml"]):
        run = subprocess.run([promtool, *command], cwd=DEPLOY, capture_output=True, text=True, timeout=60, check=False)
        assert run.returncode == 0 and "SUCCESS" in run.stdout, run.stdout + run.stderr


def test_the_alerts_name_metrics_that_there_are(locked):
    text = ask(locked, "GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})[2].decode()
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"][0]["rules"]
    tests = (DEPLOY / "alerts.test.yaml").read_text()
    for rule in rules:
        for name in re.findall(r"mobilenetv3_\w+", rule["expr"]):
            assert re.search(rf"^# TYPE {re.sub('_bucket$', '', name)} ", text, re.M), name
        assert rule["labels"]["severity"] in ("page", "ticket") and tests.count(rule["alert"]) == 2
        assert set(rule["annotations"]) == {"summary", "description"}


def test_kubernetes_asks_paths_that_there_are_with_flags_that_there_are(locked):
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    assert [d["kind"] for d in documents] == ["Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler"]
    pod = documents[0]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    image = (DEPLOY / "Dockerfile").read_text()
    entry = json.loads(re.search(r"^ENTRYPOINT (.*)$", image, re.M)[1])
    args = tool("serve").parser().parse_args([*entry[2:], *container["args"]])
    (port,) = container["ports"]
    assert args.port == port["containerPort"] and f"EXPOSE {args.port}" in image
    assert pod["terminationGracePeriodSeconds"] > args.shutdown + 2
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        target = container[probe]["httpGet"]
        assert target["port"] == port["name"] and ask(locked, "GET", target["path"])[0] == 200, "without a token"
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted["model"] == args.model_dir and str(args.token_file).startswith(mounted["token"] + "/")
    assert set(mounted) == {volume["name"] for volume in pod["volumes"]}
    for document in documents[1:3]:
        selector = document["spec"]["selector"]
        assert selector.get("matchLabels", selector) == documents[0]["spec"]["template"]["metadata"]["labels"]


def closure(names):
    """Distributions, and all that they need."""
    done, todo = set(), list(names)
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            if name not in done:
                needs = importlib.metadata.requires(name) or []
                todo += [re.match(r"[\w.-]+", need)[0] for need in needs if "extra ==" not in need]
        done.add(name)
    return done


@pytest.mark.slow
def test_the_image_has_all_that_the_service_imports(exported):
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    installed = re.search(r"constraints\.txt +(\w.*)$", text, re.M)[1].split()
    copied = re.findall(r"^COPY (\S+) ", text, re.M)
    assert all((ROOT / source).exists() for source in copied)
    code = (
        "import sys; sys.path.insert(0, 'tools'); import serve, json; import mobilenetv3_paddle.deploy.serving.decoder; "
        "import mobilenetv3_paddle.deploy.serving.server as s; s.serve = lambda *a: sys.exit()\n"
        f"try: serve.main(['--model-dir', {str(exported)!r}, '--port', '0'])\n"
        "except SystemExit: print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    modules = json.loads(run.stdout.splitlines()[-1])
    assert "onnxruntime" in modules and not {"paddle", "torch"} & set(modules), run.stderr
    packages = importlib.metadata.packages_distributions()
    needed = {re.sub(r"[-_.]+", "-", packages[name][0]).lower() for name in modules if name in packages}
    needed -= {"mobilenetv3-reproduction", "setuptools"}
    assert needed <= closure(installed), needed - closure(installed)
    ours = {name for name in set(modules) - sys.stdlib_module_names if (ROOT / name).is_dir()}  # `make docs` makes site/
    assert "mnv3" in ours and ours <= {source.partition("/")[0] for source in copied}, ours


# --- Triton ----------------------------------------------------------------------------------------------------------------


def test_the_model_repository_is_what_triton_reads(exported, tmp_path):
    bundle = read_bundle(exported)
    model = write_repository(bundle, tmp_path / "models", 16)
    assert model == tmp_path / "models" / "mobilenet_v3_small"
    files = sorted(str(path.relative_to(model)) for path in model.rglob("*") if path.is_file())
    assert files == ["1/model.onnx", "config.pbtxt", "labels.txt"]
    assert (model / "1/model.onnx").read_bytes() == (exported / "model.onnx").read_bytes()
    assert (model / "labels.txt").read_text().splitlines() == list(bundle.classes)
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model / "1/model.onnx"), providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {"images": np.zeros((5, 3, 224, 224), np.float32)})
    assert logits.shape == (5, 1000)
    config = parsed_config(model / "config.pbtxt")
    assert (config.name, config.platform, config.max_batch_size) == ("mobilenet_v3_small", "onnxruntime_onnx", 16)
    (given,), (got,) = config.input, config.output
    assert (given.name, list(given.dims)) == ("images", [3, 224, 224]) and given.data_type == got.data_type == 11  # TYPE_FP32
    assert (got.name, list(got.dims), got.label_filename) == ("logits", [1000], "labels.txt")
    assert config.HasField("dynamic_batching") and config.instance_group[0].count == 1


def parsed_config(path):
    """A ModelConfig by Triton's own schema, model_config.proto, which its client's package has; skipped without that."""
    found = importlib.util.find_spec("tritonclient")
    if found is None:
        pytest.skip("needs Triton's schema: pip install --no-deps tritonclient")
    file = Path(found.submodule_search_locations[0]) / "grpc" / "model_config_pb2.py"
    spec = importlib.util.spec_from_file_location("model_config_pb2", file)
    schema = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(schema)
    from google.protobuf import text_format

    with pytest.raises(text_format.ParseError):
        text_format.Parse(path.read_text() + "dynamic_batch { }", schema.ModelConfig())
    return text_format.Parse(path.read_text(), schema.ModelConfig())


def test_an_export_without_onnx_makes_no_repository(exported, tmp_path):
    bundle = read_bundle(exported)
    bundle.files = {name: digest for name, digest in bundle.files.items() if name != "model.onnx"}
    with pytest.raises(UserError, match=r"has no model\.onnx"):
        write_repository(bundle, tmp_path / "models")


def test_tritons_own_client_is_answered(locked, exported):
    client = pytest.importorskip("tritonclient.http", reason="needs Triton's client and what it needs", exc_type=ImportError)
    from tritonclient.utils import InferenceServerException

    headers = {"Authorization": f"Bearer {TOKEN}"}  # copied for each request: the client adds to it
    images = np.random.default_rng(1).standard_normal((3, 3, 224, 224)).astype(np.float32)
    with contextlib.closing(client.InferenceServerClient(f"127.0.0.1:{locked}")) as triton:
        assert triton.is_server_live() and triton.is_server_ready() and triton.is_model_ready("mobilenet_v3_small")
        assert triton.get_server_metadata(headers=headers)["name"] == "mobilenetv3"
        assert triton.get_model_metadata("mobilenet_v3_small", headers=headers)["outputs"][0]["name"] == "logits"
        found = {}
        for binary in (True, False):
            given = client.InferInput("images", images[:1].shape if not binary else images.shape, "FP32")
            given.set_data_from_numpy(images if binary else images[:1].round(1), binary_data=binary)
            wanted = client.InferRequestedOutput("logits", binary_data=binary)
            answer = triton.infer("mobilenet_v3_small", [given], outputs=[wanted], request_id="7", headers=dict(headers))
            found[binary] = answer.as_numpy("logits")
            assert answer.get_response()["id"] == "7"
        assert found[True].shape == (3, 1000) and found[False].shape == (1, 1000)
        given = client.InferInput("images", images.shape, "FP32")
        given.set_data_from_numpy(images)
        named = triton.infer(
            "mobilenet_v3_small", [given], outputs=[client.InferRequestedOutput("logits", class_count=2)], headers=headers
        )
        best = [int(text.split(b":")[1]) for text in named.as_numpy("logits")[:, 0]]
        assert best == found[True].argmax(1).tolist()
        with pytest.raises(InferenceServerException, match="no model 'other'"):
            triton.get_model_metadata("other", headers=headers)
