"""Engines that have ended, are out of reach, were never there, or start: verdicts, levels and the first action."""

from __future__ import annotations

from typing import Any

from gpumon.outputs.private import without_processes
from gpumon.readings.frame import (
    LAST_ANSWER,
    SCRAPED,
    START_CPU,
    START_READ,
    STARTS,
    Departure,
    EndpointState,
    GpuState,
    LastFigures,
)
from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Kind, Level, Limit, Verdict
from gpumon.triage.alerts import parse
from gpumon.triage.render import action_text, event_text, evidence_text, verdict_text
from gpumon.triage.thresholds import Thresholds
from tests.each_row import each_row
from tests.records import replace
from tests.triage.engines import Alike
from tests.triage.stage import GIB, START_S, Of, Stage, engine, gpu, process

DOWN, REFUSED, TIMEOUT = EndpointState.DOWN, EndpointState.REFUSED, EndpointState.TIMEOUT
CRASH = Departure(
    wall_s=START_S + 30.0,
    served_wall_s=START_S + 29.0,
    pid=4121,
    cause="signal",
    number=9,
    source="systemd vllm.service",
    unit="vllm.service",
    log="journalctl -u vllm.service -n 100",
    start="systemctl start vllm.service",
    command="vllm serve m",
)


def ended(departure: Departure = CRASH, **more: Any) -> Of:
    one = engine(state=DOWN, **more)
    return Of(replace(one.read, departure=departure), replace(one.shown, departure=(departure,)))


def told(one: Of, **info: str) -> Of:
    return Of(replace(one.read, info={**one.read.info, **info}), one.shown)


def only(snapshot: Snapshot, key: str = "http://127.0.0.1:8000") -> Verdict:
    found = [verdict for verdict in snapshot.verdicts if verdict.key == key]
    assert len(found) == 1, found
    return found[0]


def test_a_crash_is_critical_and_its_log_comes_first() -> None:
    stage = Stage()
    stage.play(30, (engine(),))
    last = stage.play(3, (ended(),))
    verdict = only(last)
    assert (verdict.code, verdict.cause, verdict.level) == (Limit.DOWN, "crashed", Level.CRITICAL)
    assert verdict_text(verdict) == "since 00:00 UTC, pid 4121, killed by signal 9 (systemd vllm.service)"
    assert [action.code for action in verdict.actions] == ["read_last_log", "start_again"]
    assert action_text(verdict.actions[0]).startswith("journalctl -u vllm.service -n 100 ")
    assert action_text(verdict.actions[1]).startswith("systemctl start vllm.service ")
    (event,) = stage.events
    assert (event.code, event.level) == ("verdict_began", Level.CRITICAL)
    assert event_text(event) == "down: since 00:00 UTC, pid 4121, killed by signal 9 (systemd vllm.service)"
    (sight,) = parse("down").look(last)
    assert (sight.holds, sight.scope) == (True, "vllm:8000")
    stage.play(30, (engine(read_s=1.0),))
    assert "answers" in [event.code for event in stage.events]


@each_row(
    ("changes", "words"),
    [
        ({"cause": "exit", "number": 1}, "exit code 1 (systemd vllm.service)"),
        ({"cause": "exit", "number": 137, "source": "docker"}, "exit code 137 (signal 9) (docker)"),
        ({"cause": "oom", "source": "kernel log"}, "killed by the kernel, out of memory (kernel log)"),
        ({"cause": "reboot", "source": ""}, "its host restarted"),
        ({"cause": "", "source": ""}, "pid 4121, cause unknown"),
        ({"cause": "", "source": "", "pid": 0}, "UTC, cause unknown"),
        ({"cause": "", "source": "", "served_wall_s": START_S - 7200.0}, "(answered last at 22:00 UTC)"),
    ],
)
def test_the_cause_is_told_as_far_as_it_is_known(changes: dict[str, Any], words: str) -> None:
    stage = Stage()
    stage.play(30, (engine(),))
    verdict = only(stage.play(6, (ended(replace(CRASH, **changes)),)))
    assert words in verdict_text(verdict)
    assert verdict.level is Level.CRITICAL


@each_row(
    ("seconds", "served_s", "cause", "is_told"),
    [
        (2, 29.0, "", False),
        (6, 29.0, "", True),
        (2, 29.0, "signal", True),
        # Seen late, on a busy host: the look that finds the new process is late, too.
        (2, 22.0, "", False),
        (6, 22.0, "", True),
        # Seen first by a gpumon that starts now.
        (2, 10.0, "", True),
    ],
)
def test_an_end_of_unknown_cause_is_no_crash_while_another_process_may_take_its_place(
    seconds: int, served_s: float, cause: str, is_told: bool
) -> None:
    stage = Stage()
    stage.play(30, (engine(),))
    departure = replace(CRASH, cause=cause, served_wall_s=START_S + served_s)
    codes = [verdict.code for verdict in stage.play(seconds, (ended(departure),)).verdicts]
    assert (Limit.DOWN in codes) == is_told


