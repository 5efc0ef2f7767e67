"""Every scenario of the demo, by name."""

from __future__ import annotations

import difflib
from typing import Final

from gpumon.sources.simulator.scenario import Scenario
from gpumon.sources.simulator.scenarios_engines import ENGINES
from gpumon.sources.simulator.scenarios_gpus import GPUS
from gpumon.sources.simulator.scenarios_training import TRAINING

SCENARIOS: Final[tuple[Scenario, ...]] = (*GPUS, *ENGINES, *TRAINING)


def scenario(name: str) -> Scenario:
    """The scenario of a name. Raises LookupError where there is none."""
    for each in SCENARIOS:
        if each.name == name:
            return each
    raise LookupError(name)


def near(name: str) -> list[str]:
    """Names like this one, the most alike first; where none is, those that have it in them."""
    names, name = [each.name for each in SCENARIOS], name.lower()
    return difflib.get_close_matches(name, names, n=3) or [each for each in names if name in each][:3]
