"""Interfaces that the screen uses: the collector, and files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from gpumon.config.schema import Config
from gpumon.config.themes import Theme
from gpumon.readings.history import History, PastMoment
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.readings.verdict import Event, Verdict

if TYPE_CHECKING:
    from gpumon.fleet.snapshot import FleetSnapshot
    from gpumon.readings.before_after import BeforeAfter
    from gpumon.readings.fleet import LabelsLine
    from gpumon.readings.frame import EngineKind
    from gpumon.readings.log_text import LogView
    from gpumon.readings.request_feed import RequestView
    from gpumon.sizing.calibration import Calibration
    from gpumon.sizing.peaks import PeakLoad
    from gpumon.sizing.scenario import Catalogues, Scenario

INTERVALS_S: Final = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds between two readings that the keys go through; others may be set."""
SPEEDS: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 100.0)
"""Seconds of a recording per second that the keys go through; others may be set."""


class Timeline(Protocol):
    """The past, as the screen sees it. What is awaited works in a thread and holds nothing up; a moment takes 0.3 s at
    most.

    `history.timeline.DerivedTimeline` is one, and of a fleet's host `session.fleet_host_past.FleetHostPast`.
    """

    def span(self) -> tuple[float, float] | None:
        """Unix times of the first and the last moment that is kept; None: nothing yet. Returns at once."""

    async def at(self, wall_s: float) -> PastMoment | None:
        """The last moment at or before a time; the first one where there is none."""

    async def step(self, wall_s: float, frames: int) -> PastMoment | None:
        """The moment so many frames after the one of `wall_s` (negative: before); the last or first where it ends."""

    async def change(self, wall_s: float, step: int) -> PastMoment | None:
        """The next (1) or the previous (-1) moment at which something happened (an event); None where there is none."""

    async def compare(self, before_s: float, after_s: float) -> BeforeAfter:
        """Compare two spans of some minutes that end at these Unix times. Raises ValueError, in one line, where there
        are none.

        The next comparison, of the same `before_s` and a later `after_s`, costs far less.
        """

    def leave(self) -> None:
        """Let go of the moments that were worked out: what is shown is live again. Returns at once."""

    def end_comparing(self) -> None:
        """Let go of what was kept for the next comparison. Returns at once."""

    async def write(self, path: str) -> None:
        """Write all that is kept into a new recording file. Raises OSError."""


class Playback(Protocol):
    """A recording that plays as if it happened now."""

    file: str
    """Name of the recording's file."""

    @property
    def speed(self) -> float:
        """Seconds of the recording per second."""

    def set_speed(self, speed: float) -> None:
        """Play faster or slower from now on."""

    def pause(self) -> None:
        """Send no more moments until `go_on`."""

    def go_on(self, wall_s: float) -> None:
        """Play from that moment on."""


class Collector(Protocol):
    """Cadence and end of the snapshots of a screen, and what sizing measures and looks up. Nothing here holds the event
    loop up; whatever waits is awaited."""

    @property
    def calibration(self) -> Calibration:
        """Operating points of the engines, gathered at every snapshot."""

    def catalogues(self) -> Catalogues:
        """Models, GPUs, prices and imported profiles, as they are known by now; returns at once."""

    @property
    def interval_s(self) -> float:
        """Seconds between two snapshots."""

    async def ended(self) -> None:
        """Wait until collecting ends, by `stop`; raises what ended it otherwise."""

    def set_interval(self, seconds: float) -> None:
        """Change the time between two snapshots."""

    def refresh(self) -> None:
        """Take a snapshot now."""

    async def stop(self) -> None:
        """Stop collecting, within a fraction of a second."""


class EngineLog(Protocol):
    """The log of an engine of this host."""

    async def read(self) -> LogView | None:
        """The part that is there by now; None while an earlier read has not come back."""

    def turn(self, step: int) -> None:
        """Read the next (1) or the previous (-1) of the engine's logs from now on."""

    def requests(self, kind: EngineKind) -> EngineRequests:
        """The requests that an engine of that kind logs, not read yet."""


class EngineRequests(Protocol):
    """The requests in the log of an engine of this host."""

    async def read(self) -> RequestView | None:
        """The requests that were read by now; None while an earlier read has not come back."""

    def turn(self, step: int) -> None:
        """Read the next (1) or the previous (-1) of the engine's logs from now on."""


class Control(Collector, Protocol):
    """The collector, as the screen sees it; or a recording that plays in its place."""

    @property
    def timeline(self) -> Timeline | None:
        """The past that can be gone back to; None without one."""

    @property
    def playback(self) -> Playback | None:
        """The recording that plays; None where this is live."""

    @property
    def opening(self) -> bool:
        """Whether its snapshot has the GPUs alone, as the rest is not read yet."""

    @property
    def history(self) -> History:
        """Series for the charts, on the clock of `Snapshot.wall_s`."""

    @property
    def prices(self) -> Mapping[str, float]:
        """Catalogue name of a GPU -> price of one hour, "" for all others; empty: none are known."""

    def engine_log(self, engine: Engine) -> EngineLog | str:
        """The log of an engine, not read yet; or why there is none here, with what to do."""

    def why_no_acknowledging(self, verdict: Verdict) -> str:
        """Why a verdict cannot be acknowledged from here, with what to do; empty: it can."""

    def acknowledge(self, verdicts: Sequence[Verdict], shown: Snapshot, reason: str, seconds: float) -> None:
        """Acknowledge verdicts of the snapshot that is shown, in the name of this user."""

    def lift(self, ids: Sequence[str]) -> None:
        """Take back what was acknowledged of verdicts with these ids."""

    async def start(self, sink: Callable[[Snapshot], None]) -> None:
        """Begin to collect; returns at once. `sink` gets every snapshot and never blocks."""


