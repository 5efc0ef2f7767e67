"""Engines and runs that hang, told apart from long prefills, idleness, restarts and counters that move late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpumon.readings.format import wall_of
from gpumon.readings.frame import EndpointState, FailedStarts, GpuProcess, GpuState, Phase
from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.snapshot import BandwidthSource, Family, Kind, Level, Limit, Quantiles, TokensTotal
from gpumon.triage.render import actions_text, evidence_text, verdict_text
from tests.each_row import each_row
from tests.records import replace
from tests.triage.engines import BUSY, IDLE, PEAK, SPINS, EngineKind, judged, limits, of_engine, only, scene
from tests.triage.stage import GIB, START_S, Of, Stage, engine, gpu, verdict

STOPS = {"decode_tokens_per_s": 0.0, "prefill_tokens_per_s": 0.0, "mfu_ratio": 0.0, "mbu_ratio": 0.0}
BLIND = {"sm_active_ratio": NOT_SUPPORTED, "tensor_active_ratio": NOT_SUPPORTED, "activity_source": ""}


@each_row("gpus", [IDLE, BUSY])
def test_the_first_request_after_a_quiet_night_is_no_hang(gpus: dict[str, Any]) -> None:
    stage = Stage()
    stage.play(299, scene({**STOPS, "running": 0.0}, IDLE, moves=False))
    for _ in range(29):
        last = stage.tick(*scene(STOPS, gpus, moves=False)(0))
        assert Limit.HUNG not in limits(last)
    assert (Limit.HUNG in limits(stage.play(5, scene(STOPS, gpus, moves=False)))) == (gpus is IDLE)


def test_a_process_that_has_just_begun_did_not_hang_while_there_was_none() -> None:
    totals = {"tokens_total": TokensTotal(8200.0, 0.0, 1100.0)}  # gpumon's own count stays while nothing answers
    stage, hangs = Stage(), scene({**STOPS, **totals, "waiting": 4.0}, IDLE)
    stage.play(60, scene(totals))
    stage.play(
        61, scene({**totals, "running": NOT_SUPPORTED, "waiting": NOT_SUPPORTED}, IDLE, state=EndpointState.REFUSED)
    )
    for _ in range(29):
        assert Limit.HUNG not in limits(stage.tick(*hangs(0)))
    assert Limit.HUNG in limits(stage.play(5, hangs))


def test_requests_that_are_never_taken_up_are_a_hang_too() -> None:
    assert limits(judged(scene({**STOPS, "running": 0.0, "waiting": 3.0}, IDLE, moves=False), 40)) == (Limit.HUNG,)


def test_a_slow_first_token_is_waited_for_three_times_as_long() -> None:
    slow = {**STOPS, "ttft_s": Quantiles(mean=20.0)}
    assert Limit.HUNG not in limits(judged(scene(slow, IDLE, moves=False), 58))
    assert limits(judged(scene(slow, IDLE, moves=False), 62)) == (Limit.HUNG,)


@each_row("advances", [{"decode_tokens_per_s": "end"}, {}])
def test_tokens_that_are_counted_at_the_end_of_a_request_say_nothing(advances: dict[str, str]) -> None:
    changes = {**STOPS, "advances": advances}
    assert Limit.HUNG not in limits(judged(scene(changes, IDLE, moves=False, kind=EngineKind.TENSORRT_LLM), 120))


def test_without_activity_a_share_of_time_is_enough_to_see_that_memory_rests() -> None:
    bound = {**SPINS, **BLIND, "bandwidth_source": BandwidthSource.UPPER_BOUND}
    assert only(judged(scene(STOPS, bound, moves=False), 160)).cause == "hung_spinning"
    works = {**bound, "bandwidth_bytes_per_s": 0.3 * PEAK}
    assert Limit.HUNG not in limits(judged(scene(STOPS, works, moves=False), 120))


def silent(tick: int, state: EndpointState = EndpointState.REFUSED) -> Of:
    """An engine that does not answer since so many seconds."""
    one = engine(state=state)
    return Of(one.read, replace(one.shown, age_s=float(tick)))


@each_row(
    "card",
    [
        lambda tick: {**IDLE, "processes": ()},
        lambda tick: {**IDLE, "vram_used_bytes": (1.0 + tick) * GIB},  # it loads its weights
        lambda tick: {**BUSY},  # it warms up
        lambda tick: {**IDLE, "processes": (GpuProcess(1, "python", engine="another"),)},
        lambda tick: {**IDLE, "processes": (GpuProcess(999, "jupyter", user="bob", vram_bytes=20 * GIB),)},
        # Its weights are loaded after 20 s, and then it compiles on the CPU for minutes.
        lambda tick: {
            **IDLE,
            "vram_used_bytes": (2 if tick < 20 else 66) * GIB,
            "processes": (GpuProcess(5000, "vllm", vram_bytes=66 * GIB, engine="vllm:8000"),),
        },
    ],
)
def test_an_engine_that_has_ended_or_starts_anew_is_no_hang(card: Any) -> None:
    stage = Stage()
    stage.tick(gpu(**IDLE), engine())
    for tick in range(300):
        shown = card(tick)
        assert of_engine(stage.tick(gpu(**shown), silent(tick)), Family.STATE) is None


def run(trained: float, card: dict[str, Any]) -> tuple[Of, ...]:
    totals = TokensTotal(NOT_SUPPORTED, NOT_SUPPORTED, NOT_SUPPORTED, trained)
    one = engine(name="run", phase=Phase.TRAINING, kind=EngineKind.GENERIC, mfu_ratio=0.4, tokens_total=totals)
    return gpu(**card), one


@each_row("seen", [(gpu(**SPINS),), ()], named=["stalled", "cannot tell"])
def test_a_hang_is_told_since_the_last_step_and_no_longer_than_it_lasts(seen: tuple[Of, ...]) -> None:
    """Its text says for how long there was none: the same time as since when it stands."""
    stage = Stage()
    _, one = run(7.0, SPINS)
    if not seen:
        one = Of(replace(one.read, gpus=()), one.shown)
    found = of_engine(stage.play(780, (*seen, one)), Family.STATE)
    assert found is not None
    assert found.code is (Limit.HUNG if seen else Limit.UNKNOWN)
    assert "no step for 13 min" in [evidence_text(each) for each in found.evidence]
    assert wall_of(found.since) == START_S
    steps = Of(one.read, run(8.0, SPINS)[1].shown)
    assert of_engine(stage.tick(*seen, steps), Family.STATE) is None


@each_row(("lost_first_s", "waits"), [(0, "for_it"), (60, None)])
def test_all_gpus_of_a_training_run_wait_for_a_lost_one(lost_first_s: int, waits: str | None) -> None:
    """Its ranks end each step together, unless a step came after the loss."""
    cards = (gpu(0, state=GpuState.LOST), gpu(1, **SPINS))

    def at(trained: float) -> tuple[Of, ...]:
        _, one = run(trained, SPINS)
        return (*cards, Of(replace(one.read, gpus=("GPU-0", "GPU-1")), one.shown))

    _, alone = run(1.0, SPINS)
    whole = Of(replace(alone.read, gpus=("GPU-0", "GPU-1")), alone.shown)
    stage = Stage()
    stage.play(4, (gpu(0, **SPINS), gpu(1, **SPINS), whole))
    if lost_first_s:
        stage.play(lost_first_s, lambda second: at(float(second)))
    found = of_engine(stage.play(660, at(2000.0)), Family.STATE)
    assert found is not None
    assert (found.cause, found.parameters.get("waits")) == ("hung_lost_gpu", waits)


def test_at_the_edge_of_doing_nothing_a_hang_does_not_come_and_go() -> None:
    """It goes at once, so it needs more than a step over the edge at which it came."""
    stage = Stage()
    assert only(stage.play(160, scene(STOPS, SPINS, moves=False))).cause == "hung_spinning"
    little = {**SPINS, "bandwidth_bytes_per_s": 0.04 * PEAK}
    assert only(stage.play(60, scene(STOPS, little, moves=False))).cause == "hung_spinning"
    moves = {**SPINS, "bandwidth_bytes_per_s": 0.2 * PEAK}
    assert only(stage.play(60, scene(STOPS, moves, moves=False))).cause == "no_tokens"
    works = {**moves, "sm_active_ratio": 0.9}
    assert Limit.HUNG not in limits(stage.play(60, scene(STOPS, works, moves=False)))


@each_row(
    ("where", "log"),
    [
        ({}, "save its log (journalctl _PID=4711, or where its output goes)"),
        ({"container": "51b1a7ed0c0d"}, "save its log (docker logs 51b1a7ed0c0d)"),
        ({"container": "51b1a7ed0c0d", "pod": "51b1a7ed-0000"}, "save its log (crictl logs 51b1a7ed0c0d)"),
    ],
)
def test_the_log_to_save_is_named(where: dict[str, str], log: str) -> None:
    holder = GpuProcess(4711, "vllm", vram_bytes=70.0 * GIB, engine="vllm:8000", **where)
    found = only(judged(scene(STOPS, {**SPINS, "processes": (holder,)}, moves=False), 160))
    assert actions_text(found).startswith(log)


@each_row(
    ("seconds", "card", "told"),
    [
        (70, IDLE, True),
        (40, IDLE, False),
        (70, BUSY, False),
        (70, {**IDLE, "processes": ()}, False),
    ],
)
def test_an_engine_that_never_answered_and_has_its_processes_here_is_mute(
    seconds: int, card: dict[str, Any], told: bool
) -> None:
    last = Stage().play(seconds, lambda tick: (gpu(**card), silent(tick, EndpointState.TIMEOUT)))
    assert ("never_answered" in [verdict.cause for verdict in last.verdicts]) == told


UNTOLD = dict.fromkeys(("busy_ratio", "sm_active_ratio", "tensor_active_ratio", "bandwidth_bytes_per_s"), NOT_SUPPORTED)


@each_row(
    ("seconds", "card", "action", "end"),
    [
        # Its server may tokenise a giant prompt or write a profile: it is on no GPU.
        (40, IDLE, "wait_or_check", "wait up to 150 s"),
        (140, IDLE, "wait_or_check", "wait up to 150 s"),
        (155, IDLE, "save_stacks_and_restart", "then restart it"),
        # Nothing tells what its GPU does.
        (155, {**IDLE, **UNTOLD}, "wait_or_check", "restart it only if its stacks do not change"),
    ],
)
def test_an_engine_without_answers_is_not_restarted_at_once(
    seconds: int, card: Mapping[str, Any], action: str, end: str
) -> None:
    holder = GpuProcess(4711, "vllm", vram_bytes=70.0 * GIB, engine="vllm:8000")
    held = {**card, "vram_used_bytes": 70.0 * GIB, "processes": (holder,)}
    stage = Stage()
    stage.tick(gpu(**held), engine())
    found = verdict(
        stage.play(seconds, lambda tick: (gpu(**held), silent(tick, EndpointState.TIMEOUT))), Family.STATE, Kind.ENGINE
    )
    assert found is not None
    assert (found.cause, found.level) == ("unresponsive", Level.CRITICAL)
    assert [told.code for told in found.actions] == [action]
    assert end in actions_text(found)


def test_one_start_that_ended_is_one() -> None:
    failed = FailedStarts(
        ended=1, first_wall_s=START_S, length_s=84.0, pid=4711, runs=True, began_wall_s=START_S + 90.0, served=True
    )
    server = engine(state=EndpointState.DOWN)
    read = Of(replace(server.read, failed_starts=failed), server.shown)
    found = verdict(Stage().play(10, (read,)), Family.STATE, Kind.ENGINE)
    assert found is not None
    assert evidence_text(found.evidence[0]) == "1 start ended after about 84 s, the last with requests running"


@each_row("served", [True, False])
def test_a_crash_loop_is_one_verdict_whose_words_hold_but_for_its_count(served: bool) -> None:
    stage = Stage()
    seen = set()
    texts = []
    for starts in range(2, 9):
        for runs in (False, True):
            failed = FailedStarts(
                ended=starts - runs,
                first_wall_s=START_S,
                length_s=85.0,
                pid=4711 + starts,
                runs=runs,
                began_wall_s=START_S + 90.0 * starts,
                served=served,
                cause="signal",
                number=11,
            )
            if failed.ended < 2:
                continue
            stage.at = 90 * starts + (8 if runs else 2)
            server = engine(state=EndpointState.DOWN)
            found = verdict(
                stage.tick(Of(replace(server.read, failed_starts=failed), server.shown)), Family.STATE, Kind.ENGINE
            )
            assert found is not None
            sentence, _, count = verdict_text(found).rpartition("; ")
            seen.add((found.id, found.code, found.cause, found.level, found.since, sentence))
            texts.append(count)
    assert len(seen) == 1, seen
    assert texts[-1].startswith("8 starts in 12 min, the newest at 00:12:00")
