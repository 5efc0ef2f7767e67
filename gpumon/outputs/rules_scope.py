"""What all rules have in common: labels that are kept, matchers, windows, and the text of selectors and durations."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.config.matchers import matched

KEPT: Final = ("cluster", "namespace", "pod", "job", "instance")
"""Labels of a target that its series keep, beside those that name its host."""
RATE_SCRAPES, QUANTILE_SCRAPES = 4.0, 20.0
"""Scrapes that the windows of rates and of quantiles hold."""
RATE_S, QUANTILE_S = 10.0, 60.0
"""Shortest windows, as the monitor's own."""
OF_ENGINES: Final = frozenset(
    ("__name__", "model_name", "engine", "engine_type", "dp_rank", "tp_rank", "pp_rank", "moe_ep_rank")
)
"""Labels that no target has: what is joined over a target does not have them."""


class Rule(NamedTuple):
    """A recording rule."""

    record: str
    expr: str
    meaning: str = ""
    labels: tuple[tuple[str, str], ...] = ()


class Scope(NamedTuple):
    """Of one Prometheus."""

    match: str
    """Matchers that every selector of what is scraped gets."""
    hosts: tuple[str, ...]
    """Labels that name a machine, the best first."""
    scrape_s: float
    join: str = ""
    """Label that an engine and its GPUs share; empty: the machine."""

    @property
    def target(self) -> tuple[str, ...]:
        """Labels that tell targets apart."""
        names = (*KEPT, *self.hosts, *matched(self.match), *((self.join,) if self.join else ()))
        return tuple(name for name in dict.fromkeys(names) if name not in OF_ENGINES)

    @property
    def by(self) -> str:
        """The grouping of figures of an engine."""
        return f"by ({', '.join((*self.target, 'model_name'))})"

    @property
    def rate(self) -> str:
        """Window of the rates."""
        return duration(max(RATE_S, RATE_SCRAPES * self.scrape_s))

    @property
    def rate_and_before(self) -> str:
        """The same and two scrapes before."""
        return duration(max(RATE_S, RATE_SCRAPES * self.scrape_s) + 2.0 * self.scrape_s)

    @property
    def quantile(self) -> str:
        """Window of quantiles and of lengths."""
        return duration(max(QUANTILE_S, QUANTILE_SCRAPES * self.scrape_s))

    @property
    def step(self) -> str:
        """Of subqueries."""
        return duration(self.scrape_s)

    def of(self, name: str, *matchers: str) -> str:
        """A selector."""
        inside = ", ".join((*matchers, *((self.match.strip().strip(","),) if self.match.strip() else ())))
        return f"{name}{{{inside}}}" if inside else name

    def per_s(self, name: str, *matchers: str, window: str = "") -> str:
        """The rate of a counter."""
        return f"rate({self.of(name, *matchers)}[{window or self.rate}])"

    def also_by(self, *labels: str) -> str:
        """The grouping of an engine's parts."""
        return f"by ({', '.join((*self.target, 'model_name', *labels))})"

    @property
    def of_workload(self) -> str:
        """The join label of a GPU's series where its exporter's own target has a label of that name."""
        return f"exported_{self.join}" if self.join else ""

    @property
    def by_gpu(self) -> str:
        """The grouping of figures of a GPU: pods that share it repeat them."""
        names = [name for name in self.target if name not in ("namespace", "pod") or name == self.join]
        more = (self.of_workload,) if self.join else ()
        return f"by ({', '.join((*names, *more, 'UUID', 'gpu', 'modelName'))})"

    def placed(self, vector: str) -> str:
        """A vector with the label `place`: what an engine and its GPUs have in common."""
        names = (self.of_workload, self.join) if self.join else self.hosts
        for name in reversed(names):
            pattern = "(.+?)(?::[0-9]+)?" if name == "instance" else "(.+)"
            vector = f'label_replace({vector}, "place", "$1", "{name}", "{pattern}")'
        return vector


def duration(seconds: float) -> str:
    """As PromQL writes it, to the millisecond."""
    whole = round(seconds * 1000)
    return f"{whole // 1000}s" if whole % 1000 == 0 else f"{whole}ms"


def number(value: float) -> str:
    """As PromQL and YAML read it."""
    return f"{value:.12g}"
