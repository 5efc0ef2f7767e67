"""One account of each capture through every way out: the screen, a report, the exporter, and a Prometheus that asks it.

`python -m tests.accuracy.replay` prints it below the other tables.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from gpumon.config.schema import Config
from gpumon.efficiency.deriver import Deriver
from gpumon.history.compared import compare_spans
from gpumon.history.frame_store import Tick as KeptTick
from gpumon.history.reader import Recording
from gpumon.history.recorder import Recorder
from gpumon.history.summary import summary_of
from gpumon.outputs.samples import samples
from gpumon.readings.frame import EndpointState, EngineReading, Frame, GpuReading, GpuState, HostReading
from gpumon.readings.goals import Goals
from gpumon.readings.missing import Reading, number
from gpumon.readings.period import Period
from gpumon.readings.prices import Prices
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.readings.verdict import Kind
from gpumon.readings.when import Stretch
from gpumon.session.build import deriver_maker
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.prometheus.own import rebuild_snapshot
from tests.accuracy.judged import Replay, Tick, Truth
from tests.accuracy.tables import markdown

WALL_S: Final = 1.9e9
"""Later than any recording, as in the replays."""
_MOST_UNWRITTEN: Final = 30
"""Frames that the recorder is behind at most: its queue is bounded."""
_NONE: Final = "–"
_LEAST_GAP_TICKS: Final = 12
"""Ticks of a second that a middle third has at least which is a gap of a recording."""
HEAD: Final = (
    *("capture", "decode tokens, prompt tokens: screen", "report", "exporter", "Prometheus"),
    *("TTFT in goal, last 2 min: screen", "exporter", "Prometheus", "whole: report"),
    *("unused, energy cost: screen", "report", "exporter", "Prometheus", "no request in flight: client"),
    *("decode tok/s without the middle third: report", "comparison", "client"),
)
GPU_UUID: Final = "GPU-of-the-accounts"
POWER_W: Final = 500.0
PRICES: Final = Prices({"": 3600.0}, 3600.0)
"""A second of the GPU costs 1; its energy costs half of that at `POWER_W`."""


class Account(NamedTuple):
    """Totals and shares of one way out."""

    decode: float | None
    """Generated tokens; None where they are not counted."""
    prompt: float | None
    """Prompt tokens, cached ones included."""
    ttft: tuple[float | None, float | None, float | None]
    """Share within the TTFT goal: at least as users see it, at least inside the engine, at most."""
    unused_cost: float | None
    """Price of the time in which no request ran."""
    energy_cost: float | None
    """Price of the energy."""

    @property
    def costs_text(self) -> str:
        """`23.00, 30.50`."""
        return f"{_money(self.unused_cost)}, {_money(self.energy_cost)}"

    @property
    def tokens_text(self) -> str:
        """`11,450, 3,776`."""
        return f"{_whole(self.decode)}, {_whole(self.prompt)}"

    @property
    def ttft_text(self) -> str:
        """`91.0, 93.0 to 93.0%`."""
        if None in self.ttft:
            return _NONE
        users, low, high = (f"{100.0 * (share or 0.0):.1f}" for share in self.ttft)
        return f"{users}, {low} to {high}%"


class Accounts(NamedTuple):
    """One capture by every way out."""

    name: str
    screen: Account
    report: Account
    exporter: Account
    prometheus: Account
    idle_s: float
    """Seconds of the replay in which the client had no request in flight."""
    seen_per_s: float | None
    """Decode tokens/s of the report where the middle third of the replay was not recorded; None where that is too short
    to be a gap."""
    compared_per_s: float | None
    """The same of a comparison of both halves, together; None where the engine did not answer all the while."""
    arrived_per_s: float | None
    """The same by the client, over the times of the polls that the two recorded parts have; None where the engine did
    not answer all the while."""


def accounts_of(done: Replay, goals: Goals) -> Accounts:
    """The accounts of a replay: its readings derived and recorded again, on one GPU with prices."""
    deriver = Deriver(gpu_catalogue(), goals, PRICES)
    kept = []
    for at, tick in enumerate(done.ticks):
        frame = _frame(done, at, tick)
        derived = deriver.derive(frame)
        kept.append(KeptTick(frame, derived.points, ()))
    shot = derived.snapshot
    back = rebuild_snapshot(samples(shot), shot.wall_s, shot.interval_s)
    assert back is not None
    with _recorded(kept) as recording:
        whole = _report_of(recording, goals)
    third = len(kept) // 3
    parts = (kept[:third], kept[-third:])
    has_gap = len(kept) - 2 * third > _LEAST_GAP_TICKS
    is_up = {reading.state for tick in done.ticks for reading in tick.readings} == {EndpointState.OK}
    with _recorded([*parts[0], *parts[1]]) as recording:
        seen = _report_of(recording, goals)
        compared_per_s = _compared_per_s(recording)
    return Accounts(
        done.name,
        _of_snapshot(shot),
        _of_period(whole),
        _of_samples(shot),
        _of_snapshot(back),
        _idle_s(done),
        number(seen.engines[0].decode_tokens_per_s) if has_gap else None,
        compared_per_s if has_gap and is_up else None,
        _arrived_per_s(done, parts) if has_gap and is_up else None,
    )


def _frame(done: Replay, at: int, tick: Tick) -> Frame:
    """The frame of a tick, with the GPU that its engine runs on."""
    now_s = tick.t - done.offset_s
    gpu = GpuReading(
        0,
        GPU_UUID,
        "NVIDIA H100 80GB HBM3",
        GpuState.OK,
        now_s,
        busy_ratio=0.5,
        power_w=POWER_W,
        energy_j=POWER_W * now_s,
    )
    readings = tuple(msgspec.structs.replace(reading, gpus=(GPU_UUID,)) for reading in tick.readings)
    return Frame(at, WALL_S + now_s, now_s, 1.0, HostReading(), (gpu,), readings)


@contextmanager
def _recorded(ticks: Sequence[KeptTick]) -> Iterator[Recording]:
    """A recording that has these ticks alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "capture.gpumon"
        recorder = Recorder(path, {"host": "capture"})
        for at, tick in enumerate(ticks):
            recorder.keep(tick)
            while recorder.written < at - _MOST_UNWRITTEN:
                assert not recorder.dropped
                time.sleep(0.001)
        recorder.close()
        yield Recording(path)


