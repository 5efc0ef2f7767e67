"""What engines of every kind print: nested objects with reasons of their own, groups of replicas, no fake zero."""

from __future__ import annotations

import json
from typing import Any

from gpumon.outputs.json import as_object, encode
from gpumon.outputs.schema import schema
from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineReading
from gpumon.readings.snapshot import Snapshot
from tests.efficiency.polls import after, moving, poll, rank, steady
from tests.outputs.validator import problems


def printed(snapshot: Snapshot) -> dict[str, Any]:
    """As `--json` prints it; it keeps to the schema."""
    found: dict[str, Any] = json.loads(encode(snapshot))
    assert list(problems(found, schema())) == []
    return found


def two_ranks(at_s: float) -> EngineReading:
    gauges = {q.RUNNING: 2.0, q.KV_USAGE: 0.5}
    counters = {q.DECODE_TOKENS: at_s * 10.0, q.OWN_FLOPS: 0.0}
    return poll(at_s, rank(counters, gauges, name="0"), rank(counters, gauges, name="1"), gpu_count=2)


def test_ranks_and_the_engines_own_count_have_reasons_of_their_own():
    (engine,) = printed(after(two_ranks))["engines"]
    first, second = engine["rank_loads"]
    assert (first["rank"], first["decode_tokens_per_s"], second["running"]) == ("0", 10.0, 2.0)
    assert first["waiting"] is None
    assert first["missing"] == {"waiting": "not_exposed"}
    assert engine["own"]["flops_per_s"] is None
    assert engine["own"]["missing"]["flops_per_s"] == engine["own"]["missing"]["flops_ratio"] == "off"
    assert "own" not in engine["missing"]


def test_sizes_that_are_not_known_are_null():
    (engine,) = printed(after(two_ranks))["engines"]
    assert (engine["tp"], engine["ranks"], engine["pp"]) == (1, 2, None)
    assert engine["missing"]["pp"] == "not_exposed"
    (told,) = printed(after(steady({q.DECODE_TOKENS: 1.0}, pp=2, gpu_count=2)))["engines"]
    assert told["pp"] == 2


def test_how_a_figure_moves_is_printed_with_it():
    advance = moving(Advance.END, q.DECODE_TOKENS)
    (engine,) = printed(after(steady({q.DECODE_TOKENS: 5.0}, advance=advance), seconds=80))["engines"]
    assert engine["decode_tokens_per_s"] is None
    assert engine["missing"]["decode_tokens_per_s"] == engine["missing"]["mfu_decode_ratio"] == "not_live"
    assert engine["advances"]["decode_tokens_per_s"] == "end"
    assert engine["decode_mean_tokens_per_s"] == 5.0
    assert engine["tokens_total"]["decode"] == 78 * 5.0


def test_replicas_are_a_list_beside_the_engines():
    both = [steady({q.DECODE_TOKENS: 50.0}, {q.RUNNING: 1.0}, name=name, url=name, model="m-8b") for name in "ab"]
    snapshot = after(*both)
    (group,) = printed(snapshot)["replicas"]
    assert (group["model"], group["engines"], group["answering"]) == ("m-8b", ["a", "b"], 2)
    assert (group["decode_tokens_per_s"], group["running"], group["waiting"]) == (100.0, 2.0, None)
    assert group["missing"]["waiting"] == "not_exposed"
    assert group["ttft_s"]["missing"]["p95"] == "not_exposed"
    assert as_object(after(both[0]))["replicas"] == []
