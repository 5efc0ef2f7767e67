"""One item for one cause: what is a consequence of what, what stays apart, and what is alike."""

from __future__ import annotations

import re

import pytest

from gpumon.demo.scenarios import scenario
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Acknowledged, Action, Family, Kind, Level, Limit, Verdict
from gpumon.triage.causes import with_causes
from gpumon.triage.marks import urgent_by_gpu
from gpumon.triage.render import action_texts
from gpumon.triage.roots import Root, affected_by, name_together, root_text, roots_of
from gpumon.tui.detail.verdict import sections
from tests.accuracy.triage import frames, judged
from tests.each_row import each_row
from tests.records import replace

LOST = Verdict("gpu 2", Limit.HARDWARE_FAULT, "lost", "2026-01-02T14:00:00Z", Kind.GPU, "GPU-2", level=Level.CRITICAL)
HANGS = Verdict(
    "llama-70b", Limit.HUNG, "hung_lost_gpu", "2026-01-02T14:00:01Z", Kind.ENGINE, "http://a", level=Level.CRITICAL
)


def moments(name: str, to_s: float, every_s: int = 5) -> list[tuple[float, Snapshot]]:
    """Snapshots of a scenario up to a second."""
    played = scenario(name)
    return list(judged(played, frames(played, to_s, every_s=every_s)))


def urgent(snapshot: Snapshot) -> list[Root]:
    return [root for root in roots_of(snapshot.verdicts) if root.level in (Level.CRITICAL, Level.WARN)]


@pytest.fixture(scope="module")
def lost_gpu() -> list[tuple[float, Snapshot]]:
    return moments("gpu-off-the-bus", 130.0, every_s=2)


def test_a_lost_gpu_is_one_item_from_its_first_second_to_the_hang(lost_gpu: list[tuple[float, Snapshot]]) -> None:
    for at_s, snapshot in lost_gpu:
        if at_s > 60.0:
            (root,) = urgent(snapshot)
            assert (root.scope, root.first.cause, root.level) == ("gpu 2", "lost", Level.CRITICAL)
            assert {verdict.scope for verdict in root.consequences} == {"llama-70b"}
            assert all(verdict.caused_by == root.first.id for verdict in root.consequences)
    assert affected_by(root, snapshot).text == "3 GPUs and llama-70b wait for it"


def test_the_page_of_a_cause_says_what_comes_of_it(lost_gpu: list[tuple[float, Snapshot]]) -> None:
    _, snapshot = lost_gpu[-1]
    (root,) = urgent(snapshot)
    (section,) = [one for one in sections(root.first, None, snapshot.verdicts) if one.title == "what comes of it"]
    chain, suffers = [entry.text for entry in section.entries]  # type: ignore[union-attr]
    assert re.fullmatch(r"gpu 2 lost \d\d:\d\d:\d\d → llama-70b hung \+\d+s → \d+ queued", chain)
    assert re.match(r"└ \+\d+s ✗ llama-70b hung: ", suffers)
    (effect,) = root.consequences
    assert "what comes of it" not in [one.title for one in sections(effect, None, snapshot.verdicts)]


def test_healthy_neighbours_of_a_lost_gpu_are_never_called_broken(lost_gpu: list[tuple[float, Snapshot]]) -> None:
    for at_s, snapshot in lost_gpu:
        marks = urgent_by_gpu(snapshot)
        for gpu in snapshot.gpus:
            verdict = marks.get(gpu.reading.uuid)
            if gpu.reading.index != 2 and verdict is not None:
                assert at_s > 65.0
                assert verdict.parameters["waits"] == "for_it"


@each_row(
    "name, to_s, root, consequences",
    [
        ("one-slow-gpu", 150.0, "gpu 3", {"llama-70b"}),
        ("cpu-hog", 150.0, "host", {"llama-8b"}),
        ("first-tokens-given-up", 140.0, "llama-8b", {"llama-8b"}),
        ("data-loader-cpu", 150.0, "host", None),
        ("error-storm", 150.0, "llama-8b", set()),
    ],
)
def test_scenarios_have_one_root(name: str, to_s: float, root: str, consequences: set[str] | None) -> None:
    _, snapshot = moments(name, to_s)[-1]
    (item,) = urgent(snapshot)
    assert item.scope == root
    if consequences is not None:
        assert {verdict.scope for verdict in item.consequences} == consequences


