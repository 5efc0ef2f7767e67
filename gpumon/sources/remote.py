"""One host of a fleet without a Prometheus: its own gpumon, over ssh (`gpumon watch --json`) or by `/snapshot.json`."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from gpumon import __version__
from gpumon.config.schema import Endpoint, Host
from gpumon.deadline import result_within
from gpumon.efficiency.deriver import snapshot_without_things
from gpumon.readings import difference
from gpumon.readings.fleet import HostFrame
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import EndpointState, Fault, Frame, HostReading
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.readings.untrusted import ssh_host
from gpumon.sources.api_key import SENT_UNVERIFIED, refused_key_text
from gpumon.sources.endpoint_url import parse_url
from gpumon.sources.fetch import Fetcher, FetchError, HttpAnswer, Limits
from gpumon.sources.guest.archive import Archives, NoWheelsError
from gpumon.sources.guest.bare_host import HOST_LOOK_S, BareHost, Readings
from gpumon.sources.guest.shell import Shell, ShellError, open_shell
from gpumon.sources.host_clock import HostClock
from gpumon.sources.kept_snapshots import KeptSnapshot
from gpumon.sources.offload import daemon_thread, finished, in_daemon_thread
from gpumon.sources.probe import api_key
from gpumon.sources.prometheus.models import Models
from gpumon.sources.received_snapshots import ReceivedSnapshots
from gpumon.sources.snapshot_json import SnapshotReader
from gpumon.sources.ssh import SshConnection, connect
from gpumon.triage.peers import MOST_SNAPSHOT_BYTES, PeerError

Opened = TypeVar("Opened")
"""A connection or a shell."""
BACK_OFF_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)
"""Pauses before the next connection, after 1, 2, 3 ... failures in a row; then the last one."""
FIRST_LINE_S: Final = 120.0
"""Longest wait for the first line: a driver of eight GPUs without persistence mode takes up to 90 s to open."""
_SEND_S: Final = 300.0
"""Longest time to send gpumon to a host: 2.3 MB take 37 s at 500 kbit/s."""
NEXT_LINE_S: Final = 30.0
"""Longest wait for any further line."""
_LATE_INTERVALS: Final = 3.0
"""Intervals of the host until its next line is late, if those are longer than `NEXT_LINE_S`."""
READ_S: Final = 10.0
"""Processor time within which one snapshot is decoded: the largest takes half a second of a free core."""
_LEAST_GAP_S: Final = 0.2
"""Shortest pause between two snapshots of a host that are read, however fast it sends them."""
MOST_OTHER_LINES: Final = 10_000
"""Lines without a snapshot, in a row, after which a host is no longer listened to: start-up files print some."""
_POLL_LIMITS: Final = Limits(connect_s=5.0, total_s=10.0, body_bytes=MOST_SNAPSHOT_BYTES)
"""Bounds of one request of /snapshot.json: hosts are further away than an engine, and a snapshot larger than a page."""
_SSH_FAILED: Final = 255
"""Exit code of ssh itself; also of a command that was killed there."""
_COMMAND_NOT_FOUND: Final = 127
"""Exit code of a shell that does not find a program."""
_USAGE_ERROR: Final = 2
"""Exit code of a gpumon that refuses its options."""
_NOTHING_TO_MONITOR: Final = 3
"""Exit code of a gpumon that finds neither a GPU nor an engine."""
KEPT_BYTES: Final = 96_000_000
"""Bytes of packed snapshots of all hosts that are kept, for charts and for going back."""
_SNAPSHOTS_TO_RATES: Final = 4
"""Snapshots after which a host has rates: those need two polls of an engine, which come every 2 s."""
_LEAST_INTERVAL_S: Final = 0.25
"""Shortest interval that a host's snapshot is believed to have."""
PATIENT_S: Final = 10.0
"""Seconds without a word from a host after which its row says so: most answer within 3 s, ssh gives up after 10 s."""
FLEET_OPTION: Final = "--fleet"
"""Option of `gpumon watch --json` that makes it print its version first, and differences after a whole snapshot."""
_DIFFERENCE: Final = b'{"%s":' % difference.KEY.encode()
"""Begin of a line that holds a difference; every other line of JSON is a whole snapshot."""
_VERSION_LINE: Final = re.compile(rb"gpumon ([0-9]{1,4}\.[0-9]{1,4}[0-9A-Za-z.+-]{0,24})\s*")
"""The output of `gpumon --version`, and of `watch --json --fleet` at its start."""
_SERVER_HEADER: Final = re.compile(r"gpumon/([0-9]{1,4}\.[0-9]{1,4}[0-9A-Za-z.+-]{0,24})")
"""The header `Server` of a `gpumon serve-metrics`."""
_INTERVAL: Final = re.compile(rb'"interval_s": ?([0-9]{1,4}(?:\.[0-9]{1,6})?)[,}]')
"""The interval in a line that holds a whole snapshot."""
_LINE_START_BYTES: Final = 1000
"""Bytes at the begin of a line in which its interval is looked for."""

