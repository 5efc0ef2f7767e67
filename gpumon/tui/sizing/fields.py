"""Everything of a scenario that can be changed: its name, how it is typed or chosen, and what it means."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gpumon.sizing.memory import WEIGHTS
from gpumon.sizing.scenario import Catalogues, Scenario, Server, Workload
from gpumon.tui.sizing.kinds import (
    ANY_SHARE,
    CAPACITY,
    COUNT,
    GB,
    GOAL,
    MONEY,
    NUMBER,
    RATIO,
    REQUESTS,
    SECONDS,
    SHARE,
    TOKENS,
    WATTS,
    NumberKind,
)

Value: TypeAlias = float | str | None
"""A number, a choice, or nothing: the place is left open."""
R = TypeVar("R", bound=Struct)

GOALS: Final = "goals"
SERVER: Final = "server"
WORKLOAD: Final = "workload"
"""Sections: the kinds of rows. There may be several rows of servers and of workloads."""


class Field(NamedTuple):
    """One field of a section. Numbers have a `kind`, the others `choices`."""

    key: str
    """The struct's name of the field."""
    name: str
    """The name that is shown."""
    means: str
    """An explanation, for the foot."""
    kind: NumberKind | None = None
    choices: Callable[[Catalogues], Sequence[str]] = lambda _: ()
    optional: bool = False
    """Whether it may be left open: then it is looked up, or does not matter."""
    start: float = 1.0
    """The first value of stepping while none is known."""
    is_target: bool = False
    """Whether its unit is that of the kind of target."""

    def read(self, text: str) -> Value:
        """The value of a typed text; None where it is left open. Raises ValueError with the reason."""
        if not text.strip():
            if self.optional:
                return None
            raise ValueError("a number is needed here")
        assert self.kind is not None
        return self.kind.read(text)

    def typed(self, value: Value) -> str:
        """The value as it may be typed."""
        if value is None:
            return ""
        if self.kind is None or isinstance(value, str):
            return str(value)
        return self.kind.typed(value)

    def shown(self, value: Value) -> str:
        """The value as a person reads it."""
        if value is None or value == "":
            return "–"
        if self.kind is None or isinstance(value, str):
            return str(value)
        return self.kind.shown(value)

    @property
    def allowed(self) -> str:
        """The values that may be typed, for a message."""
        if self.kind is None:
            return "a choice of the list"
        if self.optional:
            return f"{self.kind.allowed}, or nothing"
        return self.kind.allowed


class FieldPlace(NamedTuple):
    """A field of the goals, of one server or of one workload."""

    section: str
    number: int
    """Which of the servers, or of the workloads; 0 for the goals."""
    field: Field


def row_struct(scenario: Scenario, section: str, number: int) -> Scenario | Server | Workload | None:
    """The struct with the fields of a row of the panel; None where there is no such row any more."""
    if section == GOALS:
        return scenario
    rows: Sequence[Server | Workload]
    rows = scenario.server if section == SERVER else scenario.workload
    if 0 <= number < len(rows):
        return rows[number]
    return None


def typed_value(scenario: Scenario, place: FieldPlace) -> Value:
    """The value that was typed in a place; None or empty where it is left open."""
    row = row_struct(scenario, place.section, place.number)
    if row is None:
        return None
    value: Value = getattr(row, place.field.key)
    return value


def with_value(scenario: Scenario, place: FieldPlace, value: Value) -> Scenario:
    """The scenario with another value in one place."""
    if place.section == GOALS:
        return replace(scenario, **{place.field.key: value})
    if row_struct(scenario, place.section, place.number) is None:
        return scenario
    if place.section == SERVER:
        return replace(scenario, server=_with_changed(scenario.server, place, value))
    return replace(scenario, workload=_with_changed(scenario.workload, place, value))


def _with_changed(rows: tuple[R, ...], place: FieldPlace, value: Value) -> tuple[R, ...]:
    """The rows with another value in the row of a place."""
    changed = replace(rows[place.number], **{place.field.key: value})
    return (*rows[: place.number], changed, *rows[place.number + 1 :])


def default_of(place: FieldPlace) -> Value:
    """The value that the field of a place has before anybody changes it."""
    blank = {GOALS: Scenario(), SERVER: Server(""), WORKLOAD: Workload("", 1.0)}[place.section]
    value: Value = getattr(blank, place.field.key)
    return value


def _gpu_names(catalogues: Catalogues) -> Sequence[str]:
    """Names of all known types of GPU."""
    return tuple(sorted({spec.name for spec in catalogues.gpus.by_short.values()}))


