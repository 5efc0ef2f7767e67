"""The sessions of a fleet and of its single hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gpumon.config.schema import Config
from gpumon.config.urls import with_scheme, without_secrets
from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.session.host import HostSession
from gpumon.session.live_fleet import FleetFrames, LiveFleet
from gpumon.session.session import Session

if TYPE_CHECKING:
    from gpumon.readings.snapshot import Snapshot
    from gpumon.tui.control import Timeline


class FleetSession(Session[FleetSnapshot]):
    """The session of a fleet, from which those of its hosts come."""

    def __init__(self, config: Config, source: Callable[[], FleetFrames] | None = None) -> None:
        """`source` makes the source of the frames; None: the hosts or the Prometheus of the config."""
        self.fleet = LiveFleet(config, source)
        """The source, which can be asked for moments of the past."""
        super().__init__(config, self.fleet)

    @property
    def place(self) -> str:
        """Host and port of the Prometheus, without user, password and query; empty without one."""
        if self._config.host:
            return ""
        try:
            url_parts = urlsplit(with_scheme(self._config.prometheus.url))
            port = url_parts.port
        except ValueError:
            return without_secrets(self._config.prometheus.url)
        host = url_parts.hostname or ""
        if port:
            return f"{host}:{port}"
        return host

    def host(self, name: str, last_shown: Snapshot | None = None) -> HostSession:
        """The session of one host, for the screen of one machine; `last_shown`: the host as it was shown last."""
        from gpumon.session.fleet_host import HostOfFleet

        return HostSession(self._config, HostOfFleet(name, self.fleet, last_shown))

    def past(self, name: str) -> Timeline | None:
        """The past of one host, to search in without opening the host."""
        return self.host(name).timeline
