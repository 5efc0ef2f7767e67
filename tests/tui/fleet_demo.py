"""The fleet's screen on simulated hosts, to be looked at: `python -m tests.tui.fleet_demo 12 single down owned`.

`12`: number of hosts. `owned`: some GPUs are of namespaces. `single`: hosts of one GPU. `down`: the source fails after
its first answers.
"""

from __future__ import annotations

import sys
import time

from gpumon.config.themes import load_theme
from gpumon.session.fleet import FleetSession
from gpumon.tui.app import run
from gpumon.tui.fleet.app import FleetApp
from tests.tui.fleet_feed import CONFIG, NEWEST_S, Scrapes, owned


class Failing(Scrapes):
    """Fails after some answers."""

    async def frame(self, at_s: float | None = None, hosts=None):  # type: ignore[no-untyped-def]
        """The fleet, four times."""
        if len(self.asked) > 3 and at_s is None:
            self.fault = "http://prometheus:9090 refuses the connection: is it running there?"
        return await super().frame(at_s)


def _owned(source: Scrapes) -> None:
    source.wrong = {**source.wrong, "gpu01": owned, "gpu03": owned}


def main() -> int:
    """Returns the exit code."""
    hosts = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdecimal() else 12
    kind = Failing if "down" in sys.argv else Scrapes
    source = kind(hosts, single="single" in sys.argv)
    if "owned" in sys.argv:
        _owned(source)
    started_s = time.time()
    control = FleetSession(CONFIG, lambda: source)
    wall = lambda: NEWEST_S + time.time() - started_s  # noqa: E731
    return run(FleetApp(control, load_theme("default"), CONFIG, unix_time=wall))


if __name__ == "__main__":
    sys.exit(main())