def draining(seconds: float, connections: int) -> Of:
    one = engine(state=EndpointState.DRAINING)
    return told(one, drains_since=str(START_S + 30.0 - seconds), drains_connections=str(connections))


@each_row(
    ("seconds", "connections", "busy", "code", "level", "text"),
    [
        (20.0, 3, 0.0, Limit.DRAINING, Level.NOTE, "draining: takes no new requests, 3 connections are still open"),
        (20.0, 0, 0.0, Limit.DRAINING, Level.NOTE, "nothing is connected any more"),
        (900.0, 2, 0.0, Limit.DRAINING, Level.NOTE, "2 connections are still open"),
        (90.0, 0, 0.9, Limit.DRAINING, Level.NOTE, "nothing is connected any more"),
        (90.0, 0, 0.0, Limit.UNRESPONSIVE, Level.CRITICAL, "nothing is connected, and its GPUs rest"),
        # What its GPUs do is not known, and not said.
        (90.0, 0, None, Limit.UNRESPONSIVE, Level.WARN, "it has not ended: nothing is connected"),
    ],
)
def test_an_engine_that_drains_is_told_so_until_it_should_have_ended(
    seconds: float, connections: int, busy: float | None, code: Limit, level: Level, text: str
) -> None:
    stage = Stage()
    card = gpu(busy_ratio=NOT_SUPPORTED if busy is None else busy)
    stage.play(30, (card, engine()))
    verdict = only(stage.play(3, (card, draining(seconds, connections))))
    assert (verdict.code, verdict.level) == (code, level)
    assert verdict_text(verdict).endswith(text)


UNSEEN = replace(CRASH, pid=0, cause="", number=0, source="", log="", start="")
"""An end of which no more is known than that its port refuses."""
HOLDER = process(engine="vllm:8000", started_s=START_S - 900.0)
HELD_BYTES = 38.5 * GIB
"""Memory in use on a GPU with this process on it."""
GONE = "pid 4711 no longer on its GPUs"
AGAIN = "start it again"
IF_ENDED = "if it has ended: start it again"


def proof(verdict: Verdict) -> list[str]:
    """The evidence beside the time without an answer."""
    return [evidence_text(evidence) for evidence in verdict.evidence if evidence.quantity != "no_answer"]


@each_row(
    ("figures", "words"),
    [
        (LastFigures(running=8.0, waiting=3.0), ["at its last answer: 8 running, 3 waiting"]),
        (LastFigures(running=8.0), ["at its last answer: 8 running"]),
        (LastFigures(waiting=0.0), ["at its last answer: 0 waiting"]),
        (LastFigures(), []),
    ],
)
def test_the_requests_of_its_last_answer_are_told_as_far_as_they_are_known(
    figures: LastFigures, words: list[str]
) -> None:
    stage = Stage()
    stage.play(30, (engine(),))
    verdict = only(stage.play(3, (ended(replace(CRASH, figures=figures)),)))
    assert proof(verdict) == ["pid 4121 is gone", *words]


