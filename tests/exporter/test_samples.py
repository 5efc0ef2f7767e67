"""The round trip of a snapshot through its exported samples: exact for every exported field, whatever comes in."""

from __future__ import annotations

import math
import random
import re
from typing import Any, get_args, get_type_hints

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import Figures
from gpumon.figures.gpu import GPU
from gpumon.figures.host import HOST, SELF
from gpumon.figures.unit import LARGEST, unit_of
from gpumon.outputs.samples import MOST_EXPORTED, SILENT_GPU, gpu_key, samples
from gpumon.readings.catalogue import FIGURES_BY_RECORD, NO_FIGURES
from gpumon.readings.exported import EXPORTED_METRICS, SAMPLE_NAMES, ExportedSample
from gpumon.readings.flat import Part, value_of
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import EndpointState, EngineKind, GpuReading, GpuState, HostReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason
from gpumon.readings.snapshot import (
    BandwidthSource,
    Confidence,
    Engine,
    Family,
    FaultShown,
    Gpu,
    Kind,
    Level,
    Limit,
    RaisedAlert,
    RankLoad,
    Replicas,
    Self,
    Snapshot,
    Verdict,
)
from gpumon.readings.text import clean
from gpumon.readings.verdict import Action, Evidence
from gpumon.sources.prometheus.own import rebuild_snapshot
from gpumon.triage.render import actions_text, verdict_text
from tests.outputs import shots

MISSING = st.sampled_from([Missing(reason) for reason in Reason])
UPPER_BOUNDS = frozenset(row.within for row in GPU.values() if row.within)
TEXTS = st.text(max_size=30) | st.sampled_from([shots.HOSTILE, "MBU 69.5% at batch 24", 'a"b\\n{x}', "{}", ""])
NAMES_OF = st.text(min_size=1, max_size=12)
SINCE = st.integers(0, 4_000_000_000_000).map(lambda ms: rfc3339(ms / 1000.0))
AGES = st.floats(0.0, 1e6)


def figures(kind: type[msgspec.Struct], field: str) -> st.SearchStrategy[Any]:
    """Any figure that a field can have: others do not come back from an exporter."""
    rows = FIGURES_BY_RECORD.get(kind, ENGINE if issubclass(kind, Part) else NO_FIGURES)
    if kind is GpuReading:
        rows = GPU
    row = rows.get(field)
    most = unit_of(field).most if row is None else row.largest
    if row is not None and row.within:
        most = 1.0
    return st.floats(1.0 if field in UPPER_BOUNDS else 0.0, most) | MISSING


def built(kind: type[msgspec.Struct], fixed: dict[str, Any]) -> st.SearchStrategy[Any]:
    """A Struct with any figures and texts in the fields that `fixed` does not name."""
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for name, hint in get_type_hints(kind).items():
        if name in fixed:
            fields[name] = fixed[name]
        elif hint == Reading:
            fields[name] = figures(kind, name)
        elif hint is str:
            fields[name] = TEXTS
        elif hint is bool:
            fields[name] = st.booleans()
        elif hint is int:
            fields[name] = st.integers(0, 512)
        elif isinstance(hint, type) and issubclass(hint, msgspec.Struct) and name not in ("window", "llm"):
            fields[name] = built(hint, fixed)
        elif get_args(hint)[:1] == (str,) and hint is not Reading and name in ("notes", "unknown"):
            fields[name] = st.lists(TEXTS.filter(bool), max_size=3).map(tuple)
    return st.builds(kind, **fields)


