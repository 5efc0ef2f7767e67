"""Everything of a scenario that can be changed: its name, how it is typed or chosen, and what it means."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from gpumon.sizing.memory import WEIGHTS
from gpumon.sizing.scenario import Known, Scenario, Server, Workload

_NUMBER: Final = re.compile(r"([+-]?(?:[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+))(?:e([+-]?[0-9]+))?\s*(\D*)", re.IGNORECASE)
_THOUSANDS: Final = {"k": 1e3, "m": 1e6}
_FIGURES: Final = frozenset("0123456789.,eE+- ")
_MOST: Final = 1e15


class Kind(NamedTuple):
    """One way of writing numbers. `unit` is what one of what is typed comes to in the unit of the field."""

    name: str
    """What may be typed, with an example."""
    sign: str = ""
    """Shown behind the number."""
    unit: float = 1.0
    units: Mapping[str, float] = {}
    """What may be typed behind it -> its factor, in the unit that is typed."""
    whole: bool = False
    least: float = 0.0
    open: bool = False
    """`least` itself is not allowed."""
    most: float = math.inf
    step: float = 0.0
    """Fixed step, as typed; 0: a tenth, rounded."""

    def takes(self, character: str) -> bool:
        """Whether it can be part of such a number, or of what stands behind one."""
        return character in _FIGURES or any(character.lower() in name for name in (*self.units, self.sign.lower()))

    def read(self, text: str) -> float:
        """A typed text as the field's value. Raises ValueError with the reason in a few words."""
        found = _NUMBER.fullmatch(text.strip())
        behind = found[3].strip().lower() if found is not None else ""
        if found is None or (behind and behind not in (*self.units, self.sign.lower())):
            raise ValueError(f"no number yet: {self.name}")
        factor = self.units.get(behind, 1.0)
        value = float(found[1].replace(",", "."))
        power = int(found[2] or 0)
        value = value * 10.0**power * factor if abs(power) <= 30 else math.inf if power > 0 else 0.0
        if value > _MOST:
            raise ValueError("that is too large a number")
        return self._checked(value)

    def _checked(self, typed: float) -> float:
        value = typed * self.unit
        if self.whole and value != math.floor(value):
            raise ValueError("must be a whole number")
        if value < self.least or (self.open and value <= self.least):
            bound = "above" if self.open else "at least"
            raise ValueError(f"must be {bound} {self.shown(self.least)}")
        if value > self.most:
            raise ValueError(f"must be at most {self.shown(self.most)}")
        return int(value) if self.whole else float(f"{value:.12g}")

    def typed(self, value: float) -> str:
        """A value as it may be typed: nothing is rounded away."""
        return f"{value / self.unit:.12g}"

    def shown(self, value: float) -> str:
        """A value as a person reads it."""
        number = value / self.unit
        if not math.isfinite(number):
            return "–"
        text = f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"
        return f"{text} {self.sign}".rstrip()

    def stepped(self, value: float, direction: int) -> float:
        """The next round value above (1) or below (-1); the value itself where there is none that is allowed."""
        number = value / self.unit
        step = self.step or max(round_step(number), 1.0 if self.whole else 0.0)
        at = number / step
        at = math.floor(at + 1e-9) + 1 if direction > 0 else math.ceil(at - 1e-9) - 1
        try:
            return self._checked(float(f"{at * step:.12g}"))
        except ValueError:
            return value


def round_step(number: float) -> float:
    """About a tenth of a number: 1, 2 or 5 times a power of ten. From 1 on never less than 1."""
    tenth = abs(number) / 10.0
    if tenth < 1e-9:
        return 1.0
    power = 10.0 ** math.floor(math.log10(tenth) + 1e-9)
    step = next(power * factor for factor in (1.0, 2.0, 5.0, 10.0) if power * factor >= tenth * 0.75)
    return max(1.0, step) if abs(number) >= 1.0 else step


REQUESTS: Final = Kind("such as 512 or 1.5k", units=_THOUSANDS)
CAPACITY: Final = Kind("such as 24", units=_THOUSANDS, least=1.0)
COUNT: Final = Kind("such as 4", whole=True, least=1.0)
NUMBER: Final = Kind("such as 0 or 1", whole=True)
TOKENS: Final = Kind("such as 2000 or 4k", units=_THOUSANDS, open=True)
SECONDS: Final = Kind("such as 30, in seconds", "s", units={"ms": 1e-3, "min": 60.0})
GOAL: Final = Kind("such as 40, in ms, or 1.5 s", "ms", units={"s": 1e3}, open=True)
GB: Final = Kind("such as 44.8, in GB (1e9)", "GB", units={"tb": 1e3, "gib": 1.073741824}, open=True)
SHARE: Final = Kind("such as 80, in percent", "%", unit=0.01, open=True, most=1.0, step=5.0)
ANY_SHARE: Final = Kind("such as 20, in percent", "%", unit=0.01, most=1.0, step=5.0)
MONEY: Final = Kind("such as 2.49 an hour")
WATTS: Final = Kind("such as 650, in W", "W", units={"kw": 1e3}, open=True)
RATIO: Final = Kind("such as 1.2", least=1.0)