def _latency_goals(whose: str) -> tuple[Field, ...]:
    """The fields of the latency goals; `whose`: the end of their explanations."""
    return (
        Field("tpot_p95_ms", "TPOT p95", f"Most time per token, mean of a request, {whose}", GOAL, optional=True,
              start=40.0),
        Field("itl_p95_ms", "ITL p95", f"Most time between two tokens, {whose}", GOAL, optional=True, start=40.0),
        Field("itl_mean_ms", "ITL mean", "Most time between two tokens on average. Empty: no goal.", GOAL,
              optional=True, start=30.0),
        Field("ttft_p95_ms", "TTFT p95", f"Most time to the first token, {whose}", GOAL, optional=True, start=1e3),
        Field("e2e_p95_ms", "E2E p95", f"Most time for a whole answer, {whose}", GOAL, optional=True, start=1e4),
    )  # fmt: skip


# Each field: its key in the struct, its name, its explanation, and the kind of its number or its choices.
GOAL_FIELDS: Final = (
    *_latency_goals("as 19 of 20 requests see it. Empty: no goal."),
    Field("planning_factor", "planning factor",
          "Share of a worked-out capacity that is planned with; typed and swept capacities are used as they are.",
          SHARE),
    Field("packing", "packing", "busy: instances share a GPU by memory and busy share; memory: by memory alone.",
          choices=lambda _: ("busy", "memory")),
    Field("usable_memory_ratio", "usable memory", "Share of a GPU's memory that engines may take.", SHARE),
    Field("spare_instances", "spare instances", "More than needed, of each workload.", NUMBER),
    Field("spare_servers", "spare servers", "More than needed.", NUMBER),
)  # fmt: skip
SERVER_FIELDS: Final = (
    Field("gpu", "GPU type", "Type of the GPUs in the servers. The list has all that gpumon knows.",
          choices=_gpu_names),
    Field("gpus", "GPUs per server", "GPUs in one server.", COUNT),
    Field("price_per_gpu_hour", "price per GPU hour", "In your currency.", MONEY, optional=True, start=2.0),
    Field("price_per_hour", "host price per hour", "Price of a server without its GPUs.", MONEY),
    Field("nvlink_gpus", "NVLink domain", "GPUs that NVLink joins; beyond it TP goes over PCIe. 0: all of the server.",
          NUMBER),
    Field("network", "network", "Between servers, for TP, PP and experts over several; empty: the usual one.",
          choices=lambda known: ("", *known.networks.names), optional=True),
    Field("count", "servers at most", "0: as many as it takes.", NUMBER),
    Field("gpu_power_w", "power of a GPU", "Under this load; empty: measured, else the board's limit.", WATTS,
          optional=True, start=500.0),
)  # fmt: skip
WORKLOAD_FIELDS: Final = (
    Field("target", "target", "Load to plan for.", REQUESTS, is_target=True),
    Field("target_kind", "target is", "Requests in flight, users who think between questions, or requests a second.",
          choices=lambda _: ("concurrency", "users", "requests_per_s")),
    Field("think_s", "think time", "Seconds between an answer and the next question of a user.", SECONDS),
    Field("capacity_per_instance", "per instance", "Requests in flight of one instance; typed it is used as it is.",
          CAPACITY, optional=True, start=8.0),
    Field("prompt_tokens", "prompt (ISL)", "Mean tokens of a prompt.", TOKENS, optional=True, start=1000.0),
    Field("answer_tokens", "answer (OSL)", "Mean tokens of an answer.", TOKENS, optional=True, start=250.0),
    Field("prefix_hit_ratio", "prefix hits", "Share of the prompt that comes from the prefix cache.",
          ANY_SHARE, optional=True, start=0.0),
    Field("tp", "TP", "GPUs that share each layer.", COUNT, optional=True),
    Field("pp", "PP", "Stages of layers, each on its own GPUs.", COUNT, optional=True),
    Field("dp", "DP", "Ranks with the attention for themselves that share the experts of a mixture.", COUNT,
          optional=True),
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
FIELDS_BY_SECTION: Final = {GOALS: GOAL_FIELDS, SERVER: SERVER_FIELDS, WORKLOAD: WORKLOAD_FIELDS}
SIGNS: Final = {"concurrency": "", "users": "users", "requests_per_s": "req/s"}
"""Kind of a target -> the unit that is shown behind it; requests in flight need no word."""
TARGETS: Final = {"concurrency": "in flight", "users": "users", "requests_per_s": "requests per s"}
"""Kind of a target -> its name as a choice."""
_NAMES_BY_KEY: Final = {
    one_field.key: one_field.name
    for fields in FIELDS_BY_SECTION.values()
    for one_field in fields
    if "_" in one_field.key
}
"""Key of a field -> its name, for keys that are no word of a sentence."""
_KEYS: Final = re.compile(rf"\b(?:{'|'.join(sorted(_NAMES_BY_KEY, key=len, reverse=True))})\b")
"""Any of these keys; the longer ones come first, as some begin with another one."""


def with_field_names(text: str) -> str:
    """A message with the names that fields have in the panel in place of their keys in files."""
    return _KEYS.sub(lambda match: _NAMES_BY_KEY[match[0]], text)


def field_of(section: str, key: str) -> Field:
    """The field of a section with a key."""
    return next(one_field for one_field in FIELDS_BY_SECTION[section] if one_field.key == key)
