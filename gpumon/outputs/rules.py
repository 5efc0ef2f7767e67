"""Recording and alert rules for a Prometheus: `rules.yml` beside this file, filled in for models, labels and prices."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from gpumon.config.selector import matched_labels
from gpumon.efficiency.promql import Constant, bucket_weights
from gpumon.readings.goals import PROMISED, Goals
from gpumon.readings.text import clean
from gpumon.triage.samples import AWAKE
from gpumon.triage.thresholds import Thresholds

_TEMPLATE: Final = Path(__file__).with_name("rules.yml")
_HEAD: Final = """\
# Recording and alert rules by `gpumon rules` (docs/rules.md): load with rule_files, check with
# `promtool check rules FILE`. The figures of a model are in the groups gpumon-model-*, one line each:
# change a number there (the GPUs of an engine, a peak), and everything follows. Load one such file only.
"""
"""Comment that begins the file."""
ONE_TWO_FIVE: Final = tuple(digit * 10.0**zeros for zeros in range(7) for digit in (1, 2, 5))
"""vLLM's bounds of lengths (v1/metrics/loggers.py `build_1_2_5_buckets`), up to the longest model."""
SGLANG_BOUNDS: Final = (
    *(100.0, 300.0, 500.0, 700.0, 1000.0, 1500.0, 2000.0, 3000.0, 4000.0, 5000.0, 6000.0, 7000.0, 8000.0, 9000.0),
    *(10000.0, 12500.0, 15000.0, 17500.0, 20000.0, 22500.0, 25000.0, 27500.0, 30000.0, 35000.0, 40000.0, 60000.0),
    *(80000.0, 100000.0, 200000.0, 300000.0, 400000.0, 600000.0, 800000.0, 1e6, 1.1e6),
)
"""SGLang's (observability/metrics_collector.py)."""
LATENCY_BOUNDS: Final = frozenset(
    (
        *(0.001, 0.002, 0.004, 0.005, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.05, 0.06, 0.075),
        *(0.08, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.8, 1.0, 2.0, 2.5, 4.0, 5.0, 6.0, 7.5, 8.0, 10.0),
        *(15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 100.0, 160.0, 200.0, 400.0, 640.0, 2560.0),
    )
)
"""Bounds in seconds of the TTFT, TPOT and ITL of vLLM (v1/metrics/loggers.py) and SGLang. Where an engine has others
beside them, what missed its goal counts up to the next one of these."""
FAST_BURN: Final = 14.4
"""Times the share that may miss a goal from which an hour spends 2% of what may miss it in 30 days (Google's SRE
workbook, chapter 5)."""
SLOW_BURN: Final = 6.0
"""The same of six hours that spend 5%."""
_BURN_REQUESTS: Final = 1.0 / (1.0 - PROMISED)
"""Requests in the longer window up to which no burn is told: of so few a single miss is more than may miss its goal."""
_BOUND_TOLERANCE: Final = 1e-9
MOST_RULES: Final = 20
"""Most rules of a group: Mimir's default limit."""
_RATE_S = 10.0
"""Shortest window of rates."""
LENGTHS_S = 60.0
"""Shortest window of lengths of prompts and answers."""
WASTE_S = 1800.0
"""Shortest time that waste must last."""
RARELY_S = 240.0
"""Longest interval of a group: a series is gone after 5 minutes without a sample."""
_TARGET_LABELS: Final = ("cluster", "namespace", "pod", "job", "instance")
"""Labels of a target that its series keep, beside those that name its host."""
_ENGINE_LABELS: Final = frozenset(
    ("__name__", "model_name", "engine", "engine_type", "dp_rank", "tp_rank", "pp_rank", "moe_ep_rank")
)
"""Labels that no target has: what is joined over a target does not have them."""
_PLACEHOLDER: Final = re.compile(
    r"(?P<indent>(?<=\n) *)?(?:<(?P<begin>place )|<(?P<name>[a-z_]+(?: first| second)?)>|(?P<end> place)>)"
)
"""A name in the template, with the indentation of its line where it stands first."""


class ModelFacts(NamedTuple):
    """One model, as its engines' label `model_name` names it."""

    name: str
    source: str
    """Place that its facts are from."""
    constants: tuple[Constant, ...]
    """Figures of it that the rules compute with."""
    gpu: str = ""
    """Type of its GPUs; empty: not known, and no MFU and no MBU."""
    size: str = ""
    """How many GPUs an engine has, and how that is known."""


class RulePrices(NamedTuple):
    """Prices of one hour of a GPU: by price the NVML names, and that of all others (empty: none)."""

    by_price: Mapping[str, tuple[str, ...]] = {}
    any_other: str = ""


class Scope(NamedTuple):
    """Labels and matchers of one Prometheus."""

    match: str
    """Matchers that every selector of what is scraped gets."""
    hosts: tuple[str, ...]
    """Labels that name a machine, the best first."""
    scrape_s: float
    """Seconds between two scrapes."""
    join: str = ""
    """Label that an engine and its GPUs share; empty: the machine."""


