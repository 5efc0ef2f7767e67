"""Works out the answer to a scenario, and keeps the last one that there was."""

from __future__ import annotations

from collections.abc import Mapping

from gpumon.readings.text import clean
from gpumon.sizing.answer import Answer
from gpumon.sizing.compare import USUAL, Column, compare
from gpumon.sizing.instance import Instance
from gpumon.sizing.known import Known
from gpumon.sizing.live import Held
from gpumon.sizing.plan import Planned, planned
from gpumon.sizing.scenario import Scenario


class Reckoner:
    """Calculates only where something it depends on is another than the last time."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self._given = known
        self._prices: dict[str, float] = {}
        self.have: Mapping[str, int] | None = None
        self.here: Mapping[str, int] = {}
        """Served model name -> instances that run now."""
        self.kv_ratios: Mapping[str, float] = {}
        """Served model name -> how full the fullest KV cache of its instances is now."""
        self.held = Held()
        """GPUs here that something else holds."""
        self.answer: Answer | None = None
        """Of `scenario`."""
        self.scenario: Scenario | None = None
        self.failed = ""
        """A bug of ours that kept the newest scenario from being answered."""
        self._planned: Planned | None = None
        self._columns: tuple[Column, ...] | None = None

    def use(self, known: Known, have: Mapping[str, int] | None) -> bool:
        """Take over what is known and what is here; returns whether that changed."""
        if known == self._given and have == self.have:
            return False
        self._given, self.have = known, have
        self._price()
        self.forget()
        return True

    def price(self, gpu: str) -> float | None:
        """What was typed for a type of GPU since the panel was opened first."""
        return self._prices.get(gpu)

    def keep_price(self, gpu: str, price: float | None) -> None:
        """What was typed for a type of GPU holds until something else is; None: nothing is."""
        if price is None:
            self._prices.pop(gpu, None)
        else:
            self._prices[gpu] = price
        self._price()

    def _price(self) -> None:
        self.known = self._given._replace(prices={**self._given.prices, **self._prices})
        self.forget()

    def forget(self) -> None:
        """The next question is worked out anew."""
        self.scenario = None

    def ask(self, scenario: Scenario) -> None:
        """Answer a scenario; where that fails the last answer stays, and `failed` says so."""
        if scenario is self.scenario:
            return
        try:
            self._planned = planned(scenario, self.known, self.have, self._planned)
            self.answer = self._planned.answer
            self.failed = ""
        except Exception as error:  # whatever was typed, the panel and what it showed stay
            self.failed = clean(f"sizing failed, please report: {type(error).__name__}: {error}", 200)
        self.scenario = scenario
        self._columns = None

    def instance(self, at: int) -> Instance | None:
        """One workload's instance, as the answer has it; None where there is none."""
        instances = self._planned.instances if self._planned is not None and not self.failed else ()
        return instances[at] if 0 <= at < len(instances) else None

    def columns(self, also: tuple[str, ...] = ()) -> tuple[Column, ...]:
        """The same question on other types of GPU, `also` on those that were planned with before."""
        if self._columns is None:
            failed = self.failed or self.scenario is None
            self._columns = (
                () if failed or self.scenario is None else compare(self.scenario, self.known, (*also, *USUAL))
            )
        return self._columns
