"""The open inference protocol over real HTTP: tensors as JSON and as bytes, what strangers get wrong, the description of the
service, and the clients of the documents."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from mobilenetv3_common import __version__
from mobilenetv3_common.image import decode_bytes
from mobilenetv3_common.picture_format import PREDICTION
from mobilenetv3_common.preprocess import eval_transform
from mobilenetv3_paddle.deploy.bundle import read_bundle
from mobilenetv3_paddle.deploy.engines import create_engine
from mobilenetv3_paddle.deploy.serving import tensors
from tests.browser import PHONE, browser, contrast, opened
from tests.conftest import ROOT
from tests.test_serve import CAT, ask, metric, serving

MODEL = "/v2/models/mobilenet_v3_small"
LENGTH = "Inference-Header-Content-Length"
BATCH = 4


@pytest.fixture(scope="module")
def server(exported):
    with serving(exported, "--timeout", "5", "--max-batch", str(BATCH), "--max-upload", "8") as (process, port):
        yield port
        assert process.poll() is None
    assert process.stderr.read() == ""


@pytest.fixture(scope="module")
def engine(exported):
    return create_engine(read_bundle(exported), threads=1)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).standard_normal((BATCH, 3, 224, 224)).astype(np.float32)


def given(images, **changed):
    """An input as JSON, without its data."""
    return {"name": "images", "datatype": "FP32", "shape": list(images.shape), **changed}


def as_json(images, outputs=(), **changed):
    return {"inputs": [given(images, data=images.ravel().tolist(), **changed)], "outputs": list(outputs)}


def as_bytes(images, outputs=(), size=None, **changed):
    """Header of HTTP and body of a request with a binary tensor."""
    parameters = {"binary_data_size": images.nbytes if size is None else size}
    head = json.dumps({"inputs": [given(images, parameters=parameters, **changed)], "outputs": list(outputs)}).encode()
    return {LENGTH: str(len(head))}, head + images.tobytes()


def infer(port, content, headers=None, path=MODEL):
    """Status, JSON and the bytes behind it."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    status, found, answer = ask(port, "POST", path + "/infer", body, headers)
    end = int(found.get(LENGTH.lower(), len(answer)))
    return status, json.loads(answer[:end]), answer[end:]


