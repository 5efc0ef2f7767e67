"""Alerts to programs: one line of JSON on the standard input of the command that an alert names."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from typing import Any, Final

from gpumon.readings.format import rfc3339
from gpumon.readings.frame import Fault
from gpumon.readings.missing import number
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.triage.alerts import AlertChange

_TIMEOUT_S: Final = 10.0
"""A command that takes longer is killed."""
MOST_WAITING_COMMANDS: Final = 32
"""Changes that wait for one slow command; more are dropped, and that is said."""
FAULT_S: Final = 300.0
"""How long a failure stands among the faults."""


class AlertCommands:
    """Runs each command in a thread of its own, one change after the other: a slow one delays no tick and no other."""

    def __init__(self, timeout_s: float = _TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._waiting: dict[tuple[str, ...], queue.Queue[tuple[bytes, float]]] = {}
        self._fault: Fault | None = None

    def call(self, change: AlertChange, snapshot: Snapshot) -> None:
        """Hand a change to its command, if it has one; returns at once."""
        if not change.rule.command:
            return
        command = change.rule.command
        if command not in self._waiting:
            self._waiting[command] = queue.Queue(MOST_WAITING_COMMANDS)
            threading.Thread(target=self._run, args=(command,), name="alert command", daemon=True).start()
        line = json.dumps(_alert_object(change, snapshot), allow_nan=False).encode() + b"\n"
        try:
            self._waiting[command].put_nowait((line, snapshot.wall_s))
        except queue.Full:
            self._complain("alerts come faster than their command ends: one was dropped", snapshot.wall_s)

    def fault(self, wall_s: float) -> Fault | None:
        """The last failure of a command; None where there was none within `FAULT_S`."""
        fault = self._fault
        if fault is not None and wall_s - fault.since_wall_s < FAULT_S:
            return fault
        return None

    def wait(self) -> None:
        """Wait until every change is delivered."""
        for changes in self._waiting.values():
            changes.join()

    def _run(self, command: tuple[str, ...]) -> None:
        """Deliver the changes for one command, one after the other, for as long as gpumon runs."""
        changes = self._waiting[command]
        while True:
            line, wall_s = changes.get()
            try:
                self._deliver(command, line, wall_s)
            finally:
                changes.task_done()

    def _deliver(self, command: tuple[str, ...], line: bytes, wall_s: float) -> None:
        """Run a command with a change on its standard input; what goes wrong becomes the fault."""
        name = clean(command[0], 80)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as failure:
            self._complain(f"{name} cannot be run: {clean(str(failure), 120)}", wall_s)
            return
        try:
            process.communicate(line, timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            self._complain(f"{name} took longer than {self._timeout_s:g} s and was killed", wall_s)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it has started as well
            process.communicate()
            return
        if process.returncode:
            self._complain(f"{name} ended with exit code {process.returncode}", wall_s)

    def _complain(self, text: str, wall_s: float) -> None:
        """Set the fault, at a Unix time."""
        self._fault = Fault("alert command", text, wall_s)


def _alert_object(change: AlertChange, snapshot: Snapshot) -> dict[str, Any]:
    """The change as a command reads it, as JSON."""
    alert = change.alert
    return {
        "alert": alert.name,
        "state": "raised" if change.raised else "cleared",
        "time": rfc3339(snapshot.wall_s),
        "since": alert.since,
        "host": snapshot.host.name,
        "scope": alert.scope,
        "text": alert.text,
        "level": alert.level or None,
        "action": alert.action or None,
        "value": number(alert.value),
        "simulated": snapshot.simulated,
    }