CONNECTING: Final = "connecting: no figures yet"
_NO_SNAPSHOT: Final = "503: its gpumon has no snapshot yet"
_STUCK: Final = "503: no snapshot for {:.0f} s: its gpumon or its driver hangs: see its journal"
STARTING_S: Final = 60.0
"""Seconds without a snapshot of a gpumon that answers, after which it is not taken to be starting any more."""
_SSH_SILENT: Final = "no answer for {:.0f} s: ssh connects, or its gpumon hangs (see `ssh {} true`)"
_DRIVER_SILENT: Final = "no figures for {:.0f} s: its gpumon runs, and its driver does not answer yet"
NO_GPU_THERE: Final = "its gpumon finds no GPU and no engine there"
OTHER_VERSION: Final = "gpumon {} there, {} here: update {}"
NO_GPUMON: Final = (
    "its shell finds no {!r}: --host-install (or Enter on its row) runs it there from a temporary folder; "
    "or install it, or give its path as command of this [[host]]"
)
LIMITED: Final = "no gpumon there: GPUs are read by its nvidia-smi, engines through ssh, and no host figures; {}"
_HINTS: Final = (
    ("Permission denied", "ssh refuses the login: try `ssh {host} true`; load your key into the agent (ssh-add)"),
    (
        "has changed and you have requested strict checking",
        "its host key has changed: a new machine, or somebody in between; ask who runs it, then ssh-keygen -R and "
        "`ssh {host}` by hand",
    ),
    ("Host key verification failed", "its host key is not known here: check it with `ssh {host}` by hand"),
)
"""Words on stderr of an ssh that failed, and the fault with its fix. A key that has changed fails verification, too."""


class RemoteFault(Exception):  # noqa: N818 (no fault of the program)
    """Why a host's gpumon tells nothing: one line with the fix."""


class NoGpumonFault(RemoteFault):
    """The shell of a host finds no gpumon."""


class OptionRefusedError(Exception):
    """A host's gpumon is too old to know `FLEET_OPTION`."""


