"""`watch --plain` and `snapshot` as text: columns that stand still, nothing that a terminal would act on."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from gpumon.efficiency.service import NO_SERVING
from gpumon.outputs.plain import snapshot_lines
from gpumon.outputs.report import report
from gpumon.outputs.units import FORMAT_BY_UNIT
from gpumon.readings.flat import flat_fields
from gpumon.readings.format import cells
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.missing import NOT_SUPPORTED, WARMING_UP, Missing, Reading, Reason
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Quantiles, Replicas, Snapshot, TokensTotal
from gpumon.readings.verdict import Evidence
from tests.each_row import each_row
from tests.outputs import shots

STAMP = "2026-01-02T14:03:22"


def test_a_line_per_gpu_and_engine() -> None:
    assert snapshot_lines(shots.snapshot()).splitlines() == [
        f"{STAMP} gpu    0              ok             busy   91% sm   64% vram   71.2/79.6GiB mem_bw 2.31TB/s(m) "
        "mfu   31% mbu   62% power  612W temp  64C  NVIDIA_H100_80GB_HBM3",
        f"{STAMP} engine vllm:8000      ok             run    24 wait     0 kv   41% decode  1.10k/s prefill  8.20k/s "
        "ttft_p95   210ms itl_p95   <10ms mfu   31% mbu   62%  meta-llama/Llama-3.3-70B-Instruct",
    ]


def test_columns_stand_still_whatever_the_values_are() -> None:
    small = shots.gpu(busy_ratio=0.0, bandwidth_bytes_per_s=1.0, power_w=5.0, temperature_c=-4.0, mfu_ratio=WARMING_UP)
    large = shots.gpu(
        busy_ratio=1.0, bandwidth_bytes_per_s=9.99e12, power_w=1400.0, temperature_c=104.0, mfu_ratio=12.0
    )
    lost = shots.bare().gpus[0]
    ends = [
        line.index(" temp ")
        for line in snapshot_lines(shots.snapshot(gpus=(small, large, lost), engines=())).splitlines()
    ]
    assert len(set(ends)) == 1
    slow = shots.engine(running=99_999.0, ttft_s=Quantiles(p95=500.0), itl_s=Quantiles(p95=0.0004))
    ends = [
        line.index(" mbu ")
        for line in snapshot_lines(shots.snapshot(gpus=(), engines=(shots.engine(), slow))).splitlines()
    ]
    assert len(set(ends)) == 1


def test_what_is_not_there_is_a_dash_and_the_fault_stands_behind() -> None:
    text = snapshot_lines(shots.bare())
    assert f"{STAMP} gpu    7              lost           busy     - sm     - vram              - mem_bw" in text
    assert "fallen off the bus" in text
    assert "refused        run     - wait     -" in text
    assert "nothing listens on 127.0.0.1:1" in text
    assert f"{STAMP} fault nvml no driver" in text
    assert f"{STAMP} verdict engine:1 memory_bandwidth_bound warn; reads 69% of HBM; raise the batch" in text


def test_a_verdict_is_its_line_and_what_to_do_and_all_is_well_is_not_said() -> None:
    text = snapshot_lines(shots.judged())
    assert f"{STAMP} verdict vllm:8000 queue_limit warn; 7 wait while 24 run; raise --max-num-seqs\n" in text
    assert f"{STAMP} event gpu_3 xid; Xid 79\n" in text
    assert "healthy" not in text


@each_row(
    ("source", "shown"),
    [
        (BandwidthSource.GPM, "2.31TB/s(m)"),
        (BandwidthSource.DCGM, "2.31TB/s(m)"),
        (BandwidthSource.ENGINE, ">=2.31TB/s"),
        (BandwidthSource.UPPER_BOUND, "<=2.31TB/s"),
    ],
)
def test_a_bandwidth_that_is_a_bound_says_so(source: BandwidthSource, shown: str) -> None:
    assert f"bw {shown:>11} mfu" in snapshot_lines(shots.snapshot(gpus=(shots.gpu(bandwidth_source=source),)))


def test_throttling_and_xid_stand_behind_the_name() -> None:
    gpu = shots.gpu(throttle=("hw_thermal",), xid=(79, 31), state_text="falling off")
    assert "NVIDIA_H100_80GB_HBM3 throttled:hw_thermal xid:79 xid:31 falling off" in snapshot_lines(
        shots.snapshot(gpus=(gpu,))
    )


def test_a_mean_in_place_of_a_quantile_is_marked() -> None:
    few = Quantiles(p95=Missing(Reason.FEW), mean=0.03)
    assert "itl_p95   ~30ms" in snapshot_lines(shots.snapshot(engines=(shots.engine(itl_s=few),)))


def test_simulated_stands_in_every_line() -> None:
    assert all(" SIMULATED " in line for line in snapshot_lines(shots.hostile()).splitlines())
    heads = [line for line in report(shots.hostile()).splitlines() if line and not line.startswith(" ")]
    assert all(line.endswith("SIMULATED") for line in heads if line.startswith(("gpumon  ", "gpu ", "engine ")))
    assert "SIMULATED" not in snapshot_lines(shots.snapshot()) + report(shots.snapshot())


@each_row("text", [snapshot_lines(shots.hostile()), report(shots.hostile())], named=["plain", "report"])
def test_hostile_text_does_nothing(text: str) -> None:
    assert all(line.isprintable() for line in text.splitlines())
    assert len(text.splitlines()) == len(re.split(r"\n", text)) - 1, "no text makes a line of its own"
    assert "[bold]" in text
    assert max(map(len, text.splitlines())) < 5000


def test_the_report_holds_every_value_with_its_unit_reason_or_source() -> None:
    text = report(shots.snapshot())
    for line in (
        r"  busy +91%",
        r"  bandwidth +2\.31TB/s",
        r"  bandwidth source +gpm",
        r"  ecc uncorrected +-  not supported",
        r"  decode +1\.10k tok/s +\[vllm:generation_tokens_total over 10 s\]",
        r"  ttft p95 +210ms",
        r"  ttft first bound +1ms",
        r"  queue p95 +-  few observations",
        r"  tokens total prefill cached +200k",
        r"  tokens per joule +0\.40 tok/J",
        r"  bytes +4\.00TB/s",
        r"  flops per joule +-  not exposed",
        r"  process +4711  65\.2 GiB  91%  VLLM::Worker  llm  -  -  vllm:8000  vllm serve llama --port 8000",
        r"  throttle sw_power_cap +12s +\[NVML fields\]",
        r"  pcie generation +5 +\[a driver call\]",
        r"  pss +60 MiB",
    ):
        assert re.search(f"(?m)^{line}$", text), line


def test_the_report_has_a_line_for_every_reading() -> None:
    text = report(shots.bare())
    readings = [
        field for kind in (Gpu, Engine) for _, field in flat_fields(kind).values() if "Missing" in str(field.type)
    ]
    assert text.count("not supported") + text.count("not exposed") + text.count("warming up") >= len(readings)


@each_row("shot", [shots.snapshot(), shots.bare()], named=["full", "bare"])
def test_no_two_lines_of_a_thing_have_one_label(shot: Snapshot) -> None:
    for part in report(shot).split("\n\n"):
        head, *lines = part.splitlines()
        labels = [line[:32].strip() for line in lines if line.startswith("  ") and "process " not in line]
        if head.startswith(("gpu ", "engine ", "replicas ", "host")):
            assert [label for label in labels if labels.count(label) > 1] == []


def test_the_report_shows_what_a_missing_value_has_to_say() -> None:
    gpu = shots.gpu(sm_active_ratio=Missing(Reason.NO_PERMISSION, "GPM needs CAP_PERFMON"))
    text = report(shots.snapshot(gpus=(gpu,)))
    assert "-  no permission (GPM needs CAP_PERFMON)" in text


@each_row(
    ("unit", "value", "text"),
    [
        ("bytes", 1.5 * 2**30, "1.5 GiB"),
        ("bytes", 2.0**20, "1 MiB"),
        ("bytes", 327_680.0, "320 KiB"),
        ("bytes", 0.0, "0 MiB"),
        ("bytes_of_model", 327_680.0, "328kB"),
        ("flops_per_s", 989e12, "989TFLOP/s"),
        ("ratio", 1.04, "104%!"),
        ("w", 612.4, "612W"),
        ("hz", 1.98e9, "1.98GHz"),
        ("tokens_per_s", 0.0, "0 tok/s"),
        ("c", Missing(Reason.LOST), "-"),
        ("count", float("nan"), "-"),
        ("s", float("nan"), "-"),
        ("bytes", float("inf"), "-"),
    ],
)
def test_a_reading_with_its_unit(unit: str, value: float, text: str) -> None:
    assert FORMAT_BY_UNIT[unit](value) == text


SIZES = st.floats(0.0, 1e18) | st.sampled_from([WARMING_UP, NOT_SUPPORTED, 0.0, 0.004, 0.9996, 1.04, 999.9, 1234.5])
SECONDS = st.floats(0.0, 99_999.0) | st.just(Missing(Reason.FEW))
GPUS = st.builds(
    shots.gpu,
    state=st.sampled_from(GpuState),
    bandwidth_source=st.sampled_from([each for each in BandwidthSource if each is not BandwidthSource.NONE]),
    temperature_c=st.floats(-99.0, 999.0) | st.just(NOT_SUPPORTED),
    power_w=st.floats(0.0, 1e8) | st.just(NOT_SUPPORTED),
    vram_used_bytes=st.floats(0.0, 2.0**50) | st.just(NOT_SUPPORTED),
    vram_total_bytes=st.floats(0.0, 2.0**50) | st.just(NOT_SUPPORTED),
    **dict.fromkeys(("busy_ratio", "sm_active_ratio", "bandwidth_bytes_per_s", "mfu_ratio", "mbu_ratio"), SIZES),
)
ENGINES = st.builds(
    shots.engine,
    name=st.sampled_from(["e", "vllm:8000", "a-long-name-of-an-engine", "模型:8000"]),
    state=st.sampled_from(EndpointState),
    ttft_s=st.builds(Quantiles, p95=SECONDS, mean=SECONDS, first_bound_s=SECONDS),
    itl_s=st.builds(Quantiles, p95=SECONDS, mean=SECONDS, first_bound_s=SECONDS),
    **dict.fromkeys(("running", "waiting", "kv_usage_ratio", "decode_tokens_per_s", "prefill_tokens_per_s"), SIZES),
    **dict.fromkeys(("mfu_ratio", "mbu_ratio"), SIZES),
)
COLUMN = re.compile(r" (?:busy|sm|vram|mem_bw|mfu|mbu|power|temp|run|wait|kv|decode|prefill|ttft_p95|itl_p95) ")


@given(st.lists(GPUS, min_size=2, max_size=3), st.lists(ENGINES, min_size=2, max_size=3))
def test_columns_stand_still_for_any_values(gpus: list[Gpu], engines: list[Engine]) -> None:
    shown = snapshot_lines(shots.snapshot(gpus=tuple(gpus), engines=tuple(engines))).splitlines()
    for group in (shown[: len(gpus)], shown[len(gpus) :]):
        starts = {tuple(cells(line[: found.start()]) for found in COLUMN.finditer(line)) for line in group}
        assert len(starts) == 1


READINGS = {
    kind: [name for name, (_, field) in flat_fields(kind).items() if field.type == Reading] for kind in (Gpu, Engine)
}


@each_row("reason", Reason)
def test_a_missing_value_is_never_a_zero(reason: Reason) -> None:
    nothing = Missing(reason)
    latencies = dict.fromkeys(("ttft_s", "itl_s"), Quantiles(*(nothing for _ in Quantiles.__struct_fields__)))
    gpu = shots.gpu(name="g", **dict.fromkeys(READINGS[Gpu], nothing))
    engine = shots.engine(model="m", **dict.fromkeys(READINGS[Engine], nothing), **latencies)
    for line in snapshot_lines(shots.snapshot(gpus=(gpu,), engines=(engine,))).splitlines():
        columns = line.partition("  g")[0] if " gpu " in line else line.partition("  m")[0]
        values = columns[COLUMN.search(columns).start() :].split()  # type: ignore[union-attr]
        assert set(values[1::2]) == {"-"}


def test_a_line_says_why_its_columns_are_empty() -> None:
    warming = dict.fromkeys(("decode_tokens_per_s", "prefill_tokens_per_s", "mfu_ratio", "mbu_ratio"), WARMING_UP)
    none = dict.fromkeys(("mfu_ratio", "mbu_ratio"), Missing(Reason.NO_ENGINE))
    text = snapshot_lines(
        shots.snapshot(gpus=(shots.gpu(sm_active_ratio=WARMING_UP, **none),), engines=(shots.engine(**warming),))
    )
    first, second = text.splitlines()
    assert first.endswith("NVIDIA_H100_80GB_HBM3  sm: warming up; mfu, mbu: no engine")
    assert second.endswith("Llama-3.3-70B-Instruct  decode, prefill, mfu, mbu: warming up")
    assert ": " not in snapshot_lines(shots.snapshot()).replace(STAMP, "")


def test_an_engine_with_its_metrics_off_is_the_same_cause_on_its_gpus_as_on_the_screen() -> None:
    none = dict.fromkeys(("mfu_ratio", "mbu_ratio"), Missing(Reason.UNREACHABLE))
    gpu = shots.gpu(**none)
    for state, words in ((EndpointState.METRICS_OFF, "metrics off"), (EndpointState.REFUSED, "no figures")):
        engine = shots.engine(name=gpu.engines[0], state=state)
        first = snapshot_lines(shots.snapshot(gpus=(gpu,), engines=(engine,))).splitlines()[0]
        assert first.endswith(f"mfu, mbu: {words}")


def test_a_training_run_says_what_it_trained_and_an_engine_what_contradicts_it() -> None:
    text = snapshot_lines(
        shots.snapshot(engines=(shots.engine(trained_tokens_per_s=9_940.0, contradicts=(Evidence("MBU 86%\x1b"),)),))
    )
    assert "  trained 9.94k/s  ! MBU 86%\\x1b" in text


@each_row(("answering", "name"), [(2, "2 replicas  "), (1, "1/2 replicas")])
def test_sums_say_how_many_answer(answering: int, name: str) -> None:
    sums = Replicas("llama", ("a", "b"), answering, running=3.0)
    text = snapshot_lines(shots.snapshot(replicas=(sums,)))
    assert f" sum    {name}" in text
    assert ("1 without figures" in text) is (answering == 1)


def test_the_report_of_a_training_run_leaves_out_what_it_cannot_have() -> None:
    trains = dict.fromkeys(("decode_tokens_per_s", "prefill_tokens_per_s", "batch"), NO_SERVING)
    totals = TokensTotal(decode=NO_SERVING, trained=52_000.0)
    stale = Missing(Reason.STALE)
    text = report(shots.snapshot(engines=(shots.engine(tokens_total=totals, tp=0, running=stale, **trains),)))
    assert "it trains" not in text
    assert re.search(r"(?m)^  tokens total trained +52\.0k", text)
    assert re.search(r"(?m)^  tp +-  stale$", text)


def test_the_report_gives_a_verdict_with_its_evidence_and_where_that_comes_from() -> None:
    text = report(shots.judged())
    assert (
        "verdict vllm:8000  queue_limit  warn  since 2026-01-02T14:00:00Z\n"
        "  7 wait while 24 run\n"
        "  evidence   7 waiting  [vllm:num_requests_waiting]\n"
        "  evidence   goal 1.0 s  [config]\n"
        "  action     raise --max-num-seqs\n"
        "  confidence high\n"
    ) in text
    assert "verdict gpu 3  healthy  ok  since" in text
    assert "event gpu 3  xid\n  Xid 79\n" in text