class RuleInputs(NamedTuple):
    """All that the rules are made of."""

    models: tuple[ModelFacts, ...]
    scope: Scope
    prices: RulePrices = RulePrices()
    thresholds: Thresholds = Thresholds()
    unknown: tuple[tuple[str, str], ...] = ()
    """Models without constants, and why: no facts are known of them (with the lines that would tell them), or their
    weights do not fit into the GPUs of an engine."""
    scraped: bool = True
    """Engines or dcgm-exporters are scraped themselves."""
    served: bool = False
    """Some `gpumon serve-metrics` is."""
    goals: Goals = Goals()
    """Goals that engines which are scraped themselves are held against; `gpumon serve-metrics` has its own."""


def rules_yaml(inputs: RuleInputs) -> str:
    """The rules file. Ends with a line feed."""
    lines = [_HEAD]
    for name, why in inputs.unknown:
        lines.append(f"#\n# No figures of {clean(name, 120)}:\n")
        for line in why.splitlines():
            lines.append(f"#   {clean(line, 300)}\n")
    lines.append("groups:\n")
    values = _template_values(inputs)
    if inputs.scraped:
        for place, model in enumerate(inputs.models, 1):
            lines += _model_lines(f"gpumon-model-{place}", model, values["rarely"])
    for group in _TEMPLATE.read_text("utf-8").partition("groups:\n")[2].split("\n\n"):
        if _has_series(group, inputs):
            lines.append(_fill_in(group.strip("\n"), values) + "\n")
    return "".join(lines)


def _has_series(group: str, inputs: RuleInputs) -> bool:
    """Whether the rules of a group have series to read, by the name of the group."""
    name = group.partition("- name: ")[2].partition("\n")[0]
    if name.startswith("gpumon-served"):
        return inputs.served
    if name.startswith("gpumon-goals"):
        goal_s = inputs.goals.ttft_s if name == "gpumon-goals-ttft" else inputs.goals.token_s
        return inputs.scraped and goal_s is not None
    if name == "gpumon-goal-burn":
        has_goals = inputs.goals.ttft_s is not None or inputs.goals.token_s is not None
        return inputs.served or (inputs.scraped and has_goals)
    priced = bool(inputs.prices.by_price or inputs.prices.any_other)
    return inputs.scraped and (name != "gpumon-prices" or priced)


def _model_lines(name: str, model: ModelFacts, interval: str) -> list[str]:
    """The groups with the constants of one model, each of at most `MOST_RULES` rules."""
    gpu = f"on {model.gpu}" if model.gpu else "GPU not known: no MFU, no MBU"
    lines = [f"  # {clean(f'{model.name}: {model.source}, {gpu}; {model.size}', 300)}\n"]
    labels = f"        labels: {{model_name: {quoted(model.name)}}}\n"
    for count, constant in enumerate(model.constants):
        if count % MOST_RULES == 0:
            part = f"-{count // MOST_RULES + 1}" if count else ""
            lines.append(f"  - name: {name}{part}\n    interval: {interval}\n    rules:\n")
        lines += [f"      # {constant.meaning}\n", f"      - record: {constant.record}\n"]
        lines += [f"        expr: vector({promql_number(constant.value)})\n", labels]
    return lines


def _template_values(inputs: RuleInputs) -> dict[str, str]:
    """Name of a placeholder in the template -> its value."""
    limits = inputs.thresholds
    scrape_s = inputs.scope.scrape_s
    values = {
        name: promql_number(threshold)
        for name, threshold in msgspec.structs.asdict(limits).items()
        if not isinstance(threshold, str)
    }
    values |= {
        "awake": promql_number(AWAKE),
        "under_used": duration(max(limits.under_used_s, 4.0 * scrape_s)),
        "gpu_idle": duration(max(limits.gpu_idle_s, WASTE_S)),
        "match": "".join(map(_escape_unprintable, inputs.scope.match.strip().strip(","))),
        "rate": duration(max(_RATE_S, 4.0 * scrape_s)),
        "lengths": duration(max(LENGTHS_S, 20.0 * scrape_s)),
        "step": duration(scrape_s),
        "prices": _price_terms(inputs.prices),
        "ttft_les": _bounds_from(inputs.goals.ttft_s),
        "token_les": _bounds_from(inputs.goals.token_s),
        "fast_burn": promql_number(FAST_BURN * (1.0 - PROMISED)),
        "slow_burn": promql_number(SLOW_BURN * (1.0 - PROMISED)),
        "burn_requests": promql_number(_BURN_REQUESTS),
    }
    values |= _label_lists(inputs.scope)
    values |= _place_label(inputs.scope)
    for name, scrapes in (("often", 2.0), ("seldom", 4.0), ("rarely", 8.0)):
        values[name] = duration(min(scrapes * scrape_s, RARELY_S))
    for kind, bounds in (("vllm", ONE_TWO_FIVE), ("sglang", SGLANG_BOUNDS)):
        for field in ("first", "second"):
            values[f"{kind} {field}"] = _bucket_weights(bounds, field)
    return values


