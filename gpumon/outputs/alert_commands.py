"""Alerts to programs: one line of JSON on the standard input of the command that an alert names."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from typing import Any, Final

from gpumon.readings.frame import Fault
from gpumon.readings.missing import number
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.readings.times import rfc3339
from gpumon.triage.alerts import AlertChange

TIMEOUT_S: Final = 10.0
"""A command that takes longer is killed."""
WAITING: Final = 32
"""Changes that wait for a slow command; more are dropped, and that is said."""
FAULT_S: Final = 300.0
"""How long a failure stands among the faults."""


class AlertCommands:
    """Runs commands one after the other in a thread of their own: a slow or failing one delays no tick."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._queue: queue.Queue[tuple[tuple[str, ...], bytes, float]] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None
        self._fault: Fault | None = None

    def call(self, change: AlertChange, snapshot: Snapshot) -> None:
        """Hand a change to its command, if it has one; returns at once."""
        if not change.rule.command:
            return
        line = json.dumps(_told(change, snapshot), allow_nan=False).encode() + b"\n"
        try:
            self._queue.put_nowait((change.rule.command, line, snapshot.wall_s))
        except queue.Full:
            self._complain("alerts come faster than their command ends: one was dropped", snapshot.wall_s)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="alert commands", daemon=True)
            self._thread.start()

    def fault(self, wall_s: float) -> Fault | None:
        """What went wrong with a command lately."""
        fault = self._fault
        return fault if fault is not None and wall_s - fault.since_wall_s < FAULT_S else None

    def wait(self) -> None:
        """Until every change is delivered, for programs that end."""
        self._queue.join()

    def _run(self) -> None:
        while True:
            command, line, wall_s = self._queue.get()
            try:
                self._deliver(command, line, wall_s)
            finally:
                self._queue.task_done()

    def _deliver(self, command: tuple[str, ...], line: bytes, wall_s: float) -> None:
        name = clean(command[0], 80)
        try:
            ended = subprocess.run(
                command,
                input=line,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=self._timeout_s,
                start_new_session=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self._complain(f"{name} took longer than {self._timeout_s:g} s and was killed", wall_s)
        except (OSError, ValueError) as failure:
            self._complain(f"{name} can not be run: {clean(str(failure), 120)}", wall_s)
        else:
            if ended.returncode:
                self._complain(f"{name} ended with exit code {ended.returncode}", wall_s)

    def _complain(self, text: str, wall_s: float) -> None:
        self._fault = Fault("alert command", text, wall_s)


def _told(change: AlertChange, snapshot: Snapshot) -> dict[str, Any]:
    alert = change.alert
    return {
        "alert": alert.name,
        "state": "raised" if change.raised else "cleared",
        "time": rfc3339(snapshot.wall_s),
        "since": alert.since,
        "host": snapshot.host.name,
        "scope": alert.scope,
        "text": alert.text,
        "value": number(alert.value),
        "simulated": snapshot.simulated,
    }
