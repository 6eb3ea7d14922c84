"""Parts of the service without HTTP: decoder processes, batches, answers, connections."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import threading
import time
import weakref

import numpy as np
import pytest
import uvicorn
from uvicorn.server import ServerState

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import decode_bytes
from mobilenetv3_common.picture_format import PREDICTION
from mobilenetv3_common.preprocess import eval_transform, in_planes, normalize_planes
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_paddle.deploy.bundle import read_bundle
from mobilenetv3_paddle.deploy.engines import create_engine
from mobilenetv3_paddle.deploy.predictor import Predictor, softmax, top_k
from mobilenetv3_paddle.deploy.serving import app, decoders
from mobilenetv3_paddle.deploy.serving.app import create_app
from mobilenetv3_paddle.deploy.serving.batcher import Batcher, TooLate
from mobilenetv3_paddle.deploy.serving.connections import Together, broken_off, guarded
from mobilenetv3_paddle.deploy.serving.decoder import DAMAGED, NICENESS, PIXELS, open_shared, shared_pixels
from mobilenetv3_paddle.deploy.serving.decoders import Decoders
from mobilenetv3_paddle.deploy.serving.gate import Access
from mobilenetv3_paddle.deploy.serving.server import listening
from mobilenetv3_paddle.deploy.serving.service import Limits, Service, Wanted
from mobilenetv3_paddle.deploy.serving.tensors import Signature
from tests.conftest import ROOT
from tools import serve

CAT, ROCKET = ((ROOT / f"lite_data/val/{name}/{name}_0.JPEG").read_bytes() for name in ("cat", "rocket"))


def with_decoder(work, killed=lambda: None):
    """What a coroutine function finds, which is given one decoder process."""

    async def run():
        made = Decoders(1, EvalPreset(), "pil", PREDICTION, Signature(224, 32, 10), killed)
        await made.start()
        try:
            return await work(made)
        finally:
            await made.stop()

    return asyncio.run(run())


def soon(seconds=30.0):
    return time.monotonic() + seconds


def test_a_picture_that_was_decoded_is_not_printed(monkeypatch):
    """The text of an exception held the bytes of each picture: an eighth of the time that the service itself took for one."""

    def printed(job):
        raise AssertionError("a job is printed")

    monkeypatch.setattr(decoders._Job, "__repr__", printed)
    assert with_decoder(lambda made: made(CAT, soon())).shape == (3, 224, 224)


def test_pixels_stay_what_they_are_while_the_next_picture_is_decoded():
    async def two(made):
        first = await made(CAT, soon())
        kept = first.copy()
        second = await made(ROCKET, soon())
        return first, kept, second

    first, kept, second = with_decoder(two)
    assert np.array_equal(first, kept) and not np.array_equal(first, second)
    preset = EvalPreset()
    for data, planes in ((CAT, first), (ROCKET, second)):
        expected = eval_transform(decode_bytes(data, "the picture", "pil", PREDICTION), preset)
        assert np.array_equal(normalize_planes(planes[None], preset)[0], expected)
    assert np.array_equal(normalize_planes(np.stack([first, second]), preset)[1], expected)


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


def test_what_decoders_have_in_hand_is_counted():
    async def work(made):
        counts = [made.at_work]
        first = asyncio.ensure_future(made(CAT, soon()))
        await asyncio.sleep(0)
        counts.append(made.at_work)
        await first
        counts.append(made.at_work)
        (process,) = made._processes
        second = asyncio.ensure_future(made(CAT, soon()))
        await asyncio.sleep(0)
        process.kill()
        await asyncio.gather(second, return_exceptions=True)
        return [*counts, made.at_work]

    assert with_decoder(work) == [0, 1, 0, 0]


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


class Recorded:
    """A transport that remembers what it is told."""

    def __init__(self):
        self.told, self.closing = [], False

    def write(self, data):
        self.told.append(data)

    def close(self):
        self.closing = True
        self.told.append("close")

    def abort(self):
        self.closing = True

    def is_closing(self):
        return self.closing

    def pause_reading(self):
        self.told.append("pause")

    def resume_reading(self):
        self.told.append("resume")

    def get_extra_info(self, name):
        return None


def test_what_is_written_in_one_step_is_sent_as_one_piece():
    async def run():
        plain = Recorded()
        transport = Together(plain, asyncio.get_running_loop())
        transport.write(b"head")
        transport.write(b"body")
        before = list(plain.told)
        await asyncio.sleep(0)
        transport.write(b"next")
        transport.write(b"")
        transport.close()
        transport.write(b"too late")
        await asyncio.sleep(0)
        much = Recorded()
        transport = Together(much, asyncio.get_running_loop())
        for _ in range(5):
            transport.write(bytes(2**14))
        at_once = [len(piece) for piece in much.told]
        transport.write(b"rest")
        await asyncio.sleep(0)
        return before, plain.told, at_once, much.told[1:]

    assert asyncio.run(run()) == ([], [b"headbody", b"next", "close"], [5 * 2**14], [b"rest"])


@pytest.mark.parametrize("ends", ["in the same step", "later"])
def test_an_answer_is_one_piece_and_sent_before_its_connection_counts_as_idle(ends):
    """An idle connection may be closed in the same step of the event loop, to make room for another."""

    async def well(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        if ends == "later":
            await asyncio.sleep(0.02)
        await send({"type": "http.response.body", "body": b"well"})
        sent.append((protocol.idle, list(transport.told)))

    async def run():
        nonlocal protocol
        protocol = guarded(10, 5.0, 15.0)(uvicorn.Config(well), ServerState(), {})
        protocol.connection_made(transport)
        protocol.data_received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await asyncio.sleep(0.1)
        protocol.connection_lost(None)

    sent, transport, protocol = [], Recorded(), None
    asyncio.run(run())
    ((idle, pieces),) = sent
    assert idle and len(pieces) == (1 if ends == "in the same step" else 2)
    assert pieces[0].startswith(b"HTTP/1.1 200") and b"".join(pieces).endswith(b"\r\n\r\nwell")


@pytest.mark.parametrize("lost", ["before", "within", "after", "never", "behind a request"])
def test_a_client_that_breaks_off_is_told_of_within_the_block_alone(lost):
    async def held(scope, receive, send):
        scopes.append(scope)
        await leave.wait()

    async def run():
        nonlocal leave
        leave, transport = asyncio.Event(), Recorded()
        protocol = guarded(10, 5.0, 15.0)(uvicorn.Config(held), ServerState(), {})
        protocol.connection_made(transport)
        protocol.data_received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await asyncio.sleep(0.01)
        if lost == "before":
            protocol.connection_lost(None)
        if lost == "behind a request":  # the client sends a second one before the first is answered
            protocol.data_received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        with broken_off(scopes[0], lambda: told.append("within")):
            assert told == (["within"] if lost == "before" else [])
            if lost in ("within", "behind a request"):
                protocol.connection_lost(None)
                assert told == ["within"]
        if lost == "after":
            protocol.connection_lost(None)
        leave.set()
        return transport.told

    leave, scopes, told = None, [], []
    asked = asyncio.run(run())
    assert told == (["within"] if lost in ("before", "within", "behind a request") else [])
    assert asked == (["pause", "resume", "close"] if lost == "behind a request" else asked)


@pytest.mark.parametrize("ends", ["answered", "broken off"])
def test_a_connection_that_has_ended_is_not_kept_until_the_garbage_collector_finds_it(ends):
    """With it goes what it has received, which no limit of uploads counts."""

    async def well(scope, receive, send):
        with broken_off(scope, lambda: None):
            await asyncio.sleep(0.01)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async def run():
        protocol = guarded(10, 5.0, 15.0)(uvicorn.Config(well), ServerState(), {})
        protocol.connection_made(Recorded())
        protocol.data_received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await asyncio.sleep(0.05 if ends == "answered" else 0)
        protocol.connection_lost(None)
        kept = weakref.ref(protocol)
        del protocol
        await asyncio.sleep(0.05)
        return kept()

    gc.disable()
    try:
        assert asyncio.run(run()) is None
    finally:
        gc.enable()


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


def test_under_another_server_nothing_is_told_of_a_client_that_breaks_off():
    for scope in ({}, {"state": {}}):
        with broken_off(scope, lambda: pytest.fail("told")):
            pass


def test_a_decoder_that_dies_while_it_is_idle_costs_no_picture():
    async def work(made):
        (process,) = made._processes
        process.kill()
        await process.ended.wait()
        return (await made(CAT, soon())).shape

    killed = []
    assert with_decoder(work, lambda: killed.append(1)) == (3, 224, 224) and killed == [1]


def test_a_picture_that_is_late_before_its_turn_is_not_begun():
    """Its timer has run out already, so nothing would end a decoder that hung on it."""

    async def work(made):
        (process,) = made._processes
        os.kill(process.transport.get_pid(), signal.SIGSTOP)
        held, late = (asyncio.ensure_future(made(CAT, soon(1.0))) for _ in range(2))
        await asyncio.sleep(0)
        job = made._jobs[0]
        job.timer.cancel()
        made._late(job)
        left = len(made)  # before the task that waits for it goes on
        return [left, *await asyncio.gather(held, late, return_exceptions=True), (await made(CAT, soon())).shape]

    left, held, late, shape = with_decoder(work)
    assert left == 0 and isinstance(held, TooLate) and isinstance(late, TooLate) and shape == (3, 224, 224)


def test_an_answer_that_comes_as_its_decoder_is_killed_leaves_the_next_picture_alone():
    """The next picture went to the dying decoder, and was called damaged."""

    async def work(made):
        (process,) = made._processes
        first = asyncio.ensure_future(made(CAT, soon()))
        await asyncio.sleep(0)
        job, later = process.job, asyncio.ensure_future(made(ROCKET, soon()))
        await asyncio.sleep(0)
        made._late(job)  # it kills the process
        made._answered(process, PIXELS, b"")  # which had answered
        return await asyncio.gather(first, later, return_exceptions=True)

    first, later = with_decoder(work)
    assert isinstance(first, TooLate) and later.shape == (3, 224, 224)


@pytest.mark.parametrize("large", [False, True])
def test_a_decoder_that_ends_as_soon_as_it_is_ready_is_replaced(monkeypatch, large):
    """It was kept as idle: the next picture waited for it in vain, and if it was a large one so did all later large ones."""
    monkeypatch.setattr(decoders, "LARGE", 0 if large else decoders.LARGE)
    begun = []

    async def work(made):
        (process,) = made._processes
        begin = made._begun

        async def dying():
            found = await begin()
            if not begun:
                begun.append(found)
                await found.ready
                found.kill()
                await found.ended.wait()
            return found

        made._begun = dying
        process.kill()
        await process.ended.wait()
        shapes = [(await made(CAT, soon())).shape for _ in range(2)]
        return shapes, [one.given_up for one in made._idle], made._large

    assert with_decoder(work) == ([(3, 224, 224)] * 2, [False], 0) and begun


def test_an_answer_that_cannot_be_read_costs_its_request_alone():
    async def work(made):
        (process,) = made._processes
        first = asyncio.ensure_future(made(CAT, soon()))
        await asyncio.sleep(0)
        made._answered(process, DAMAGED, b"\xff")  # no UTF-8
        found = await asyncio.gather(first, return_exceptions=True)
        return found[0], (await made(ROCKET, soon())).shape

    error, shape = with_decoder(work)
    assert isinstance(error, UserError) and "cannot be read" in error.line and shape == (3, 224, 224)


def test_a_process_that_ends_at_once_counts_as_none(capfd):
    async def work(made):
        (process,) = made._processes
        command, made._command = made._command, ["/bin/false"]
        loop = asyncio.get_running_loop()
        execute = loop.subprocess_exec

        async def ended(*args, **options):  # the event loop learns of the end first, as it does now and then
            transport, protocol = await execute(*args, **options)
            if made._command != command:
                await protocol.ended.wait()
            return transport, protocol

        loop.subprocess_exec = ended
        process.kill()
        await process.ended.wait()
        with pytest.raises(TooLate):
            await made(CAT, soon(1.5))
        found = made.alive
        made._command = command
        return found, (await made(CAT, soon())).shape, made.alive

    assert with_decoder(work) == (False, (3, 224, 224), True)
    assert "warning: cannot start a decoder: it ended" in capfd.readouterr().err


def test_a_picture_that_comes_too_late_to_be_decoded_costs_no_decoder():
    async def work(made):
        with pytest.raises(TooLate):
            await made(CAT, soon(0.02))
        return (await made(CAT, soon())).shape

    killed = []
    assert with_decoder(work, lambda: killed.append(1)) == (3, 224, 224) and not killed


def test_shared_pixels_cannot_be_shortened():
    with open_shared(8) as descriptor:
        pixels = shared_pixels(descriptor, 8)
        with pytest.raises(OSError, match="not permitted"):
            os.ftruncate(descriptor, 0)
        assert pixels.shape == (3, 8, 8) and not pixels.any()


def test_an_exception_is_an_answer_that_is_logged(exported):
    """It was logged as a client that had broken off."""

    async def run():
        bundle = read_bundle(exported)
        predictor = Predictor(create_engine(bundle, threads=1), bundle.preset, bundle.classes)
        app, _ = create_app(predictor, {"model": "m", "weights_sha256": ""}, access=Access(log=lines.append))
        app.app.app.service.predictions = None  # calling it raises
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


def test_decoders_leave_the_cores_to_what_finishes_pictures():
    async def work(made):
        (process,) = made._processes
        return os.getpriority(os.PRIO_PROCESS, process.transport.get_pid())

    assert with_decoder(work) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)


def test_an_answer_is_not_held_back():
    """Without TCP_NODELAY the second piece of an answer waited 40 ms for the client's acknowledgement of the first."""

    async def run():
        made = asyncio.get_running_loop().create_future()

        class Taken(asyncio.Protocol):
            def connection_made(self, transport):
                sock = transport.get_extra_info("socket")
                made.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        sock = listening("127.0.0.1", 0)
        listener = await asyncio.get_running_loop().create_server(Taken, sock=sock)
        _, writer = await asyncio.open_connection("127.0.0.1", sock.getsockname()[1])
        try:
            return await asyncio.wait_for(made, 10)
        finally:
            writer.close()
            listener.close()

    assert asyncio.run(run())


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
    assert isinstance(broken, RuntimeError) and "the engine failed: no such picture" in str(broken)
    assert last == 1


def test_pixels_of_another_size_are_not_taken_for_those_of_the_picture_before():
    """OpenCV leaves planes that do not fit as they are."""
    planes = np.zeros((3, 4, 4), np.uint8)
    with pytest.raises(ValueError, match="do not hold 5 x 4"):
        in_planes(np.ones((5, 4, 3), np.uint8), planes)
    in_planes(np.ones((4, 4, 3), np.uint8), planes)
    assert planes.all()
