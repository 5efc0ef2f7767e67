"""What a scenario of the demo is: a stage, a script, and what triage should say of it."""

from __future__ import annotations

import msgspec

from gpumon.readings.verdict import Level, Limit
from gpumon.sources.simulator.cast import H100, Actor, Leftover
from gpumon.sources.simulator.physics import Chip
from gpumon.sources.simulator.script import Script
from gpumon.sources.simulator.training import Run


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One play. Simulated time is zero when the screen opens on it."""

    name: str
    about: str
    """What you will see and learn, in one line."""
    scope: str
    """The thing that it is about, as `Verdict.scope`."""
    expected: Limit
    """The verdict that stands for it between `from_s` and `to_s`, and no other."""
    level: Level | None = None
    """How urgent that verdict is; None: as the rule says."""
    elsewhere: tuple[Limit, ...] = ()
    """What is true of other things at the same time."""
    from_s: float = 100.0
    to_s: float = 160.0
    cast: tuple[Actor, ...] = ()
    runs: tuple[Run, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    chip: Chip = H100
    gpus: int = 2
    script: Script = Script()
    warm_s: float = 120.0
    """Simulated time before it opens."""
    idle_s: float | None = None
    """After how long a GPU or an engine counts as idle here: nobody waits ten minutes for a verdict in a demo."""