class HostControl(Control, Protocol):
    """One host of a fleet, as its screen sees it."""

    @property
    def filling(self) -> bool:
        """Whether the past of its charts is still being read."""


class FleetQueries(Protocol):
    """A fleet, as it can be asked now and for moments of its past."""

    @property
    def asking(self) -> bool:
        """Whether the Prometheus is being asked right now, for a refresh or for a moment of the past."""

    def span(self) -> tuple[float, float] | None:
        """Unix times of the first and the last moment that can be asked for; None: nothing yet. Returns at once.

        The first one may be what the Prometheus is assumed to keep: what it has nothing of comes without hosts.
        """

    async def at(self, wall_s: float) -> FleetSnapshot:
        """The fleet as it was at a time, from queries at that time; what cannot be had is in its `faults`."""

    async def first_after(self, without_hosts_s: float, with_hosts_s: float) -> float:
        """The Unix time at which the fleet begins, to a refresh.

        There is no host at `without_hosts_s`, and some at `with_hosts_s` (Unix times).
        """

    def lacks_gpumon(self, host: str) -> bool:
        """Whether gpumon could run on this host from a temporary folder, and was not allowed to so far."""

    def install(self, host: str) -> None:
        """Run gpumon on this host from a temporary folder, which is removed at the end. Returns at once."""

    def begin_maintenance(self, what: str, reason: str, seconds: float) -> None:
        """Silence a host, or all hosts with a label (`rack=B`), on this machine. Returns at once."""

    def use_labels(self, line: LabelsLine) -> None:
        """Name hosts by this list of labels from the next refresh on. Returns at once."""

    def end_maintenance(self, what: str) -> None:
        """Let what is wrong there count again. Returns at once."""


class FleetControl(Collector, Protocol):
    """A fleet, as the screen sees it."""

    @property
    def fleet(self) -> FleetQueries:
        """The fleet, now and in the past."""

    @property
    def place(self) -> str:
        """Host and port of the Prometheus, for the title; without user, password and query. Text from outside."""

    @property
    def prices(self) -> Mapping[str, float]:
        """Catalogue name of a GPU -> price of one hour, "" for all others; empty: none are known."""

    async def start(self, sink: Callable[[FleetSnapshot], None]) -> None:
        """Begin to ask; returns at once. `sink` gets every snapshot and never blocks.

        A Prometheus that does not answer gives a snapshot, too: with the hosts as they were known last (`wall_s` and
        `time` are those of the last answer) and the reason in `faults`; with no hosts and `wall_s` 0 where there was
        no answer yet.
        """

    def host(self, name: str, seen: Snapshot | None = None) -> HostControl:
        """One host, for the screen of one machine: `start` gives its snapshots as refreshes bring them, `history` is
        filled from range queries, `timeline` asks the Prometheus. `stop` lets go of it; of those looked at last the
        past is kept. `seen`: the host as it was shown last, for where the Prometheus has nothing of it now."""

    def past(self, name: str) -> Timeline | None:
        """The past of one host, to look for something in: the charts that are kept of hosts stay as they are."""


Picture = Callable[[], str]
"""The screen as SVG; takes a moment, in any thread."""


class BundleFacts(NamedTuple):
    """Facts about a moment, to be written to a bundle."""

    snapshot: Snapshot | FleetSnapshot
    """Snapshot on the screen."""
    screen: str
    """The screen as text."""
    picture: Picture
    """The screen as a picture."""
    events: tuple[Event, ...] = ()
    """Events, oldest first."""
    timeline: Timeline | None = None
    """The past, where there is one."""
    card: Picture | None = None
    """The verdict that is looked at, else the worst one, as a picture; None: there is none."""
    prices: Mapping[str, float] = MappingProxyType({})
    """Prices of a fleet: catalogue name of a GPU -> price of one hour, "" for all others."""


class Files(Protocol):
    """Files that the screen reads and writes. Everything that may block does so elsewhere than in the event loop."""

    settings: Config
    """The settings as they were loaded, or saved last."""
    origins: Mapping[str, str]
    """Who set what: dotted key -> `file`, or an option or a variable; what is not in it has its default."""

    async def themes(self) -> tuple[str, ...]:
        """Names of the themes there are, the user's own among them."""

    async def theme(self, name: str) -> Theme:
        """A theme. Raises ConfigError in one line."""

    async def save_settings(self, changes: Mapping[tuple[str, str], object]) -> tuple[bool, str]:
        """Write settings ((section, key) -> value; None takes it out) into the config file, comments kept.

        Returns whether they were written, and what to tell the user: which file; or why not, and then in further lines
        what to paste.
        """

    async def prometheus_loads(self, config: Config) -> Mapping[str, PeakLoad]:
        """Served model name -> the p95 of the last 7 days of `[prometheus].url`. Raises ConfigError in one line."""

    async def save_scenario(self, scenario: Scenario, name: str) -> tuple[bool, str]:
        """Write a scenario as TOML under a name, or at a path; never over a file that is there.

        Returns whether it was written, and what to tell the user: which file, or why not.
        """

    async def load_scenario(self, name: str) -> Scenario:
        """A scenario by its name, or by the path of its file. Raises ConfigError in one line."""

    async def scenarios(self) -> tuple[str, ...]:
        """Names of the scenarios that were saved."""

    async def save_bundle(self, incident: BundleFacts) -> str:
        """Write a new folder with all there is about an incident; returns what to tell the user."""