class Remote:
    """One host: its connection (`_listen` over ssh, `_poll` of a URL), its faults, and the frames of its snapshots.

    `run` goes on until it is cancelled, whatever the other side does.
    """

    def __init__(self, host: Host, interval_s: float, wall: Callable[[], float]) -> None:
        """`interval_s`: seconds between two polls of a URL; `wall`: clock of Unix time."""
        self.host = host
        self.is_url = "://" in host.address
        self.name = clean(host.name or _short_address(host.address), 120)
        self._interval_s = interval_s
        self._wall = wall

        # Shared by the hosts of a fleet: `RemoteHosts` puts its own in place of these.
        self.archives = Archives()
        """Archives of gpumon that are sent to a host without one."""
        self.models = Models((), ())
        self.decode_slots = asyncio.Semaphore(1)
        """Held while a snapshot is decoded."""
        self.most_bytes: float = KEPT_BYTES
        """Bytes that are kept of this host."""

        # Its faults.
        self.fault = CONNECTING
        """Why there are no new figures; empty while there are."""
        self.since_s = wall()
        """Unix time since when `fault` holds."""
        self.refused = ""
        """Why what it sends is not read: it is beyond the bounds of a snapshot. Empty while it is read."""
        self.lacks_gpumon = False
        """Whether its shell found no gpumon when it was asked last."""
        self.limited = ""
        """Why it is read without a gpumon; empty where it is not."""
        self._unverified = False
        """Whether the password went to a server that could not be identified."""

        # The connection.
        self.installs = host.install
        """Whether gpumon may run there from a temporary folder."""
        self.version = ""
        """Version of its gpumon; empty where that did not tell it."""
        self._wake = asyncio.Event()
        """Ends the pause before the next connection."""

        # Its snapshots.
        self.lines = 0
        """Number of snapshots, or of looks at a host without gpumon, that were read since the start."""
        self._received = ReceivedSnapshots(wall)
        self._clock = HostClock()

    @property
    def settled(self) -> bool:
        """Whether the host has rates by now, or is known not to answer."""
        return self.lines > _SNAPSHOTS_TO_RATES or self.fault not in ("", CONNECTING)

    async def run(self) -> None:
        """Connect, again and again, with a longer pause after each failure in a row."""
        failures = 0
        while True:
            lines_before = self.lines
            await self._connect_once()
            if self.lines > lines_before:  # this connection worked for a while
                failures = 0
            pause_s = BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)]
            self._wake.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await result_within(pause_s, self._wake.wait())
            failures += 1

    async def _connect_once(self) -> None:
        """Read snapshots until the connection ends; afterwards `fault` says why it did."""
        refused = ""
        try:
            if self.is_url:
                await self._poll()
            else:
                await self._listen()
        except PeerError as too_large:
            text = str(too_large)
            refused = text
        except (RemoteFault, FetchError) as fault:
            text = str(fault)
        except Exception as error:  # a fault of gpumon's own costs this host's row only
            text = f"gpumon failed on this host, please report: {type(error).__name__}: {clean(str(error), 120)}"
        self.refused = refused
        if text != self.fault:
            self.fault = text
            self.since_s = self._wall()

    def install(self) -> None:
        """Run gpumon there from a temporary folder, from now on, without another pause."""
        self.installs = True
        self.fault = CONNECTING
        self.since_s = self._wall()
        self._wake.set()

    async def receive(self, line: bytes) -> None:
        """Decode and keep a snapshot that has just arrived, in a thread beside the event loop.

        Raises RemoteFault, and PeerError beyond a bound, as where this process computes for `READ_S` meanwhile: on a
        machine that has no time for it any snapshot takes long.
        """
        async with self.decode_slots:
            begun_s = time.process_time()
            reading = daemon_thread(self.take, line, self.most_bytes)
            while not reading.done():
                await finished(reading, READ_S)
                if not reading.done() and time.process_time() - begun_s >= READ_S:
                    raise PeerError(f"its snapshot takes more than {READ_S:.0f} s to read: it is not read")
        try:
            reading.result()
        except PeerError:
            raise
        except ValueError as wrong:
            raise RemoteFault(str(wrong)) from None

    def take(self, line: bytes, most_bytes: float) -> None:
        """Decode a snapshot or a difference and keep it. Raises PeerError beyond the bounds, else ValueError."""
        self._received.add_line(line, most_bytes)
        self._note_clock()
        self._note_arrival()

    def _note_clock(self) -> None:
        """Hold the time of the newest snapshot against that of its arrival."""
        if self._received.newest is not None:
            received_s, snapshot = self._received.newest
            if not isinstance(snapshot, Readings):
                self._clock.add(_unix_time(snapshot.time), received_s)

    def _note_arrival(self) -> None:
        """Clear the faults: the host has told something. `lines` counts it last, as the event loop waits for it."""
        self.fault = ""
        self.refused = ""
        self.lines += 1

    def _make_fault(self, text: str) -> Fault:
        """A fault of the connection, dated like `fault`."""
        source = "gpumon" if self.is_url else "ssh"
        return Fault(source, text, self.since_s)

    def _connection_faults(self) -> tuple[Fault, ...]:
        """The faults of the host now that are known without a snapshot."""
        faults: list[Fault] = []
        update = _update_advice(self.version)
        if update:
            faults.append(self._make_fault(update))
        if self.limited:
            faults.append(self._make_fault(self.limited))
        if self.fault:
            faults.append(self._make_fault(self._fault_text()))
        return tuple(faults)

    @property
    def _is_starting(self) -> bool:
        """Whether the host is being reached, or its gpumon is up and has no figures yet, for a short time."""
        silent_s = self._wall() - self.since_s
        if self.fault == CONNECTING:
            return silent_s < PATIENT_S or bool(self.version)
        return self.fault == _NO_SNAPSHOT and silent_s < STARTING_S

    def _fault_text(self) -> str:
        """Why there are no figures; while it connects, for how long by now."""
        silent_s = self._wall() - self.since_s
        if self.fault == _NO_SNAPSHOT and not self._is_starting:
            return _STUCK.format(silent_s)
        if self.fault != CONNECTING or silent_s < PATIENT_S:
            return self.fault
        if self.version:
            return _DRIVER_SILENT.format(silent_s)
        return _SSH_SILENT.format(silent_s, ssh_host(self.host.address))

    def _frame_without_things(self, faults: tuple[Fault, ...]) -> HostFrame:
        """A frame without GPUs and engines, for a host whose gpumon ended because it found none."""
        wall_s = self._wall()
        empty_frame = Frame(0, wall_s, wall_s, self._interval_s, HostReading(name=self.name))
        snapshot = snapshot_without_things(empty_frame)
        return HostFrame(self.name, exported_snapshot=snapshot, interval_s=self._interval_s, faults=faults)

    def at(self, wall_s: float | None) -> HostFrame | None:
        """The host now (None), or as it was at a Unix time; None where nothing is kept of that time."""
        if wall_s is None:
            return self._newest_frame()
        kept = self._received.at(wall_s)
        if kept is None:
            return None
        received_s, snapshot = kept
        return self._kept_frame(received_s, snapshot, SnapshotReader())

    def _newest_frame(self) -> HostFrame:
        """The host now, with what is wrong with it."""
        faults = self._connection_faults()
        if self.fault == NO_GPU_THERE:
            return self._frame_without_things(faults)
        if self._received.newest is None:
            return HostFrame(self.name, interval_s=self._interval_s, faults=faults, is_starting=self._is_starting)
        received_s, snapshot = self._received.newest
        if isinstance(snapshot, Readings):
            return self._bare_host_frame(snapshot, faults)
        clock_fault = self._clock.fault(snapshot.interval_s)
        if clock_fault:
            faults = (*faults, self._make_fault(clock_fault))
        if self._unverified:
            faults = (*faults, self._make_fault(SENT_UNVERIFIED.format(secret="password")))
        frame = self._snapshot_frame(received_s, snapshot, faults)
        return msgspec.structs.replace(frame, is_starting=self._is_starting)

    def _kept_frame(self, received_s: float, kept: KeptSnapshot, reader: SnapshotReader) -> HostFrame:
        """The host as it was at a moment that is kept, without faults: these are not kept."""
        if isinstance(kept, Readings):
            return self._bare_host_frame(kept, ())
        return self._snapshot_frame(received_s, reader.read(kept, received_s), ())

    def _bare_host_frame(self, readings: Readings, faults: tuple[Fault, ...]) -> HostFrame:
        """The frame of a host that has no gpumon."""
        return HostFrame(self.name, readings.gpus, readings.engines, interval_s=HOST_LOOK_S, faults=faults)

    def _snapshot_frame(self, received_s: float, snapshot: Snapshot, faults: tuple[Fault, ...]) -> HostFrame:
        """The frame of a snapshot; its time is when it was received, by this machine's clock."""
        timed = msgspec.structs.replace(snapshot, time=rfc3339(received_s))
        interval_s = max(snapshot.interval_s, _LEAST_INTERVAL_S)
        return HostFrame(
            self.name,
            exported_snapshot=timed,
            interval_s=interval_s,
            faults=faults,
            gpumon_version=clean(self.version, 40),
        )

    def between(self, start_s: float, end_s: float, step_s: float) -> list[tuple[float, HostFrame]]:
        """The frames kept from one Unix time to another, each with the time of its arrival, at most one a step."""
        reader = SnapshotReader()
        return [
            (received_s, self._kept_frame(received_s, kept, reader))
            for received_s, kept in self._received.between(start_s, end_s, step_s)
        ]

    @property
    def first_s(self) -> float | None:
        """Unix time of the oldest snapshot that is kept; None while there is none."""
        return self._received.first_s

    async def _listen(self) -> None:
        """Read snapshots over one connection of ssh until that ends. Raises RemoteFault.

        A gpumon that is too old to print differences is asked for whole snapshots, and for its version.
        """
        program = self.host.command
        try:
            await self._stream(f"{program} watch --json {FLEET_OPTION}")
        except OptionRefusedError:
            await self._stream(f"{program} --version; {program} watch --json")
        except NoGpumonFault:
            self.lacks_gpumon = True
            if not self.installs:
                raise
            await self._run_as_guest()

    async def _stream(self, command: str) -> None:
        """Read what a command prints on the host until that ends. Raises RemoteFault, OptionRefusedError."""
        self._clock.start(self._wall())
        connection = await _open_by_ssh(connect(self.host.address, command))
        try:
            await self._read_snapshots(connection)
        finally:
            await connection.hang_up()

    async def _read_snapshots(self, connection: SshConnection) -> None:
        """Read what a gpumon prints on the host until that ends. Raises RemoteFault, OptionRefusedError."""
        self._received.begin_connection()
        try:
            wait_s = FIRST_LINE_S
            other_lines = 0
            while line := await result_within(wait_s, connection.readline()):
                other_lines += 1
                if other_lines > MOST_OTHER_LINES:
                    raise PeerError(
                        f"it prints more than {MOST_OTHER_LINES:,} lines that are no snapshot: is this gpumon?"
                    )
                version = _VERSION_LINE.fullmatch(line)
                if version:
                    self.version = version[1].decode("ascii")
                elif line.startswith(b"{"):  # other lines are printed by a shell's start-up files
                    await self.receive(line)
                    other_lines = 0
                    self.lacks_gpumon = False
                    if not line.startswith(_DIFFERENCE):  # a difference need not name the interval
                        wait_s = patience_s(line)
                    await asyncio.sleep(_LEAST_GAP_S)
        except asyncio.TimeoutError:
            raise RemoteFault(f"its gpumon has told nothing for {wait_s:.0f} s: it hangs") from None
        except PeerError:
            raise
        except ValueError:
            raise PeerError(f"it sends lines of more than {MOST_SNAPSHOT_BYTES >> 20} MiB: is this gpumon?") from None
        code = await connection.exit_code()
        if code == _USAGE_ERROR and f"unrecognized arguments: {FLEET_OPTION}" in connection.last_words:
            raise OptionRefusedError
        raise self._end_fault(code, connection.last_words)

    async def _run_as_guest(self) -> None:
        """Run gpumon there from a temporary folder until the connection ends. Raises RemoteFault.

        Where no archive fits the host's Python, its nvidia-smi is read instead.
        """
        shell = await _open_by_ssh(open_shell(self.host.address))
        try:
            pythons = await shell.pythons()
            try:
                chosen = await in_daemon_thread(self.archives.choose, pythons)
            except NoWheelsError as no_wheels:
                await self._read_bare_host(shell, str(no_wheels))
            else:
                self._clock.start(self._wall())
                await result_within(_SEND_S, shell.run(chosen.program, chosen.archive))
                await self._read_snapshots(shell.connection)
        except ShellError as broken:
            raise RemoteFault(str(broken)) from None
        except asyncio.TimeoutError:
            raise RemoteFault(f"it has not taken gpumon for {_SEND_S:.0f} s: its shell hangs, or the network") from None
        except OptionRefusedError:
            raise RemoteFault("gpumon there is another version than was sent: please report") from None
        finally:
            self.limited = ""
            await shell.close()

    async def _read_bare_host(self, shell: Shell, why: str) -> None:
        """Read GPUs and engines of a host until the connection ends. Raises RemoteFault.

        `why` says why gpumon cannot run there.
        """
        bare_host = BareHost(shell, self.host.address, self.models, self._wall)
        try:
            while True:
                begun_s = time.monotonic()
                readings = await bare_host.read()
                self._received.add_readings(readings, self.most_bytes)
                self._note_arrival()
                self.limited = LIMITED.format(why)
                await asyncio.sleep(max(_LEAST_GAP_S, begun_s + HOST_LOOK_S - time.monotonic()))
        except ShellError as broken:
            raise RemoteFault(f"{broken} ({why})") from None
        finally:
            await bare_host.close()

    def _end_fault(self, code: int, stderr: str) -> RemoteFault:
        """The fault of a connection that has ended."""
        if code == _COMMAND_NOT_FOUND or "command not found" in stderr:
            return NoGpumonFault(NO_GPUMON.format(clean(self.host.command, 60)))
        return RemoteFault(self._end_reason(code, stderr))

    def _end_reason(self, code: int, stderr: str) -> str:
        """Why ssh ended, in words; codes other than `_SSH_FAILED` are those of the command that it ran.

        A shell's start-up files write to stderr, too: once a snapshot has come, its words are not why ssh failed.
        """
        for mark, text in _HINTS:
            if code == _SSH_FAILED and mark in stderr:
                return text.format(host=ssh_host(self.host.address))
        words = stderr.rpartition("gpumon: ")[2]
        if code == _NOTHING_TO_MONITOR and words.startswith("nothing to monitor"):
            return NO_GPU_THERE
        if code == _SSH_FAILED and words and self._received.is_connection_silent:
            return f"ssh: {words.removeprefix('ssh: ')}"
        return f"its gpumon ended, or the connection to it: {words or f'exit {code}'}"

    async def _poll(self) -> None:
        """Ask /snapshot.json at each interval, until that fails. Raises RemoteFault, FetchError."""
        host = self.host
        try:
            url = parse_url(host.address)
        except ValueError as wrong:
            raise RemoteFault(str(wrong)) from None
        page = url.base.removesuffix("/snapshot.json") + "/snapshot.json"
        login = _login(host)
        fetcher = Fetcher(
            url,
            tls_ca=host.tls_ca,
            tls_verify=host.tls_verify,
            limits=_POLL_LIMITS,
            clock=time.monotonic,
            secret=login,
            setting="password",
        )
        headers = {"Accept": "application/json"}
        if login is not None:
            headers["Authorization"] = await _authorization(host.user, login)
        newest = b""
        due_s = time.monotonic()
        try:
            while True:
                answer = await self._fetch_snapshot(fetcher, page, headers)
                self._unverified = fetcher.unverified
                version = _SERVER_HEADER.match(answer.server)
                if version:
                    self.version = version[1]
                if answer.status != 200:
                    raise RemoteFault(_status_reason(answer.status, login))
                if answer.body != newest:  # an unchanged one is not new: its row is shown to grow old
                    newest = answer.body
                    await self.receive(newest)
                # A slow answer costs the polls that it took the place of: they are not made up for in a burst.
                due_s = max(due_s + self._interval_s, time.monotonic())
                await asyncio.sleep(due_s - time.monotonic())
        finally:
            await fetcher.close()

    async def _fetch_snapshot(self, fetcher: Fetcher, page: str, headers: dict[str, str]) -> HttpAnswer:
        """The answer to one poll. Raises FetchError; PeerError where it is larger than a snapshot can be."""
        try:
            return await fetcher.send("GET", page, headers)
        except FetchError as fault:
            if fault.state is EndpointState.TOO_LARGE:
                raise PeerError(f"its snapshot has more than {MOST_SNAPSHOT_BYTES >> 20} MiB: it is not read") from None
            raise