GOALS: Final = "goals"
SERVER: Final = "server"
WORKLOAD: Final = "workload"
"""Sections: what a row is about. Of servers and workloads there are several."""


class Field(NamedTuple):
    """One value of one section. Numbers have a `kind`, the rest `choices`."""

    key: str
    """As the struct has it."""
    name: str
    means: str
    kind: Kind | None = None
    choices: Callable[[Known], Sequence[str]] = lambda _: ()
    optional: bool = False
    """It may be left open: then it is looked up, or does not matter."""
    start: float = 1.0
    """Where stepping begins while nothing is known of it."""
    per_kind: bool = False
    """The kind of the target decides its sign."""

    def read(self, text: str) -> Any:
        """A typed text as the value; None where it is left open. Raises ValueError with the reason."""
        if not text.strip():
            if self.optional:
                return None
            raise ValueError("a number is needed here")
        assert self.kind is not None
        return self.kind.read(text)

    def typed(self, value: Any) -> str:
        """The value as it may be typed."""
        return "" if value is None else self.kind.typed(value) if self.kind is not None else str(value)

    def shown(self, value: Any) -> str:
        """The value as a person reads it."""
        return "–" if value in (None, "") else self.kind.shown(value) if self.kind is not None else str(value)


class Place(NamedTuple):
    """A field of the goals, of one server or of one workload."""

    section: str
    at: int
    field: Field


def holder(scenario: Scenario, section: str, at: int) -> Scenario | Server | Workload | None:
    """What has the fields of a section; None where it is gone."""
    if section == GOALS:
        return scenario
    rows: Sequence[Server | Workload] = scenario.server if section == SERVER else scenario.workload
    return rows[at] if 0 <= at < len(rows) else None


def value_of(scenario: Scenario, place: Place) -> Any:
    """What was typed there; None or empty where it is left open."""
    of = holder(scenario, place.section, place.at)
    return None if of is None else getattr(of, place.field.key)


def with_value(scenario: Scenario, place: Place, value: Any) -> Scenario:
    """The scenario with another value in one place."""
    if place.section == GOALS:
        return replace(scenario, **{place.field.key: value})
    rows: tuple[Any, ...] = getattr(scenario, place.section)
    if not 0 <= place.at < len(rows):
        return scenario
    changed = replace(rows[place.at], **{place.field.key: value})
    return replace(scenario, **{place.section: (*rows[: place.at], changed, *rows[place.at + 1 :])})


def default_of(place: Place) -> Any:
    """The value where nobody changed it."""
    blank = {GOALS: Scenario(), SERVER: Server(""), WORKLOAD: Workload("", 1.0)}[place.section]
    return getattr(blank, place.field.key)


def _gpus(known: Known) -> Sequence[str]:
    return tuple(sorted({spec.name for spec in known.gpus.by_short.values()}))


def _latency_goals(of: str) -> tuple[Field, ...]:
    return (
        Field("itl_p95_ms", "ITL p95", f"Most time between two tokens, {of}", GOAL, optional=True, start=40.0),
        Field("ttft_p95_ms", "TTFT p95", f"Most time to the first token, {of}", GOAL, optional=True, start=1e3),
        Field("e2e_p95_ms", "E2E p95", f"Most time for a whole answer, {of}", GOAL, optional=True, start=1e4),
    )


