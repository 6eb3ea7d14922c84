"""The engine of the service, without HTTP: which engine runs, batches, what each picture of a batch gets."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time

import numpy as np
import pytest

from mnv3 import serve
from mobilenetv3_common.errors import UserError
from mobilenetv3_paddle.deploy.bundle import read_bundle
from mobilenetv3_paddle.deploy.engines import create_engine
from mobilenetv3_paddle.deploy.predictor import Predictor, softmax, top_k
from mobilenetv3_paddle.deploy.serving import app
from mobilenetv3_paddle.deploy.serving.app import Access, create_app
from mobilenetv3_paddle.deploy.serving.batcher import Batcher, EngineDown, TooLate
from mobilenetv3_paddle.deploy.serving.service import Limits, Service, Wanted
from tests.conftest import ROOT

CAT = (ROOT / "lite_data/val/cat/cat_0.JPEG").read_bytes()


def service_of(exported):
    """The parts of a service, none of them started."""
    bundle = read_bundle(exported)
    predictor = Predictor(create_engine(bundle, threads=1), bundle.preset, bundle.classes)
    return Service(predictor, {"model": "m"}, Limits(), 1)


def test_pictures_and_tensors_in_one_run_keep_their_places(exported):
    service = service_of(exported)
    generator = np.random.default_rng(0)
    planes = [generator.integers(0, 256, (3, 224, 224), dtype=np.uint8) for _ in range(3)]
    tensors = [generator.standard_normal((3, 224, 224)).astype(np.float32) for _ in range(2)]
    mixed = [tensors[0], planes[0], planes[1], tensors[1], planes[2]]
    for together in (mixed, planes, tensors, mixed[::-1]):
        alone = np.concatenate([service.run([one]) for one in together])
        assert np.abs(service.run(together) - alone).max() < 1e-4 * np.abs(alone).max()


def test_each_picture_of_a_run_gets_what_it_wants(exported):
    """Damaged weights give numbers for some pictures alone: the others of the run are answered."""
    service, generator = service_of(exported), np.random.default_rng(0)
    logits = generator.standard_normal((6, 8)).astype(np.float32)
    logits[2, 5], logits[4, 0] = np.nan, np.inf
    service.predictor.engine = service.engine_beside_decoders = lambda images: logits[: len(images)]
    tensor = np.zeros((3, 224, 224), np.float32)
    found = service.answers([Wanted(tensor, topk) for topk in (3, 0, 3, 1, 3, 3)])
    for place, topk in ((0, 3), (3, 1), (5, 3)):
        assert found[place] == top_k(softmax(logits[place : place + 1]), service.predictor.classes, topk)[0]
        assert len(found[place]) == topk
    assert np.array_equal(found[1], logits[1])
    assert all(isinstance(found[place], UserError) and "not finite" in found[place].line for place in (2, 4))


def test_an_answer_that_is_an_exception_is_raised_for_its_picture_alone():
    async def run():
        batcher = Batcher(lambda pictures: [UserError("odd") if n % 2 else n for n in pictures], max_batch=8, timeout=10)
        batcher.start()
        first, second, third = (asyncio.ensure_future(batcher(n)) for n in range(3))
        with pytest.raises(UserError, match="odd"):
            await second
        found = await first, await third, batcher.ready
        await batcher.stop()
        return found

    assert asyncio.run(run()) == (0, 2, True)


def test_pictures_share_runs_one_that_waits_too_long_is_let_go_and_a_failing_engine_fails_its_batch_alone():
    def engine(images):
        images = np.stack(images)
        if images.max() > 5:
            raise ValueError("no such picture")
        runs.append(len(images))
        time.sleep(0.3)
        return images.reshape(len(images), -1)

    async def run():
        batcher = Batcher(engine, max_batch=8, timeout=2)
        batcher.start()
        first = asyncio.create_task(batcher(np.ones((1, 1, 1), np.float32)))
        await asyncio.sleep(0.05)
        soon = time.monotonic() + 0.1
        late = [asyncio.create_task(batcher(np.zeros((1, 1, 1), np.float32), soon))]  # the first holds the engine for 0.3 s
        others = [asyncio.create_task(batcher(np.full((1, 1, 1), i, np.float32))) for i in range(5)]
        found = await asyncio.gather(first, *late, *others, return_exceptions=True)
        broken = await asyncio.gather(batcher(np.full((1, 1, 1), 9, np.float32)), return_exceptions=True)
        last = asyncio.create_task(batcher(np.ones((1, 1, 1), np.float32)))
        await asyncio.sleep(0.05)
        await batcher.stop()  # waits for the batch that the engine has in hand
        return found, broken, last.done() and last.result()

    runs: list[int] = []
    (first, late, *others), (broken,), last = asyncio.run(run())
    assert first == 1 and isinstance(late, TooLate) and [int(row[0]) for row in others] == [0, 1, 2, 3, 4]
    assert runs[:2] == [1, 5], "those that waited shared a run, and the late one was not computed"
    assert isinstance(broken, EngineDown) and "the engine failed: no such picture" in str(broken)
    assert last == 1


@pytest.mark.parametrize("ends", ["the client goes", "too late"])
def test_a_picture_that_nobody_waits_for_is_not_kept_while_the_engine_runs(ends):
    def engine(pictures):
        leave.wait(5)
        return pictures

    async def run():
        batcher = Batcher(engine, 4, 5.0)
        batcher.start()
        first = asyncio.ensure_future(batcher(0))
        await asyncio.sleep(0.05)
        deadline = time.monotonic() + (0.2 if ends == "too late" else 5)
        others = [asyncio.ensure_future(batcher(number, deadline)) for number in range(1, 9)]
        await asyncio.sleep(0.05)
        counts = [len(batcher)]
        if ends == "the client goes":
            for other in others[:7]:
                other.cancel()
        await asyncio.wait(others[:7])
        await asyncio.sleep(0.01)
        counts.append(len(batcher))
        leave.set()
        results = await asyncio.gather(first, *others, return_exceptions=True)
        after = await batcher("after")
        await batcher.stop()
        return counts, results, after

    leave = threading.Event()
    counts, results, after = asyncio.run(run())
    assert (results[0], after) == (0, "after")
    if ends == "the client goes":
        assert counts == [8, 1] and results[-1] == 8
        assert all(isinstance(result, asyncio.CancelledError) for result in results[1:-1])
    else:
        assert counts == [8, 0] and all(isinstance(result, TooLate) for result in results[1:])


def test_the_engine_leaves_cores_to_decoders_while_they_decode(exported):
    def engine(name):
        return lambda images: used.append(name) or np.zeros((len(images), 8), np.float32)

    used = []
    service = service_of(exported)
    service.predictor.engine, service.engine_beside_decoders = engine("all cores"), engine("fewer")
    picture, tensor = np.zeros((3, 224, 224), np.uint8), np.zeros((3, 224, 224), np.float32)
    for service.decoders.at_work, batch in ((0, [picture]), (1, [picture]), (0, [tensor, tensor]), (0, [picture, picture])):
        service.run(batch)
    assert used == ["all cores", "fewer", "all cores", "fewer"]


@pytest.mark.parametrize(("flags", "threads"), [([], [2, 1]), (["--threads", "4"], [4, 1]), (["--threads", "1"], [1])])
def test_threads_of_the_engine_beside_decoders(exported, monkeypatch, flags, threads):
    """Of two cores, decoding takes one."""

    def recorded(bundle, engine, precision, threads, device="cpu"):
        made.append(threads)
        return create_engine(bundle, engine, precision, threads, device)

    def enough(*args):
        raise UserError("enough")

    made = []
    monkeypatch.setattr(serve, "cpu_threads", lambda: 2)
    monkeypatch.setattr(serve, "create_engine", recorded)
    monkeypatch.setattr(app, "create_app", enough)
    assert serve.main(["--model-dir", str(exported), "--port", "0", *flags]) == 2 and made == threads


def test_the_garbage_collector_does_not_look_through_what_stays(exported):
    async def run():
        service = service_of(exported)
        await service.start()
        try:
            return gc.get_freeze_count()
        finally:
            await service.stop()

    try:
        assert asyncio.run(run()) > 10_000
    finally:
        gc.unfreeze()


def test_an_exception_is_an_answer_that_is_logged(exported):
    """It was logged as a client that had broken off."""

    async def run():
        bundle = read_bundle(exported)
        predictor = Predictor(create_engine(bundle, threads=1), bundle.preset, bundle.classes)
        app, service = create_app(predictor, {"model": "m", "weights_sha256": ""}, access=Access(log=lines.append))
        service.predictions = None  # calling it raises
        scope = {"type": "http", "method": "POST", "path": "/predict", "query_string": b"", "headers": []}
        with pytest.raises(TypeError):
            await app(scope, receive, send)

    async def receive():
        return {"type": "http.request", "body": CAT}

    async def send(message):
        sent.append(message)

    lines, sent = [], []
    asyncio.run(run())
    assert sent[0]["status"] == 500 and any(name == b"x-request-id" for name, _ in sent[0]["headers"])
    assert json.loads(lines[0])["status"] == 500