def test_tensors_as_json_and_as_bytes_give_the_engines_logits(server, engine, images):
    right = engine(images)
    few = images[:2].round(2)  # short enough as JSON
    status, content, raw = infer(server, as_json(few) | {"id": "a \u00e9 1"})
    assert status == 200 and raw == b"" and content["id"] == "a \u00e9 1"
    assert content["model_name"] == "mobilenet_v3_small" and content["model_version"] == "1"
    assert set(content["parameters"]) == {"weights_sha256", "version"}
    (output,) = content["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("logits", "FP32", [2, 1000])
    assert np.allclose(np.float32(output["data"]).reshape(2, 1000), engine(few), atol=1e-4)
    headers, body = as_bytes(images, [{"name": "logits", "parameters": {"binary_data": True}}])
    status, content, raw = infer(server, body, headers, MODEL + "/versions/1")
    assert status == 200 and content["outputs"][0]["parameters"] == {"binary_data_size": len(raw)} and "id" not in content
    assert np.allclose(np.frombuffer(raw, "<f4").reshape(right.shape), right, atol=1e-4)
    nested = {"inputs": [given(few[:1], data=few[:1].tolist())], "parameters": {"binary_data_output": True}}
    status, content, raw = infer(server, nested)
    assert status == 200 and np.allclose(np.frombuffer(raw, "<f4"), engine(few[:1])[0], atol=1e-4)


@pytest.mark.parametrize("binary", [False, True])
def test_the_likeliest_classes_are_named(server, engine, images, exported, binary):
    headers, body = as_bytes(images, [{"name": "logits", "parameters": {"classification": 3, "binary_data": binary}}])
    status, content, raw = infer(server, body, headers)
    (output,) = content["outputs"]
    assert status == 200 and (output["datatype"], output["shape"]) == ("BYTES", [BATCH, 3])
    texts = output.get("data")
    if binary:
        texts = []
        while raw:
            size = int.from_bytes(raw[:4], "little")
            texts.append(raw[4 : 4 + size].decode())
            raw = raw[4 + size :]
    names, right = read_bundle(exported).classes, engine(images)
    order = np.argsort(-right, axis=1)[:, :3].ravel()
    assert [int(text.split(":")[1]) for text in texts] == order.tolist()
    assert [text.split(":", 2)[2] for text in texts] == [names[i] for i in order]
    assert np.allclose([float(text.split(":")[0]) for text in texts], -np.sort(-right, axis=1)[:, :3].ravel(), atol=1e-4)


def test_pictures_and_tensors_share_runs_and_keep_their_answers(server, images):
    alone = json.loads(ask(server, "POST", "/predict", CAT)[2])["predictions"]
    headers, body = as_bytes(images[:3], [{"name": "logits", "parameters": {"binary_data": True}}])
    right = infer(server, body, headers)[2]
    wrong = []

    def work(number):
        for _ in range(10):
            if number % 2:
                found = infer(server, body, headers)[2]
                wrong.append(not np.allclose(np.frombuffer(found, "<f4"), np.frombuffer(right, "<f4"), atol=1e-4))
            else:
                found = json.loads(ask(server, "POST", "/predict", CAT)[2])["predictions"]
                wrong.append([p["index"] for p in found] != [p["index"] for p in alone])

    threads = [threading.Thread(target=work, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 60 and not any(wrong)


def test_metadata_and_health(server):
    def get(path):
        status, _, content = ask(server, "GET", path)
        return status, json.loads(content)

    assert get("/v2") == get("/v2/)"[:-1])
    status, about = get("/v2")
    assert status == 200 and set(about["extensions"]) == {"binary_tensor_data", "classification"}
    assert get("/v2/health/live") == (200, {"live": True}) and get("/v2/health/ready") == (200, {"ready": True})
    assert get(MODEL + "/ready") == get(MODEL + "/versions/1/ready") == (200, {"name": "mobilenet_v3_small", "ready": True})
    status, about = get(MODEL)
    assert (status, about) == get(MODEL + "/versions/1") and status == 200 and about["platform"] == "onnxruntime_onnx"
    assert about["inputs"] == [{"name": "images", "datatype": "FP32", "shape": [-1, 3, 224, 224]}]
    assert about["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [-1, 1000]}] and about["versions"] == ["1"]
    for path, words in (
        ("/v2/models/resnet50", "no model 'resnet50' here: this is mobilenet_v3_small"),
        (MODEL + "/versions/2/ready", "has no version '2'"),
        ("/v2/nothing", "Not Found"),
    ):
        status, content = get(path)
        assert status == 404 and set(content) == {"error"} and words in content["error"]
    assert ask(server, "GET", MODEL + "/infer")[0] == 405


ONE = np.zeros((1, 3, 224, 224), np.float32)
ZEROS = [0] * ONE.size


def changed(**fields):
    """A request whose one input is changed."""
    return {"inputs": [{**given(ONE, data=ZEROS), **fields}]}


# name: request, words of the answer
WRONG = {
    "nothing": (b"", "the request is empty"),
    "text": (b"hello", "the request is no JSON"),
    "a picture": (CAT, "the request is no JSON: it is not UTF-8"),
    "a list": ([], "Expected `object`, got `array`; the model takes one input (images, FP32, shape [N, 3, 224, 224])"),
    "JSON nested without end": (b"[" * 50_000, "Expected `object`, got `array`"),
    "long JSON nested without end": (b'{"others":' + b"[" * 500_000, "nested too deeply"),
    "JSON cut off": (json.dumps(changed())[:-10].encode(), "the request is no JSON"),
    "no inputs": ({}, "the model takes one input (images, FP32, shape [N, 3, 224, 224])"),
    "two inputs": ({"inputs": [given(ONE), given(ONE)]}, "Expected `array` of length <= 1 - at `$.inputs`"),
    "inputs that are no list": ({"inputs": {"images": 1}}, "Expected `array`, got `object` - at `$.inputs`"),
    "an input that is no object": ({"inputs": [1]}, "Expected `object`, got `int` - at `$.inputs[0]`"),
    "another name": (changed(name="input"), "Invalid enum value 'input' - at `$.inputs[0].name`"),
    "a name that is no string": (changed(name=["images"]), "Expected `str`, got `array` - at `$.inputs[0].name`"),
    "another type": (changed(datatype="UINT8"), "Invalid enum value 'UINT8' - at `$.inputs[0].datatype`"),
    "no shape": ({"inputs": [{"name": "images", "datatype": "FP32", "data": [1]}]},
     "Object missing required field `shape` - at `$.inputs[0]`"),
    "a shape without a batch": (changed(shape=[3, 224, 224]), "shape of images is [3, 224, 224]"),
    "channels last": (changed(shape=[1, 224, 224, 3]), "the model takes images, FP32, shape [N, 3, 224, 224]"),
    "no picture": (changed(shape=[0, 3, 224, 224], data=[]), "N at least 1"),
    "a negative shape": (changed(shape=[-1, 3, 224, 224]), "N at least 1"),
    "a shape of truths": (changed(shape=[True, 3, 224, 224]), "Expected `int`, got `bool` - at `$.inputs[0].shape[0]`"),
    "a shape of fractions": (changed(shape=[1.0, 3, 224, 224]), "Expected `int`, got `float` - at `$.inputs[0].shape[0]`"),
    "a huge batch": (changed(shape=[10**9, 3, 224, 224]), "1000000000 pictures in one request: at most 4"),
    "a shape of thousands of digits": (
        json.dumps(changed(shape=["x"])).replace('"x"', "9" * 5000).encode(),
        "Integer value out of range - at `$.inputs[0].shape[0]`"),
    "no data": ({"inputs": [given(ONE)]}, "data of images has 0 numbers: shape [1, 3, 224, 224] is 150,528"),
    "too little data": (changed(data=[1, 2]), "data of images has 2 numbers: shape [1, 3, 224, 224] is 150,528"),
    "data of another nesting": (changed(data=[[0] * 224] * 672), "Expected `array`, got `int` - at `$.inputs[0].data[0][0]`"),
    "ragged data": (changed(data=[[[[0] * 224] * 224] * 2 + [[[0] * 223] * 224]]), "not nested as its shape"),
    "texts": (changed(data=["1"] * ONE.size), "Expected `float | array`, got `str` - at `$.inputs[0].data[0]`"),
    "truths": (changed(data=[*ZEROS[1:], True]), "Expected `float | array`, got `bool` - at `$.inputs[0].data[150527]`"),
    "nothing among numbers": (changed(data=[*ZEROS[1:], None]),
     "Expected `float | array`, got `null` - at `$.inputs[0].data[150527]`"),
    "NaN": (changed(data=[*ZEROS[1:], float("nan")]), "the request is no JSON: JSON is malformed: invalid character"),
    "infinity": (changed(data=[*ZEROS[1:], 1e39]), "images holds NaN or infinity (as float32)"),
    "an endless number": (json.dumps(changed(data=[*ZEROS[1:], 7])).replace("7]", "9" * 400 + "]").encode(),
     "Number out of range - at `$.inputs[0].data[150527]`"),
    "numbers so large that the output is not finite": (changed(data=[3e38] * ONE.size), "the output is not finite"),
    "data and bytes": (changed(parameters={"binary_data_size": 602112}), "has data and binary_data_size"),
    "bytes announced, none sent": (
        {"inputs": [given(ONE, parameters={"binary_data_size": 602112})]}, "0 bytes follow the JSON"),
    "parameters that are no object": (changed(parameters=[]), "Expected `object`, got `array` - at `$.inputs[0].parameters`"),
    "shared memory": (changed(parameters={"shared_memory_region": "x"}), "shared memory is not offered"),
    "an id that is no string": (changed() | {"id": 5}, "Expected `str | null`, got `int` - at `$.id`"),
    "a long id": (changed() | {"id": "x" * 2000}, "Expected `str` of length <= 1000 - at `$.id`"),
    "outputs that are no list": (changed() | {"outputs": "logits"}, "Expected `array`, got `str` - at `$.outputs`"),
    "another output": (changed() | {"outputs": [{"name": "probabilities"}]},
     "Invalid enum value 'probabilities' - at `$.outputs[0].name`"),
    "an output twice": (changed() | {"outputs": [{"name": "logits"}] * 2}, "Expected `array` of length <= 1 - at `$.outputs`"),
    "too many classes": (
        changed() | {"outputs": [{"name": "logits", "parameters": {"classification": 1001}}]}, "from 1 to 1000, found 1001"),
    "no classes": (changed() | {"outputs": [{"name": "logits", "parameters": {"classification": 0}}]}, "from 1 to 1000"),
    "a flag that is none": (
        changed() | {"outputs": [{"name": "logits", "parameters": {"binary_data": "yes"}}]},
        "Expected `bool`, got `str` - at `$.outputs[0].parameters.binary_data`"),
    "a name of a million characters": (changed(name="x" * 10**6), "xxx' - at `$.inputs[0].name`"),
    "numbers and rows": (changed(data=[[[[0] * 224] * 224] * 3, 0]), "not nested as its shape"),
    "shared memory for the output": (
        changed() | {"outputs": [{"name": "logits", "parameters": {"shared_memory_region": "x"}}]}, "shared memory is not offered"),
    "bytes that are no text, where nobody looks": (b'{"inputs": [], "other": "\xff"}', "the request is no JSON: it is not UTF-8"),
    "a lone surrogate": (changed(name="\ud800"), "the request is no JSON: JSON is malformed: unexpected end of escaped utf-16"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_strangers_get_wrong_is_one_line(server, case):
    content, words = WRONG[case]
    status, answer, _ = infer(server, content)
    assert status == 400 and set(answer) == {"error"} and words in answer["error"], answer
    assert "\n" not in answer["error"] and len(answer["error"]) < 300


NAN = np.where(np.arange(ONE.size) == 77, np.nan, 0).astype(np.float32).reshape(ONE.shape)
LYING = {
    "a size that is too small": (as_bytes(ONE, size=602_108), "is 602108: [1, 3, 224, 224] in FP32 is 602,112 bytes"),
    "a size that is negative": (as_bytes(ONE, size=-1), "is -1"),
    "a size that is no number": (as_bytes(ONE, size="602112"), "got `str` - at `$.inputs[0].parameters.binary_data_size`"),
    "fewer bytes than announced": ((lambda h, b: (h, b[:-4]))(*as_bytes(ONE)), "602,108 bytes follow the JSON"),
    "more bytes than announced": ((lambda h, b: (h, b + b"1234"))(*as_bytes(ONE)), "602,116 bytes follow the JSON"),
    "bytes that nobody announced": (({LENGTH: "2"}, b"{}1234"), "the model takes one input"),
    "bytes behind numbers": (
        (lambda text: ({LENGTH: str(len(text))}, text + b"1234"))(json.dumps(changed()).encode()), "longer than 65,536 bytes"),
    "a header beyond the body": (({LENGTH: "99999999"}, as_bytes(ONE)[1]), "'99999999': the request has"),
    "a header that is negative": (({LENGTH: "-5"}, as_bytes(ONE)[1]), "Inference-Header-Content-Length is '-5'"),
    "a header that is no number": (({LENGTH: "\u00b2"}, as_bytes(ONE)[1]), "Inference-Header-Content-Length is"),
    "a header one short": (({LENGTH: str(int(as_bytes(ONE)[0][LENGTH]) - 1)}, as_bytes(ONE)[1]), "the request is no JSON"),
    "a header of nothing": (({LENGTH: "0"}, as_bytes(ONE)[1]), "the request is no JSON"),
    "a shape that is not the bytes'": (as_bytes(ONE, shape=[2, 3, 224, 224]), "in FP32 is 1,204,224 bytes"),
    "NaN": (as_bytes(NAN), "images holds NaN or infinity"),
}  # fmt: skip


@pytest.mark.parametrize("case", LYING)
def test_binary_lengths_that_lie_are_one_line(server, case):
    (headers, body), words = LYING[case]
    headers = {name: value.encode("latin-1") for name, value in headers.items()}
    status, answer, _ = infer(server, body, headers)
    assert status == 400 and set(answer) == {"error"} and words in answer["error"], answer


def test_what_is_too_much_is_refused_and_nothing_is_kept(server):
    before = metric(server, "process_resident_memory_bytes")
    status, answer, _ = infer(server, bytes(100 * 2**20), {LENGTH: "10"})
    assert status == 413 and "the request is larger than 2,473,984 bytes" in answer["error"]
    status, answer, _ = infer(server, b"[" + b"0," * 5_000_000)
    assert status == 413 and "larger than 8,388,608 bytes" in answer["error"]
    assert metric(server, "process_resident_memory_bytes") - before < 30 * 2**20
    status, answer, _ = infer(server, json.dumps(changed()).encode(), {"Content-Encoding": "gzip"})
    assert status == 415 and "Content-Encoding 'gzip' is not taken" in answer["error"]
    assert metric(server, "mobilenetv3_active_requests") == 0
    assert 'status="500"' not in ask(server, "GET", "/metrics")[2].decode()


def test_long_json_delays_nobody(server):
    """Megabytes of numbers take most of a second to read: not in the process that answers."""
    long = json.dumps(changed(data=[[0]] * 700_000)).encode()
    end, slowest, statuses = time.monotonic() + 1, [], set()

    def attack():
        while time.monotonic() < end:
            statuses.add(infer(server, long)[0])

    threads = [threading.Thread(target=attack) for _ in range(2)]
    for thread in threads:
        thread.start()
    while time.monotonic() < end:
        start = time.monotonic()
        assert ask(server, "GET", "/health")[0] == 200
        slowest.append(time.monotonic() - start)
    for thread in threads:
        thread.join()
    assert statuses <= {400, 504} and statuses and max(slowest) < 1, (statuses, max(slowest))


def test_a_request_travels_to_another_process_and_back():
    asked = tensors.Asked("an id \u00e9", True, 3, np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32))
    again = tensors.Asked.unpacked(asked.packed())
    assert (again.id, again.binary, again.best) == (asked.id, asked.binary, asked.best)
    assert np.array_equal(again.images, asked.images)


def test_token_and_clients_hold_for_tensors_too(exported, tmp_path):
    (tmp_path / "token").write_text("correct-horse-battery\n")
    right = {"Authorization": "Bearer correct-horse-battery"}
    with serving(exported, "--token-file", str(tmp_path / "token"), "--trusted-proxies", "127.0.0.1", "--max-per-client", "1",
                 "--access-log", str(tmp_path / "log")) as (_, port):  # fmt: skip
        for path in ("/v2", MODEL, "/metrics"):
            assert ask(port, "GET", path)[0] == 401 and ask(port, "GET", path, headers=right)[0] == 200
        status, answer, _ = infer(port, b"{}")
        assert status == 401 and set(answer) == {"error"} and "token" in answer["error"]
        for path in ("/v2/health/live", "/v2/health/ready", MODEL + "/ready", "/docs", "/openapi.json", "/"):
            assert ask(port, "GET", path)[0] == 200, path
        headers, body = as_bytes(ONE)
        assert infer(port, body, headers | right | {"X-Forwarded-For": "10.9.9.9, 203.0.113.7"})[0] == 200
        with ask_slowly(port, right | {"X-Forwarded-For": "203.0.113.8"}):
            assert infer(port, body, headers | right | {"X-Forwarded-For": "203.0.113.8"})[0] == 429
            assert infer(port, body, headers | right | {"X-Forwarded-For": "8.8.8.8, 203.0.113.8"})[0] == 429
            assert infer(port, body, headers | right | {"X-Forwarded-For": "203.0.113.9"})[0] == 200
    rows = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert {"203.0.113.7", "203.0.113.8", "203.0.113.9"} <= {row["client"] for row in rows}


class ask_slowly:
    """A request whose body does not come, while the block runs."""

    def __init__(self, port, headers):
        import http.client

        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        self.connection.putrequest("POST", "/predict")
        for name, value in {**headers, "Content-Length": "1000"}.items():
            self.connection.putheader(name, value)
        self.connection.endheaders()

    def __enter__(self):
        time.sleep(0.3)

    def __exit__(self, *_):
        self.connection.close()


# --- the description -------------------------------------------------------------------------------------------------------


def test_the_description_is_openapi_and_names_every_body(server):
    api = json.loads(ask(server, "GET", "/openapi.json")[2])
    assert api["openapi"] == "3.1.0" and api["info"]["version"] == __version__
    methods = [(path, operation) for path, methods in api["paths"].items() for operation in methods.values()]
    assert {"/predict", "/health", "/metrics", "/v2", "/v2/models/{model}/infer"} <= {path for path, _ in methods}
    for path, operation in methods:
        if path != "/metrics":
            assert operation["responses"]["200"]["content"]["application/json"]["schema"], path
    bodies = {path: set(operation["requestBody"]["content"]) for path, operation in methods if "requestBody" in operation}
    assert bodies["/predict"] == {"application/octet-stream", "image/*", "multipart/form-data"}
    assert bodies["/v2/models/{model}/infer"] == {"application/json", "application/octet-stream"}
    references = set(json.dumps(api).split('"$ref": "')[1:])
    for reference in {text.split('"')[0] for text in references}:
        found = api
        for part in reference.lstrip("#/").split("/"):
            found = found[part]


def holds(api, name, content):
    """Whether a value is as a schema of the description says, to its end; raises AssertionError with the place where it is not."""
    schemas = api["components"]["schemas"]
    kinds = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}

    def check(schema, value, place):
        if "$ref" in schema:
            schema = schemas[schema["$ref"].split("/")[-1]]
        if "anyOf" in schema:
            return any(isinstance(value, kinds[one["type"]]) for one in schema["anyOf"]) or pytest.fail(f"{place}: {value}")
        if "type" in schema:
            kind = kinds[schema["type"]]
            assert isinstance(value, kind) and (kind is bool or not isinstance(value, bool)), (place, value)
        assert schema.get("minimum", -1e9) <= (value if isinstance(value, (int, float)) else 0) <= schema.get("maximum", 1e9), place
        if isinstance(value, list):
            for item in value[:5]:
                check(schema.get("items", {}), item, place + "[]")
        if isinstance(value, dict) and "properties" in schema:
            assert set(schema["required"]) <= set(value) <= set(schema["properties"]), (place, set(value))
            for key, item in value.items():
                check(schema["properties"][key], item, f"{place}.{key}")
        return None

    check(schemas[name], content, name)


def test_answers_are_as_the_description_says(server, images):
    def get(path):
        return json.loads(ask(server, "GET", path)[2])

    api, request = get("/openapi.json"), as_json(images[:1].round(1))
    answers = {
        "Predictions": json.loads(ask(server, "POST", "/predict", CAT)[2]),
        "Problem": json.loads(ask(server, "POST", "/predict", b"x")[2]),
        "Health": get("/health"), "ServerMetadata": get("/v2"), "Model": get(MODEL), "ModelReady": get(MODEL + "/ready"),
        "Live": get("/health/live"), "Ready": get("/v2/health/ready"), "InferRequest": request,
        "InferResponse": infer(server, request)[1], "ProtocolError": infer(server, b"x")[1],
    }  # fmt: skip
    for name, content in answers.items():
        holds(api, name, content)
        with pytest.raises(AssertionError):  # the check itself
            holds(api, name, content | {"more": 1})
        with pytest.raises(AssertionError):
            holds(api, name, dict(list(content.items())[1:]) if name != "InferRequest" else {"outputs": []})
    holds(api, "Problem", json.loads(ask(server, "POST", "/predict?topk=0", CAT)[2]))
    for path, methods in api["paths"].items():
        real = path.replace("{model}", "mobilenet_v3_small").replace("{version}", "1")
        for method in ("GET", "POST"):
            assert (ask(server, method, real, b"x")[0] != 405) == (method.lower() in methods), (method, path)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_the_description(server, scheme):
    with browser() as chromium, opened(chromium, f"http://127.0.0.1:{server}/docs", color_scheme=scheme, viewport=PHONE) as page:
        page.wait_for_selector("details")
        assert {"pictures", "health", "open inference protocol"} == set(page.locator("h2").all_inner_texts())
        page.locator("summary", has_text="{model}/infer").first.click()
        text = page.inner_text("details[open]")
        assert "Inference-Header-Content-Length" in text and '"inputs"' in text and "413: too many bytes" in text
        assert f"127.0.0.1:{server}/v2/models/mobilenet_v3_small/infer" in text
        assert contrast(page, "h1") >= 4.5 and contrast(page, "footer") >= 4.5
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


# --- the clients of the documents ------------------------------------------------------------------------------------------


def client(*command, **environment):
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment}
    )


def test_the_python_client_names_what_the_service_names(server, exported):
    files = ["lite_data/val/cat/cat_0.JPEG", "lite_data/train/cat/cat_1.JPEG"]
    run = client(sys.executable, "docs/examples/client.py", f"http://127.0.0.1:{server}", *files)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    for number, file in enumerate(files):
        found = json.loads(ask(server, "POST", "/predict?topk=3", (ROOT / file).read_bytes())[2])["predictions"]
        assert lines[4 * number] == file
        assert [line.split(maxsplit=1)[1] for line in lines[4 * number + 1 : 4 * number + 4]] == [p["name"] for p in found]
    run = client(sys.executable, "docs/examples/client.py", f"http://127.0.0.1:{server}", *files, MODEL="resnet50")
    assert run.returncode == 1 and run.stderr.count("\n") == 1 and "404: there is no model 'resnet50'" in run.stderr


def test_the_javascript_client(server, engine, exported, tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node.js")
    bundle = read_bundle(exported)
    picture = eval_transform(decode_bytes(CAT, "cat", "pil", PREDICTION), bundle.preset)
    images = np.stack([picture, picture / 2])
    np.save(tmp_path / "images.npy", images)
    address = f"http://127.0.0.1:{server}"
    run = client(node, "docs/examples/client.mjs", address, str(tmp_path / "images.npy"))
    assert run.returncode == 0, run.stderr
    right = engine(images)
    lines = [f"picture {row}: class {logits.argmax()}, logit {logits.max():.3f}" for row, logits in enumerate(right)]
    assert run.stdout.splitlines() == lines
    run = client(node, "docs/examples/client.mjs", address, "lite_data/val/cat/cat_0.JPEG")
    found = json.loads(ask(server, "POST", "/predict?topk=3", CAT)[2])["predictions"]
    assert [line.split("%")[1].strip() for line in run.stdout.splitlines()] == [p["name"] for p in found]
    np.save(tmp_path / "wrong.npy", np.ascontiguousarray(images[:, :, :100]))
    run = client(node, "docs/examples/client.mjs", address, str(tmp_path / "wrong.npy"))
    assert run.returncode == 1 and "400: shape of images is [2, 3, 100, 224]" in run.stderr and run.stderr.count("\n") == 1
