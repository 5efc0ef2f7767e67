"""The fleet's screen over a real Prometheus that scrapes real pages: shown, opened, gone back in, and without it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.config.schema import Config, Prometheus
from gpumon.config.themes import load_theme
from gpumon.session.fleet import FleetSession
from gpumon.tui.fleet.app import FleetApp
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.fakes.prometheus import Prometheus as RealPrometheus
from tests.perf.farm_pages import DcgmPages, Gpu
from tests.tui.running import text_of, until

HOSTS = {"alpha": 0.9, "beta": 0.2}
"""Name -> busy share of its GPUs."""
WAIT_S = 60.0


def _serving(name: str, busy: float) -> LoopbackServer:
    gpus = [Gpu(f"GPU-{name}-{at}", 71.5, busy, busy / 2.0, busy / 2.0, 480.0) for at in range(2)]
    pages = DcgmPages(name, gpus, started_s=time.time() - 3600.0)

    def answer(request: Request) -> Reply:
        return Reply(200, pages.page(time.time())) if request.path == "/metrics" else Reply(404, b"")

    return LoopbackServer(answer)


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[RealPrometheus]:
    """One that has scraped two machines some times."""
    with contextlib.ExitStack() as stack:
        scrapes = []
        for name, busy in HOSTS.items():
            address = stack.enter_context(_serving(name, busy)).url.partition("://")[2]
            group = f'{{targets: ["{address}"], labels: {{node: {name}}}}}'
            scrapes.append(f"- {{job_name: dcgm-{name}, static_configs: [{group}]}}")
        server = stack.enter_context(RealPrometheus(tmp_path, scrapes))
        server.until("count_over_time(DCGM_FI_DEV_GPU_UTIL[1m]) > 5", results=4, timeout_s=WAIT_S)
        yield server


async def test_hosts_are_shown_opened_and_gone_back_in(prometheus: RealPrometheus) -> None:
    config = Config(prometheus=Prometheus(url=prometheus.url, interval_s=1.0))
    app = FleetApp(FleetSession(config), load_theme("default"), config)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: app.monitor.body.table.count == 2, pilot, WAIT_S)
        assert f"127.0.0.1:{prometheus.port} · 2 hosts · 4 GPUs" in text_of(app)[0]
        # What lies idle comes first.
        assert [row.name for row in app.monitor.body.table.listed_items()] == ["beta", "alpha"]
        shown = app.monitor.shown
        assert shown is not None
        assert {row.name: row.busy_ratio.value for row in shown.hosts} == pytest.approx(HOSTS, abs=0.11)
        await pilot.press("enter")
        await until(lambda: app.host_screen is not None and app.host_screen.shown is not None, pilot, WAIT_S)
        assert text_of(app)[0].startswith(" gpumon  fleet > beta")
        assert app.host_screen is not None
        assert app.host_screen.shown is not None
        assert [gpu.reading.index for gpu in app.host_screen.shown.gpus] == [0, 1]
        await pilot.press("escape", "space")
        before_s = shown.fleet.wall_s
        await pilot.press("left", "left")
        await until(lambda: app.monitor.gone_back and not app.monitor.travel.seeking, pilot, WAIT_S)
        assert "AGO" in text_of(app)[0]
        assert app.monitor.shown is not None
        assert app.monitor.shown.fleet.wall_s >= before_s - 3.0
        await pilot.press("end")
        prometheus.__exit__()
        await until(lambda: any("✗ NOT LIVE" in line for line in text_of(app)), pilot, WAIT_S)
        assert app.monitor.body.table.count == 2