GOAL_FIELDS: Final = (
    *_latency_goals("as 19 of 20 requests see it. Empty: no goal."),
    Field(
        *("planning_factor", "planning factor"),
        "Share of a worked-out capacity that is planned with; typed and swept capacities are used as they are.",
        SHARE,
    ),
    Field("packing", "packing", "busy: instances share a GPU by memory and busy share; memory: by memory alone.",
          choices=lambda _: ("busy", "memory")),
    Field("usable_memory_ratio", "usable memory", "Share of a GPU's memory that engines may take.", SHARE),
    Field("spare_instances", "spare instances", "More than needed, of each workload.", NUMBER),
    Field("spare_servers", "spare servers", "More than needed.", NUMBER),
)  # fmt: skip
SERVER_FIELDS: Final = (
    Field("gpu", "GPU type", "Of the servers. The list has all that gpumon knows.", choices=_gpus),
    Field("gpus", "GPUs per server", "GPUs in one server.", COUNT),
    Field("price_per_gpu_hour", "price per GPU hour", "In your currency.", MONEY, optional=True, start=2.0),
    Field("price_per_hour", "host price per hour", "Of a server beside its GPUs.", MONEY),
    Field("nvlink_gpus", "NVLink domain", "GPUs that NVLink joins: TP stays inside. 0: all of the server.",
          NUMBER),
    Field("count", "servers at most", "0: as many as it takes.", NUMBER),
    Field("gpu_power_w", "power of a GPU", "Under this load; empty: measured, else the board's limit.", WATTS,
          optional=True, start=500.0),
)  # fmt: skip
WORKLOAD_FIELDS: Final = (
    Field("target", "target", "What has to be carried.", REQUESTS, per_kind=True),
    Field("target_kind", "target is", "Requests in flight, users who think between questions, or requests a second.",
          choices=lambda _: ("concurrency", "users", "requests_per_s")),
    Field("think_s", "think time", "Of users: seconds between an answer and the next question.", SECONDS),
    Field("capacity_per_instance", "per instance", "Requests in flight of one instance; typed it is used as it is.",
          CAPACITY, optional=True, start=8.0),
    Field("prompt_tokens", "prompt (ISL)", "Mean tokens of a prompt.", TOKENS, optional=True, start=1000.0),
    Field("answer_tokens", "answer (OSL)", "Mean tokens of an answer.", TOKENS, optional=True, start=250.0),
    Field("prefix_hit_ratio", "prefix hits", "Share of the prompt that comes from the prefix cache.",
          ANY_SHARE, optional=True, start=0.0),
    Field("tp", "TP", "GPUs that share each layer.", COUNT, optional=True),
    Field("pp", "PP", "Stages of layers, each on its own GPUs.", COUNT, optional=True),
    Field("weight_precision", "weights", "Number format of the weights.",
          choices=lambda _: ("", *WEIGHTS), optional=True),
    Field("kv_precision", "KV cache", "Number format of the KV cache.",
          choices=lambda _: ("", "bf16", "fp16", "fp8", "int8"), optional=True),
    Field("memory_gb", "memory", "GPU memory of one instance.", GB, optional=True, start=20.0),
    Field("busy_ratio", "busy", "Share of its GPU that one instance keeps busy at its capacity.", SHARE,
          optional=True, start=1.0),
    *_latency_goals("of this workload. Empty: the goal of all."),
    Field("itl_tail_ratio", "ITL p95 / mean", "How much slower the slow tokens are.", RATIO, optional=True),
    Field("kv_pool_tokens", "KV pool", "Tokens that the KV cache of an instance holds.", TOKENS, optional=True,
          start=1e5),
    Field("max_num_seqs", "max_num_seqs", "Most sequences that the engine runs together.", COUNT,
          optional=True, start=256.0),
    Field("prefill_tokens_per_s", "prefill rate", "Prompt tokens a second that an instance computes.", TOKENS,
          optional=True, start=1e4),
    Field("spare_instances", "spare instances", "Empty: as many as of each workload.", NUMBER, optional=True,
          start=0.0),
    Field("profile", "profile", "Imported load test to take capacity and latency from.",
          choices=lambda known: ("", *sorted(known.profiles)), optional=True),
)  # fmt: skip
FIELDS: Final = {GOALS: GOAL_FIELDS, SERVER: SERVER_FIELDS, WORKLOAD: WORKLOAD_FIELDS}
SIGNS: Final = {"concurrency": "", "users": "users", "requests_per_s": "req/s"}
"""What a target is counted in; requests in flight need no word."""


TARGETS: Final = {"concurrency": "in flight", "users": "users", "requests_per_s": "requests per s"}
"""What a target is, in words that fit a cell."""
_LABELS: Final = {each.key: each.name for fields in FIELDS.values() for each in fields if "_" in each.key}
_KEYS: Final = re.compile(rf"\b(?:{'|'.join(sorted(_LABELS, key=len, reverse=True))})\b")


def labelled(text: str) -> str:
    """A message with the names that fields have here in place of those that files have."""
    return _KEYS.sub(lambda found: _LABELS[found[0]], text)


def field(section: str, key: str) -> Field:
    """One field by its key."""
    return next(each for each in FIELDS[section] if each.key == key)
