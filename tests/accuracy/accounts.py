"""One account of each capture through every way out: the screen, a report, the exporter, and a Prometheus that asks it.

`python -m tests.accuracy.replay` prints it below the other tables.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.efficiency.deriver import Deriver
from gpumon.history.frame_store import Tick as KeptTick
from gpumon.history.reader import Recording
from gpumon.history.recorder import Recorder
from gpumon.history.summary import summary_of
from gpumon.outputs.samples import samples
from gpumon.readings.frame import Frame, HostReading
from gpumon.readings.goals import Goals
from gpumon.readings.missing import Reading, number
from gpumon.readings.period import Period
from gpumon.readings.prices import FREE
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.prometheus.own import rebuild_snapshot
from tests.accuracy.judged import Replay
from tests.accuracy.tables import markdown

WALL_S: Final = 1.9e9
"""Later than any recording, as in the replays."""
_MOST_UNWRITTEN: Final = 30
"""Frames that the recorder is behind at most: its queue is bounded."""
_NONE: Final = "–"
HEAD: Final = (
    *("capture", "decode tokens, prompt tokens: screen", "report", "exporter", "Prometheus"),
    *("TTFT in goal, last 2 min: screen", "exporter", "Prometheus", "whole: report"),
)


class Account(NamedTuple):
    """Totals and shares of one way out."""

    decode: float | None
    """Generated tokens; None where they are not counted."""
    prompt: float | None
    """Prompt tokens, cached ones included."""
    ttft: tuple[float | None, float | None, float | None]
    """Share within the TTFT goal: at least as users see it, at least inside the engine, at most."""

    @property
    def tokens_text(self) -> str:
        """`11,450, 3,776`."""
        return f"{_whole(self.decode)}, {_whole(self.prompt)}"

    @property
    def ttft_text(self) -> str:
        """`91.0, 93.0 to 93.0 %`."""
        if None in self.ttft:
            return _NONE
        users, low, high = (f"{100.0 * (share or 0.0):.1f}" for share in self.ttft)
        return f"{users}, {low} to {high} %"


class Accounts(NamedTuple):
    """One capture by every way out."""

    name: str
    screen: Account
    report: Account
    exporter: Account
    prometheus: Account


def accounts_of(done: Replay, goals: Goals) -> Accounts:
    """The accounts of a replay: its readings derived and recorded again."""
    deriver = Deriver(gpu_catalogue(), goals)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "capture.gpumon"
        recorder = Recorder(path, {"host": "capture"})
        for at, tick in enumerate(done.ticks):
            now_s = tick.t - done.offset_s
            frame = Frame(at, WALL_S + now_s, now_s, 1.0, HostReading(), (), tick.readings)
            derived = deriver.derive(frame)
            recorder.keep(KeptTick(frame, derived.points, ()))
            while recorder.written < at - _MOST_UNWRITTEN:
                time.sleep(0.001)
        recorder.close()
        recording = Recording(path)
        span = recording.span()
        assert span is not None
        period = summary_of(recording, gpu_catalogue(), FREE, *span, goals)
    shot = derived.snapshot
    back = rebuild_snapshot(samples(shot), shot.wall_s, shot.interval_s)
    assert back is not None
    return Accounts(done.name, _of_snapshot(shot), _of_period(period), _of_samples(shot), _of_snapshot(back))


def _of_snapshot(shot: Snapshot) -> Account:
    """The account that a snapshot shows of its only engine."""
    (engine,) = shot.engines
    totals = engine.tokens_total
    share = engine.goodput.ttft_goal
    return Account(
        number(totals.decode),
        _sum(totals.prefill_computed, totals.prefill_cached),
        (number(share.users_low_ratio), number(share.low_ratio), number(share.high_ratio)),
    )


def _of_period(period: Period) -> Account:
    """The account of a report."""
    share = period.goodput.ttft_goal
    return Account(
        number(period.decode_tokens),
        _sum(period.prefill_computed_tokens, period.prefill_cached_tokens),
        (number(share.users_low_ratio), number(share.low_ratio), number(share.high_ratio)),
    )


def _of_samples(shot: Snapshot) -> Account:
    """The account that the exporter's page has, by the names and labels of docs/serve-metrics.md."""
    tokens: dict[str, float] = {}
    bounds: dict[str, float] = {}
    for sample in samples(shot):
        if sample.name == "gpumon_engine_tokens_total":
            tokens[sample.labels["kind"]] = sample.value
        if sample.name == "gpumon_engine_goal_attained_ratio" and sample.labels["latency"] == "ttft":
            bounds[sample.labels["bound"]] = sample.value
    prompts = [tokens[kind] for kind in ("prefill", "cached") if kind in tokens]
    return Account(
        tokens.get("decode"),
        sum(prompts) if prompts else None,
        (bounds.get("users_low"), bounds.get("low"), bounds.get("high")),
    )


def _sum(*readings: Reading) -> float | None:
    """The sum of those that are known; None where none is."""
    known = [value for value in map(number, readings) if value is not None]
    return sum(known) if known else None


def _whole(count: float | None) -> str:
    return _NONE if count is None else f"{count:,.0f}"


def has_one_engine(done: Replay) -> bool:
    """Whether the capture ends with one engine that answers or is down, so that its totals are the host's."""
    engines: Sequence[Engine] = done.ticks[-1].engines
    return len(engines) == 1


def table(accounts: Sequence[Accounts]) -> str:
    """The rows as Markdown."""
    rows = []
    for one in accounts:
        by_tokens = [account.tokens_text for account in (one.screen, one.report, one.exporter, one.prometheus)]
        by_share = [account.ttft_text for account in (one.screen, one.exporter, one.prometheus, one.report)]
        rows.append((one.name, *by_tokens, *by_share))
    return markdown(HEAD, rows)