NOTE_LISTS = {
    name: st.lists(st.just(Evidence("own_gpumon")), max_size=3).map(tuple)
    for name in ("uneven", "deviates", "contradicts")
}
GPUS = built(
    Gpu,
    {
        "index": st.integers(0, 9),
        "age_s": AGES,
        "state": st.sampled_from(GpuState),
        "bandwidth_source": st.sampled_from(BandwidthSource),
        "throttle": st.lists(st.sampled_from(["sw_power_cap", "hw_slowdown"]), unique=True).map(tuple),
        "throttle_s": st.dictionaries(st.sampled_from(["sw_power_cap", "board_limit"]), AGES),
        "xid": st.lists(st.integers(1, 200), unique=True, max_size=4).map(tuple),
    },
)
ENGINES = built(
    Engine,
    {
        "name": NAMES_OF,
        "age_s": AGES,
        "since": SINCE,
        "kind": st.sampled_from(EngineKind),
        "phase": st.sampled_from(get_type_hints(Engine)["phase"]),
        "state": st.sampled_from([EndpointState.OK, EndpointState.OK, EndpointState.TIMEOUT, EndpointState.REFUSED]),
        "gpus": st.lists(st.integers(0, 9), unique=True, max_size=3).map(tuple),
        "rank_loads": st.lists(
            built(RankLoad, {"rank": st.integers(0, 9).map(str)}), max_size=2, unique_by=lambda load: load.rank
        ).map(tuple),
        **NOTE_LISTS,
    },
)
PARAMETERS = st.dictionaries(
    st.sampled_from(["flag", "seconds", "processes", "owner", "share"]),
    st.floats(-LARGEST, LARGEST) | st.sampled_from(["--max-num-seqs", "two words"]),
    max_size=3,
)
ACTIONS = st.builds(
    Action,
    code=st.sampled_from(["raise_slots", "lower_context", "fp8_kv"]),
    parameters=st.dictionaries(st.just("flag"), st.sampled_from(["--max-num-seqs", "--kv-cache-dtype fp8"])),
)
"""Advice as gpumon gives it: other advice comes back as another host's words."""
VERDICTS = built(
    Verdict,
    {
        "kind": st.sampled_from(Kind),
        "family": st.sampled_from(Family),
        "code": st.sampled_from(Limit),
        "parameters": PARAMETERS,
        "actions": st.lists(ACTIONS, max_size=2).map(tuple),
        "level": st.sampled_from(Level),
        "confidence": st.sampled_from(Confidence),
        "since": SINCE,
        "evidence": st.lists(built(Evidence, {"parameters": PARAMETERS}), max_size=3).map(tuple),
    },
)
SNAPSHOTS = st.builds(
    Snapshot,
    time=st.just(""),
    wall_s=st.floats(0.0, 4e9),
    simulated=st.booleans(),
    interval_s=st.floats(0.25, 3600.0),
    host=built(HostReading, {}),
    self_cost=built(Self, {}),
    gpus=st.lists(GPUS, max_size=2).map(tuple),
    engines=st.lists(ENGINES, max_size=2, unique_by=lambda engine: engine.name).map(tuple),
    verdicts=st.lists(VERDICTS, max_size=2).map(tuple),
    faults=st.lists(built(FaultShown, {"since": SINCE}), max_size=2).map(tuple),
    replicas=st.lists(built(Replicas, {"answering": st.integers(0, 9)}), max_size=1).map(tuple),
    alerts=st.lists(built(RaisedAlert, {"since": SINCE}), max_size=2).map(tuple),
)


def again(shot: Snapshot) -> Snapshot:
    """The snapshot from its samples in another order, with labels of the scrape beside, as a Prometheus gives them."""
    page = [
        ExportedSample(name, {key: text for key, text in {**labels, "job": "gpumon"}.items() if text}, value)
        for name, labels, value in samples(shot)
    ]
    random.Random(1).shuffle(page)
    back = rebuild_snapshot(page, shot.wall_s, shot.interval_s)
    assert back is not None
    return back


def on_the_wire(shot: Snapshot) -> list[tuple[str, tuple[tuple[str, str], ...], float]]:
    """Samples to compare; what only counts the rest is left out."""
    skipped = ("gpumon_left_out", "gpumon_faults")
    return sorted(
        (name, tuple(sorted(labels.items())), value) for name, labels, value in samples(shot) if name not in skipped
    )


def assert_same_figures(before: Any, after: Any, rows: Figures) -> None:
    for path, _ in rows.exported:
        was, now = value_of(before, path), value_of(after, path)
        assert isinstance(now, Missing) if isinstance(was, Missing) else now == was, path


@settings(max_examples=12)
@given(SNAPSHOTS)
def test_any_snapshot_is_exported_by_the_table_and_comes_back(shot: Snapshot) -> None:
    assert_is_in_the_table(shot)
    assume(len({gpu_key(gpu) for gpu in shot.gpus}) == len(shot.gpus))  # of two alike, one alone is exported
    back = again(shot)
    assert on_the_wire(back) == on_the_wire(shot)
    assert_same_figures(shot.host, back.host, HOST)
    assert_same_figures(shot.self_cost, back.self_cost, SELF)
    assert back.simulated == shot.simulated
    engines = {engine.name: engine for engine in back.engines}
    for engine in shot.engines:
        if engine.state is EndpointState.OK and clean(engine.name, 128) == engine.name:
            gone = isinstance(engine.load.running, Missing) and engine.load.running.reason in (
                Reason.STALE,
                Reason.UNREACHABLE,
            )
            if not gone:
                assert_same_figures(engine, engines[engine.name], ENGINE)
                assert engines[engine.name].hardware.gpus == tuple(sorted(engine.hardware.gpus))


def assert_is_in_the_table(shot: Snapshot) -> None:
    """Every sample is in the table, with its labels and a number, and stands once."""
    labels_of = {metric.sample: set(metric.labels) for metric in EXPORTED_METRICS}
    keys = set()
    for name, labels, value in samples(shot):
        assert name in SAMPLE_NAMES
        assert set(labels) == labels_of[name]
        assert math.isfinite(value)
        assert all(text.isprintable() for text in labels.values())
        key = (name, tuple(sorted(labels.items())))
        assert key not in keys
        keys.add(key)


