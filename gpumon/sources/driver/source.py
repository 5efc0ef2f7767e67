"""The GPUs of one driver of this host: keeps a worker process going and hands out what it reports."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import msgspec

import gpumon
from gpumon.readings.frame import Fault, GpuReading, GpuState, XidEvent
from gpumon.readings.text import clean
from gpumon.sources.driver.mute import MuteGpus, MutePatience, is_awaited
from gpumon.sources.driver.wire import Chosen, GarbledError, Inbox, Timings, WorkerReport, request_line
from gpumon.sources.source import Contribution
from gpumon.sources.sysfs import INTEGRATED_VARIABLE, SYS


class Vendor(msgspec.Struct, frozen=True):
    """Maker of a driver, for a process that does not load it."""

    source: str
    """As `GpuReading.source` and `Fault.source`."""
    module: str
    """Python module that has the driver (`DRIVER`), for the worker."""
    driver: str
    """Name of the driver in faults."""
    worker: str
    """Name of the worker in faults."""


NVIDIA = Vendor("nvml", module="gpumon.sources.nvml.driver", driver="the NVIDIA driver", worker="the NVML worker")
AMD = Vendor("amdsmi", module="gpumon.sources.amd", driver="the AMD driver", worker="the AMD SMI worker")
INTEL = Vendor("sysfs", module="gpumon.sources.sysfs.intel", driver="the Intel driver", worker="the sysfs worker")
VENDORS: Final = (NVIDIA, AMD, INTEL)


def vendor_of(dev: Path = Path("/dev"), sys: Path = SYS) -> Vendor:
    """Maker of this host's GPUs, by the nodes of their drivers, else by the cards that the kernel shows.

    NVIDIA comes first where there are several, and stands where there is none.
    """
    if (dev / "nvidiactl").exists():
        return NVIDIA
    if (dev / "kfd").exists():
        return AMD
    if not (sys / "class" / "drm").exists():
        return NVIDIA
    from gpumon.sources.sysfs.cards import AMD_DRIVERS, INTEL_DRIVERS, shown_cards

    if shown_cards(sys, AMD_DRIVERS):
        return AMD
    if shown_cards(sys, INTEL_DRIVERS):
        return INTEL
    return NVIDIA


LONGEST_WAIT_S = 0.2
"""Most that one poll waits for the worker's answer."""
LATE_INTERVALS = 1.5
"""An answer that is this many intervals late is named as a fault."""
_LONGEST_PAUSE_S = 3.0
"""Time beyond its interval after which a poll comes after a pause: the monitor was stopped, or its machine."""
_CLOSE_S = 0.5
"""Most that closing waits for the worker's end."""
READY_STEP_S = 0.01
"""Pause between two looks of `ready`; without a worker a poll returns at once."""
_CLOSE_STEP_S = 0.005
"""Pause between two looks of `close` for the worker's end."""
_MOST_DOUBLINGS = 16
"""Doublings of the pause before a new worker that are worked out: many more than reach the longest pause."""
_MOST_XIDS = 16
"""Newest Xid events of one GPU that are shown, those that earlier workers saw included."""
STDERR_BYTES = 4096
"""Bytes kept of what the worker and the driver library print; the rest is read and dropped."""
_PIECE_BYTES = 1 << 16
"""Bytes read from a pipe at once: as many as it holds."""


PASSED_VARIABLES: Final = frozenset(
    (
        *("PATH", "HOME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV"),
        *("ROCM_PATH", "ROCM_HOME", INTEGRATED_VARIABLE),
    )
)
"""Variables that the worker gets: where Python and the driver's library are, and in which words they speak."""
PASSED_BEGINNINGS: Final = ("LC_", "PYTHON", "NVML_", "CUDA_", "NVIDIA_VISIBLE_", "ROCR_", "HIP_", "GPUMON_FAKE_")
"""Prefixes of further variables that the worker gets; the last is that of the fake library of the tests."""