@each_row(
    ("departure", "card", "words", "start"),
    [
        (CRASH, gpu(), ["pid 4121 is gone"], "systemctl start vllm.service starts"),
        (
            CRASH,
            gpu(processes=(HOLDER,)),
            ["pid 4121 is gone", "its processes hold 38 GiB: pid 4711"],
            "after the end of pid 4711: systemctl start vllm.service starts",
        ),
        (UNSEEN, gpu(), [GONE], AGAIN),
        # The driver's list could not be read, as all of the memory is still in use; or that of graphics alone could.
        (UNSEEN, gpu(vram_used_bytes=HELD_BYTES), [], IF_ENDED),
        (UNSEEN, gpu(vram_used_bytes=0.51 * HELD_BYTES), [], IF_ENDED),
        (UNSEEN, gpu(vram_used_bytes=0.49 * HELD_BYTES), [GONE], AGAIN),
        (UNSEEN, gpu(vram_used_bytes=NOT_SUPPORTED), [], IF_ENDED),
        (UNSEEN, gpu(vram_used_bytes=HELD_BYTES, processes=(process(12, type="graphics"),)), [], IF_ENDED),
        (UNSEEN, gpu(vram_used_bytes=HELD_BYTES, processes=(process(12),)), [GONE], AGAIN),
        # Another process has its pid.
        (UNSEEN, gpu(processes=(process(started_s=START_S + 31.0),)), [GONE], AGAIN),
        # Its start is not known any more.
        (
            UNSEEN,
            gpu(processes=(process(engine="vllm:8000"),)),
            ["its processes hold 38 GiB: pid 4711"],
            "after the end of pid 4711: start it again",
        ),
        (UNSEEN, gpu(1), [], IF_ENDED),
        (UNSEEN, gpu(state=GpuState.STALE), [], IF_ENDED),
        (
            UNSEEN,
            gpu(processes=(HOLDER,)),
            ["its processes hold 38 GiB: pid 4711"],
            "after the end of pid 4711: start it again",
        ),
        (UNSEEN, gpu(state=GpuState.LOST), [], IF_ENDED),
        (UNSEEN, gpu(processes=(process(engine="vllm:9000"),)), [], IF_ENDED),
    ],
)
def test_whether_its_processes_are_gone_is_told_where_it_is_known(
    departure: Departure, card: Of, words: list[str], start: str
) -> None:
    """A server that other engines share may well be alive: nothing is said of it."""
    stage = Stage()
    stage.play(30, (gpu(processes=(HOLDER,), vram_used_bytes=HELD_BYTES), engine()))
    verdict = only(stage.play(3, (card, ended(departure))))
    assert proof(verdict) == words
    assert action_text(verdict.actions[-1]).startswith(start)


@each_row(
    ("cards", "words", "start"),
    [
        ((), [], IF_ENDED),
        ((gpu(1),), [], IF_ENDED),
        ((gpu(), gpu(1)), [GONE], AGAIN),
        # The other GPU is none of its own.
        ((gpu(), gpu(1, state=GpuState.LOST)), [GONE], AGAIN),
        ((gpu(state=GpuState.LOST), gpu(1)), [], IF_ENDED),
    ],
)
def test_only_the_gpus_that_it_ran_on_tell_whether_its_processes_are_gone(
    cards: tuple[Of, ...], words: list[str], start: str
) -> None:
    stage = Stage()
    stage.play(30, (gpu(processes=(HOLDER,), vram_used_bytes=HELD_BYTES), gpu(1), engine()))
    verdict = only(stage.play(3, (*cards, ended(UNSEEN))))
    assert proof(verdict) == words
    assert action_text(verdict.actions[-1]).startswith(start)


def test_what_is_left_of_it_on_one_gpu_is_told_though_it_lost_the_other() -> None:
    """That is why it ended, and its other processes still hold their memory."""
    cards = [gpu(index, processes=(process(4711 + index, engine="vllm:8000"),)) for index in range(2)]
    stage = Stage()
    stage.play(30, (*cards, engine(gpus=(0, 1))))
    verdict = only(stage.play(3, (gpu(state=GpuState.LOST), cards[1], ended(UNSEEN, gpus=(0, 1)))))
    assert proof(verdict) == ["its processes hold 38 GiB: pid 4712"]
    assert action_text(verdict.actions[-1]).startswith("after the end of pid 4712: start it again")


@each_row("moved", [0.0, 3600.0])
def test_a_clock_that_is_set_makes_no_other_process_of_it(moved: float) -> None:
    """The start of a process moves with the clock, or does not, by the release of psutil."""
    stage = Stage()
    stage.play(30, (gpu(processes=(HOLDER,), vram_used_bytes=HELD_BYTES), engine()))
    stage.ahead_s = 3600.0
    same = replace(HOLDER, started_s=HOLDER.started_s + moved)
    card = gpu(processes=(same,), vram_used_bytes=HELD_BYTES)
    assert proof(only(stage.play(3, (card, ended(UNSEEN))))) == ["its processes hold 38 GiB: pid 4711"]


def test_an_engine_without_gpus_or_a_process_that_is_known_may_be_there() -> None:
    stage = Stage()
    stage.play(30, (engine(gpus=()),))
    verdict = only(stage.play(3, (ended(UNSEEN, gpus=()),)))
    assert proof(verdict) == []
    assert action_text(verdict.actions[-1]).startswith("if it has ended: start it again")


def test_without_a_log_that_is_known_the_kernels_is_named() -> None:
    stage = Stage()
    for log, words in (("", "sudo dmesg -T "), ("tail -n 100 /var/log/vllm.log", "tail -n 100 /var/log/vllm.log ")):
        verdict = only(stage.play(4, (ended(replace(CRASH, log=log)),)))
        assert action_text(verdict.actions[0]).startswith(words)


