"""A feed from a real file: the lines of a training loop, the end of a file that changes, and what is wrong with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from gpumon.config.schema import Feed
from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineKind, Phase, Training
from gpumon.sources.file_feed import FIRST_GAP_S, WINDOW_BYTES, FeedTail, FileFeed, parse_step, parse_time
from tests.each_row import each_row
from tests.sources.polling import until

FEED = Feed(
    file="/x",
    phase="training",
    quantities={"trained_tokens": "metrics.tokens", "samples_per_s": "rate"},
    time="at",
)
AT_S = datetime(2026, 3, 1, 12, 0, 0, tzinfo=timezone.utc).timestamp()


def test_keys_inside_of_keys():
    found = parse_step(b'{"metrics": {"tokens": 7}, "rate": 2.5, "at": 12}', FEED)
    assert found is not None
    assert found == ({"trained_tokens": 7.0, "samples_per_s": 2.5}, 12.0)


@each_row("value", ["NaN", "-1", "Infinity", '"7"', "true", "null", "[7]", "{}", "1e400", "9" * 400])
def test_what_is_no_count_is_left_out_and_no_zero(value: str):
    line = f'{{"metrics": {{"tokens": {value}}}, "rate": 1}}'.encode()
    found = parse_step(line, FEED)
    assert found is not None
    assert found.values == {"samples_per_s": 1.0}


@each_row("line", [b"", b"[1]", b"7", b"Traceback", b'{"metrics": {"tokens": 7}', b"\xff\xfe", b"{}"])
def test_a_line_that_is_no_step(line: bytes):
    assert parse_step(line, FEED) is None


@each_row(
    ("value", "unix_s"),
    [
        (AT_S, AT_S),
        (int(AT_S) * 10**9, AT_S),
        (1e30, None),
        ("2026-03-01T12:00:00Z", AT_S),
        ("2026-03-01 14:00:00+02:00", AT_S),
        ("2026-03-01T12:00:00", datetime(2026, 3, 1, 12).timestamp()),  # noqa: DTZ001 - local time is meant
        ("noon", None),
        (True, None),
        (-5, None),
    ],
)
def test_a_moment_in_seconds_to_nanoseconds_or_as_iso_8601(value: object, unix_s: float | None):
    assert parse_time(value) == (None if unix_s is None else pytest.approx(unix_s))


# The end of a file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "steps.jsonl"


def looked(tail: FeedTail) -> tuple[bytes, ...]:
    found = tail.read()
    assert found is not None
    return found[0]


def test_the_last_complete_line_counts_and_a_partial_one_waits(file: Path):
    tail = FeedTail(str(file))
    file.write_bytes(b'{"a":1}\n{"a":2}\n{"a":')
    assert looked(tail) == (b'{"a":1}', b'{"a":2}')
    with file.open("ab") as end:
        end.write(b"3}\n")
    assert looked(tail)[-1] == b'{"a":3}'


def test_a_file_that_was_replaced_or_truncated_is_read_anew(file: Path, tmp_path: Path):
    tail = FeedTail(str(file))
    file.write_bytes(b"1\n2\n")
    assert looked(tail)[-1] == b"2"
    (tmp_path / "new").write_bytes(b"7\n8\n")
    (tmp_path / "new").rename(file)
    assert looked(tail)[-1] == b"8"
    os.truncate(file, 2)
    assert looked(tail)[-1] == b"7"
    os.truncate(file, 0)
    assert looked(tail) == ()


def test_no_file_no_right_no_regular_file(file: Path, tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        FeedTail(str(file)).read()
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="no regular file"):
            FeedTail(str(path)).read()


# The feed

TOKENS = {"trained_tokens": "tokens"}


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
    monkeypatch.setattr("gpumon.sources.file_feed._SILENT_S", 0.2)
    async with tailing(file) as source:
        monkeypatch.setattr(source._tail, "_path", Waiting(hangs))
        assert await until(lambda: source.reading.state is EndpointState.TIMEOUT)
        began_s = time.monotonic()
        await source.poll(began_s)
        await asyncio.sleep(0.6)
        assert time.monotonic() - began_s < 55.0
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