def worker_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """A worker's environment. It loads a library of the driver, and has no use for the keys of endpoints."""
    return {
        name: value for name, value in environ.items() if name in PASSED_VARIABLES or name.startswith(PASSED_BEGINNINGS)
    }


WorkerProcess = subprocess.Popen[bytes]
Spawn = Callable[[Sequence[str], Mapping[str, str] | None], WorkerProcess]
"""Starts a worker by its command line and environment, as `spawn` does."""


def spawn(command: Sequence[str], env: Mapping[str, str] | None) -> WorkerProcess:
    """Start a worker; `env` is its whole environment, None: what it needs of this process's own. Raises OSError.

    It gets a session of its own, so that Ctrl+C and a closed terminal reach the monitor alone. Its working folder is
    the one that holds the package: `-m` finds it there, and nothing in the user's own folder can stand in for a module.
    """
    if env is None:
        env = worker_environment(os.environ)
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        cwd=Path(gpumon.__file__).parent.parent,
        env=dict(env),
        start_new_session=True,
    )


def _worker_command(vendor: Vendor, python: str, timings: Timings, chosen: Chosen) -> Sequence[str]:
    """The command line of a worker."""
    command = (python, "-m", "gpumon.sources.driver", vendor.module, msgspec.json.encode(timings).decode())
    if chosen == Chosen():
        return command
    return (*command, msgspec.json.encode(chosen).decode())


def start_and_ask_worker(vendor: Vendor) -> WorkerProcess | None:
    """Start a worker and ask it for its first report, before there is an event loop to wait for that in.

    None where it cannot be started: the source tries again, and says why.
    """
    try:
        process = spawn(_worker_command(vendor, sys.executable, TIMINGS, Chosen()), env=None)
        assert process.stdin is not None, "it is a pipe"
        os.write(process.stdin.fileno(), request_line())
    except OSError:
        return None
    return process