def test_a_silent_gpu_and_a_silent_engine_have_no_figures() -> None:
    gpus = tuple(shots.gpu(at, state=state) for at, state in enumerate(SILENT_GPU))
    engine = shots.engine(state=EndpointState.TIMEOUT, fault="no answer within 2 s")
    shot = shots.snapshot(gpus=gpus, engines=(engine,))
    page = list(samples(shot))
    assert {name for name, labels, _ in page if "uuid" in labels} <= {
        "gpumon_gpu_info",
        "gpumon_gpu_state",
        "gpumon_gpu_age_seconds",
        "gpumon_engine_gpu_info",
    }
    up = {(labels["source"], labels["name"]): value for name, labels, value in page if name == "gpumon_source_up"}
    assert up == {("collector", ""): 1.0, ("nvml", ""): 0.0, ("engine", "vllm:8000"): 0.0}
    back = again(shot)
    assert back.engines[0].load.running == Missing(Reason.UNREACHABLE)
    assert {gpu.reading.state for gpu in back.gpus} == SILENT_GPU
    assert all(isinstance(gpu.power_w, Missing) for gpu in back.gpus)


def test_a_figure_that_is_no_number_is_absent() -> None:
    shot = shots.snapshot(gpus=(shots.gpu(power_w=math.nan, mfu_ratio=math.inf),))
    names = {name for name, _, _ in samples(shot)}
    assert "gpumon_gpu_power_watts" not in names
    assert "gpumon_gpu_mfu_ratio" not in names
    assert again(shot).gpus[0].power_w == NOT_EXPOSED


def test_engines_of_one_model_and_names_that_are_cut_alike_stay_apart() -> None:
    names = ("x" * 300 + "a", "x" * 300 + "b", "y")
    engines = tuple(shots.engine(name=name, running=float(at), url=f"http://h:{at}") for at, name in enumerate(names))
    replicas = Replicas("llama", names, 3, deviating=(names[1],))
    back = again(shots.snapshot(engines=engines, replicas=(replicas,)))
    assert sorted(engine.load.running for engine in back.engines) == [0.0, 1.0, 2.0]  # type: ignore[type-var]
    assert len(back.replicas[0].engines) == 3
    assert back.replicas[0].deviating == tuple(one.name for one in back.engines if one.load.running == 1.0)


def test_what_is_too_much_is_left_out_and_counted() -> None:
    engines = tuple(shots.engine(name=f"e{at}", url=f"http://h:{at}") for at in range(MOST_EXPORTED["engines"] + 7))
    page = list(samples(shots.snapshot(engines=engines)))
    left = {labels["what"]: value for name, labels, value in page if name == "gpumon_left_out"}
    assert left["engines"] == 7
    assert left["gpus"] == 0
    assert sum(name == "gpumon_engine_info" for name, _, _ in page) == MOST_EXPORTED["engines"]


def test_no_process_no_user_no_command_line_and_no_sentence_is_exported() -> None:
    """A label is a name or a code: no sentence of triage stands on the page."""
    shot = shots.snapshot()
    page = list(samples(shot))
    assert not re.search(r"4711|VLLM::Worker|'llm'|vllm serve", " ".join(map(str, page)))
    texts = {text for _, labels, _ in page for text in labels.values()}
    assert not texts & {one.text for one in shot.verdicts} & {one.action for one in shot.verdicts}


def test_a_page_of_another_program_is_no_snapshot() -> None:
    assert rebuild_snapshot([ExportedSample("node_cpu_seconds_total", {"cpu": "0"}, 1.0)], 0.0, 15.0) is None


def test_a_collector_that_is_stuck_says_so() -> None:
    back = rebuild_snapshot([ExportedSample("gpumon_source_up", {"source": "collector"}, 0.0)], 1e9, 15.0)
    assert back is not None
    assert [fault.source for fault in back.faults] == ["gpumon"]
    assert back.gpus == ()


HOSTILE_LABELS = st.dictionaries(
    st.sampled_from(["gpu", "uuid", "engine", "kind", "thing", "family", "at", "of", "name", "code", "state"]),
    TEXTS | st.sampled_from(["0", "1", "-1", "9" * 40, "engine", "ok", "nan", "²"]),
)


@given(
    st.lists(
        st.builds(
            ExportedSample,
            st.sampled_from(sorted(SAMPLE_NAMES)),
            HOSTILE_LABELS,
            st.floats() | st.sampled_from([1e300, -1.0]),
        ),
        max_size=40,
    )
)
def test_no_page_breaks_the_way_back(page: list[ExportedSample]) -> None:
    up = ExportedSample("gpumon_source_up", {"source": "collector"}, 1.0)
    back = rebuild_snapshot([up, *page], 1e9, 15.0)
    assert back is not None
    assert list(samples(back))
    assert all(isinstance(verdict_text(one) + actions_text(one), str) for one in back.verdicts)
