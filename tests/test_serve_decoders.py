"""The decoder processes of the service, without HTTP: what they give, and what becomes of a picture when one dies, is late or
answers nonsense."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import decode_bytes
from mobilenetv3_common.picture_format import PREDICTION
from mobilenetv3_common.preprocess import eval_transform, in_planes, normalize_planes
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_paddle.deploy.serving import decoders
from mobilenetv3_paddle.deploy.serving.batcher import Batcher, EngineDown, TooLate
from mobilenetv3_paddle.deploy.serving.decoder import DAMAGED, JSON, NICENESS, PIXELS, TENSORS
from mobilenetv3_paddle.deploy.serving.decoders import Decoders
from mobilenetv3_paddle.deploy.serving.tensors import Asked, Signature
from tests.conftest import ROOT

CAT, ROCKET = ((ROOT / f"lite_data/val/{name}/{name}_0.JPEG").read_bytes() for name in ("cat", "rocket"))


def with_decoder(work, killed=lambda: None, count=1):
    """What a coroutine function finds, which is given one decoder process."""

    async def run():
        made = Decoders(count, EvalPreset(), "pil", PREDICTION, Signature(224, 32, 10), killed)
        await made.start()
        try:
            return await work(made)
        finally:
            await made.stop()

    return asyncio.run(run())


def soon(seconds=30.0):
    return time.monotonic() + seconds


async def in_hand(made):
    """Wait until a process has something in hand."""
    until = soon()
    while not made.at_work:
        assert time.monotonic() < until, "no process has been given anything"
        await asyncio.sleep(0)


def test_a_picture_that_was_decoded_is_not_printed(monkeypatch):
    """The text of an exception held the bytes of each picture: an eighth of the time that the service itself took for one."""

    def printed(job):
        raise AssertionError("a job is printed")

    monkeypatch.setattr(decoders._Job, "__repr__", printed)
    assert with_decoder(lambda made: made(CAT, soon())).shape == (3, 224, 224)


def test_pixels_are_those_of_evaluation_and_stay_while_the_next_picture_is_decoded():
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (400, 400, 3), dtype=np.uint8))
    buffer = io.BytesIO()
    noise.save(buffer, "PNG")
    pictures = [CAT, ROCKET, buffer.getvalue(), CAT]

    async def work(made):
        return [await made(data, soon()) for data in pictures]

    found, preset = with_decoder(work), EvalPreset()
    assert np.array_equal(found[0], found[3]) and not np.array_equal(found[0], found[1])
    for data, planes in zip(pictures, found, strict=True):
        expected = eval_transform(decode_bytes(data, "the picture", "pil", PREDICTION), preset)
        assert np.array_equal(normalize_planes(planes[None], preset)[0], expected)


def test_a_picture_that_is_too_late_keeps_nothing_until_the_garbage_collector_comes():
    async def work(made):
        batcher = Batcher(lambda pictures: leave.wait(5) and pictures, 4, 5.0)
        batcher.start()
        first = asyncio.ensure_future(batcher(0))
        await asyncio.sleep(0.05)
        (process,) = made._processes
        os.kill(process.pid, signal.SIGSTOP)
        late = [asyncio.ensure_future(made(CAT, soon(0.4))) for _ in range(5)]
        assert {type(one) for one in await asyncio.gather(*late, return_exceptions=True)} == {TooLate}
        late.clear()
        leave.set()
        await first
        await asyncio.sleep(0.05)
        await batcher.stop()
        return sum(type(one) is decoders._Job for one in gc.get_objects())

    leave = threading.Event()
    gc.collect()
    gc.disable()
    try:
        assert with_decoder(work) == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("answer", [(TENSORS, b"{}"), (PIXELS, b"no pixels"), (DAMAGED, b"\xff"), (99, b"")])
def test_an_answer_that_cannot_be_read_costs_its_request_alone(answer):
    """As of a decoder that a picture took over: tensors for a picture failed all pictures of a run of the engine."""

    async def work(made):
        read = made._answer

        async def taken_over(process):
            await read(process)
            return answer

        made._answer = taken_over
        with pytest.raises(UserError, match="cannot be read" if answer[0] != 99 else "^$"):
            await made(CAT, soon())
        made._answer = read
        return (await made(ROCKET, soon())).shape

    assert with_decoder(work) == (3, 224, 224)


def test_an_answer_without_end_is_not_read():
    async def work(made):
        made._most = 1000
        with pytest.raises(EngineDown):
            await made(CAT, soon())
        made._most = 10**6
        return (await made(CAT, soon())).shape

    assert with_decoder(work) == (3, 224, 224)


def large_picture():
    """One that takes tenths of a second, so that its decoder is surely at work when it is killed."""
    held = io.BytesIO()
    Image.linear_gradient("L").resize((5000, 5000)).convert("RGB").save(held, "PNG", compress_level=1)
    return held.getvalue()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_picture_whose_decoder_is_killed_goes_to_another_once(number):
    async def work(made):
        async def killing(times):
            asked = asyncio.ensure_future(made(slow, soon()))
            for _ in range(times):
                await in_hand(made)
                (process,) = made._processes
                assert not asked.done()
                os.kill(process.pid, number)
                while process in made._processes:
                    await asyncio.sleep(0.001)
            return (await asyncio.gather(asked, return_exceptions=True))[0]

        return await killing(1), await killing(2), await made(ROCKET, soon())

    slow, killed = large_picture(), []
    once, twice, after = with_decoder(work, lambda: killed.append(1))
    assert once.shape == after.shape == (3, 224, 224) and isinstance(twice, EngineDown) and len(killed) == 3


def test_processes_that_die_idle_cost_no_picture_its_retry():
    async def work(made):
        for process in list(made._processes):
            os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.3)  # the event loop does not know it yet
        return [(await made(data, soon())).shape for data in (CAT, ROCKET)]

    assert with_decoder(work, count=2) == [(3, 224, 224)] * 2


@pytest.mark.parametrize("large", [False, True])
def test_a_decoder_that_hangs_is_killed_at_the_deadline_and_what_waited_goes_on(monkeypatch, large):
    monkeypatch.setattr(decoders, "LARGE", 0 if large else decoders.LARGE)

    async def work(made):
        (process,) = made._processes
        os.kill(process.pid, signal.SIGSTOP)
        held, late, patient = (asyncio.ensure_future(made(CAT, soon(after))) for after in (1.0, 1.1, 30))
        await in_hand(made)
        found = await asyncio.gather(held, late, patient, return_exceptions=True)
        return found, made.at_work, made._large, len(made)

    killed = []
    (held, late, patient), *left = with_decoder(work, lambda: killed.append(1))
    assert isinstance(held, TooLate) and isinstance(late, TooLate) and patient.shape == (3, 224, 224)
    assert left == [0, 0, 0] and killed == [1]


def test_a_picture_that_nobody_waits_for_any_more_is_not_begun():
    async def work(made):
        (process,) = made._processes
        os.kill(process.pid, signal.SIGSTOP)
        held, gone = (asyncio.ensure_future(made(CAT, soon())) for _ in range(2))
        await in_hand(made)
        before = len(made)
        gone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await gone
        after = len(made)
        os.kill(process.pid, signal.SIGCONT)
        return before, after, (await held).shape

    assert with_decoder(work) == (1, 0, (3, 224, 224))


def test_of_large_pictures_one_is_decoded_at_a_time_and_small_ones_pass(monkeypatch):
    monkeypatch.setattr(decoders, "_work", lambda data: 10**9 if data == CAT else 0)

    async def work(made):
        for process in made._processes:
            os.kill(process.pid, signal.SIGSTOP)
        large = [asyncio.ensure_future(made(CAT, soon())) for _ in range(3)]
        await in_hand(made)
        await asyncio.sleep(0.05)
        counts = [made.at_work, len(made)]
        small = asyncio.ensure_future(made(ROCKET, soon()))
        await asyncio.sleep(0.05)
        counts += [made.at_work, len(made)]
        for process in made._processes:
            os.kill(process.pid, signal.SIGCONT)
        await asyncio.gather(small, *large)
        return [*counts, made.at_work, made._large]

    assert with_decoder(work, count=2) == [1, 2, 2, 2, 0, 0]


def test_a_process_that_cannot_start_counts_as_none_and_is_tried_again(capfd):
    async def work(made):
        (process,) = made._processes
        command, made._command = made._command, ["/bin/false"]
        process.kill()
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


def test_tensors_travel_to_a_decoder_and_back():
    async def work(made):
        return await made(
            b'{"inputs": [{"name": "images", "datatype": "FP32", "shape": [1, 3, 224, 224], "data": [%s]}]}'
            % b",".join([b"0.5"] * (3 * 224 * 224)),
            soon(), JSON,
        )  # fmt: skip

    asked = with_decoder(work)
    assert isinstance(asked, Asked) and asked.images.shape == (1, 3, 224, 224) and (asked.images == 0.5).all()


def test_pixels_of_another_size_are_not_taken_for_those_of_the_picture_before():
    """OpenCV leaves planes that do not fit as they are."""
    planes = np.zeros((3, 4, 4), np.uint8)
    with pytest.raises(ValueError, match="do not hold 5 x 4"):
        in_planes(np.ones((5, 4, 3), np.uint8), planes)
    in_planes(np.ones((4, 4, 3), np.uint8), planes)
    assert planes.all()


def test_a_decoder_takes_no_memory_from_the_system_for_each_picture():
    """Of each picture 300 pages were given back and taken again, which cost a third of the time of decoding."""

    async def faults(made):
        (process,) = made._processes

        def counted():
            return int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[7])

        for _ in range(5):
            await made(CAT, soon())
        before = counted()
        for _ in range(20):
            await made(CAT, soon())
        return (counted() - before) / 20

    assert with_decoder(faults) < 30


def test_decoders_leave_the_cores_to_what_finishes_pictures():
    async def work(made):
        (process,) = made._processes
        return os.getpriority(os.PRIO_PROCESS, process.pid)

    assert with_decoder(work) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
