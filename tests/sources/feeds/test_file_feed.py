"""A feed from a real file: its moments, what is wrong with it, and that nothing which it does blocks the loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gpumon.config.schema import Config, Endpoint, Feed
from gpumon.efficiency.deriver import Deriver
from gpumon.readings import quantities as q
from gpumon.readings.frame import (
    EndpointState,
    EngineKind,
    EngineReading,
    Frame,
    GpuReading,
    GpuState,
    HostReading,
    Phase,
    Training,
)
from gpumon.sources.attachment import EngineFacts
from gpumon.sources.feeds.build import feeds_of
from gpumon.sources.feeds.file import BACKLOG, FIRST_GAP_S, WINDOW_BYTES, FileFeed
from gpumon.sources.ownership import Ownership
from gpumon.sources.packaged import gpu_catalogue
from tests.efficiency.polls import only, there
from tests.records import replace
from tests.sources.polling import until

TOKENS = {"trained_tokens": "tokens"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "steps.jsonl"


def line(**told: object) -> str:
    return json.dumps(told) + "\n"


def append(file: Path, **told: object) -> None:
    with file.open("a") as end:
        end.write(line(**told))


def feed_of(file: Path, **settings: Any) -> Feed:
    return Feed(
        **{
            "file": str(file),
            "phase": "training",
            "quantities": TOKENS,
            "params_b": 8.0,
            "interval_s": 0.25,
            **settings,
        }
    )


@contextlib.asynccontextmanager
async def tailing(file: Path, **settings: Any) -> AsyncIterator[FileFeed]:
    source = FileFeed(feed_of(file, **settings))
    await source.start()
    try:
        await source.ready(60.0)
        yield source
    finally:
        await source.close()


async def polled(source: FileFeed) -> EngineReading:
    (reading,) = (await source.poll(time.monotonic())).engines
    return reading


def trained(reading: EngineReading) -> list[float]:
    """Of the lines that the source had at hand, and of the newest."""
    return [each.ranks[0].counters[q.TRAINED_TOKENS] for each in (*reading.earlier, reading)]


def polled_frame(reading: EngineReading) -> Frame:
    """The frame of now with this engine alone."""
    return Frame(1, time.time(), time.monotonic(), 1.0, HostReading(), engines=(reading,))


async def test_a_line_is_a_reading_of_a_training_run(file: Path):
    append(file, tokens=100)
    append(file, tokens=200, loss=float("nan"))
    async with tailing(file, name="run", model="acme-8b") as source:
        reading = source.reading
    assert (reading.name, reading.kind, reading.state) == ("run", EngineKind.GENERIC, EndpointState.OK)
    assert (reading.phase, reading.model) == (Phase.TRAINING, "acme-8b")
    assert reading.training == Training(48e9, 0.0, "bf16")
    assert reading.url == f"file:{file}"
    assert reading.ranks[0].counters == {q.TRAINED_TOKENS: 200.0}
    assert reading.live == {q.TRAINED_TOKENS: "tokens"}


async def test_a_new_line_is_seen_and_dated_by_the_file(file: Path):
    append(file, tokens=1)
    before_s = time.time() - 30.0
    os.utime(file, (before_s, before_s))
    async with tailing(file) as source:
        assert time.monotonic() - source.reading.monotonic_s == pytest.approx(time.time() - before_s, abs=1.0)
        assert source.reading.interval_s == FIRST_GAP_S
        append(file, tokens=2)
        assert await until(lambda: source.reading.ranks[0].counters == {q.TRAINED_TOKENS: 2.0})
        now_s = file.stat().st_mtime
        assert time.monotonic() - source.reading.monotonic_s == pytest.approx(time.time() - now_s, abs=1.0)
        assert source.reading.interval_s == pytest.approx(now_s - before_s, abs=1.0), "stale after three of it"


async def test_lines_that_tell_their_moment_serve_at_once(file: Path):
    now_s = time.time()
    file.write_text("".join(line(tokens=n, at=now_s - 10.0 * (50 - n)) for n in range(51)))
    async with tailing(file, time="at", interval_s=10.0) as source:
        newest = await polled(source)
    readings = (*newest.earlier, newest)
    assert trained(newest) == [44, 45, 46, 47, 48, 49, 50]
    gaps = [after.monotonic_s - before.monotonic_s for before, after in pairwise(readings)]
    assert gaps == pytest.approx([10.0] * 6)
    assert time.monotonic() - newest.monotonic_s == pytest.approx(time.time() - now_s, abs=1.0)


async def test_of_a_slow_loop_there_are_lines_enough_and_they_are_told_once(file: Path):
    now_s = time.time()
    file.write_text("".join(line(tokens=n, at=now_s - 90.0 * (50 - n)) for n in range(51)))
    async with tailing(file, time="at") as source:
        assert trained(await polled(source)) == list(range(50 - BACKLOG, 51))
        append(file, tokens=51, at=time.time())
        assert await until(lambda: trained(source.reading) == [51])


async def test_of_the_lines_that_were_there_come_rates_and_no_totals(file: Path):
    now_s = time.time()
    file.write_text("".join(line(tokens=1000 * n, at=now_s - 10.0 * (50 - n)) for n in range(51)))
    async with tailing(file, time="at", interval_s=10.0, gpu_type="H100 SXM 80GB", gpu_count=1) as source:
        reading = replace(await polled(source), gpu_type="H100 SXM 80GB", gpu_count=1)
    shown = only(Deriver(gpu_catalogue()).derive(polled_frame(reading)).snapshot)
    assert there(shown.rates.trained_tokens_per_s) == pytest.approx(100.0)
    assert there(shown.efficiency.mfu_ratio) == pytest.approx(100.0 * 48e9 / 989.4e12, rel=1e-3)
    assert shown.tokens_total.trained == 0.0
    assert shown.age_s < 1.0 + time.time() - now_s


async def test_of_a_fast_loop_the_lines_are_as_far_apart_as_the_looks(file: Path):
    now_s = time.time()
    file.write_text("".join(line(tokens=n, at=now_s - 0.5 * (200 - n)) for n in range(201)))
    async with tailing(file, time="at", interval_s=2.0) as source:
        assert trained(await polled(source)) == list(range(80, 201, 4))


async def test_a_clock_that_goes_back_or_ahead_dates_no_line_before_the_last_one(file: Path):
    now_s = time.time()
    append(file, tokens=1, at=now_s + 3600.0)
    async with tailing(file, time="at") as source:
        assert source.reading.monotonic_s <= time.monotonic()
        first_s = source.reading.monotonic_s
        append(file, tokens=2, at=now_s - 3600.0)
        assert await until(lambda: source.reading.ranks[0].counters == {q.TRAINED_TOKENS: 2.0})
        assert source.reading.monotonic_s > first_s


async def test_lines_between_that_are_no_steps_are_passed_over(file: Path):
    append(file, tokens=5)
    append(file, eval_loss=1.5)
    with file.open("a") as end:
        end.write("Traceback (most recent call last):\n")
    async with tailing(file) as source:
        assert source.reading.ranks[0].counters == {q.TRAINED_TOKENS: 5.0}


async def test_a_key_that_the_newest_line_lacks_is_named(file: Path):
    append(file, tokens=5)
    async with tailing(file, quantities={**TOKENS, "samples": "seen"}) as source:
        (fault,) = (await source.poll(time.monotonic())).faults
    assert fault.text == "no number in the newest line for samples = seen"


@pytest.mark.parametrize(
    ("content", "state", "words"),
    [
        (None, EndpointState.STARTING, "has the run started, and is the path right?"),
        ("", EndpointState.STARTING, "it is empty"),
        ('{"tokens": 1', EndpointState.STARTING, "it is empty"),
        ("step 1 loss 2.5\n", EndpointState.NOT_METRICS, "no JSON objects"),
        ("[1]\n7\n", EndpointState.NOT_METRICS, "no JSON objects"),
        (
            '{"loss": 1, "train": {"token": 5}}\n7\n',
            EndpointState.NOT_METRICS,
            "none of the keys tokens is in its lines; the newest has loss, train.token",
        ),
        ('{"tokens": -1}\n', EndpointState.NOT_METRICS, "no number from 0 on in its newest line: tokens = -1"),
        ('{"tokens": "abc"}\n', EndpointState.NOT_METRICS, 'no number from 0 on in its newest line: tokens = "abc"'),
        ("x" * (WINDOW_BYTES + 9) + "\n", EndpointState.TOO_LARGE, "is this a file of one JSON object a line?"),
    ],
)
async def test_what_is_wrong_is_said_with_the_fix(file: Path, content: str | None, state: EndpointState, words: str):
    if content is not None:
        file.write_text(content)
    async with tailing(file) as source:
        assert source.reading.state is state
        assert words in source.reading.fault
        assert source.reading.ranks == ()
        file.write_text(line(tokens=3))
        assert await until(lambda: source.reading.state is EndpointState.OK)
        assert source.reading.fault == ""


async def test_a_pipe_or_a_device_is_refused_and_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        async with tailing(path) as source:
            assert source.reading.state is EndpointState.ERROR
            assert "no regular file" in source.reading.fault


def test_a_file_that_may_not_be_read_is_said_with_the_fix(file: Path):
    """As another user, in a process of its own: root may read everything."""
    file.write_text(line(tokens=1))
    file.chmod(0o600)
    code = (
        "import asyncio, os, sys\n"
        "from gpumon.config.schema import Feed\n"
        "from gpumon.sources.feeds.file import FileFeed\n"
        "async def main():\n"
        "    feed = Feed(file=sys.argv[1], phase='training', quantities={'trained_tokens': 'tokens'})\n"
        "    os.setuid(int(sys.argv[2]))\n"
        "    source = FileFeed(feed)\n"
        "    await source.start(); await source.ready(60.0)\n"
        "    print(source.reading.state.value, source.reading.fault)\n"
        "    await source.close()\n"
        "asyncio.run(main())\n"
    )
    for folder in (file.parent, *file.parent.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    user = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else os.getuid()
    if os.getuid() != 0:
        file.chmod(0o000)
    done = subprocess.run(
        [sys.executable, "-c", code, str(file), str(user)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("unauthorized it may not be read: give gpumon's user the right to")


async def test_a_run_that_ended_is_said_after_three_usual_gaps(file: Path):
    now_s = time.time()
    file.write_text("".join(line(tokens=n, at=now_s - 100.0 + n * 10.0) for n in range(6)))
    async with tailing(file, time="at") as source:
        texts = [fault.text for fault in (await source.poll(time.monotonic())).faults]
        assert texts == ["no new line for more than 30 s, where one came each 10 s: has the run ended?"]
        append(file, tokens=7, at=time.time())
        assert await until(lambda: source.reading.ranks[0].counters == {q.TRAINED_TOKENS: 7.0})
        assert (await source.poll(time.monotonic())).faults == ()


async def test_a_file_system_that_hangs_costs_the_row_and_not_the_loop(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A FIFO that is opened for writing hangs as a dead mount does: the thread waits, the loop goes on."""
    append(file, tokens=1)
    hangs = tmp_path / "hangs"
    os.mkfifo(hangs)
    monkeypatch.setattr("gpumon.sources.feeds.file.SILENT_S", 0.2)
    async with tailing(file) as source:
        monkeypatch.setattr(source._tail, "_path", Waiting(hangs))
        assert await until(lambda: source.reading.state is EndpointState.TIMEOUT)
        began_s = time.monotonic()
        await source.poll(began_s)
        await asyncio.sleep(0.6)
        assert time.monotonic() - began_s < 20.0
        assert source.reading.ranks[0].counters == {q.TRAINED_TOKENS: 1.0}, "what was read stays until it is stale"
        os.close(os.open(hangs, os.O_RDONLY | os.O_NONBLOCK))


