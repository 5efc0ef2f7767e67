"""What happened between two snapshots; nothing of what was so before, and no flood from what flaps."""

from __future__ import annotations

from itertools import pairwise

from gpumon.readings.frame import EndpointState, GpuState, RankReading, XidEvent
from gpumon.readings.snapshot import Event, EventKind, Level
from gpumon.triage.render import event_text
from tests.each_row import each_row
from tests.records import replace
from tests.triage.stage import START_S, Of, Stage, engine, gpu


def told(stage: Stage, *kinds: EventKind) -> list[tuple[EventKind, str, str]]:
    return [(event.kind, event.scope, event_text(event)) for event in stage.events if not kinds or event.kind in kinds]


def up(started_s: float = 0.0, model: str = "m", read_s: float = 0.0, **more: object) -> Of:
    return engine(started_s=started_s, model=model, read_s=read_s, **more)  # type: ignore[arg-type]


DOWN = engine(state=EndpointState.REFUSED, model="")


def test_an_engine_that_is_polled_after_the_first_tick_was_there_before() -> None:
    stage = Stage()
    starting = engine(state=EndpointState.STARTING, model="")
    stage.play(3, (starting,))
    stage.play(30, (up(),))
    assert told(stage) == []


def test_a_model_that_takes_minutes_to_load_is_an_event_when_it_answers() -> None:
    stage = Stage()
    stage.play(120, (engine(state=EndpointState.STARTING, model=""),))
    stage.play(5, (up(read_s=1.0),))
    assert told(stage) == [
        (EventKind.ENGINE, "vllm:8000", "answers"),
        (EventKind.MODEL, "vllm:8000", "model m loaded"),
    ]


def test_an_engine_that_goes_down_and_comes_back_with_another_start_was_restarted() -> None:
    stage = Stage()
    stage.play(20, (up(100.0, read_s=1.0),))
    stage.play(20, (DOWN,))
    stage.play(20, (up(900.0, read_s=2.0),))
    assert told(stage) == [
        (EventKind.ENGINE, "vllm:8000", "no answer: refused"),
        (EventKind.ENGINE, "vllm:8000", "answers"),
        (EventKind.RESTART, "vllm:8000", "restarted"),
    ]
    assert [event.level for event in stage.events] == [Level.WARN, Level.OK, Level.WARN]
    assert all(event.key == "http://127.0.0.1:8000" for event in stage.events)


def test_counters_that_all_fell_are_a_restart_and_one_that_fell_is_none() -> None:
    stage = Stage()
    stage.play(5, (up(counters={"decode_tokens": 900.0, "requests": 9.0}, read_s=1.0),))
    stage.play(5, (up(counters={"decode_tokens": 800.0, "requests": 9.0}, read_s=2.0),))
    assert told(stage) == []
    stage.play(5, (up(counters={"decode_tokens": 30.0, "requests": 1.0}, read_s=3.0),))
    assert told(stage) == [(EventKind.RESTART, "vllm:8000", "restarted")]


def test_servers_behind_one_url_that_answer_in_turn_restart_at_no_time() -> None:
    stage = Stage()
    started_s = [START_S - 900.0, START_S - 400.0, START_S - 700.0]
    for poll in range(90):
        last = stage.play(2, (up(started_s[poll % 3], read_s=2.0 * poll),))
    assert [verdict.cause for verdict in last.verdicts if verdict.level is Level.CRITICAL] == []
    assert told(stage) == [(EventKind.RESTART, "vllm:8000", "restarted")], "the first one may be one"
    for start in range(6):
        last = stage.play(160, (up(START_S + 1000.0 + 160.0 * start, read_s=1000.0 + start),))
    assert len(told(stage)) > 1, "ten minutes after they took turns a new process is one again"


def test_a_clock_that_was_ahead_hides_no_restart() -> None:
    stage = Stage()
    stage.ahead_s = 7200.0
    for poll, started_s in enumerate((START_S - 400.0, START_S - 900.0)):
        stage.play(20, (up(started_s, read_s=2.0 * poll),))
    assert told(stage) == [], "two servers answer in turn"
    stage.ahead_s = 0.0
    stage.play(20, (up(START_S + 30.0, read_s=6.0),))
    assert told(stage) == [(EventKind.RESTART, "vllm:8000", "restarted")]


def test_an_answer_that_lacks_a_rank_is_no_restart() -> None:
    def of(read_s: float, **ranks: float) -> Of:
        one = up(read_s=read_s)
        each = tuple(RankReading(name, {"decode_tokens": tokens}, {}, {}) for name, tokens in ranks.items())
        return one._replace(read=replace(one.read, ranks=each))

    stage = Stage()
    stage.play(5, (of(1.0, r0=900.0, r1=900.0),))
    stage.play(5, (of(2.0, r0=950.0),))
    stage.play(5, (of(3.0, r0=990.0, r1=990.0),))
    assert told(stage) == []
    stage.play(5, (of(4.0, r0=9.0, r1=9.0),))
    assert told(stage) == [(EventKind.RESTART, "vllm:8000", "restarted")]


