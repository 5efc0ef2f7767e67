"""Works out the answer to a scenario, and keeps the last one that there was."""

from __future__ import annotations

from collections.abc import Mapping

from gpumon.readings.text import clean
from gpumon.sizing.answer import Answer
from gpumon.sizing.compare import Column, compare
from gpumon.sizing.instance import Instance, resolve
from gpumon.sizing.known import Known
from gpumon.sizing.plan import plan
from gpumon.sizing.scenario import Scenario


class Reckoner:
    """Calculates only where something it depends on is another than the last time."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.have: Mapping[str, int] | None = None
        self.here: Mapping[str, int] = {}
        """Served model name -> instances that run now."""
        self.answer: Answer | None = None
        """Of `scenario`."""
        self.scenario: Scenario | None = None
        self.failed = ""
        """A bug of ours that kept the newest scenario from being answered."""
        self._instances: dict[int, Instance] = {}
        self._columns: tuple[Column, ...] | None = None

    def use(self, known: Known, have: Mapping[str, int] | None) -> bool:
        """Take over what is known and what is here; returns whether that changed."""
        if known == self.known and have == self.have:
            return False
        self.known, self.have = known, have
        self.forget()
        return True

    def forget(self) -> None:
        """The next question is worked out anew."""
        self.scenario = None

    def ask(self, scenario: Scenario) -> None:
        """Answer a scenario; where that fails the last answer stays, and `failed` says so."""
        if scenario is self.scenario:
            return
        try:
            self.answer = plan(scenario, self.known, self.have)
            self.failed = ""
        except Exception as error:  # whatever was typed, the panel and what it showed stay
            self.failed = clean(f"sizing failed, please report: {type(error).__name__}: {error}", 200)
        self.scenario = scenario
        self._instances, self._columns = {}, None

    def instance(self, at: int) -> Instance | None:
        """One workload's instance, as the answer has it; None where there is none."""
        scenario = self.scenario
        if self.failed or scenario is None or not 0 <= at < len(scenario.workload):
            return None
        if at not in self._instances:
            self._instances[at] = resolve(scenario.workload[at], scenario, self.known)
        return self._instances[at]

    def columns(self) -> tuple[Column, ...]:
        """The same question on other types of GPU."""
        if self._columns is None:
            failed = self.failed or self.scenario is None
            self._columns = () if failed or self.scenario is None else compare(self.scenario, self.known)
        return self._columns