@each_row(
    "since, apart",
    [
        ("2026-01-02T14:00:00Z", False),
        ("2026-01-02T13:59:50Z", False),  # known a little earlier than its cause
        ("2026-01-02T14:01:30Z", False),
        ("2026-01-02T13:58:00Z", True),  # before it
        ("2026-01-02T15:00:00Z", True),  # long after it
    ],
)
def test_a_queue_comes_of_a_slow_gpu_only_if_it_began_with_that(since: str, apart: bool) -> None:
    played = scenario("one-slow-gpu")
    timed = list(frames(played, 2.0))
    _, snapshot = list(judged(played, timed))[-1]
    (engine,) = snapshot.engines
    slow = replace(LOST, code=Limit.THROTTLED, cause="thermal", key=snapshot.gpus[3].reading.uuid, scope="gpu 3")
    queue = replace(
        HANGS, code=Limit.QUEUE_LIMIT, cause="queue_slots", family=Family.LIMIT, key=engine.key, since=since
    )
    _, judged_queue = with_causes(timed[-1][1], snapshot, [slow, queue], {})
    assert (judged_queue.caused_by == "") is apart
    _, as_before = with_causes(timed[-1][1], snapshot, [slow, queue], {queue.id: slow.id})
    assert as_before.caused_by == slow.id, "what stands there stays a consequence"


@each_row("code, apart", [(Limit.COMPUTE_BOUND, False), (Limit.KV_CACHE_FULL, True)])
def test_full_arithmetic_comes_of_a_limit_that_was_lowered_long_ago(code: Limit, apart: bool) -> None:
    played = scenario("one-slow-gpu")
    timed = list(frames(played, 2.0))
    _, snapshot = list(judged(played, timed))[-1]
    (engine,) = snapshot.engines
    slow = replace(
        LOST,
        code=Limit.THROTTLED,
        cause="power_cap",
        key=snapshot.gpus[3].reading.uuid,
        scope="gpu 3",
        level=Level.NOTE,
        parameters={"limit_w": 200.0, "before_w": 700.0},
    )
    late = "2026-01-02T15:00:00Z"
    full = replace(HANGS, code=code, cause="full", family=Family.LIMIT, key=engine.key, since=late, level=Level.WARN)
    _, verdict = with_causes(timed[-1][1], snapshot, [slow, full], {})
    assert (verdict.caused_by == "") is apart
    by_default = replace(slow, parameters={"limit_w": 700.0})
    _, verdict = with_causes(timed[-1][1], snapshot, [by_default, full], {})
    assert verdict.caused_by == "", "nobody lowered it"


def test_a_checkpoint_and_the_disk_that_it_keeps_busy_are_one_note() -> None:
    _, snapshot = moments("checkpoint-stall", 145.0)[-1]
    (item,) = roots_of(snapshot.verdicts)
    assert (item.scope, item.level) == ("GPUs 0-7", Level.NOTE)
    assert [verdict.scope for verdict in item.consequences] == ["host"]


def test_what_is_alike_is_one_item_and_what_differs_is_not() -> None:
    gpus = [replace(LOST, scope=f"gpu {index}", key=f"GPU-{index}", id="") for index in range(2, 64)]
    (root,) = roots_of(gpus)
    assert (root.scope, len(root.verdicts)) == ("GPUs 2-63", 62)
    other = replace(gpus[0], cause="reset_required")
    assert [item.scope for item in roots_of([*gpus[1:], other])] == ["GPUs 3-63", "gpu 2"]


def test_a_command_that_each_of_several_gpus_has_names_them_all() -> None:
    verdicts = []
    for index in (0, 1, 3):
        advice = (
            Action("restore_power_limit", {"index": float(index), "watts": 700.0}),
            Action("find_holder", {"n": 1.0}),
        )
        verdicts.append(replace(LOST, scope=f"gpu {index}", key=f"GPU-{index}", id="", actions=advice))
    (root,) = roots_of(verdicts)
    assert action_texts(root.advised)[0] == "host: sudo nvidia-smi -i 0,1,3 -pl 700 sets the default"
    assert root.first.actions == verdicts[0].actions, "a verdict is about its own GPU"
    other = Action("restore_power_limit", {"index": 3.0, "watts": 350.0})
    (root,) = roots_of([*verdicts[:2], replace(verdicts[2], actions=(other,))])
    assert "-i 0 -pl 700" in action_texts(root.advised)[0], "the limits differ"


def test_an_engine_that_still_gives_tokens_does_not_suffer() -> None:
    _, snapshot = moments("gpu-mute-engine-works", 90.0)[-1]
    (root,) = urgent(snapshot)
    assert [verdict.scope for verdict in root.consequences] == ["llama-8b"]
    assert root_text(root, snapshot).endswith("; llama-8b on it still gives tokens")


@each_row(("name", "to_s", "cause", "consequence"), [("late-and-aborted", 90.0, "queue_slots", "aborts_midway")])
def test_answers_that_clients_give_up_in_a_queue_come_of_it(
    name: str, to_s: float, cause: str, consequence: str
) -> None:
    _, snapshot = moments(name, to_s)[-1]
    (root,) = urgent(snapshot)
    assert (root.first.cause, [verdict.cause for verdict in root.consequences]) == (cause, [consequence])


