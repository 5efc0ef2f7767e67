"""Recording and alert rules for a Prometheus, as YAML: constants of models, and formulas over engines' rates."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency import promql
from gpumon.efficiency.promql import Constant, bucket_weights
from gpumon.outputs.rules_alerts import Alert, alerts, seconds
from gpumon.outputs.rules_engines import LEFT_OUT, bounds_of, families, quantiles
from gpumon.outputs.rules_gpus import gpu_rules, model_rules, place_rules
from gpumon.outputs.rules_scope import Rule, Scope, duration, number
from gpumon.outputs.rules_served import served_alerts
from gpumon.outputs.rules_targets import BEFORE_S, Targets, engine_targets, gpu_targets, served_targets
from gpumon.readings.text import clean
from gpumon.triage.thresholds import Thresholds

_HEAD: Final = (
    "Recording and alert rules by `gpumon rules` (docs/rules.md): load with rule_files, check with",
    "`promtool check rules FILE`. The figures of a model are in the groups gpumon-model-*, one line each:",
    "change a number there (the GPUs of an engine, a peak), and everything follows. Load one such file only.",
)

SEEN_BY: Final = ", seen_by: serve-metrics"
MOST_RULES: Final = 20
"""Of a group: Mimir's default limit."""


class ModelFacts(NamedTuple):
    """One model, as its engines' label `model_name` names it."""

    name: str
    source: str
    constants: tuple[Constant, ...]
    gpu: str = ""
    """Type of its GPUs; empty: not known, and no MFU and no MBU."""
    size: str = ""
    """How many GPUs an engine has, and how that is known."""


class Prices(NamedTuple):
    """Prices of one hour of a GPU: by price the NVML names, and that of all others (empty: none)."""

    by_price: Mapping[str, tuple[str, ...]] = {}
    any_other: str = ""


class Ruled(NamedTuple):
    """All that the rules are made of."""

    models: tuple[ModelFacts, ...]
    scope: Scope
    prices: Prices = Prices()
    thresholds: Thresholds = Thresholds()
    unknown: tuple[tuple[str, str], ...] = ()
    """Models that no facts are known of, and the lines that would tell them."""
    scraped: bool = True
    """Engines or dcgm-exporters are scraped themselves."""
    served: bool = False
    """Some `gpumon serve-metrics` is."""


def rules_yaml(ruled: Ruled) -> str:
    """The rules file. Ends with a line feed."""
    lines = [f"# {line}" for line in _HEAD]
    for name, why in ruled.unknown:
        lines += [
            "#",
            f"# No figures of {clean(name, 120)}:",
            *(f"#   {clean(line, 300)}" for line in why.splitlines()),
        ]
    lines.append("groups:")
    lines += [*_of_models(ruled), *_of_scraped(ruled)] if ruled.scraped else []
    lines += _of_served(ruled) if ruled.served else []
    return "\n".join(lines) + "\n"


def _of_models(ruled: Ruled) -> list[str]:
    lines: list[str] = []
    for at, model in enumerate(ruled.models, 1):
        on = f", on {model.gpu}" if model.gpu else ", GPU not known: no MFU, no MBU"
        constants = _constants(model)
        what = clean(f"{model.name}: {model.source}{on}; {model.size}", 300)
        lines += _group(f"gpumon-model-{at}", constants[:MOST_RULES], what)
        if len(constants) > MOST_RULES:
            lines += _group(f"gpumon-model-{at}-more", constants[MOST_RULES:], "of the same model")
    return lines


def _of_scraped(ruled: Ruled) -> list[str]:
    scope = ruled.scope
    lines = _group("gpumon-prompt-buckets", _buckets(scope), "what the bounds of prompts' histograms weigh")
    for family in families(scope):
        lines += _group(f"gpumon-{family.kind}", family.rules, family.title)
    lines += [f"  # {line}" for line in LEFT_OUT]
    lines += _group("gpumon-latency", quantiles(scope), "latencies of each engine and model")
    lines += _group("gpumon-engines", _derived(scope), "FLOPs, bytes, MFU and MBU of each engine")
    lines += _group("gpumon-models", model_rules(), "sums per model")
    gpus = gpu_rules(scope, ruled.prices.by_price, ruled.prices.any_other)
    lines += _group("gpumon-gpus", gpus, "GPUs, by dcgm-exporter")
    places = place_rules(scope, priced=bool(ruled.prices.by_price or ruled.prices.any_other))
    lines += _group("gpumon-places", places, "engines and GPUs that have the label place in common")
    lines += _targets("gpumon-targets", engine_targets(scope), gpu_targets(scope))
    return [*lines, *_alerts("gpumon-alerts", alerts(scope, ruled.thresholds))]