def test_an_engine_that_was_not_listed_for_a_while_is_no_new_one() -> None:
    """Discovery drops an engine that is killed, and finds it again on its port."""
    stage = Stage()
    stage.play(20, (up(100.0, read_s=1.0),))
    stage.play(3, (DOWN,))
    stage.play(20, ())
    stage.play(2, (engine(state=EndpointState.STARTING, model=""),))
    stage.play(20, (up(900.0, "other", read_s=2.0),))
    stage.play(3, (DOWN,))
    assert [(event.kind, event_text(event)) for event in stage.events] == [
        (EventKind.ENGINE, "no answer: refused"),
        (EventKind.ENGINE, "answers"),
        (EventKind.RESTART, "restarted"),
        (EventKind.MODEL, "model m -> other"),
        (EventKind.ENGINE, "no answer: refused"),
    ]


def test_replicas_are_counted_by_model() -> None:
    stage = Stage()
    both = (up(), up(url="http://127.0.0.1:8001", name="vllm:8001"))
    stage.play(20, both)
    stage.play(20, both[:1])
    stage.play(20, both)
    assert told(stage, EventKind.REPLICAS) == [
        (EventKind.REPLICAS, "m", "2 -> 1 replicas answer"),
        (EventKind.REPLICAS, "m", "1 -> 2 replicas answer"),
    ]


def test_an_xid_of_before_the_start_is_no_event_and_one_since_is() -> None:
    stage = Stage()
    stage.play(5, ())
    stage.play(5, (gpu(xid=(XidEvent(31, START_S - 60.0), XidEvent(31, START_S + 2.0))),))
    assert [event.kind for event in stage.events] == [EventKind.XID]


@each_row(
    ("state_text", "words"),
    [("off the bus", "lost: off the bus"), ("GPU is lost", "lost"), ("GPU is lost: off the bus", "lost: off the bus")],
)
def test_a_gpu_is_lost_and_back_and_its_loss_is_said_once(state_text: str, words: str) -> None:
    stage = Stage()
    stage.play(10, (gpu(7, busy_ratio=0.9),))
    stage.play(20, (gpu(7, state=GpuState.LOST, state_text=state_text),))
    stage.play(2, (gpu(7, busy_ratio=0.9),))
    assert told(stage) == [
        (EventKind.GPU, "gpu 7", words),
        (EventKind.VERDICT, "gpu 7", "hardware fault: lost"),
        (EventKind.GPU, "gpu 7", "back"),
    ]


def test_the_start_of_a_slowdown_is_told_by_cause_and_a_power_cap_is_not() -> None:
    stage = Stage()
    stage.play(10, (gpu(busy_ratio=0.9),))
    stage.play(10, (gpu(busy_ratio=0.9, throttle=("sw_power_cap",)),))
    assert told(stage) == []
    stage.play(10, (gpu(busy_ratio=0.9, throttle=("hw_slowdown", "hw_thermal_slowdown")),))
    assert told(stage) == [(EventKind.THROTTLE, "gpu 0", "slowed down by heat")]


@each_row("beat", [1, 2, 3])
def test_what_flaps_is_told_at_most_once_in_10_s(beat: int) -> None:
    stage = Stage()
    stage.play(20, (up(), gpu()))
    hot = gpu(throttle=("hw_slowdown",))
    stage.play(60, lambda at: (up(), gpu()) if at // beat % 2 else (DOWN, hot))
    by_text: dict[str, list[Event]] = {}
    for event in stage.events:
        by_text.setdefault(f"{event.kind} {event_text(event)}", []).append(event)
    assert by_text
    for events in by_text.values():
        times = [event.wall_s for event in events]
        assert all(after - before >= 10.0 for before, after in pairwise(times))


def test_another_cause_of_a_verdict_is_an_event_once_it_lasts() -> None:
    stage, causes = Stage(), {"hot": ("hw_thermal_slowdown",), "brake": ("hw_power_brake_slowdown",)}
    stage.play(60, (gpu(throttle=causes["hot"], busy_ratio=0.9),))
    stage.play(100, (gpu(throttle=causes["brake"], busy_ratio=0.9),))
    told = [(event.code, event.parameters.get("cause")) for event in stage.events if event.kind is EventKind.VERDICT]
    assert told[0] == ("verdict_began", None)
    assert ("verdict_cause", "power_brake") in told
