"""A server whose engines were watched for a while, for the tests of the sizing panel."""

from __future__ import annotations

import copy
import functools
from pathlib import Path

from gpumon.commands.files import ScreenFiles
from gpumon.config.load import load
from gpumon.readings.frame import EndpointState
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, Snapshot, Window
from gpumon.sizing.calibration import Calibration
from gpumon.sources.packaged import llm_catalogue
from gpumon.tui.app import MonitorApp
from gpumon.tui.sizing.panel import SizingPanel
from gpumon.tui.sizing.state import PanelState
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still

H100 = "H100 SXM5 80GB"
BASE_S, SLOPE_S = 0.018, 0.0004
"""What the engines do: ITL = 18 ms + 0.4 ms a sequence."""
WINDOWS = 24


def engine(number: int, running: float) -> Engine:
    """One of the scenes' engines at a steady load."""
    itl_s = BASE_S + SLOPE_S * running
    before = scenes.engine(number)
    gpus = float(len(before.hardware.gpus))
    return replace(
        before,
        llm=llm_catalogue().find(before.model),
        running=running,
        running_mean=running,
        waiting=0.0,
        ranks=1,
        tp=len(before.hardware.gpus),
        gpu_count=gpus,
        gpu_type=H100,
        itl_mean_s=itl_s,
        decode_tokens_per_s=running / itl_s,
        prompt_tokens_mean=2000.0,
        answer_tokens_mean=300.0,
        cached_ratio=0.2,
        itl_s=replace(before.latency.itl_s, mean=itl_s, p95=itl_s * 1.2),
        window=Window(10.0, running - 1.0, running + 1.0, running, 0.1 + 0.002 * running),
    )


def snapshot(at_s: float = 0.0, load: float = 24.0) -> Snapshot:
    """One moment: three engines at different loads."""
    base = scenes.snapshot()
    gpus = tuple(replace(gpu, gpu_type=H100) for gpu in base.gpus)
    engines = tuple(engine(number, load + 3.0 * number) for number in range(3))
    wall_s = scenes.WALL_S + at_s
    return replace(base, time=_time(wall_s), wall_s=wall_s, gpus=gpus, engines=engines)


def _time(wall_s: float) -> str:
    from datetime import datetime, timezone

    return datetime.fromtimestamp(wall_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def gone(of: Snapshot, at_s: float) -> Snapshot:
    """The same later, when no engine answers any more."""
    none = Missing(Reason.UNREACHABLE)
    engines = tuple(
        replace(each, state=EndpointState.REFUSED, running=none, running_mean=none, itl_mean_s=none, window=None)
        for each in of.engines
    )
    wall_s = scenes.WALL_S + at_s
    return replace(of, time=_time(wall_s), wall_s=wall_s, engines=engines)


def watched() -> Still:
    """A feed whose calibration has seen loads of 4 to 50."""
    feed = Still(snapshot())
    feed.calibration = copy.deepcopy(_calibration())
    return feed


@functools.cache
def _calibration() -> Calibration:
    """The calibration of `watched`, made once for all tests."""
    calibration = Calibration()
    for tick in range(WINDOWS):
        calibration.take(snapshot((tick + 1 - WINDOWS) * 160.0 - 11.0, 4.0 + 2.0 * tick))
    return calibration


def panel_of(app: MonitorApp) -> SizingPanel:
    panel = app.monitor.dock.panel
    assert panel is not None
    return panel


def desk_of(app: MonitorApp) -> PanelState:
    return panel_of(app).state


def disk_at(folder: Path) -> ScreenFiles:
    """Real files in an own folder."""
    path = folder / "config.toml"
    path.write_text("")
    return ScreenFiles(load(str(path), {}), {"HOME": str(folder)})
