"""Front ends: requests that fail, wait or are turned away in them while their backends are well, or one is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpumon.readings.frame import EndpointState, EngineKind
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reason
from gpumon.readings.quantities import FAILURES, REJECTIONS
from gpumon.readings.snapshot import Backend, Level, Limit, Snapshot
from gpumon.readings.verdict import Verdict
from gpumon.triage.marks import URGENT
from gpumon.triage.render import actions_text, verdict_text
from gpumon.triage.roots import roots_of
from tests.each_row import each_row
from tests.records import replace
from tests.triage.engines import WORKS
from tests.triage.stage import START_S, Of, Stage, engine, gpu
from tests.triage.test_engine_down import CRASH, ended

FRONT = "http://127.0.0.1:29000"
SERVES: Mapping[str, Any] = {
    "requests_per_s": 4.0,
    "failures_per_s": 0.0,
    "rejections_per_s": 0.0,
    "waiting": 0.0,
    "backends_known": 2.0,
    "backends_ready": 2.0,
}
WELL = {"ready": 1.0, "requests_per_s": 2.0, "failures_per_s": 0.0}
FAILS = {"ready": 1.0, "requests_per_s": 2.0, "failures_per_s": 1.9}
OUT = {"ready": 0.0, "requests_per_s": 0.0, "failures_per_s": 0.0}
FEW = {**WORKS, "running": 2.0, "kv_usage_ratio": 0.05}


def routed(
    changes: Mapping[str, Any] | None = None,
    backends: tuple[Mapping[str, Any], ...] = (WELL, WELL),
    *,
    kind: EngineKind = EngineKind.SMG,
    polled: bool = True,
    of_engines: Mapping[str, Any] = WORKS,
) -> Callable[[int], tuple[Of, ...]]:
    """A front end of two engines that generate tokens, each on a GPU of its own."""

    def at(tick: int) -> tuple[Of, ...]:
        things: list[Of] = []
        shown = []
        for number, figures in enumerate(backends):
            name = f"vllm:{8000 + number}"
            things.append(gpu(number, busy_ratio=0.9, vram_used_bytes=7e10))
            fields = {**of_engines, "gpu_count": 1.0, "decode_tokens_per_s": 1000.0 + tick % 7}
            things.append(engine(name=name, url=f"http://127.0.0.1:{8000 + number}", gpus=(number,), **fields))
            address = f"http://127.0.0.1:{8000 + number}"
            shown.append(Backend(address, name if polled else "", **figures))
        fields = {**SERVES, **(changes or {}), "backends": tuple(shown)}
        front = engine(name="smg:29000", url=FRONT, kind=kind, model="", gpus=(), **fields)
        return (*things, front)

    return at


def of_front(last: Snapshot) -> tuple[Verdict, ...]:
    return tuple(verdict for verdict in last.verdicts if verdict.key == FRONT)


def judged(scene: Callable[[int], tuple[Of, ...]], seconds: int = 120) -> tuple[Verdict, ...]:
    """The verdicts on the front end after so many seconds."""
    return of_front(Stage().play(seconds, scene))


@each_row("kind", [EngineKind.SMG, EngineKind.LITELLM, EngineKind.VLLM_STACK, EngineKind.GATEWAY])
def test_a_front_end_that_is_well_has_no_verdict(kind: EngineKind) -> None:
    assert judged(routed(kind=kind)) == ()


def test_requests_that_fail_in_front_of_engines_that_are_well_say_so() -> None:
    (found,) = judged(routed({"failures_per_s": 0.6}, of_engines={**WORKS, "failures_per_s": 0.0}))
    assert (found.code, found.cause, found.level) == (Limit.FAILING, "errors", Level.WARN)
    assert verdict_text(found) == "15% of its requests fail (36 in 60 s)"
    assert [one.quantity for one in found.evidence] == ["failed_requests", "backends_well"]
    assert "its time-outs and the network between it and its backends" in actions_text(found)


def test_engines_that_count_no_failures_are_not_said_to_fail_none() -> None:
    (found,) = judged(routed({"failures_per_s": 0.6}, of_engines={**WORKS, "failures_per_s": NOT_EXPOSED}))
    assert [one.quantity for one in found.evidence] == ["failed_requests"]
    assert "network between" not in actions_text(found)


def test_the_backend_that_fails_them_is_named() -> None:
    (found,) = judged(routed({"failures_per_s": 2.4}, (WELL, FAILS), polled=False))
    assert found.level is Level.CRITICAL
    assert verdict_text(found) == (
        "60% of its requests fail (144 in 60 s): 127.0.0.1:8001 fails 95% of those that it gets"
    )
    assert actions_text(found).startswith("scheduler: see whether 127.0.0.1:8001 answers, look into its log")


def test_a_backend_that_fails_behind_retries_is_named_though_clients_notice_nothing() -> None:
    (found,) = judged(routed(backends=(WELL, FAILS)))
    assert (found.code, found.cause, found.level) == (Limit.FAILING, "backend_fails", Level.WARN)
    assert verdict_text(found) == (
        "its backend vllm:8001 fails 95% of the requests that it gets (114 a minute), the others hardly any"
    )


@each_row(
    "backends",
    [
        (FAILS, FAILS),  # requests that are wrong fail everywhere
        (WELL, {**FAILS, "requests_per_s": 0.05, "failures_per_s": 0.05}),  # 3 a minute
        (WELL, {**FAILS, "failures_per_s": 0.9}),  # less than half
        (FAILS,),  # nobody to compare it with
        (OUT, FAILS),
    ],
)
def test_failures_that_are_not_one_backends_alone_are_no_verdict_on_it(backends: tuple[Mapping[str, Any], ...]) -> None:
    changes = {"backends_known": float(len(backends)), "backends_ready": float(len(backends))}
    assert judged(routed(changes, backends)) == ()


@each_row(
    ("changes", "said"),
    [
        ({"failures_per_s": 3.6}, "90% fail or are turned away (216 in 60 s)"),
        ({"rejections_per_s": 4.0, "requests_per_s": 0.0}, "100% fail or are turned away (240 in 60 s)"),
    ],
)
def test_no_backend_at_all_is_said_where_requests_fail_of_it(changes: dict[str, Any], said: str) -> None:
    (found, *rest) = judged(routed({**changes, "backends_ready": 0.0}, (OUT, OUT)))
    assert (found.code, found.cause, found.level) == (Limit.FAILING, "no_backend", Level.CRITICAL)
    assert verdict_text(found) == f"none of its 2 backends gets requests: {said}"
    assert [one.cause for one in rest] in ([], ["backend_out"])


def test_the_sources_of_both_ways_have_the_window_of_their_sum() -> None:
    of = routed({"failures_per_s": 2.0, "rejections_per_s": 2.0, "backends_ready": 0.0}, (OUT, OUT))

    def counted(tick: int) -> tuple[Of, ...]:
        *engines, front = of(tick)
        return *engines, Of(replace(front.read, live={FAILURES: "failed", REJECTIONS: "rejected"}), front.shown)

    (found, *_) = judged(counted)
    assert found.cause == "no_backend"
    assert found.evidence[1].source == "failed over 60 s + rejected over 60 s"


def test_a_pool_that_is_scaled_to_zero_is_no_failure() -> None:
    still = {"requests_per_s": 0.0, "backends_ready": 0.0, "backends_known": 0.0}
    assert judged(routed(still, (), kind=EngineKind.GATEWAY)) == ()
    unknown = {**still, "backends_known": Missing(Reason.NOT_EXPOSED)}
    assert judged(routed(unknown, (), kind=EngineKind.GATEWAY)) == ()


def test_requests_that_are_turned_away_point_to_limits_of_rates() -> None:
    (found,) = judged(routed({"rejections_per_s": 1.0}))
    assert (found.code, found.cause) == (Limit.FAILING, "rejections")
    assert "limits of requests and tokens" in actions_text(found)


def test_a_backend_without_requests_is_a_note_after_a_minute() -> None:
    scene = routed({"backends_ready": 1.0}, (WELL, OUT))
    stage = Stage()
    assert of_front(stage.play(60, scene)) == ()
    (found,) = of_front(stage.play(60, scene))
    assert (found.cause, found.level) == ("backend_out", Level.NOTE)
    assert verdict_text(found) == "1 of 2 backends gets no requests: vllm:8001"


@each_row(
    ("out", "said"),
    [
        (2, "2 of 3 backends get no requests: vllm:8001, vllm:8002"),
        (5, "5 of 6 backends get no requests: vllm:8001, vllm:8002, vllm:8003 and 2 more"),
    ],
)
def test_each_backend_without_requests_is_named(out: int, said: str) -> None:
    known = {"backends_known": 1.0 + out, "backends_ready": 1.0}
    (found,) = judged(routed(known, (WELL, *[OUT] * out)))
    assert verdict_text(found) == said


def test_a_backend_that_loads_its_model_is_not_out() -> None:
    scene = routed({"backends_ready": 1.0}, (WELL, OUT))

    def loading(tick: int) -> tuple[Of, ...]:
        things = list(scene(tick))
        things[3] = engine(name="vllm:8001", url="http://127.0.0.1:8001", state=EndpointState.STARTING, gpus=(1,))
        return tuple(things)

    assert judged(loading) == ()


def test_litellm_calls_a_backend_out_for_one_request_that_failed() -> None:
    assert judged(routed({"backends_ready": 1.0}, (WELL, OUT), kind=EngineKind.LITELLM)) == ()


def test_a_restart_of_a_backend_is_no_verdict() -> None:
    well, out = routed(), routed({"backends_ready": 1.0}, (WELL, OUT))
    stage = Stage()
    for seconds, scene in ((60, well), (50, out), (60, well)):
        last = stage.play(seconds, scene)
        assert of_front(last) == ()


def test_a_queue_in_front_of_backends_with_room_is_the_front_ends_own() -> None:
    (found,) = judged(routed({"waiting": 12.0}, of_engines=FEW))
    assert (found.code, found.cause, found.level) == (Limit.QUEUE_LIMIT, "front_queue", Level.WARN)
    assert verdict_text(found) == ("12 requests wait in it, while its 2 backends have room (4 running, none waiting)")


@each_row(
    "changes",
    [
        {"of_engines": {**FEW, "kv_usage_ratio": 0.9}},
        {"of_engines": {**FEW, "waiting": 3.0}},
        {"of_engines": FEW, "polled": False},
    ],
    named=["full", "queued", "not polled"],
)
def test_a_queue_in_front_of_backends_without_room_or_unknown_ones_is_no_verdict(changes: dict[str, Any]) -> None:
    assert judged(routed({"waiting": 12.0}, **changes)) == ()


@each_row(
    ("changes", "causes"),
    [
        ({"failures_per_s": 1.0}, ["errors"]),
        ({"backends_ready": 1.0}, ["backend_out"]),
        ({"failures_per_s": 2.2, "backends_ready": 0.0}, ["no_backend", "backend_out"]),
    ],
)
def test_what_a_front_end_has_from_a_backend_that_crashed_is_one_item_with_it(
    changes: Mapping[str, Any], causes: list[str]
) -> None:
    def crashes(tick: int) -> tuple[Of, ...]:
        crash = replace(CRASH, wall_s=START_S + 60.0, served_wall_s=START_S + 59.0)
        things = list(routed(changes, (OUT, WELL))(tick))
        things[1] = ended(crash, name="vllm:8000", url="http://127.0.0.1:8000")
        return tuple(things)

    stage = Stage()
    stage.play(60, routed())
    snapshot = stage.play(90, crashes)
    (down,) = (verdict for verdict in snapshot.verdicts if verdict.key == "http://127.0.0.1:8000")
    assert [verdict.cause for verdict in of_front(snapshot)] == causes
    assert {verdict.caused_by for verdict in of_front(snapshot)} == {down.id}
    (root,) = (root for root in roots_of(snapshot.verdicts) if root.level in URGENT)
    assert root.first == down
    assert {verdict.scope for verdict in root.consequences} == {"smg:29000"}