def _bounds_from(goal_s: float | None) -> str:
    """Bounds of latencies that are not below a goal, as a regular expression of `le`: who is under the least of them
    that an engine has may have kept the goal, who is above it has missed it."""
    texts = ["[+]Inf"]
    for bound in sorted(LATENCY_BOUNDS):
        if goal_s is not None and bound >= goal_s * (1.0 - _BOUND_TOLERANCE):
            text = repr(bound).replace(".", "[.]")
            texts.append(text.removesuffix("[.]0") + ("([.]0)?" if text.endswith("[.]0") else ""))
    return "|".join(texts)


def _label_lists(scope: Scope) -> dict[str, str]:
    """Labels that series of a target, an engine, a GPU and an exporter have, with commas between them."""
    names = [*_TARGET_LABELS, *scope.hosts, *matched_labels(scope.match)]
    workload = []
    if scope.join:
        names.append(scope.join)
        workload.append(f"exported_{scope.join}")
    target = [name for name in dict.fromkeys(names) if name not in _ENGINE_LABELS]
    gpu = [name for name in target if name not in ("namespace", "pod") or name == scope.join]
    exporter = [
        name for name in ("cluster", "job", "instance", *matched_labels(scope.match)) if name not in _ENGINE_LABELS
    ]
    return {
        "target": ", ".join(target),
        "engine": ", ".join((*target, "model_name")),
        "gpu": ", ".join((*gpu, *workload, "UUID", "gpu", "modelName")),
        "exporter": ", ".join(exporter),
    }


def _place_label(scope: Scope) -> dict[str, str]:
    """Text before and behind a selector that gives its series the label `place`: the machine, or the label to join."""
    names = (f"exported_{scope.join}", scope.join) if scope.join else scope.hosts
    before = ""
    behind = ""
    for name in reversed(names):
        pattern = "(.+?)(?::[0-9]+)?" if name == "instance" else "(.+)"
        before = f"label_replace({before}"
        behind = f'{behind}, "place", "$1", "{name}", "{pattern}")'
    return {"place ": before, " place": behind}


def _fill_in(group: str, values: Mapping[str, str]) -> str:
    """The group with its names filled in; a value of several lines keeps the indentation of its name."""
    if not values["match"]:
        group = group.replace("{<match>}", "").replace(", <match>}", "}")

    def value(name: re.Match[str]) -> str:
        indent = name["indent"] or ""
        text = values[name["begin"] or name["name"] or name["end"]]
        return indent + text.replace("\n", f"\n{indent}")

    return _PLACEHOLDER.sub(value, group)


def _bucket_weights(bounds: Sequence[float], field: str) -> str:
    """One number per bucket of a histogram of lengths."""
    terms = [
        f'label_replace(vector({promql_number(getattr(weight, field))}), "le", "{weight.le}", "", "")'
        for weight in bucket_weights(tuple(bounds))
    ]
    return "\nor ".join(terms)


def _price_terms(prices: RulePrices) -> str:
    """The price of each GPU by its name, and of the others."""
    busy = "gpumon:gpu_busy:ratio"
    parts = []
    for price, names in prices.by_price.items():
        pattern = "|".join(map(_name_pattern, sorted(names)))
        parts.append(f'{busy}{{modelName=~"(?i:(nvidia )?({pattern}))"}} * 0 + {price}')
    if prices.any_other:
        parts.append(f"{busy} * 0 + {prices.any_other}")
    return "\nor ".join(parts)


def _name_pattern(name: str) -> str:
    """A name as a pattern of its own in a PromQL string, where a backslash is written twice: brackets need none."""
    characters = []
    for character in name:
        if re.fullmatch(r"[A-Za-z0-9 _\-/]", character):
            characters.append(character)
        elif character in '^\\"]':
            characters.append(".")
        else:
            characters.append(f"[{character}]")
    return "".join(characters)


def quoted(text: str) -> str:
    """A YAML string in double quotes: JSON's form, with what YAML does not print as escapes of its own."""
    return "".join(map(_escape_unprintable, json.dumps(text, ensure_ascii=False)))


def _escape_unprintable(character: str) -> str:
    """A character as YAML and PromQL both read it between double quotes."""
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"


def duration(seconds: float) -> str:
    """Seconds as PromQL writes them, to the millisecond: `90s`, `1500ms`."""
    milliseconds = round(seconds * 1000)
    if milliseconds % 1000 == 0:
        return f"{milliseconds // 1000}s"
    return f"{milliseconds}ms"


def promql_number(value: float) -> str:
    """A number as PromQL and YAML read it."""
    return f"{value:.12g}"
