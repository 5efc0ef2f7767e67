"""How texts name a process: `python train_lora.py (pid 4711) of ada`."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.readings.frame import GpuProcess
from gpumon.readings.missing import number
from gpumon.readings.text import clean

_INTERPRETERS = ("python", "ray", "torchrun", "node", "bash", "sh")
"""Begin of the names of programs that run a script."""
_PROGRAM_CHARACTERS = 32
"""Most characters of a program's name."""
_SCRIPT_CHARACTERS = 40
"""Most characters of a script's name."""
_USER_CHARACTERS = 24
"""Most characters of a user's name."""


def program_text(process: GpuProcess) -> str:
    """The program, its pid and its user: `python train_lora.py (pid 4711) of ada`."""
    user = f" of {clean(process.user, _USER_CHARACTERS)}" if process.user else ""
    return f"{program_title(process)} (pid {process.pid}){user}"


def program_and_pid(process: GpuProcess) -> str:
    """The program without its script: `python (pid 4711)`."""
    return f"{clean(process.name.rpartition('/')[2], _PROGRAM_CHARACTERS)} (pid {process.pid})"


def program_title(process: GpuProcess) -> str:
    """The program and its script: an interpreter's name alone says nothing."""
    name = clean(process.name.rpartition("/")[2], _PROGRAM_CHARACTERS) or "a process"
    words = process.command.split()[1:]
    script = next((word for word in words if not word.startswith("-")), "")
    if name.startswith(_INTERPRETERS) and script and script not in name:
        return f"{name} {clean(script.rpartition('/')[2], _SCRIPT_CHARACTERS)}"
    return name


def name_processes(processes: Sequence[GpuProcess], most: int = 3) -> str:
    """The processes that hold most memory, by name, pid and user."""
    ranked = sorted(processes, key=lambda process: -(number(process.vram_bytes) or 0.0))
    words = ", ".join(program_text(process) for process in ranked[:most])
    if len(ranked) > most:
        return f"{words} and {len(ranked) - most} more"
    return words