def _short_address(address: str) -> str:
    """An address without the scheme of a URL and without the user of ssh."""
    short = address.partition("://")[2] if "://" in address else address.rpartition("@")[2]
    return short.rstrip("/")


def _login(host: Host) -> Endpoint | None:
    """The password of a host and where it may be sent, in the form that `api_key.py` takes; None without a user."""
    if not host.user:
        return None
    return Endpoint(
        url=host.address,
        api_key_env=host.password_env,
        api_key_file=host.password_file,
        api_key_user=host.password_user,
        tls_verify=host.tls_verify,
        trust_other_namespace=host.trust_other_namespace,
    )


async def _authorization(user: str, login: Endpoint) -> str:
    """The header `Authorization` of a login. Raises RemoteFault where its password cannot be read."""
    password, refused = await api_key(login, "password")
    if refused:
        raise RemoteFault(f"[[host]] {refused}")
    pair = base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
    return f"Basic {pair}"


def _status_reason(status: int, login: Endpoint | None) -> str:
    """Why an answer of this HTTP status is no snapshot, and the fix."""
    if status == 401:
        if login is not None:
            return f"401: {refused_key_text(login, 'the login of user and password')}"
        return "401: it wants a login: set user and password_env or password_file of this [[host]]"
    if status == 404:
        return "404: there is no /snapshot.json: give the URL of a `gpumon serve-metrics`"
    if status == 503:
        return _NO_SNAPSHOT
    return f"{status}: no snapshot: is this the URL of a `gpumon serve-metrics`?"