def test_an_engine_on_a_gpu_that_needs_a_reset_only_runs_on_it() -> None:
    _, snapshot = moments("reset-required-in-use", 60.0)[-1]
    (root,) = urgent(snapshot)
    assert root_text(root, snapshot) == "needs a reset; llama-8b runs on it"
    hangs = replace(HANGS, caused_by=root.first.id)
    assert affected_by(Root(root.verdicts, (hangs,)), snapshot).text == "llama-70b waits for it", "it does now"


def test_an_engine_that_drains_is_not_called_healthy() -> None:
    for at_s, snapshot in moments("drain-and-stop", 78.0, every_s=2):
        of_engine = {verdict.code for verdict in snapshot.verdicts if verdict.scope == "llama-8b"}
        assert at_s < 60.0 or of_engine == {Limit.DRAINING}


def test_nobody_is_asked_for_more_requests_before_a_cache_is_full() -> None:
    _, snapshot = moments("kv-fills", 300.0)[-1]
    (soon,) = [verdict for verdict in snapshot.verdicts if verdict.code is Limit.FORECAST]
    (reads,) = [verdict for verdict in snapshot.verdicts if verdict.code is Limit.BANDWIDTH_BOUND]
    assert soon.cause == "kv_full_soon"
    assert "bigger_batch" not in {action.code for action in reads.actions}


def test_when_memory_is_full_belongs_to_memory_that_is_short() -> None:
    for at_s, snapshot in moments("host-memory-leak", 600.0):
        of_host = [root for root in roots_of(snapshot.verdicts) if root.scope == "host"]
        if at_s > 400.0:
            assert [root.first.cause for root in of_host] == ["host_memory_full"]
            assert " -" not in root_text(of_host[0], snapshot), "less than nothing is left"
    assert all(verdict.cause == "host_memory_full_soon" for verdict in of_host[0].consequences)


def test_a_cause_stands_at_the_level_of_what_suffers_from_it() -> None:
    cause = replace(LOST, level=Level.WARN)
    (root,) = roots_of([replace(HANGS, caused_by=cause.id), cause])
    assert (root.first.scope, root.level) == ("gpu 2", Level.CRITICAL)


def test_a_verdict_whose_cause_is_not_there_is_its_own() -> None:
    (root,) = roots_of([replace(HANGS, caused_by=LOST.id)])
    assert root.first.scope == "llama-70b"


def test_names_of_several_things() -> None:
    assert name_together(["gpu 0", "gpu 1", "gpu 5"]) == "GPUs 0-1 5"
    assert name_together(["a", "b", "c", "d", "a"]) == "a, b, c and 1 more"


MINE = Acknowledged("anna", "drained", until="2026-01-02T22:00:00Z", since="2026-01-02T14:00:00Z")
CAUSED = replace(HANGS, caused_by=LOST.id)


def test_what_is_acknowledged_comes_last_with_all_that_comes_of_it() -> None:
    known = replace(LOST, acknowledged=MINE)
    slow = replace(HANGS, code=Limit.QUEUE_LIMIT, cause="queue_slots", key="http://b", level=Level.NOTE)
    roots = roots_of((known, replace(CAUSED, acknowledged=MINE), slow))
    assert [root.first.code for root in roots] == [Limit.QUEUE_LIMIT, Limit.HARDWARE_FAULT]
    assert [root.acknowledged for root in roots] == [None, MINE]
    assert len(roots[1].consequences) == 1


def test_a_consequence_that_got_worse_than_its_acknowledged_cause_is_an_item_of_its_own() -> None:
    known = replace(LOST, acknowledged=MINE, level=Level.WARN)
    roots = roots_of((known, CAUSED))
    assert [(root.first.code, root.acknowledged) for root in roots] == [
        (Limit.HUNG, None),
        (Limit.HARDWARE_FAULT, MINE),
    ]


def test_a_consequence_that_is_acknowledged_by_itself_does_not_raise_its_cause() -> None:
    cause = replace(LOST, level=Level.WARN)
    (root,) = roots_of((cause, CAUSED))
    assert root.level is Level.CRITICAL
    (root,) = roots_of((cause, replace(CAUSED, acknowledged=MINE)))
    assert (root.level, root.acknowledged) == (Level.WARN, None)


def test_things_that_are_alike_are_apart_where_one_of_them_is_acknowledged() -> None:
    other = replace(LOST, key="GPU-3", scope="gpu 3")
    assert [root.scope for root in roots_of((LOST, other))] == ["GPUs 2-3"]
    assert [root.scope for root in roots_of((replace(LOST, acknowledged=MINE), other))] == ["gpu 3", "gpu 2"]