def _report_of(recording: Recording, goals: Goals) -> Period:
    """The report of all of a recording."""
    span = recording.span()
    assert span is not None
    return summary_of(recording, gpu_catalogue(), PRICES, *span, goals)


def _compared_per_s(recording: Recording) -> float | None:
    """Decode tokens/s of the two halves of a recording, compared, by the seconds that were seen of each; None where
    a half has none."""
    span = recording.span()
    assert span is not None
    begin_s, end_s = span
    middle_s = (begin_s + end_s) / 2
    spans = (Stretch(begin_s, middle_s), Stretch(middle_s, end_s))
    compared = compare_spans(recording, deriver_maker(Config()), *spans)
    (engine,) = [thing for thing in compared.things if thing.kind is Kind.ENGINE]
    rates = [figure for figure in engine.figures if figure.code == "decode_tokens_per_s"]
    if not rates:
        return None
    before, after = number(rates[0].before), number(rates[0].after)
    if before is None or after is None:
        return None
    seen_s = (compared.before.covered_s, compared.after.covered_s)
    return (before * seen_s[0] + after * seen_s[1]) / sum(seen_s)


def _arrived_per_s(done: Replay, parts: Sequence[Sequence[KeptTick]]) -> float:
    """Tokens that arrived at the client in the parts, between their first and last poll, by their seconds."""
    truth = Truth(done.capture)
    tokens = 0.0
    seconds = 0.0
    for part in parts:
        begin_s = _polled_s(part[0]) + done.offset_s
        end_s = _polled_s(part[-1]) + done.offset_s
        tokens += truth.tokens("decode", begin_s, end_s)
        seconds += end_s - begin_s
    return tokens / seconds


def _idle_s(done: Replay) -> float:
    """Seconds between the first and the last tick in which the client waited for no answer."""
    end_s = done.ticks[-1].t
    idle_s = 0.0
    served_until_s = done.ticks[0].t
    for request in sorted(done.capture.truth, key=lambda request: request["t_start"]):
        if request["t_start"] >= end_s:
            break
        idle_s += max(0.0, request["t_start"] - served_until_s)
        served_until_s = max(served_until_s, request["t_end"] or end_s)
    return idle_s + max(0.0, end_s - served_until_s)


def _polled_s(tick: KeptTick) -> float:
    """When the engine of a tick answered."""
    reading: EngineReading = tick.frame.engines[0]
    return reading.monotonic_s


def _of_snapshot(shot: Snapshot) -> Account:
    """The account that a snapshot shows of its only engine."""
    (engine,) = shot.engines
    totals = engine.tokens_total
    share = engine.goodput.ttft_goal
    return Account(
        number(totals.decode),
        _sum(totals.prefill_computed, totals.prefill_cached),
        (number(share.users_low_ratio), number(share.low_ratio), number(share.high_ratio)),
        number(shot.gpus[0].unused_cost),
        number(shot.gpus[0].energy_cost),
    )


def _of_period(period: Period) -> Account:
    """The account of a report."""
    share = period.goodput.ttft_goal
    return Account(
        number(period.decode_tokens),
        _sum(period.prefill_computed_tokens, period.prefill_cached_tokens),
        (number(share.users_low_ratio), number(share.low_ratio), number(share.high_ratio)),
        number(period.unused_cost),
        number(period.energy_cost),
    )


def _of_samples(shot: Snapshot) -> Account:
    """The account that the exporter's page has, by the names and labels of docs/serve-metrics.md."""
    tokens: dict[str, float] = {}
    bounds: dict[str, float] = {}
    costs: dict[str, float] = {}
    for sample in samples(shot):
        if sample.name == "gpumon_engine_tokens_total":
            tokens[sample.labels["kind"]] = sample.value
        if sample.name == "gpumon_engine_goal_attained_ratio" and sample.labels["latency"] == "ttft":
            bounds[sample.labels["bound"]] = sample.value
        if sample.name.startswith("gpumon_gpu_") and sample.name.endswith("_cost_total"):
            costs[sample.name] = sample.value
    prompts = [tokens[kind] for kind in ("prefill", "cached") if kind in tokens]
    return Account(
        tokens.get("decode"),
        sum(prompts) if prompts else None,
        (bounds.get("users_low"), bounds.get("low"), bounds.get("high")),
        costs.get("gpumon_gpu_unused_cost_total"),
        costs.get("gpumon_gpu_energy_cost_total"),
    )


def _sum(*readings: Reading) -> float | None:
    """The sum of those that are known; None where none is."""
    known = [value for value in map(number, readings) if value is not None]
    return sum(known) if known else None


def _whole(count: float | None) -> str:
    return _NONE if count is None else f"{count:,.0f}"


def _money(cost: float | None) -> str:
    return _NONE if cost is None else f"{cost:,.2f}"


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
        by_cost = [account.costs_text for account in (one.screen, one.report, one.exporter, one.prometheus)]
        by_rate = (_whole(one.seen_per_s), _whole(one.compared_per_s), _whole(one.arrived_per_s))
        rows.append((one.name, *by_tokens, *by_share, *by_cost, f"{one.idle_s:.1f} s", *by_rate))
    return markdown(HEAD, rows)
