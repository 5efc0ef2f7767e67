"""Bounds of time on what is awaited."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from gpumon.deadline import result_within
from tests.virtual_time import Clock, played

LONG_S = 600.0


async def _answer(steps: int) -> str:
    for _ in range(steps):
        await asyncio.sleep(0)
    return "answer"


async def test_the_result_and_the_error_of_the_work_are_those_of_the_call() -> None:
    async def fail() -> None:
        raise LookupError("no such page")

    assert await result_within(LONG_S, _answer(3)) == "answer"
    with pytest.raises(LookupError, match="no such page"):
        await result_within(LONG_S, fail())


async def test_work_that_takes_too_long_is_cancelled() -> None:
    cancelled = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.sleep(LONG_S)
        finally:
            cancelled.set()

    with pytest.raises(asyncio.TimeoutError):
        await result_within(0.001, hang())
    await cancelled.wait()


@pytest.mark.parametrize("losses", [1, 2])
def test_work_that_loses_a_cancellation_is_cancelled_again(losses: int) -> None:
    async def hang() -> None:
        for _ in range(losses):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(LONG_S)
        await asyncio.sleep(LONG_S)

    async def main() -> set[asyncio.Task[object]]:
        with pytest.raises(asyncio.TimeoutError):
            await result_within(1.0, hang())
        await asyncio.sleep(LONG_S / 2)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert played(main(), Clock()) == set()


def test_work_that_is_slow_to_close_what_it_opened_is_let_do_so() -> None:
    closed: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.sleep(LONG_S)
        finally:
            await asyncio.sleep(0.5)
            closed.append("connection")

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await result_within(1.0, hang())
        await asyncio.sleep(LONG_S / 2)

    played(main(), Clock())
    assert closed == ["connection"]


async def test_work_that_cancels_itself_is_an_error_and_does_not_cancel_its_caller() -> None:
    async def cancel_itself() -> None:
        raise asyncio.CancelledError

    task = asyncio.create_task(result_within(LONG_S, cancel_itself()))
    await asyncio.wait({task})
    assert not task.cancelled()
    assert isinstance(task.exception(), asyncio.TimeoutError)


async def test_the_caller_ends_when_cancelled_though_the_work_loses_its_cancellation() -> None:
    """As anyio does on Python 3.10."""
    polls = 0

    async def poll() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(LONG_S)

    async def poll_for_ever() -> None:
        nonlocal polls
        while True:
            polls += 1
            await result_within(LONG_S, poll())

    task = asyncio.create_task(poll_for_ever())
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert polls == 1


@pytest.mark.parametrize("steps", range(1, 8))
async def test_a_cancellation_that_comes_with_the_result_is_not_lost(steps: int) -> None:
    task = asyncio.create_task(result_within(LONG_S, _answer(3)))
    for _ in range(steps):
        await asyncio.sleep(0)
    had_ended = task.done()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled() != had_ended


async def test_an_error_after_the_caller_has_gone_is_not_reported() -> None:
    reports: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))

    async def fail_when_cancelled() -> None:
        try:
            await asyncio.sleep(LONG_S)
        finally:
            raise LookupError

    with pytest.raises(asyncio.TimeoutError):
        await result_within(0.001, fail_when_cancelled())
    await asyncio.sleep(0.01)
    assert reports == []
