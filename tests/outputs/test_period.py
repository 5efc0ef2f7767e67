"""The report of a recording as text, Markdown and JSON."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pytest

from gpumon.outputs.export import CSV_COLUMNS, csv_header, csv_rows
from gpumon.outputs.period import encode, markdown, report
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reason
from gpumon.readings.period import EnginePeriod, GoalPeriod, GoodputPeriod, GpuPeriod, Incident, Period
from gpumon.readings.prices import NO_PRICE
from gpumon.readings.snapshot import Confidence, EventKind, Kind, Level, Limit, Verdict
from tests.each_row import each_row
from tests.outputs import shots
from tests.records import replace

GPU = GpuPeriod(0, "u0", "NVIDIA H100 80GB HBM3", 0.71, 0.22, 0.41, 512.0, 1.8432e6, 2.49, 0.72)
ENGINE = EnginePeriod(
    name="vllm:8000",
    key="http://a:8000",
    model="meta-llama/Llama-3.3-70B",
    kind="vllm",
    prefill_computed_tokens=1.2e6,
    prefill_cached_tokens=3e5,
    decode_tokens=4e5,
    decode_tokens_per_s=111.1,
    running_mean=6.2,
    waiting_mean=0.0,
    kv_usage_ratio=0.4,
    mfu_ratio=0.22,
    mbu_ratio=0.41,
    energy_j=1.8432e6,
    tokens_per_j=0.217,
    cost_per_million_tokens=6.2,
)
SHOT = shots.snapshot()
KV = Incident(
    EventKind.VERDICT,
    "vllm:8000",
    "kv_cache: KV 97%",
    Level.WARN,
    "2026-01-02T03:10:00.000Z",
    "2026-01-02T03:14:30.000Z",
    270.0,
)
XID = Incident(EventKind.XID, "gpu 0", "Xid 79 <b>", Level.CRITICAL, "2026-01-02T03:12:00.000Z")
HOUR = Period(
    begin="2026-01-02T03:00:00.000Z",
    end="2026-01-02T04:00:00.000Z",
    seconds=3600.0,
    covered_s=3588.0,
    gaps=1,
    host="gpu-07",
    simulated=False,
    gpus=(GPU,),
    engines=(ENGINE,),
    busy_ratio=0.71,
    mfu_ratio=0.22,
    mbu_ratio=0.41,
    prefill_computed_tokens=1.2e6,
    prefill_cached_tokens=3e5,
    decode_tokens=4e5,
    energy_j=1.8432e6,
    tokens_per_j=0.217,
    cost=2.49,
    idle_cost=0.72,
    cost_per_million_tokens=6.2,
    incidents=(XID, KV),
)


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(os.environ, "TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_the_text_sums_up_the_stretch() -> None:
    lines = report(HOUR, 120).splitlines()
    assert lines[0] == "gpu-07  2026-01-02 03:00:00 to 04:00:00 UTC"
    assert lines[1:6] == [
        "recorded   59 min 48 s of 1 h, 1 gap",
        "use        busy 71%, MFU 22%, MBU 41%",
        "tokens     1.2M prefill, 300k prefill cached, 400k decode",
        "energy     1.84MJ (0.512 kWh), 0.22 tok/J",
        "cost       2.49, of which idle 0.72, 6.20 per million decode tokens",
    ]
    assert "incidents (2)" in lines
    assert next(line for line in lines if "kv_cache" in line).split()[:4] == ["03:10:00", "4m", "warn", "vllm:8000"]


def test_a_mean_of_some_gpus_says_of_how_many_and_no_price_how_to_give_one() -> None:
    other = replace(GPU, index=1, uuid="u1", mbu_ratio=NOT_SUPPORTED, cost=NO_PRICE)
    slice_ = replace(other, uuid="MIG-1", busy_ratio=NOT_SUPPORTED)
    some = replace(HOUR, gpus=(GPU, other, slice_), cost=NO_PRICE)
    lines = report(some, 120).splitlines()
    assert lines[2] == "use        busy 71% (all 2 GPUs), MFU 22%, MBU 41% (1 of 2 GPUs)"
    assert lines[5] == "cost       no price of every GPU: set gpu_hour of [prices]"
    none = replace(some, gpus=(other,))
    assert "| cost | no price: set " in markdown(none)


@each_row("width", [20, 60, 80, 120, 200])
def test_no_line_is_wider_than_asked_for(width: int) -> None:
    assert max(map(len, report(HOUR, width).splitlines())) <= max(60, width)


def test_what_is_not_known_is_a_dash_and_never_a_zero() -> None:
    empty = replace(
        HOUR,
        gpus=(GpuPeriod(0, "u0", "GPU"),),
        engines=(EnginePeriod(name="e", key="k", model="m", kind="vllm"),),
        incidents=(),
    )
    text = report(empty, 120)
    row = next(line for line in text.splitlines() if line.split()[:2] == ["0", "GPU"])
    assert row.split()[2:] == ["-", "-", "-", "-", "-"]
    assert "no incidents" in text


def test_markdown_is_tables_and_takes_no_markup_from_outside() -> None:
    text = markdown(HOUR)
    assert "| gpu | name | busy | mfu | mbu | power | energy | cost | idle cost |" in text
    assert "Xid 79 &lt;b&gt;" in text
    assert "<b>" not in text


def test_json_has_what_is_missing_and_why() -> None:
    told = json.loads(encode(replace(HOUR, cost=Missing(Reason.NO_PRICE))))
    assert told["schema"] == 1
    assert told["cost"] is None
    assert told["missing"]["cost"] == "no_price"
    assert told["gpus"][0]["busy_ratio"] == 0.71
    assert [one["text"] for one in told["incidents"]] == ["Xid 79 <b>", "kv_cache: KV 97%"]


def test_an_export_has_the_verdicts_on_the_host() -> None:
    busy = Verdict("host", Limit.MEMORY_FULL, "", SHOT.time, confidence=Confidence.HIGH, kind=Kind.HOST)
    shot = replace(SHOT, verdicts=(busy,))
    last = dict(zip(CSV_COLUMNS, csv_rows(shot).split("\r\n")[-2].split(","), strict=True))
    assert (last["kind"], last["name"], last["verdicts"]) == ("host", "host", "memory_full")
    assert float(last["cpu_ratio"]) == SHOT.host.cpu_ratio


def test_rows_of_an_export_have_the_columns_of_the_header_and_empty_cells_for_what_is_missing() -> None:
    assert csv_header() == ",".join(CSV_COLUMNS) + "\r\n"
    lines = csv_rows(SHOT).split("\r\n")[:-1]
    assert len(lines) == len(SHOT.gpus) + len(SHOT.engines) + 1
    assert {line.count(",") for line in lines} == {len(CSV_COLUMNS) - 1}
    first = dict(zip(CSV_COLUMNS, lines[0].split(","), strict=True))
    assert first["name"] == "gpu 0"
    assert first["running"] == ""
    assert first["time"] == SHOT.time


def test_a_mean_over_part_of_the_time_says_so() -> None:
    text = report(replace(HOUR, mfu_known_s=1800.0, mbu_known_s=3580.0), 120)
    (line,) = [line for line in text.splitlines() if line.startswith("use")]
    assert "MFU 22% (known for 30 min)" in line
    assert "MBU 41%" in line
    assert "MBU 41% (" not in line


def test_goodput_is_told_as_a_share_of_requests_with_bounds_where_the_goal_lies_inside_a_bucket() -> None:
    first = GoalPeriod(12900.0, 12000.0, 12000.0, 12000.0 / 12900.0, 12000.0 / 12900.0, 1.0)
    rest = GoalPeriod(12800.0, 6400.0, 9600.0, 0.5, 0.75, 0.05)
    tokens = GoalPeriod(5e6, 4e6, 4e6, 0.8, 0.8, 0.05)
    served = GoodputPeriod(first, tokens, rest, ttft_goal_assumed=True)
    told = "93.0% of 12.9k requests within TTFT 1.0s (assumed), 50.0 to 75.0% of 12.8k requests within ITL 50ms"
    assert f"goodput    {told}" in report(replace(HOUR, goodput=served), 140)
    by_http = replace(first, users_low_ratio=0.8)
    told = "within TTFT 1.0s (assumed) inside the engine (80.0 to 93.0% with HTTP)"
    assert told in report(replace(HOUR, goodput=replace(served, ttft_goal=by_http)), 200)
    promised = GoodputPeriod(replace(first, low_ratio=0.97, high_ratio=0.97, users_low_ratio=0.8))
    told = "inside the engine (80.0 to 97.0% with HTTP: not known whether 95% keep it)"
    assert told in report(replace(HOUR, goodput=promised), 200)
    alone = GoodputPeriod(itl_goal=tokens)
    assert "80.0% of 5.0M tokens within ITL 50ms" in markdown(replace(HOUR, goodput=alone))
    assert json.loads(encode(replace(HOUR, goodput=served)))["goodput"]["tpot_goal"]["low_ratio"] == 0.5
    assert "goodput" not in report(HOUR)
