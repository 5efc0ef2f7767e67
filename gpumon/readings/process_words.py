"""How texts name a process: `python train_lora.py (pid 4711) of ada`."""

from __future__ import annotations

from gpumon.readings.snapshot import Process
from gpumon.readings.text import clean

_INTERPRETERS = ("python", "ray", "torchrun", "node", "bash", "sh")


def program(process: Process) -> str:
    """`python train_lora.py (pid 4711) of ada`."""
    user = f" of {clean(process.user, 24)}" if process.user else ""
    return f"{titled(process)} (pid {process.pid}){user}"


def briefly(process: Process) -> str:
    """`python (pid 4711)`."""
    return f"{clean(process.name.rpartition('/')[2], 32)} (pid {process.pid})"


def titled(process: Process) -> str:
    """The program and its script: an interpreter's name alone says nothing."""
    name = clean(process.name.rpartition("/")[2], 32) or "a process"
    words = process.command.split()[1:]
    script = next((word for word in words if not word.startswith("-")), "")
    if name.startswith(_INTERPRETERS) and script and script not in name:
        return f"{name} {clean(script.rpartition('/')[2], 40)}"
    return name
