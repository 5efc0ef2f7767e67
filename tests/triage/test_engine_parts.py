"""An engine of which a process is gone or stands still."""

from __future__ import annotations

from typing import Any

from gpumon.readings.frame import EndpointState, EnginePart, PartsReport, PartState
from gpumon.readings.snapshot import Family, Level, Limit, Snapshot, Verdict
from gpumon.triage.copyable import to_copy
from gpumon.triage.render import actions_text, verdict_text
from tests.each_row import each_row
from tests.records import replace
from tests.triage.engines import IDLE, judged, limits, of_engine, scene
from tests.triage.stage import START_S, Of

SERVER = EnginePart("API server", 47)
STOPS = {"decode_tokens_per_s": 0.0, "prefill_tokens_per_s": 0.0, "mfu_ratio": 0.0, "mbu_ratio": 0.0}
COMMAND = "cd /srv/llm && CUDA_VISIBLE_DEVICES=0 vllm serve m --hf-overrides '{\"a\": 1}'"
LENGTH_S = 60


def part(state: PartState, role: str = "engine core", pid: int = 48) -> EnginePart:
    """A process that is in a state soon after the begin of a play, which is told at its end."""
    return EnginePart(role, pid, state, START_S + 10.0)


def play(
    *parts: EnginePart,
    moves: bool = False,
    report: dict[str, Any] | None = None,
    asked: dict[str, float] | None = None,
    **of_engine: Any,
) -> Any:
    """The end of a play in which an engine has these processes, and these requests."""
    at = scene(STOPS | (asked or {}), IDLE, moves=moves, **of_engine)

    def with_parts(tick: int) -> tuple[Of, ...]:
        *cards, one = at(tick)
        if tick < LENGTH_S - 20:
            return (*cards, one)
        reading = replace(one.read, parts=PartsReport(parts, **{"command": COMMAND, **(report or {})}))
        return (*cards, Of(reading, one.shown))

    return judged(with_parts, LENGTH_S)


def state_of(snapshot: Snapshot) -> Verdict:
    """The verdict on the state of the engine."""
    verdict = of_engine(snapshot, Family.STATE)
    assert verdict is not None
    return verdict


def test_a_core_that_is_gone_is_critical_and_started_anew_by_its_own_command() -> None:
    verdict = state_of(play(part(PartState.GONE), SERVER))
    assert (verdict.code, verdict.cause, verdict.level) == (Limit.DOWN, "part_gone", Level.CRITICAL)
    assert verdict_text(verdict) == (
        "engine core, pid 48, is gone; API server, pid 47, lives: what needs it is not answered"
    )
    assert actions_text(verdict) == f"end what is left of it (kill 47), then start it again: {COMMAND}"
    assert [each.text for each in to_copy(verdict.actions)] == ["kill 47", COMMAND]


def test_a_unit_is_restarted_by_systemd() -> None:
    verdict = state_of(play(part(PartState.GONE), SERVER, report={"restart": "systemctl restart vllm.service"}))
    assert actions_text(verdict) == "systemctl restart vllm.service starts it anew"
    assert [each.text for each in to_copy(verdict.actions)] == ["systemctl restart vllm.service"]


def test_a_part_whose_loss_costs_no_token_is_a_warning() -> None:
    verdict = state_of(play(part(PartState.GONE, "engine core DP1"), SERVER, moves=True))
    assert (verdict.cause, verdict.level) == ("part_gone_others_serve", Level.WARN)
    assert verdict.actions[0].code == "check_scaled_down"


ELASTIC = "vllm serve m --data-parallel-size 4 --enable-elastic-ep"
NOTHING_ASKED = {"running": 0.0, "waiting": 0.0}


@each_row(
    ("command", "gone", "asked", "cause", "level"),
    [
        (ELASTIC, ("engine core DP1",), NOTHING_ASKED, "part_taken_out", Level.NOTE),
        (ELASTIC, ("engine core DP1", "worker DP1 TP0"), NOTHING_ASKED, "part_taken_out", Level.NOTE),
        (ELASTIC, ("worker TP1",), NOTHING_ASKED, "part_gone", Level.CRITICAL),
        (ELASTIC, ("engine core DP1",), {}, "part_gone", Level.CRITICAL),
        ("vllm serve m --data-parallel-size 4", ("engine core DP1",), NOTHING_ASKED, "part_taken_out", Level.NOTE),
    ],
)
def test_a_rank_that_was_taken_out_is_no_death_as_long_as_answers_come(
    command: str, gone: tuple[str, ...], asked: dict[str, float], cause: str, level: Level
) -> None:
    parts = [part(PartState.GONE, role, 60 + number) for number, role in enumerate(gone)]
    parts += [SERVER, EnginePart("engine core DP0", 49)]
    verdict = state_of(play(*parts, report={"command": command}, asked=asked))
    assert (verdict.cause, verdict.level) == (cause, level)


def test_an_engine_that_sleeps_lacks_nothing() -> None:
    assert Limit.DOWN not in limits(play(part(PartState.GONE), SERVER, asleep="level 1"))


@each_row(
    ("state", "cause", "level", "text", "first"),
    [
        (PartState.STOPPED, "part_stopped", Level.CRITICAL, "is stopped (state T)", "kill -CONT 48 lets it go on"),
        (PartState.FROZEN, "part_frozen", Level.CRITICAL, "is frozen", "docker unpause a1 lets it go on"),
        (PartState.TRACED, "part_traced", Level.WARN, "is held by a debugger", "end the debugger"),
        (
            PartState.UNINTERRUPTIBLE,
            "part_uninterruptible",
            Level.CRITICAL,
            "sleep (state D)",
            "sudo cat /proc/48/stack",
        ),
        (
            PartState.THREAD_UNINTERRUPTIBLE,
            "part_thread_uninterruptible",
            Level.WARN,
            "has a thread in uninterruptible sleep (state D)",
            "ps -L -o tid,stat,wchan:40,comm -p 48",
        ),
    ],
)
def test_a_process_that_stands_still_is_named(
    state: PartState, cause: str, level: Level, text: str, first: str
) -> None:
    verdict = state_of(play(part(state), SERVER, report={"unfreeze": "docker unpause a1"}))
    assert (verdict.code, verdict.cause, verdict.level) == (Limit.UNRESPONSIVE, cause, level)
    assert text in verdict_text(verdict)
    assert actions_text(verdict).startswith(first)


@each_row("state", [PartState.TRACED, PartState.UNINTERRUPTIBLE, PartState.THREAD_UNINTERRUPTIBLE])
def test_a_process_that_waits_while_tokens_come_is_no_verdict(state: PartState) -> None:
    assert Limit.UNRESPONSIVE not in limits(play(part(state), SERVER, moves=True))


def test_a_server_that_waits_for_its_disk_while_it_loads_is_only_starting() -> None:
    waits = replace(SERVER, state=PartState.UNINTERRUPTIBLE, since_wall_s=START_S + 10.0)
    assert Limit.UNRESPONSIVE not in limits(play(waits, state=EndpointState.STARTING))


def test_a_server_that_is_stopped_does_not_answer() -> None:
    silent = play(replace(SERVER, state=PartState.STOPPED, since_wall_s=START_S + 10.0), state=EndpointState.TIMEOUT)
    assert state_of(silent).cause == "part_stopped"


def test_a_long_command_is_told_whole_as_half_of_one_starts_nothing() -> None:
    command = f"cd /srv/{'models/' * 60} && vllm serve m --port 8000"
    verdict = state_of(play(part(PartState.GONE), SERVER, report={"command": command}))
    assert actions_text(verdict).endswith(f"start it again: {command}")
