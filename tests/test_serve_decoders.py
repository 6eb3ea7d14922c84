"""The decoder processes of the service, without HTTP: what they give, and what becomes of a picture when one dies, is late or
answers nonsense."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import signal
import threading
import time

import numpy as np
import pytest
from PIL import Image

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import decode_bytes
from mobilenetv3_common.picture_format import PREDICTION
from mobilenetv3_common.preprocess import eval_transform, in_planes, normalize_planes
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_paddle.deploy.serving import decoders
from mobilenetv3_paddle.deploy.serving.batcher import Batcher, TooLate
from mobilenetv3_paddle.deploy.serving.decoder import (
    DAMAGED,
    NICENESS,
    NOEXEC_SEAL,
    PIXELS,
    PLACES,
    SHARED_BYTES,
    TENSORS,
    Shared,
    open_shared,
)
from mobilenetv3_paddle.deploy.serving.decoders import Decoders
from mobilenetv3_paddle.deploy.serving.tensors import Asked, Signature
from tests.conftest import ROOT

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


def test_pictures_that_wait_keep_their_pixels_however_many_they_are():
    """More than there are places for; and places of pictures that nobody holds any more are used again."""

    async def many(made):
        (process,) = made._processes
        kept = [await made((CAT, ROCKET)[n % 2], soon()) for n in range(PLACES + 3)]
        shared = [pixels.base is process._shared.pixels.base for pixels in kept]
        del kept[4]
        again = await made(ROCKET, soon())
        after = again.base is process._shared.pixels.base
        free = len(process._free)
        right = [np.array_equal(pixels, kept[n % 2]) for n, pixels in enumerate(kept[:4])]
        right += [np.array_equal(pixels, kept[(n + 1) % 2]) for n, pixels in enumerate(kept[4:], 4)]
        right.append(np.array_equal(again, kept[1]) and not np.array_equal(kept[0], kept[1]))
        kept.clear()
        del again
        await asyncio.sleep(0)  # the step of the event loop that brought it holds it
        return shared, after, free, all(right), len(process._free)

    shared, after, free, right, at_last = with_decoder(many)
    assert shared == [True] * (PLACES - 1) + [False] * 4 and after and right
    assert (free, at_last) == (0, PLACES - 1)


@pytest.mark.parametrize("freed", ["before", "while it is decoded", "after"])
def test_a_place_that_becomes_free_does_not_take_the_picture_that_is_being_decoded(freed):
    async def work(made):
        held = [await made(CAT, soon()) for _ in range(3)]
        if freed == "before":
            del held[1]
        coming = asyncio.ensure_future(made(ROCKET, soon()))
        await asyncio.sleep(0)
        if freed == "while it is decoded":
            del held[1]
        found = await coming
        if freed == "after":
            del held[1]
        later = await made(CAT, soon())
        return [pixels.copy() for pixels in (*held, later, found)]

    *cats, rocket = with_decoder(work)
    assert all(np.array_equal(cat, cats[0]) for cat in cats) and not np.array_equal(rocket, cats[0])
    assert np.array_equal(rocket, with_decoder(lambda made: made(ROCKET, soon())))


def test_pictures_keep_their_pixels_when_their_decoder_is_gone():
    async def work(made):
        (process,) = made._processes
        held = await made(CAT, soon())
        process.kill()
        await process.ended.wait()
        return held, await made(ROCKET, soon())

    cat, rocket = with_decoder(work)
    assert np.array_equal(cat, with_decoder(lambda made: made(CAT, soon()))) and not np.array_equal(cat, rocket)


def test_a_picture_that_shared_memory_does_not_hold_is_decoded():
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (400, 400, 3), dtype=np.uint8))
    buffer = io.BytesIO()
    noise.save(buffer, "PNG")
    assert len(buffer.getvalue()) > SHARED_BYTES

    async def work(made):
        return [await made(data, soon()) for data in (CAT, buffer.getvalue(), CAT)]

    first, large, last = with_decoder(work)
    expected = eval_transform(decode_bytes(buffer.getvalue(), "the picture", "pil", PREDICTION), EvalPreset())
    assert np.array_equal(normalize_planes(large[None], EvalPreset())[0], expected) and np.array_equal(first, last)


def test_a_picture_that_is_too_late_for_the_engine_gives_its_place_back_at_once():
    """It was held until the garbage collector came, by an exception that held itself; so was what a decoder had been given."""

    async def work(made):
        batcher = Batcher(lambda pictures: leave.wait(5) and pictures, 4, 5.0)
        batcher.start()
        first = asyncio.ensure_future(batcher(0))
        await asyncio.sleep(0.05)
        (process,) = made._processes
        late = [asyncio.ensure_future(_named(made, batcher)) for _ in range(5)]
        await asyncio.sleep(0.3)
        counts = [len(process._free)]
        await asyncio.gather(*late, return_exceptions=True)
        del late
        leave.set()
        await first
        await asyncio.sleep(0.05)
        counts.append(len(process._free))
        os.kill(process.transport.get_pid(), signal.SIGSTOP)
        with pytest.raises(TooLate):
            await made(CAT, soon(0.2))
        await process.ended.wait()
        jobs = sum(type(one) is decoders._Job for one in gc.get_objects())
        await batcher.stop()
        return counts, jobs

    async def _named(made, batcher):
        try:
            return await batcher(await made(CAT, soon()), soon(0.5))
        except TooLate as error:
            raise ValueError("named") from error

    leave = threading.Event()
    gc.collect()
    gc.disable()
    try:
        assert with_decoder(work) == ([PLACES - 6, PLACES - 1], 0)
    finally:
        gc.enable()


@pytest.mark.parametrize(("status", "data"), [(TENSORS, CAT), (PIXELS, b"{}")])
def test_an_answer_of_the_other_kind_costs_its_request_alone(status, data):
    """As of a decoder that a picture took over: tensors for a picture failed all pictures of a run of the engine."""

    async def work(made):
        (process,) = made._processes
        asked = asyncio.ensure_future(made(data, soon()) if status == TENSORS else made.parse(data, soon()))
        await asyncio.sleep(0)
        asked_for = Asked("", False, 0, np.zeros((1, 3, 4, 4), np.float32))
        made._answered(process, status, asked_for.packed() if status == TENSORS else b"")
        return (await asyncio.gather(asked, return_exceptions=True))[0], (await made(ROCKET, soon())).shape

    error, shape = with_decoder(work)
    assert isinstance(error, UserError) and shape == (3, 224, 224)


def test_without_room_for_shared_memory_no_decoder_starts(monkeypatch, capfd):
    """Else the service were killed by the signal SIGBUS when it wrote there."""

    def full(descriptor, start, size):
        raise OSError(28, "No space left on device")

    async def work(made):
        (process,) = made._processes
        monkeypatch.setattr(os, "posix_fallocate", full)
        process.kill()
        await process.ended.wait()
        with pytest.raises(TooLate):
            await made(CAT, soon(0.5))
        monkeypatch.undo()
        return (await made(CAT, soon())).shape

    assert with_decoder(work) == (3, 224, 224) and "No space left" in capfd.readouterr().err


@pytest.mark.parametrize("allowed", ["any", "sealed against execution", "no flags that are new", "none"])
def test_shared_memory_is_had_where_the_system_limits_it(monkeypatch, allowed):
    def limited(name, flags):
        refused = {"sealed against execution": not flags & NOEXEC_SEAL, "no flags that are new": flags & NOEXEC_SEAL}
        if allowed == "none" or refused.get(allowed):
            raise PermissionError(name)
        return create(name, flags & ~NOEXEC_SEAL)  # this system may be too old for it

    create = os.memfd_create
    monkeypatch.setattr(os, "memfd_create", limited)
    with open_shared(8) as descriptor:
        link = os.readlink(f"/proc/self/fd/{descriptor}")
        service, decoder = Shared(descriptor, 8), Shared(descriptor, 8)
    assert link.startswith("/memfd:") == (allowed != "none")
    assert service.take(b"data") and decoder.given(4) == b"data"


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


def test_shared_memory_cannot_be_shortened():
    with open_shared(8) as descriptor:
        shared = Shared(descriptor, 8)
        with pytest.raises(OSError, match="not permitted"):
            os.ftruncate(descriptor, 0)
        assert shared.pixels.shape == (PLACES, 3, 8, 8) and not shared.pixels.any()


def test_bytes_in_shared_memory_and_pixels_do_not_overlap():
    with open_shared(8) as descriptor:
        service, decoder = Shared(descriptor, 8), Shared(descriptor, 8)
    decoder.pixels[:] = 7
    most, some = bytes([1]) * SHARED_BYTES, b"some"
    assert service.take(most) and decoder.given(len(most)) == most
    assert service.take(some) and decoder.given(len(some)) == some
    assert (service.pixels == 7).all()
    assert not service.take(most + b"x") and decoder.given(len(most) + 1) == b"" and decoder.given(len(some)) == some


def test_pixels_of_another_size_are_not_taken_for_those_of_the_picture_before():
    """OpenCV leaves planes that do not fit as they are."""
    planes = np.zeros((3, 4, 4), np.uint8)
    with pytest.raises(ValueError, match="do not hold 5 x 4"):
        in_planes(np.ones((5, 4, 3), np.uint8), planes)
    in_planes(np.ones((4, 4, 3), np.uint8), planes)
    assert planes.all()


def test_decoders_leave_the_cores_to_what_finishes_pictures():
    async def work(made):
        (process,) = made._processes
        return os.getpriority(os.PRIO_PROCESS, process.transport.get_pid())

    assert with_decoder(work) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
