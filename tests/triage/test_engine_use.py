"""Engines that are idle, under-used or healthy: the figures, the money, and what is not said too early."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.efficiency.service import NO_TOKENS
from gpumon.readings.format import wall_of
from gpumon.readings.frame import EndpointState, Phase
from gpumon.readings.missing import NOT_EXPOSED, WARMING_UP, Missing, Reason
from gpumon.readings.snapshot import (
    BandwidthSource,
    Confidence,
    Family,
    Kind,
    Level,
    Limit,
    Quantiles,
    Replicas,
    Snapshot,
    TokensTotal,
)
from gpumon.specs.llm import LlmSpec
from gpumon.triage.triage import Triage
from tests.records import replace
from tests.triage.engines import BUSY, IDLE, PEAK, WORKS, EngineKind, judged, limits, of_engine, only, scene
from tests.triage.stage import GIB, START_S, Of, Stage, engine, gpu, verdict

QUIET = {**BUSY, "tensor_active_ratio": 0.05, "bandwidth_bytes_per_s": 0.12 * PEAK}
FEW = {
    "running": 6.0,
    "kv_usage_ratio": 0.05,
    "mfu_ratio": 0.15,
    "mfu_prefill_ratio": 0.1,
    "mbu_ratio": 0.2,
    "kv_pool_tokens": NOT_EXPOSED,
}
STOPS = {"running": 0.0, "decode_tokens_per_s": 0.0, "prefill_tokens_per_s": 0.0, "mfu_ratio": 0.0, "mbu_ratio": 0.0}
PRICES = {"H100 SXM 80GB": 2.49}
UNLESS = "; 2 min were looked at, and a quiet hour proves nothing: gpumon report tells of the busy ones"


def fleet(count: int, changes: dict[str, Any], ticks: int, prices: dict[str, float]) -> Snapshot:
    """Replicas of one model, a GPU each."""
    stage = Stage()
    stage.triage = Triage(prices=prices)
    names = tuple(f"r{at}" for at in range(count))
    for tick in range(ticks):
        totals = TokensTotal(10.0 * tick, 0.0, 10.0 * tick)
        things: list[Of] = []
        for at, name in enumerate(names):
            fields = {**WORKS, **FEW, "tokens_total": totals, **changes}
            one = engine(name=name, url=f"http://127.0.0.1:{8000 + at}", gpus=(at,), **fields)
            things.append(Of(with_slots(one.read, 48.0), one.shown))
            things.append(gpu(at, **{**QUIET, "processes": ()}))
        last = play_replicas(stage, things, names)
    return last


def with_slots(read: Any, slots: float) -> Any:
    only_one = scene(slots=slots)(0)[-1].read
    return replace(read, ranks=only_one.ranks, live=only_one.live)


def play_replicas(stage: Stage, things: list[Of], names: tuple[str, ...]) -> Snapshot:
    """A tick whose snapshot says that they serve one model."""
    judge = stage.triage.judge
    group = (Replicas("m", names, len(names)),)
    stage.triage.judge = lambda frame, shown: judge(frame, replace(shown, replicas=group))  # type: ignore[method-assign]
    try:
        return stage.tick(*things)
    finally:
        stage.triage.judge = judge  # type: ignore[method-assign]


def test_replicas_say_on_how_many_gpus_the_traffic_fits_and_what_the_others_cost() -> None:
    """8 x 6 = 48 run; 48 / (48 x 0.8) = 1.25, so 2 of 8; 15 % x 8 / 2 = 60 % MFU; 6 x 2.49 = 14.94."""
    found = verdict(fleet(8, {}, 160, PRICES), Family.USE, Kind.ENGINE)
    assert found is not None
    assert found.text == "15 % MFU at 6 of 48 slots: this traffic fits on 2 of 8 GPUs, 14.9 $/h idle"
    assert found.action == f"stop 6 of 8 instances, and send their requests to the others{UNLESS}"
    assert (found.limit, found.level) == (Limit.UNDER_USED, Level.NOTE)
    assert ("14.9 $/h idle", "config") in [(one.text, one.source) for one in found.evidence]


@pytest.mark.parametrize(
    ("prices", "money"),
    [({}, ""), ({"": 2.0}, ", 12.0 $/h idle"), ({"": 9.0, **PRICES}, ", 14.9 $/h idle"), ({"A100": 1.0}, "")],
)
def test_money_is_named_where_a_price_is_known(prices: dict[str, float], money: str) -> None:
    found = verdict(fleet(8, {}, 160, prices), Family.USE, Kind.ENGINE)
    assert found is not None
    assert found.text == f"15 % MFU at 6 of 48 slots: this traffic fits on 2 of 8 GPUs{money}"


def test_arithmetic_and_kv_reads_bound_how_few_instances_will_do() -> None:
    """18 % x 8 / 0.6 = 2.4: 3 GPUs. KV reads of half of 34 % MBU: 17 % x 8 / 0.6 = 2.3: 3 GPUs."""
    more = fleet(8, {"mfu_ratio": 0.18}, 160, {})
    assert "fits on 3 of 8 GPUs" in next(each.text for each in more.verdicts if each.kind is Kind.ENGINE)
    reads = {"mbu_ratio": 0.34, "bytes_per_s": 2e12, "kv_bytes_per_s": 1e12}
    more = fleet(8, reads, 160, {})
    assert "fits on 3 of 8 GPUs" in next(each.text for each in more.verdicts if each.kind is Kind.ENGINE)


def test_one_engine_says_what_it_uses_of_what_fits() -> None:
    found = only(judged(scene(FEW, QUIET, slots=48.0), 160))
    assert found.text == "15 % MFU at 6 of 48 slots"
    assert found.action == "send it more requests at once, or let its GPU serve another model, too"
    pool = only(judged(scene({**FEW, "kv_pool_tokens": 60_000.0}, QUIET), 160))
    assert pool.text == "15 % MFU at 6 of about 60 requests that fill its KV cache"


def test_one_instance_may_fit_on_fewer_gpus() -> None:
    """16 GB of weights and 8 sequences of 1 GB are less than 0.9 x 85.9 - 7.5 GB: one GPU of four, by memory."""
    llm = LlmSpec("m", "test", 8e9, 8e9, 0.525e9, 128256, 4096, 32, 32, 8, 128, read_bytes=16e9)
    changes = {**FEW, "tp": 4, "llm": llm, "kv_bytes_per_token": 1e6, "mfu_ratio": 0.05, "mbu_ratio": 0.1}
    card = {**QUIET, "nvlink_bytes_per_s": 1e9}
    found = only(judged(scene(changes, (card,) * 4, slots=48.0), 160, prices=PRICES))
    assert found.text == "5 % MFU at 6 of 48 slots: this traffic fits on 1 of 4 GPUs, 7.5 $/h idle"
    assert found.action == f"lower --tensor-parallel-size to 1, and give the other GPUs to another model{UNLESS}"
    reads = only(judged(scene({**changes, "mbu_ratio": 0.2}, (card,) * 4, slots=48.0), 160))
    assert "fits on 2 of 4 GPUs" in reads.text  # 20 % x 4 is more than one GPU reads


@pytest.mark.parametrize(
    ("weights", "lowers"),
    [
        (16e9, "--pipeline-parallel-size from 2 to 1 and --tensor-parallel-size from 4 to 1"),
        (100e9, "--pipeline-parallel-size from 2 to 1 and --tensor-parallel-size from 4 to 2"),
        (150e9, "--pipeline-parallel-size from 2 to 1"),
    ],
)
def test_of_several_stages_those_go_first(weights: float, lowers: str) -> None:
    """A GPU has 0.9 x 85.9 - 7.5 = 69.8 GB; 16 GB of weights fit on one, 100 GB on two, 150 GB on four."""
    llm = LlmSpec("m", "test", 8e9, 8e9, 0.525e9, 128256, 4096, 32, 32, 8, 128, read_bytes=weights)
    changes = {**FEW, "tp": 4, "pp": 2, "llm": llm, "kv_bytes_per_token": 1e5, "mfu_ratio": 0.02, "mbu_ratio": 0.05}
    card = {**QUIET, "nvlink_bytes_per_s": 1e9}
    found = only(judged(scene(changes, (card,) * 8, slots=48.0), 160))
    assert found.action == f"lower {lowers}, and give the other GPUs to another model{UNLESS}"


@pytest.mark.parametrize(
    "changes",
    [{"running": 13.0}, {"mfu_ratio": 0.3}, {"mbu_ratio": 0.45}, {"running": 40.0}],
)
def test_enough_requests_arithmetic_or_bandwidth_is_no_waste(changes: dict[str, Any]) -> None:
    assert limits(judged(scene({**FEW, **changes}, BUSY, slots=48.0), 200)) == (Limit.HEALTHY,)


def test_two_minutes_are_looked_at_before_use_is_judged() -> None:
    assert limits(judged(scene(FEW, QUIET, slots=48.0), 100)) == (Limit.HEALTHY,)
    assert limits(judged(scene(FEW, QUIET, slots=48.0), 160)) == (Limit.UNDER_USED,)


def test_what_fits_follows_from_the_share_of_the_kv_cache_that_is_used() -> None:
    """6 requests take 10 %: 60 fit. Where nobody tells that either, few is not told from many."""
    hidden = {**FEW, "context_tokens": NOT_EXPOSED}
    found = only(judged(scene({**hidden, "kv_usage_ratio": 0.1}, QUIET), 160))
    assert found.text == "15 % MFU at 6 of about 60 requests that fill its KV cache"
    assert limits(judged(scene({**hidden, "kv_usage_ratio": NOT_EXPOSED}, QUIET), 160)) == (Limit.HEALTHY,)


def test_no_request_for_minutes_is_idle_and_costs_money() -> None:
    of = scene(STOPS, IDLE, moves=False)
    assert limits(judged(of, 290)) == (Limit.HEALTHY,)
    found = only(judged(of, 345, prices=PRICES))
    assert found.text == "no request for 6 min: 1 GPU idle, 2.5 $/h"
    assert (found.limit, found.level, found.confidence) == (Limit.UNDER_USED, Level.NOTE, Confidence.HIGH)


ASLEEP = "weights in the host's memory (sleep level 1)"


@pytest.mark.parametrize("seconds", [60, 600])
def test_an_engine_that_sleeps_on_purpose_is_not_idle(seconds: int) -> None:
    said = only(judged(scene({**STOPS, "asleep": ASLEEP}, IDLE, moves=False), seconds, prices=PRICES))
    assert (said.limit, said.level, said.action) == (Limit.HEALTHY, Level.OK, "")
    assert said.text == f"asleep on purpose: {ASLEEP}"
    assert said.evidence[0].source == "the engine's own state"


def test_requests_that_a_sleeping_engine_keeps_do_not_make_it_hang() -> None:
    asleep = {**STOPS, "running": 3.0, "waiting": 1.0, "asleep": ASLEEP}
    awake = {name: value for name, value in asleep.items() if name != "asleep"}
    assert Limit.STALLED in limits(judged(scene(awake, IDLE, moves=False), 600))
    assert Limit.STALLED not in limits(judged(scene(asleep, IDLE, moves=False), 600))


def test_requests_between_two_polls_are_requests() -> None:
    """The gauge never sees one, and the tokens move."""
    assert Limit.UNDER_USED not in limits(judged(scene({**STOPS, "running": 0.0}, IDLE, moves=True), 345))


def test_healthy_says_how_much_more_fits_until_the_next_limit() -> None:
    card = {**BUSY, "bandwidth_bytes_per_s": 0.15 * PEAK}
    modelled = {**BUSY, "bandwidth_source": BandwidthSource.ENGINE}
    found = only(judged(scene({"mbu_ratio": 0.1, "mfu_ratio": 0.1, "kv_usage_ratio": 0.41}, card)))
    assert found.text == "KV at 41 %: about 2.4x this traffic"
    assert (found.level, found.action) == (Level.OK, "")
    found = only(judged(scene({"mbu_ratio": 0.4, "mfu_ratio": 0.1, "kv_usage_ratio": 0.1}, modelled, slots=96.0)))
    assert found.text == "MBU at 40 %: about 1.5x this traffic"
    found = only(judged(scene({"mbu_ratio": 0.1, "mfu_ratio": 0.1, "kv_usage_ratio": 0.1}, card, slots=36.0)))
    assert found.text == "24 of 36 slots: about 1.5x this traffic"


def test_measured_bandwidth_says_how_much_fits_and_it_is_never_less_than_now() -> None:
    """DRAM at 50 % leaves 0.75 / 0.5, whatever the model says; 70 % MBU would leave 0.9."""
    half = {**BUSY, "bandwidth_bytes_per_s": 0.5 * PEAK}
    assert only(judged(scene({"mbu_ratio": 0.7}, half))).text == "DRAM at 50 %: about 1.5x this traffic"
    found = only(judged(scene({"kv_usage_ratio": 0.3, "running": 25.0}, BUSY, slots=24.0)))
    assert found.text == "25 of 24 slots: about 1.0x this traffic"


def slowed(at: int, until: int) -> dict[str, Any]:
    """A GPU that heat slows down to half its clock."""
    hot = at < until
    clocks = {"sm_clock_hz": 0.99e9 if hot else 1.98e9, "sm_clock_max_hz": 1.98e9}
    return {**BUSY, **clocks, "throttle": ("hw_slowdown", "hw_thermal_slowdown") if hot else ()}


def test_no_factor_is_promised_while_one_of_its_gpus_is_slowed_down() -> None:
    """24 % MFU at half the clock are 48 % of what the GPU can do: not 2.1x."""
    changes = {"mfu_ratio": 0.24, "mbu_ratio": 0.1, "kv_usage_ratio": 0.1}

    def at(tick: int, until: int) -> tuple[Of, ...]:
        cool = {**BUSY, "bandwidth_bytes_per_s": 0.1 * PEAK}
        return scene(changes, (cool, {**cool, **slowed(tick, until), "bandwidth_bytes_per_s": 0.1 * PEAK}))(tick)

    stage = Stage()
    found = of_engine(stage.play(100, lambda tick: at(tick, 100)), Family.USE)
    assert found is not None
    assert found.text == "MFU at 24 %, room unknown: heat slowed gpu 1 down in the last minute"
    assert (found.level, found.confidence) == (Level.OK, Confidence.LOW)
    assert "heat slowed gpu 1 down in the last minute" in [one.text for one in found.evidence]
    just_over = of_engine(stage.play(30, lambda tick: at(tick, 100)), Family.USE)
    assert just_over is not None
    assert "x this traffic" not in just_over.text
    over = of_engine(stage.play(40, lambda tick: at(tick, 100)), Family.USE)
    assert over is not None
    assert over.text == "MFU at 24 %: about 2.1x this traffic"


@pytest.mark.parametrize(
    ("clock_hz", "busy", "reasons", "said"),
    [
        (0.99e9, 0.95, (), "MFU at 20 %: about 1.2x this traffic"),
        (0.99e9, 0.3, ("sw_power_cap",), "MFU at 20 %: about 1.2x this traffic"),
        (0.99e9, 0.3, (), "MFU at 20 %: about 2.5x this traffic"),
        (1.95e9, 0.95, (), "MFU at 20 %: about 2.5x this traffic"),
    ],
)
def test_the_room_in_arithmetic_is_that_at_the_clock_that_it_runs_at(
    clock_hz: float, busy: float, reasons: tuple[str, ...], said: str
) -> None:
    card = {**BUSY, "busy_ratio": busy, "sm_clock_hz": clock_hz, "sm_clock_max_hz": 1.98e9, "throttle": reasons}
    card |= {"bandwidth_bytes_per_s": 0.1 * PEAK}
    found = of_engine(judged(scene({"mbu_ratio": 0.1, "mfu_ratio": 0.2, "kv_usage_ratio": 0.1}, card)), Family.USE)
    assert found is not None
    assert found.text == said


def test_bursts_are_named_where_few_requests_come_in_bursts() -> None:
    def at(tick: int) -> tuple[Of, ...]:
        burst = tick % 10 < 5
        card = {**QUIET, "busy_ratio": 0.95 if burst else 0.02}
        return scene({**FEW, "running": 12.0 if burst else 0.0}, card, slots=48.0)(tick)

    found = of_engine(judged(at, 170), Family.USE)
    assert found is not None
    assert found.text == "15 % MFU at 6 of 48 slots, in bursts every 10 s"
    assert found.action.startswith("its requests come in bursts every 10 s, and it has none in between")
    assert "busy drops every 10.0 s from 95 % to 2 %" in [one.text for one in found.evidence]


@pytest.mark.parametrize(("changes", "card"), [({}, BUSY), (FEW, QUIET)], ids=["healthy", "under-used"])
def test_figures_that_contradict_the_gpus_promise_nothing(changes: dict[str, Any], card: dict[str, Any]) -> None:
    said = "MBU 81%, and its GPUs measure 39% of their bandwidth: the model is not what it is taken for"
    found = only(judged(scene({**changes, "contradicts": (said,)}, card, slots=48.0), 200))
    assert (found.limit, found.confidence) == (Limit.CANNOT_TELL, Confidence.LOW)
    assert said in found.text
    assert "check its model, precision and GPUs: gpumon doctor" in found.text
    assert "x this traffic" not in found.text
    assert found.evidence[0].text == said


LATER = "use not judged yet, {} min more"


def test_until_use_is_judged_a_verdict_of_little_to_do_says_so() -> None:
    """108 s are looked at, and then it must hold for 30 s."""
    for seconds, minutes in ((40, 2), (90, 1)):
        found = only(judged(scene(FEW, QUIET, slots=48.0), seconds))
        assert found.limit is Limit.HEALTHY
        assert found.text.endswith(f"; {LATER.format(minutes)}")
        assert found.evidence[-1].text == LATER.format(minutes)
    much = only(judged(scene({"running": 40.0}, BUSY, slots=48.0), 40))
    assert "not judged" not in much.text
    run = of_engine(Stage().play(85, training(0.12)), Family.USE)
    assert run is not None
    assert (run.limit, run.text) == (Limit.HEALTHY, f"MFU 12 %, 12.1k tok/s; {LATER.format(1)}")
    assert only(Stage().play(85, training(0.41))).text == "MFU 41 %, 12.1k tok/s"


def test_an_engine_that_was_never_seen_at_work_is_not_judged_idle_yet() -> None:
    of = scene(STOPS, IDLE, moves=False)
    assert only(judged(of, 60)).text == f"ready, no request right now; {LATER.format(5)}"
    stage = Stage()
    stage.play(40, scene())
    assert only(stage.play(60, of)).text == "ready, no request right now"  # it has just served some


def test_idleness_is_told_since_the_last_request() -> None:
    stage = Stage()
    stage.play(60, scene())
    found = only(stage.play(480, scene(STOPS, IDLE, moves=False)))
    assert found.text.startswith("no request for 8 min")
    assert wall_of(found.since) == pytest.approx(START_S + 60.0, abs=1.0)


def test_the_time_it_is_told_since_stands_though_the_wall_clock_is_set() -> None:
    stage, idle = Stage(), scene(STOPS, IDLE, moves=False)
    stage.ahead_s = 0.4996
    stage.play(60, scene())
    since = {only(stage.play(480, idle)).since}
    for ahead_s in (0.4996, 0.5006, 0.4986, 3600.5, -3600.0):
        stage.ahead_s = ahead_s
        since.add(only(stage.play(2, idle)).since)
    assert len(since) == 1


def ttft(mean_s: float, card: dict[str, Any]) -> Any:
    return scene({"ttft_s": Quantiles(mean=mean_s, p95=2.0 * mean_s)}, card)


def test_a_latency_far_above_its_own_of_before_is_named() -> None:
    stage = Stage()
    stage.play(100, ttft(0.2, BUSY))
    assert "TTFT" not in only(stage.play(20, ttft(0.25, BUSY))).text
    said = only(stage.play(40, ttft(0.8, BUSY)))
    assert said.text.endswith("; TTFT 800 ms, 200 ms in the minutes before")
    assert (said.limit, said.level) == (Limit.HEALTHY, Level.OK)
    assert said.evidence[-1].text == "TTFT 800 ms, 200 ms in the minutes before"
    assert "TTFT" not in only(stage.play(180, ttft(0.8, BUSY))).text  # it is the usual one by now


def test_a_latency_that_grew_is_named_beside_the_gpu_that_is_slowed_down() -> None:
    stage = Stage()
    stage.play(100, ttft(0.2, BUSY))
    hot = only(stage.play(60, ttft(0.8, slowed(0, 1))))
    assert hot.limit is Limit.HEALTHY
    assert "heat slowed gpu 0 down in the last minute; TTFT 800 ms, 200 ms in the minutes before" in hot.text


@pytest.mark.parametrize("state", [EndpointState.REFUSED, EndpointState.METRICS_OFF, EndpointState.STARTING])
def test_an_engine_that_does_not_answer_is_told_of_elsewhere(state: EndpointState) -> None:
    assert limits(judged(scene(state=state), 60)) == ()


def test_an_engine_that_warms_up_is_not_judged() -> None:
    names = ("running", "waiting", "kv_usage_ratio", "mfu_ratio", "mbu_ratio", "mfu_prefill_ratio")
    assert limits(judged(scene(dict.fromkeys(names, WARMING_UP), IDLE, moves=False), 9)) == ()


def test_a_frontend_is_judged_by_its_workers() -> None:
    assert limits(judged(scene(kind=EngineKind.DYNAMO), 120)) == ()


@pytest.mark.parametrize("gone", ["running", "waiting"])
def test_healthy_is_said_of_no_engine_that_hides_its_queue(gone: str) -> None:
    found = only(judged(scene({gone: NOT_EXPOSED})))
    assert found.limit is Limit.CANNOT_TELL
    assert found.unknown == (f"requests {gone} (not exposed)",)


def test_all_that_is_missing_is_named_where_something_is() -> None:
    gone = dict.fromkeys(("waiting", "kv_usage_ratio", "preemptions_per_s"), NOT_EXPOSED)
    found = only(judged(scene({**gone, "queue_s": Quantiles(mean=NOT_EXPOSED)})))
    names = ("requests waiting", "KV cache use", "preemptions", "time in the queue")
    assert found.unknown == tuple(f"{name} (not exposed)" for name in names)
    alone = only(judged(scene({"kv_usage_ratio": NOT_EXPOSED})))
    assert alone.limit is Limit.HEALTHY


def test_a_server_of_models_that_are_no_llms_is_only_told_idle() -> None:
    names = ("decode_tokens_per_s", "prefill_tokens_per_s", "mfu_ratio", "mbu_ratio", "mfu_prefill_ratio")
    nature = {**dict.fromkeys(names, NO_TOKENS), "running": NOT_EXPOSED, "waiting": NOT_EXPOSED}
    assert limits(judged(scene({**nature, "inferences_per_s": 40.0}, kind=EngineKind.TRITON), 60)) == ()
    idle = judged(scene({**nature, "inferences_per_s": 0.0}, IDLE, moves=False, kind=EngineKind.TRITON), 345)
    assert limits(idle) == (Limit.UNDER_USED,)


def training(mfu: Any, busy: float = 0.97) -> tuple[Of, ...]:
    one = engine(
        name="run", phase=Phase.TRAINING, kind=EngineKind.GENERIC, mfu_ratio=mfu, trained_tokens_per_s=12_100.0
    )
    return gpu(**{**BUSY, "busy_ratio": busy, "vram_used_bytes": 60 * GIB}), one


@pytest.mark.parametrize(
    ("mfu", "busy", "limit", "text"),
    [
        (0.41, 0.97, Limit.HEALTHY, "MFU 41 %, 12.1k tok/s"),
        (0.12, 0.97, Limit.UNDER_USED, "MFU 12 % while its GPUs are 97 % busy"),
        (Missing(Reason.UNKNOWN_GPU), 0.97, Limit.CANNOT_TELL, "cannot tell: MFU (unknown GPU)"),
    ],
)
def test_a_training_run_is_judged_by_its_mfu(mfu: Any, busy: float, limit: Limit, text: str) -> None:
    found = of_engine(Stage().play(170, training(mfu, busy)), Family.USE)
    assert found is not None
    assert (found.limit, found.text) == (limit, text)