class Child:
    """One worker process. `news` is called when a report arrived or the pipe broke."""

    def __init__(
        self, process: WorkerProcess, news: Callable[[], None], now_s: float, left_out: tuple[int, ...] = ()
    ) -> None:
        """`left_out`: indices of GPUs that it does not read."""
        self.process = process
        self.left_out = left_out
        self.started_s = now_s
        self.asked_s: float | None = None
        """When the request that is not answered yet was sent."""
        self.report: WorkerReport | None = None
        """The newest answer."""
        self.broken = ""
        """Why its pipe is of no use any more."""
        self._news = news
        self._inbox = Inbox()
        self._stderr = b""
        self._loop = asyncio.get_running_loop()
        for pipe, reader in ((process.stdout, self._read_stdout), (process.stderr, self._read_stderr)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._loop.add_reader(pipe.fileno(), reader)

    def ask(self, now_s: float, watched: frozenset[str]) -> None:
        """Ask for a report, of the GPUs `watched` with their PCIe traffic, unless one is still to come."""
        if self.asked_s is not None or self.broken or self.process.stdin is None:
            return
        try:
            os.write(self.process.stdin.fileno(), request_line(watched))
        except OSError as error:
            self._break(f"its pipe is closed ({error.strerror})")
            return
        self.asked_s = now_s

    def silent_s(self, now_s: float) -> float:
        """Seconds for which it has not answered, or has had no reading of any GPU to answer with."""
        waited_s = now_s - self.asked_s if self.asked_s is not None else 0.0
        if self.report is None:
            return waited_s
        return max(waited_s, self.report.silent_s)

    def last_words(self) -> str:
        """The last line that it, or the driver library in it, printed; safe to show."""
        _, _, last = self._stderr.decode("utf-8", "replace").rstrip().rpartition("\n")
        return clean(last.strip(), 160)

    def close(self) -> None:
        """Let go of the pipes; the worker ends by itself when it finds its stdin closed."""
        self._read_stderr()
        for pipe in (self.process.stdout, self.process.stderr, self.process.stdin):
            if pipe is not None and not pipe.closed:
                self._loop.remove_reader(pipe.fileno())
                with contextlib.suppress(OSError):
                    pipe.close()

    def _read_stdout(self) -> None:
        """Take what the worker has sent."""
        piece = _read(self.process.stdout)
        if piece is None:
            return
        if not piece:
            self._break("it closed its pipe")
            return
        try:
            reports = self._inbox.feed(piece)
        except GarbledError as error:
            self._break(f"it sent no report but {clean(str(error), 80)}")
            return
        if reports:
            self.report = reports[-1]
            self.asked_s = None
            self._news()

    def _read_stderr(self) -> None:
        """Keep the end of what the worker has printed."""
        piece = _read(self.process.stderr)
        if piece:
            self._stderr = (self._stderr + piece)[-STDERR_BYTES:]
        elif piece is not None and self.process.stderr is not None:
            self._loop.remove_reader(self.process.stderr.fileno())

    def _break(self, why: str) -> None:
        """Read its reports no more; the first reason stays."""
        self.broken = self.broken or why
        if self.process.stdout is not None:
            self._loop.remove_reader(self.process.stdout.fileno())
        self._news()


def ending_of(status: int) -> str:
    """How a process ended, from its exit status."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def _read(pipe: IO[bytes] | None) -> bytes | None:
    """The bytes in the pipe, b"" at its end, None where there is nothing right now."""
    if pipe is None or pipe.closed:
        return None
    try:
        return os.read(pipe.fileno(), _PIECE_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""


class WorkerPatience(msgspec.Struct, frozen=True):
    """Seconds after which the monitor loses patience with its worker; tests make them short."""

    init_s: float = 90.0
    """Eight GPUs without persistence mode take this long to wake."""
    answer_s: float = 10.0
    """A worker that did not answer for this long, or got no answer of any GPU, is killed."""
    hang_s: float = 6.0
    """The same where it is known in which GPU's call it may hang: the next one leaves that GPU out."""
    die_s: float = 1.0
    """A killed process that is still there after this long hangs inside the kernel."""
    backoff_s: float = 1.0
    """First pause before a new worker; it doubles up to `backoff_most_s`."""
    backoff_most_s: float = 60.0
    stable_s: float = 60.0
    """A worker that lived and answered this long ends the doubling."""


_LIMITS = WorkerPatience()
_MUTE = MutePatience()
TIMINGS = Timings()


class DriverSource:
    """A Source. The driver can hang or crash its caller: that costs the worker process, never the monitor."""

    def __init__(
        self,
        interval_s: float,
        vendor: Vendor = NVIDIA,
        *,
        python: str = sys.executable,
        env: Mapping[str, str] | None = None,
        limits: WorkerPatience = _LIMITS,
        mute: MutePatience = _MUTE,
        timings: Timings = TIMINGS,
        spawn_worker: Spawn = spawn,
        worker: WorkerProcess | None = None,
    ) -> None:
        """`env` is the worker's whole environment; None: what it needs of this process's own.

        `worker`: the first one, of `start_and_ask_worker`, where it is started already.
        """
        self.interval_s = interval_s
        self._vendor = vendor
        self._limits = limits
        self._env = env
        self._spawn = spawn_worker
        self._python = python
        self._timings = timings
        self._worker = worker
        """A worker that was started before; None once it is the child."""
        self._child: Child | None = None
        self._dying: WorkerProcess | None = None
        """A worker that was killed and is not gone yet: no new one is started."""
        self._killed_s = 0.0
        """When it was killed (monotonic)."""
        self._restart_s = 0.0
        """When to start the next worker (monotonic)."""
        self._failures = 0
        """Workers in a row that were lost soon."""
        self._why_gone = ""
        """Why the last worker is gone; empty as soon as a new one has read the driver."""
        self._newest: WorkerReport | None = None
        """The last report with an open driver."""
        self._unread: tuple[int, ...] = ()
        """Indices of the GPUs that its worker left out."""
        self._mute = MuteGpus(vendor.source, mute)
        self._mute_patience = mute
        self._probe: Child | None = None
        """A worker that tries a GPU which others leave out."""
        self._probed = 0
        """Index of that GPU."""
        self._ended_probe: WorkerProcess | None = None
        """The last such worker, which was killed. It may hang in the kernel: no other is started until it is gone."""
        self._past_xid: dict[str, tuple[XidEvent, ...]] = {}
        """UUID -> the events that earlier workers saw."""
        self._fault: tuple[str, float] = ("", 0.0)
        """Cause of the present fault, and when it began (Unix time)."""
        self._news: asyncio.Future[None] | None = None
        """Done when a report arrives, or the pipe breaks."""
        self._polled_s = -math.inf
        """When it was polled last (monotonic)."""
        self._closed = False
        self._watched: frozenset[str] = frozenset()

    async def start(self) -> None:
        """Start the worker, unless it is there already; returns at once."""
        worker = self._worker
        self._worker = None
        if self._child is not None:
            return
        now_s = time.monotonic()
        if worker is None:
            self._start_child(now_s)
        else:
            self._child = Child(worker, self._wake, now_s)
            self._child.asked_s = now_s

    async def ready(self, timeout_s: float) -> None:
        """Wait until the driver was read or failed for the first time, at most `timeout_s`."""
        end_s = time.monotonic() + timeout_s
        while (now_s := time.monotonic()) < end_s and not self._closed:
            await self.poll(now_s)
            has_report = self._child is not None and self._child.report is not None
            if has_report or self._why_gone:
                return
            await asyncio.sleep(READY_STEP_S)

    async def poll(self, monotonic_s: float) -> Contribution:
        """Ask the worker, wait a fraction of the interval for its answer, give the newest readings there are."""
        self._supervise(monotonic_s)
        child = self._child
        if child is not None:
            child.ask(monotonic_s, self._watched)
            if child.asked_s is not None and not child.broken:
                self._news = asyncio.get_running_loop().create_future()
                await asyncio.wait((self._news,), timeout=min(LONGEST_WAIT_S, self.interval_s / 4))
            self._take_report()
            # After a pause of the monitor itself the newest report is of before: the next one tells.
            was_watched = monotonic_s - self._polled_s <= _LONGEST_PAUSE_S + self.interval_s
            if child.report is not None and child.report.ready and was_watched:
                self._mute.note_report(child.report, monotonic_s)
        self._polled_s = monotonic_s
        return self._contribution(monotonic_s)

    def watch_pcie(self, uuids: frozenset[str]) -> None:
        """Measure the PCIe traffic of these GPUs from the next poll on, and of no other."""
        self._watched = uuids

    def set_interval(self, seconds: float) -> None:
        """Set the seconds between two polls: lateness and the longest wait of a poll are measured in them."""
        self.interval_s = seconds

    async def close(self) -> None:
        """Kill the worker; it is not waited for where it hangs inside the kernel."""
        self._closed = True
        self._end_probe()
        if self._child is not None:
            self._kill(self._child, time.monotonic())
        give_up_s = time.monotonic() + _CLOSE_S
        while self._dying is not None and self._dying.poll() is None and time.monotonic() < give_up_s:
            await asyncio.sleep(_CLOSE_STEP_S)

    def _supervise(self, now_s: float) -> None:
        """Notice that the worker ended or hangs, and start a new one when it is time."""
        self._take_report()
        child = self._child
        if child is not None:
            why = self._why_lost(child, now_s)
            if why:
                self._lose(child, now_s, why)
        if self._dying is not None and self._dying.poll() is not None:
            self._dying = None
        if self._child is None and self._dying is None and now_s >= self._restart_s and not self._closed:
            self._start_child(now_s)
        self._try_mute(now_s)

    def _try_mute(self, now_s: float) -> None:
        """Try a GPU that is suspected, or mute, in a worker of its own: the others are read meanwhile."""
        probe = self._probe
        if probe is None:
            is_alone = self._ended_probe is None or self._ended_probe.poll() is not None
            index = self._mute.due(now_s)
            if index is not None and is_alone and not self._closed:
                self._start_probe(index, now_s)
            return
        report = probe.report
        if report is not None and report.ready and any(not is_awaited(gpu) for gpu in report.gpus):
            self._mute.answered(self._probed)
            self._end_probe()
            if self._child is not None:
                # The worker has a thread that hangs in this GPU's call, or leaves the GPU out.
                self._kill(self._child, now_s)
                self._restart_s = now_s
        elif self._is_probe_over(probe, now_s):
            self._mute.failed(self._probed, now_s)
            self._end_probe()
        else:
            probe.ask(now_s, frozenset())

    def _is_probe_over(self, probe: Child, now_s: float) -> bool:
        """Whether a try in vain is given up: it ended, took too long, or holds up the worker that reads the others."""
        if probe.process.poll() is not None or probe.broken:
            return True
        child = self._child
        jams = (
            child is not None
            and child.report is not None
            and child.report.ready
            and child.silent_s(now_s) >= self._mute_patience.jam_s
        )
        return jams or now_s - probe.started_s >= self._mute_patience.probe_s

    def _start_probe(self, index: int, now_s: float) -> None:
        """Start a worker that reads one GPU only."""
        command = _worker_command(self._vendor, self._python, self._timings, Chosen(only=index))
        try:
            process = self._spawn(command, self._env)
        except OSError:
            self._mute.failed(index, now_s)
            return
        self._probe = Child(process, self._wake, now_s)
        self._probe.ask(now_s, frozenset())
        self._probed = index

    def _end_probe(self) -> None:
        """Kill the worker that tries a GPU."""
        probe = self._probe
        if probe is not None:
            if probe.process.poll() is None:
                probe.process.kill()
            probe.close()
            self._ended_probe = probe.process
        self._probe = None

    def _why_lost(self, child: Child, now_s: float) -> str:
        """Why the worker is given up; empty while it is not."""
        status = child.process.poll()
        if status is not None:
            return ending_of(status)
        if child.broken:
            return child.broken
        silent_s = child.silent_s(now_s)
        if silent_s > self._patience_s(child):
            return f"did not answer for {silent_s:.0f} s"
        return ""

    def _patience_s(self, child: Child) -> float:
        """Seconds without an answer after which the worker is given up: more while GPUs are being opened."""
        report = child.report
        if report is None or not report.ready:
            return self._limits.init_s
        if any(gpu.state is GpuState.INITIALISING for gpu in report.gpus):
            return self._limits.init_s
        if report.pending and self._mute.can_leave_out:
            return min(self._limits.hang_s, self._limits.answer_s)
        return self._limits.answer_s

    def _start_child(self, now_s: float) -> None:
        """Start a worker; where that fails, try again later."""
        try:
            left_out = self._mute.left_out
            command = _worker_command(self._vendor, self._python, self._timings, Chosen(left_out))
            process = self._spawn(command, self._env)
        except OSError as error:
            self._why_gone = f"{self._vendor.worker} cannot be started: {error.strerror}"
            self._back_off(now_s)
            return
        self._child = Child(process, self._wake, now_s, left_out)

    def _wake(self) -> None:
        """Let a waiting poll go on."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _lose(self, child: Child, now_s: float, why: str) -> None:
        """Give up on a worker, and note why: what it said about the driver tells more than how it ended."""
        self._why_gone = f"{self._vendor.worker} {why}"
        words = child.last_words()
        if words:
            self._why_gone += f" ({words})"
        if child.report is not None and child.report.error:
            self._why_gone = child.report.error
        if now_s - child.started_s - child.silent_s(now_s) >= self._limits.stable_s:
            self._failures = 0
        hangs = child.process.poll() is None and not child.broken
        self._kill(child, now_s)
        self._back_off(now_s)
        pending = child.report.pending if child.report is not None else ()
        if hangs and self._mute.suspect(pending, now_s):
            self._restart_s = now_s

    def _kill(self, child: Child, now_s: float) -> None:
        """Kill a worker and let go of its pipes, but keep its process until it is really gone."""
        if self._newest is not None:
            for gpu in self._newest.gpus:
                if gpu.xid:
                    self._past_xid[gpu.uuid] = gpu.xid
        if child.process.poll() is None:
            child.process.kill()
        child.close()
        self._child = None
        self._dying = child.process
        self._killed_s = now_s

    def _back_off(self, now_s: float) -> None:
        """Set when the next worker is started: each failure in a row doubles the pause."""
        pause_s = min(self._limits.backoff_most_s, self._limits.backoff_s * 2 ** min(self._failures, _MOST_DOUBLINGS))
        self._failures += 1
        self._restart_s = now_s + pause_s

    def _take_report(self) -> None:
        """Take the worker's newest report."""
        child = self._child
        if child is None or child.report is None or not child.report.ready or child.report is self._newest:
            return
        if self._why_gone and child.report.silent_s and self._newest is not None:
            # The GPUs hang for this worker, too: the rows of the last one say more.
            return
        self._why_gone = ""
        gpus = self._mute.identified(child.report.gpus)
        if self._past_xid:
            gpus = tuple(self._with_past_xid(gpu) for gpu in gpus)
        child.report = msgspec.structs.replace(child.report, gpus=gpus)
        self._newest = child.report
        self._unread = child.left_out

    def _with_past_xid(self, gpu: GpuReading) -> GpuReading:
        """The GPU with the events that an earlier worker saw."""
        past = self._past_xid.get(gpu.uuid, ())
        if not past:
            return gpu
        return msgspec.structs.replace(gpu, xid=(*past, *gpu.xid)[-_MOST_XIDS:])

    def _contribution(self, now_s: float) -> Contribution:
        """The newest readings, and the present faults: the driver's own, then those of single GPUs."""
        cause, text = self._present_fault(now_s)
        last_cause, begun_wall_s = self._fault
        if cause != last_cause:
            begun_wall_s = time.time()
            self._fault = (cause, begun_wall_s)
        faults = (Fault(self._vendor.source, text, begun_wall_s),) if cause else ()
        pids: tuple[int, ...] = (self._child.process.pid,) if self._child is not None else ()
        newest = self._newest
        if newest is None:
            return Contribution(faults=faults, pids=pids)
        return Contribution(
            gpus=self._mute.with_mute(newest.gpus, self._unread),
            faults=(*faults, *self._mute.faults(newest.pending, now_s), *newest.faults),
            driver=newest.driver,
            cuda=newest.cuda,
            pids=pids,
        )

    def _present_fault(self, now_s: float) -> tuple[str, str]:
        """The present fault: the cause, which dates it, and the text, which also counts seconds."""
        child = self._child
        if child is None:
            return self._fault_without_child(now_s)
        report = child.report
        if report is not None and report.error:
            return report.error, report.error
        if report is None or not report.ready:
            text = f"initialising {self._vendor.driver} ({now_s - child.started_s:.0f} s)"
            if self._why_gone:
                return (self._why_gone, f"{self._why_gone}; now {text}")
            return ("initialising", text)
        silent_s = child.silent_s(now_s)
        if silent_s <= LATE_INTERVALS * self.interval_s:
            return "", ""
        replaced_s = max(0.0, self._patience_s(child) - silent_s)
        return "late", (
            f"{self._vendor.driver} has not answered for {silent_s:.1f} s: the GPUs show old readings; "
            f"its worker (pid {child.process.pid}) is replaced in {replaced_s:.0f} s"
        )

    def _fault_without_child(self, now_s: float) -> tuple[str, str]:
        """Cause and text of the fault while there is no worker."""
        if self._dying is not None and now_s - self._killed_s > self._limits.die_s:
            return "unkillable", (
                f"{self._vendor.worker} (pid {self._dying.pid}) hangs inside the driver and cannot be killed: "
                "no new one is started until it is gone; a reboot may be needed"
            )
        pause_s = max(0.0, self._restart_s - now_s)
        return self._why_gone, f"{self._why_gone}; next try in {pause_s:.0f} s"
