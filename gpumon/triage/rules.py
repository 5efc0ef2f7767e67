"""The table of rules, in the order in which they are asked: of each family the first that finds something speaks."""

from __future__ import annotations

from typing import Final

from gpumon.triage.rule import Rule

RULES: Final[tuple[Rule, ...]] = ()
