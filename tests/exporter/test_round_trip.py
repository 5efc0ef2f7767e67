"""Snapshots of the simulated server through a real page and back: all that the main screen and triage show is there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gpumon.config.load import load
from gpumon.config.options import Options
from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import Figures
from gpumon.figures.gpu import GPU
from gpumon.figures.host import HOST, SELF
from gpumon.outputs.openmetrics import MetricsPage
from gpumon.outputs.private import without_processes
from gpumon.outputs.samples import answers, samples
from gpumon.readings import exported
from gpumon.readings.catalogue import NO_FIGURES
from gpumon.readings.exported import DOUBTS, ExportedSample
from gpumon.readings.flat import value_of
from gpumon.readings.frame import EngineKind
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Acknowledged, Action, Kind, Limit, Verdict
from gpumon.session.build import build
from gpumon.session.hardware import open_hardware
from gpumon.sources.prometheus.own import rebuild_snapshot
from gpumon.triage.advice import advice
from gpumon.triage.render import actions_text, verdict_text
from tests.each_row import each_row
from tests.exporter.served import MODERN, classic, modern
from tests.outputs.shots import snapshot
from tests.records import replace
from tests.virtual_time import Clock, played

GPU_TEXTS = tuple(exported.GPU_TEXTS.values())
ENGINE_TEXTS = tuple(exported.ENGINE_TEXTS.values())
GPU_OTHERS = ("index", "uuid", "state", "age_s", "throttle_s", "engines")
ENGINE_OTHERS = ("name", "state", "age_s", "since", "gpus", "key")
VERDICT = ("id", "caused_by", "scope", "code", "confidence", "since", "kind", "key", "family", "level")
"""Fields that come back as they are."""


async def snapshots(scenario: str, wanted: int, folder: Path) -> list[Snapshot]:
    """Snapshots of the simulated server, until there are verdicts; these need not hold for long."""
    options = Options(demo=True, scenario=scenario)
    file = folder / "config.toml"
    file.write_text("[triage]\nhold_s = 3.0\n")
    config = load(str(file), {}, []).config
    collector = build(config, options, await open_hardware(config, options))
    try:
        await collector.open()
        await collector.ready(60.0)
        taken = []
        while len(taken) < wanted or not taken[-1].verdicts:
            assert len(taken) < 120
            taken.append(await collector.tick())
            await asyncio.sleep(0.5)
        return taken
    finally:
        await collector.stop()


def assert_comes_back(shot: Snapshot, samples: list[ExportedSample]) -> None:
    back = rebuild_snapshot(samples, shot.wall_s, shot.interval_s)
    assert back is not None
    shot = without_processes(shot)
    assert (back.time, back.simulated, len(back.gpus)) == (shot.time, shot.simulated, len(shot.gpus))
    same(shot.host, back.host, HOST, ("name", "driver", "cuda"))
    same(shot.self_cost, back.self_cost, SELF, ())
    for was, now in zip(shot.gpus, back.gpus, strict=True):
        same(was, now, GPU, (*GPU_TEXTS, *GPU_OTHERS))
        assert set(was.reading.throttle) == set(now.reading.throttle)
    engines = {engine.name: engine for engine in back.engines}
    for engine in shot.engines:
        figures = ENGINE if answers(engine) else NO_FIGURES
        same(engine, engines[engine.name], figures, (*ENGINE_TEXTS, *ENGINE_OTHERS))
        for doubt in DOUBTS:
            assert bool(value_of(engine, doubt)) is bool(value_of(engines[engine.name], doubt))
        assert len(engines[engine.name].rank_loads) == len(engine.rank_loads)
        assert engines[engine.name].backends == engine.backends
    assert len(back.verdicts) == len(shot.verdicts)
    for verdict in shot.verdicts:
        found = next(one for one in back.verdicts if (one.key, one.family) == (verdict.key, verdict.family))
        same(verdict, found, NO_FIGURES, VERDICT)
        assert (verdict_text(found), actions_text(found)) == (verdict_text(verdict), actions_text(verdict))
        assert [(one.quantity, one.value, one.source, one.chart) for one in found.evidence] == [
            (one.quantity, one.value, one.source, one.chart)
            for one in verdict.evidence
            if not isinstance(one.value, Missing)
        ]
    assert [verdict.level for verdict in back.verdicts] == [verdict.level for verdict in shot.verdicts]
    assert {fault.source for fault in back.faults} == {fault.source for fault in shot.faults}


def same(was: Any, now: Any, rows: Figures, names: tuple[str, ...]) -> None:
    for name in (*(path for path, _ in rows.exported), *names):
        before, after = value_of(was, name), value_of(now, name)
        assert isinstance(after, Missing) if isinstance(before, Missing) else after == before, (name, before, after)


@pytest.mark.parametrize("scenario", ["", "reset-required", "kv-cache-full", "engine-mute"])
def test_what_the_screen_shows_comes_back_exactly(scenario: str, tmp_path: Path) -> None:
    page = MetricsPage(detail=True)
    for shot in played(snapshots(scenario, 6, tmp_path), Clock())[-6:]:
        page.take(shot)
        assert_comes_back(shot, modern(page.page(MODERN, "").body))
        assert_comes_back(shot, classic(page.page("", "").body))


@each_row("kind", EngineKind)
def test_options_of_every_engine_come_back(kind: EngineKind) -> None:
    words = advice(kind)
    done = [
        *(("raise_slots", words.slots), ("fp8_kv", words.fp8_kv), ("more_kv_memory", words.memory)),
        *(("bigger_steps", words.budget), ("prefix_caching", words.prefix), ("more_gpus", words.tp)),
    ]
    actions = (
        *(Action(code, {"flag": word}) for code, word in done if word),
        Action("fix_gpu_first", {"gpus": "gpu 1 and gpu 2"}),
        Action("own_gpus", {"shared": "python (pid 999)"}),
    )
    said = Verdict("e", Limit.HUNG, "hung_lost_gpu", "2026-11-23T00:00:00Z", Kind.ENGINE, "e", actions=actions)
    back = through(said)
    assert "?" not in actions_text(back)
    assert "999" not in actions_text(back)
    assert [one.parameters for one in back.actions[:-1]] == [one.parameters for one in actions[:-1]]


def test_what_is_not_known_is_said_without_the_signals_that_stay_on_the_host() -> None:
    assert verdict_text(through(Verdict("e", Limit.UNKNOWN, "", "", Kind.ENGINE, "e"))) == "not known"
    how = {"how": "weights in the host's memory (sleep level 1)"}
    asleep = Verdict("e", Limit.ASLEEP, "asleep", "", Kind.ENGINE, "e", parameters=how)
    assert "?" not in verdict_text(through(asleep))


def test_the_verdict_that_is_the_cause_comes_back() -> None:
    said = Verdict("e", Limit.HUNG, "hung_lost_gpu", "", Kind.ENGINE, "e", caused_by="gpu:GPU-1:state")
    assert through(said).caused_by == "gpu:GPU-1:state"
    assert through(said).id == "engine:e:state"


def through(verdict: Verdict) -> Verdict:
    """The verdict as another host sees it."""
    shot = snapshot(verdicts=(verdict,))
    back = rebuild_snapshot(samples(shot), shot.wall_s, shot.interval_s)
    assert back is not None
    return back.verdicts[0]


def test_who_has_acknowledged_a_verdict_comes_back_without_the_reason() -> None:
    mine = Acknowledged("anna", "fan ordered", until="2026-11-23T06:00:00.000Z", since="2026-11-22T22:00:00.000Z")
    back = through(Verdict("e", Limit.HUNG, "hung_lost_gpu", "", Kind.ENGINE, "e", acknowledged=mine)).acknowledged
    assert back == replace(mine, reason="")