class Waiting:
    """A path whose `stat` waits for a reader of a FIFO: a real call that does not return."""

    def __init__(self, fifo: Path) -> None:
        self._fifo = fifo
        self.name = fifo.name

    def stat(self) -> os.stat_result:
        os.close(os.open(self._fifo, os.O_WRONLY))
        return self._fifo.stat()


async def test_two_feeds_of_one_file_are_rows_of_their_own(file: Path):
    append(file, tokens=1, seen=2)
    feeds = (feed_of(file, name="a"), feed_of(file, name="b", quantities={"samples": "seen"}))
    pages, files = feeds_of(Config(feed=feeds))
    assert pages == []
    assert len({source.reading.key for source in files}) == 2


def test_its_model_costs_six_flops_per_active_parameter_and_its_gpus_are_the_configs(file: Path):
    source = FileFeed(feed_of(file, params_b=None, model="Qwen/Qwen3-30B-A3B"))
    facts = EngineFacts({source.reading.key: source.endpoint}, (), None, {"HOME": "/nonexistent"})
    end_s = time.monotonic() + 60.0
    while (reading := facts.attach(source.reading, ())).training is None and time.monotonic() < end_s:
        time.sleep(0.01)
    assert reading.training is not None
    assert reading.training.flops_per_token == pytest.approx(6 * 3.3e9, rel=0.05)
    nobody = FileFeed(feed_of(file, params_b=None))
    facts = EngineFacts({nobody.reading.key: nobody.endpoint}, (), None, {})
    assert facts.attach(nobody.reading, ()).training is None
    other = FileFeed(feed_of(file, gpu_type="H100 SXM 80GB", gpu_count=64))
    facts = EngineFacts({other.reading.key: other.endpoint}, (), None, {})
    assert (facts.attach(other.reading, ()).gpu_type, facts.attach(other.reading, ()).gpu_count) == (
        "H100 SXM 80GB",
        64,
    )


def test_its_gpus_are_not_guessed(file: Path):
    source, gpu = FileFeed(feed_of(file)), GpuReading(0, "GPU-1", "NVIDIA H100 80GB HBM3", GpuState.OK, 0.0)
    facts = EngineFacts({source.reading.key: source.endpoint}, (), Ownership(), {})
    found = facts.attach(source.reading, (gpu,))
    assert found.gpus == ()
    assert found.gpus_source.startswith("a file does not tell who writes it: set gpus")
    named = FileFeed(feed_of(file, gpus=(0,)))
    facts = EngineFacts({named.reading.key: named.endpoint}, (), Ownership(), {})
    assert facts.attach(named.reading, (gpu,)).gpus == ("GPU-1",)


def test_an_endpoint_beside_it_keeps_its_own_settings(file: Path):
    source = FileFeed(feed_of(file), "named")
    facts = EngineFacts({source.reading.key: source.endpoint, source.reading.url: Endpoint(url="x")}, (), None, {})
    assert source.reading.part == "named"
    assert facts.attach(source.reading, ()).training == Training(48e9, 0.0, "bf16")
