"""`gpumon size` in the process of the tests: a load that one command has simulated is known to those after it.

A plan with goals simulates its loads, which takes seconds; the forms of one plan, and the same plan beside other types
of GPU, ask for the same loads.
"""

from __future__ import annotations

import subprocess
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from gpumon.commands.past_load import sizing_look_ups
from gpumon.sizing.scenario import Catalogues
from gpumon.sizing.simulate.tails import Loads, SimulatedTails
from tests.program import run_here

ROOT: Final = Path(__file__).parents[2]
SIMULATED: Final[dict[Hashable, Loads]] = {}
"""Loads of instances that were simulated in this process."""


def remembering_look_ups(*asked: Any) -> Catalogues:
    """The look-ups of the command, with all loads that were simulated before."""
    return sizing_look_ups(*asked)._replace(tails=SimulatedTails(kept=SIMULATED))


def size_here(*arguments: str, env: Mapping[str, str], text: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command in the folder of the sources, `text` on its stdin."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpumon.commands.size.sizing_look_ups", remembering_look_ups)
        return run_here("size", *arguments, env=env, text=text, cwd=ROOT)