async def _open_by_ssh(opening: Awaitable[Opened]) -> Opened:
    """The connection or the shell that is being opened. Raises RemoteFault where there is no ssh."""
    try:
        return await opening
    except FileNotFoundError:
        raise RemoteFault("there is no ssh on this machine: install OpenSSH's client") from None


def patience_s(line: bytes) -> float:
    """Seconds to wait for the line after a whole snapshot: longer where that gpumon prints less often."""
    match = _INTERVAL.search(line, 0, _LINE_START_BYTES)
    if match is not None:
        return max(NEXT_LINE_S, _LATE_INTERVALS * float(match[1]))
    return NEXT_LINE_S


def _update_advice(version: str) -> str:
    """Advice on which gpumon to update if a host's is of another minor version; empty if it is not, or is not known."""
    there = _minor_version(version)
    here = _minor_version(__version__)
    if not version or there == here:
        return ""
    to_update = "it" if there < here else "this one"
    return OTHER_VERSION.format(version, __version__, to_update)


def _minor_version(version: str) -> tuple[int, int]:
    """The first two numbers of a version; (0, 0) where it has none."""
    match = re.match(r"([0-9]+)\.([0-9]+)", version)
    if match is not None:
        return (int(match[1]), int(match[2]))
    return (0, 0)


def _unix_time(time_text: str) -> float:
    """Unix time of a time in RFC 3339; NaN where it cannot be read."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(time_text.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return float("nan")