def _of_served(ruled: Ruled) -> list[str]:
    """MFU and MBU are in its series already."""
    lines = _targets("gpumon-served-targets", served_targets(ruled.scope))
    return [*lines, *_alerts("gpumon-served-alerts", served_alerts(ruled.scope, ruled.thresholds), SEEN_BY)]


def _targets(name: str, *kinds: Targets) -> list[str]:
    before = [rule for kind in kinds for rule in kind.before]
    return [
        *_group(f"{name}-before", before, "seldom, as it looks far back", BEFORE_S),
        *_group(name, [rule for kind in kinds for rule in kind.now], "what ought to answer"),
    ]


def recorded(ruled: Ruled) -> frozenset[str]:
    """The names of all series that the rules make."""
    priced = bool(ruled.prices.by_price or ruled.prices.any_other)
    rules: list[Rule] = [rule for model in ruled.models for rule in _constants(model)]
    rules += [rule for family in families(ruled.scope) for rule in family.rules]
    rules += [*quantiles(ruled.scope), *_buckets(ruled.scope), *_derived(ruled.scope), *model_rules()]
    rules += gpu_rules(ruled.scope, ruled.prices.by_price, ruled.prices.any_other)
    rules += place_rules(ruled.scope, priced=priced)
    return frozenset(rule.record for rule in rules)


def _constants(model: ModelFacts) -> list[Rule]:
    named = (("model_name", model.name),)
    return [Rule(one.record, f"vector({number(one.value)})", one.meaning, named) for one in model.constants]


def _derived(scope: Scope) -> list[Rule]:
    found = promql.derived(scope.also_by("engine_kind"), scope.rate)
    return [Rule(record, expr, meaning) for record, expr, meaning in found]


def _buckets(scope: Scope) -> list[Rule]:
    rules = []
    for family in families(scope):
        weights = bucket_weights(bounds_of(family.kind)) if bounds_of(family.kind) else ()
        for field, meaning in (("first", "mean"), ("second", "mean square")) if weights else ():
            parts = (
                f'label_replace(vector({number(getattr(one, field))}), "le", "{one.le}", "", "")' for one in weights
            )
            name = f"gpumon:prompt_bucket_{field}:const"
            rules.append(Rule(name, "\nor ".join(parts), f"of the {meaning}", (("engine_kind", family.kind),)))
    return rules


def _group(name: str, rules: Iterable[Rule], what: str, every_s: float = 0.0) -> list[str]:
    """`every_s`: seconds between two evaluations; 0: as the Prometheus is set."""
    interval = [f"    interval: {duration(every_s)}"] if every_s else []
    lines = [f"  # {what}", f"  - name: {name}", *interval, "    rules:"]
    for rule in rules:
        lines += [f"      # {rule.meaning}"] if rule.meaning else []
        lines += [f"      - record: {rule.record}", *_expr(rule.expr)]
        if rule.labels:
            lines.append(f"        labels: {{{', '.join(f'{key}: {quoted(value)}' for key, value in rule.labels)}}}")
    return lines


def _alerts(name: str, found: Sequence[Alert], more: str = "") -> list[str]:
    """`more`: labels that tell them from alerts of the same name."""
    lines = [f"  - name: {name}", "    rules:"]
    for one in found:
        lines += [f"      - alert: {one.name}", *_expr(one.expr)]
        lines += [f"        for: {seconds(one)}"] if one.for_s else []
        lines += [
            f"        labels: {{severity: {one.severity}{more}}}",
            "        annotations:",
            f"          summary: {quoted(one.summary)}",
            f"          description: {quoted(one.fix)}",
        ]
    return lines


def _expr(expr: str) -> list[str]:
    """On one line, or as a literal block; what YAML has no plain form for is quoted."""
    if not expr.isprintable() and not all(line.isprintable() for line in expr.split("\n")):
        return [f"        expr: {quoted(expr)}"]
    lines = expr.split("\n")
    return ["        expr: |-", *(f"          {line.rstrip()}" for line in lines)]


def quoted(text: str) -> str:
    """A YAML string in double quotes: JSON's form, with what YAML does not print as escapes of its own."""
    return "".join(
        character if character.isprintable() else _escaped(character)
        for character in json.dumps(text, ensure_ascii=False)
    )


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
