"""A real Prometheus that hangs: neither the fleet's screen nor a host's shows old figures as live; both come back."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from gpumon.config.schema import Config
from gpumon.config.schema import Prometheus as Settings
from gpumon.config.themes import load_theme
from gpumon.fleet.snapshot import HostState
from gpumon.readings.missing import Missing, Reason
from gpumon.session.fleet import FleetSession
from gpumon.tui.fleet.app import FleetApp
from tests.fakes.engine import FakeEngine
from tests.fakes.prometheus import Prometheus
from tests.tui.running import text_of, until

LONG_S = 60.0


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """One host with an engine, scraped every second for some seconds."""
    with contextlib.ExitStack() as stack:
        engine = FakeEngine("vllm-poisson", start_s=20.0).start()
        stack.callback(engine.close)
        target = f"{{targets: ['{engine.url.partition('://')[2]}'], labels: {{node: gpu01}}}}"
        server = stack.enter_context(
            Prometheus(tmp_path_factory.mktemp("prometheus"), [f"  - job_name: vllm\n    static_configs: [{target}]"])
        )
        stack.callback(lambda: os.kill(server.pid, signal.SIGCONT))
        server.until("count_over_time(vllm:num_requests_running[1m]) >= 4", timeout_s=LONG_S)
        yield server


def figures(app: FleetApp) -> list[object]:
    """Tokens per second of each engine on the screen in front."""
    if app.host_screen is not None:
        shown = [app.host_screen.shown] if app.host_screen.shown is not None else []
    else:
        shown = [host.snapshot for host in app.monitor.shown.fleet.hosts] if app.monitor.shown is not None else []
    return [engine.rates.decode_tokens_per_s for snapshot in shown for engine in snapshot.engines]


def live(app: FleetApp) -> bool:
    """Whether the screen in front has figures and says that they are of now."""
    said = figures(app)
    title = text_of(app)[0]
    return bool(said) and all(isinstance(one, float) for one in said) and ("●" in title or "↓" in title)


def blank(app: FleetApp) -> bool:
    """Whether it has none, for they are too old, and says how old."""
    said = figures(app)
    title = text_of(app)[0]
    return bool(said) and set(said) == {Missing(Reason.STALE)} and "no reading for" in title and "●" not in title


async def test_whatever_hangs_no_screen_shows_old_figures_as_live(prometheus: Prometheus) -> None:
    config = Config(prometheus=Settings(url=prometheus.url, interval_s=1.0, timeout_s=60.0))
    app = FleetApp(FleetSession(config), load_theme("default"), config)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(lambda: live(app), pilot, LONG_S)
        os.kill(prometheus.pid, signal.SIGSTOP)
        await pilot.press("enter")
        await until(lambda: app.host_screen is not None and blank(app), pilot, LONG_S)
        await pilot.press("escape")
        await until(lambda: app.host_screen is None and blank(app), pilot, LONG_S)
        assert any("NOT LIVE" in line and "no answer since" in line for line in text_of(app))
        assert app.monitor.shown is not None
        assert {host.state for host in app.monitor.shown.fleet.hosts} == {HostState.STALE}

        # A host that is opened now has no figures either, and what it had grows older.
        await pilot.press("enter")
        await until(lambda: app.host_screen is not None and blank(app), pilot, LONG_S)
        assert app.host_screen is not None
        assert app.host_screen.shown is not None
        assert app.host_screen.shown.faults[0].source == "prometheus"
        age_s = app.host_screen.shown.engines[0].age_s
        assert age_s > 3.0
        await until(
            lambda: app.host_screen is not None and app.host_screen.shown.engines[0].age_s > age_s + 1.0, pilot, LONG_S
        )
        os.kill(prometheus.pid, signal.SIGCONT)
        await until(lambda: live(app), pilot, LONG_S)

        # It hangs again under a host that is open and live; the fleet's screen comes back, too.
        os.kill(prometheus.pid, signal.SIGSTOP)
        await until(lambda: blank(app), pilot, LONG_S)
        await pilot.press("escape")
        await until(lambda: app.host_screen is None and blank(app), pilot, LONG_S)
        os.kill(prometheus.pid, signal.SIGCONT)
        await until(lambda: live(app), pilot, LONG_S)