def test_a_planned_stop_is_a_warning() -> None:
    stage = Stage()
    stage.play(30, (engine(),))
    stopped = replace(CRASH, cause="stopped", number=0, planned=True)
    verdict = only(stage.play(2, (ended(stopped),)))
    assert (verdict.cause, verdict.level) == ("stopped", Level.WARN)
    assert [action.code for action in verdict.actions] == ["start_again"]
    assert [(event.code, event.level) for event in stage.events] == [("verdict_began", Level.WARN)]


def test_the_gpu_of_an_engine_that_ended_names_it_and_is_not_offered_for_other_work() -> None:
    stage = Stage()
    stage.play(40, (gpu(engines=("vllm:8000",)), engine()))
    verdicts = stage.play(240, (gpu(engines=("vllm:8000",)), ended())).verdicts
    (own,) = [verdict for verdict in verdicts if verdict.kind is Kind.GPU]
    assert (own.code, own.cause, own.level, own.actions) == (Limit.IDLE, "engine_ended", Level.NOTE, ())
    assert verdict_text(own).endswith("nothing runs on it: its engine vllm:8000 went down at 00:00 UTC")
    left = gpu(engines=("vllm:8000",), processes=(process(),), vram_used_bytes=70e9)
    verdicts = stage.play(240, (left, ended())).verdicts
    assert "engine_ended" not in [verdict.cause for verdict in verdicts]


@each_row(("waiting", "level"), [(0.0, Level.WARN), (40.0, Level.CRITICAL)])
def test_other_replicas_that_serve_make_it_a_warning_unless_requests_wait_there(waiting: float, level: Level) -> None:
    stage = Stage()
    stage.triage = Alike(("vllm:8000", "vllm:9000"), thresholds=Thresholds())
    other = engine(name="vllm:9000", url="http://127.0.0.1:9000", waiting=waiting)
    assert only(stage.play(20, (other, ended()))).level is level


def test_an_engine_of_another_host_that_is_silent_is_out_of_reach() -> None:
    stage = Stage()
    stage.play(30, (engine(),))
    silent = told(engine(state=TIMEOUT), **{LAST_ANSWER: str(START_S)})
    verdict = only(stage.play(60, (silent,)))
    assert (verdict.code, verdict.cause, verdict.level) == (Limit.UNRESPONSIVE, "unreachable", Level.CRITICAL)
    assert verdict_text(verdict) == (
        "no answer for over 60 s: it, its host or the network to it (no process of it is known here)"
    ), "a server that hangs is as silent as one whose host is gone"
    assert action_text(verdict.actions[0]).startswith(
        "ping -c 3 127.0.0.1 and curl -sS -m 5 http://127.0.0.1:8000/health"
    )


def test_what_a_prometheus_cannot_scrape_any_more_is_out_of_reach_too() -> None:
    stage = Stage()
    silent = told(engine(state=REFUSED, found_by=SCRAPED), **{LAST_ANSWER: str(START_S - 300.0)})
    assert only(stage.play(60, (silent,))).cause == "unreachable"


def test_a_url_of_the_config_that_never_answered_is_a_warning() -> None:
    stage = Stage()
    verdict = only(stage.play(5, (engine(state=REFUSED, found_by="config", model=""),)))
    assert (verdict.code, verdict.cause, verdict.level) == (Limit.DOWN, "never_served", Level.WARN)
    assert [action.code for action in verdict.actions] == ["check_url"]
    assert stage.play(40, (engine(state=REFUSED, found_by="discovery", model=""),)).verdicts == ()


def test_a_start_is_no_trouble_and_says_what_it_does() -> None:
    stage = Stage()
    starts = told(
        engine(state=EndpointState.STARTING), **{STARTS: "loading_weights", START_READ: "9e8", START_CPU: "0.7"}
    )
    verdict = only(stage.play(3, (gpu(), starts)))
    assert (verdict.code, verdict.cause, verdict.level) == (Limit.STARTING, "loading_weights", Level.OK)
    assert verdict_text(verdict) == "loads its weights: reads 900 MB/s from disk"
    assert verdict.actions == ()


def test_other_hosts_see_neither_its_pid_nor_its_command_nor_a_path() -> None:
    stage = Stage()
    secret = replace(CRASH, log="tail -n 100 /home/bob/vllm.log", command="vllm serve /home/bob/m", start="")
    shown = without_processes(stage.play(3, (ended(secret, fault="pid 4121, killed by signal 9"),)))
    assert "4121" not in repr(shown)
    assert proof(only(shown)) == ["pid PID is gone"]
    assert "bob" not in repr(shown)
