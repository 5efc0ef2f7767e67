"""A Grafana dashboard over the recorded rules and DCGM's series, as JSON."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from gpumon.outputs.rules_gpus import BUSY, DRAM, IDLE_COSTS, IDLE_GPUS, TENSOR

SCHEMA: Final = 39
"""Grafana's `schemaVersion`: that of Grafana 11, which later ones read."""
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
OF_MODEL: Final = '{model_name=~"$model"}'
WIDTH: Final = 24
HEIGHT: Final = 8


class Panel(NamedTuple):
    """One chart: title, unit (Grafana's id), and its queries with their legends."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    meaning: str = ""


def _model(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"gpumon:model_{name}{OF_MODEL}", legend) for name, legend in _legends(names))


def _legends(names: tuple[str, ...]) -> list[tuple[str, str]]:
    plain = "{{model_name}}"
    return [
        (name, plain if len(names) == 1 else f"{plain} {name.partition(':')[0].replace('_', ' ')}") for name in names
    ]


_PANELS: Final = (
    Panel("MFU", "percentunit", _model("mfu:ratio"), "FLOPs that the tokens needed / dense peak of the GPUs"),
    Panel("MBU", "percentunit", _model("mbu:ratio"), "bytes that the steps must read / peak bandwidth of the GPUs"),
    Panel("MFU of prefill and decode", "percentunit", _model("mfu_prefill:ratio", "mfu_decode:ratio")),
    Panel("Decode tokens/s", "short", _model("decode_tokens:rate")),
    Panel("Prefill tokens/s", "short", _model("prefill_tokens:rate"), "computed, without what the prefix cache had"),
    Panel("Tokens per joule", "short", _model("tokens_per_joule:ratio"), "where one model has the place to itself"),
    Panel("KV cache", "percentunit", _model("kv_usage:ratio", "kv_usage:max")),
    Panel("Running and waiting", "short", _model("requests_running:sum", "requests_waiting:sum")),
    Panel("Time to first token, p95", "s", _model("ttft_seconds:p95")),
    Panel("Gap between tokens, p95", "s", _model("itl_seconds:p95")),
    Panel(
        "GPUs: busy, tensor and memory active",
        "percentunit",
        tuple((f"avg({name})", legend) for name, legend in ((BUSY, "busy"), (TENSOR, "tensor"), (DRAM, "memory"))),
        "busy is time with any kernel: high busy with low tensor and memory activity is waste",
    ),
    Panel(
        "Engines with the lowest MFU",
        "percentunit",
        ((f"bottomk(10, gpumon:engine_mfu:ratio{OF_MODEL})", "{{model_name}} {{instance}}"),),
    ),
)
_MONEY: Final = (
    Panel(
        "Idle money per hour",
        "short",
        ((IDLE_COSTS, "all GPUs"), *_model("idle_cost:per_hour")),
        "price of a GPU x (1 - busy)",
    ),
)
_GPUS_IDLE: Final = (Panel("Idle GPUs", "short", ((IDLE_GPUS, "GPUs' worth of idle time"),), "sum of 1 - busy"),)
_COLUMNS: Final = (
    ("engines:count", "engines", "short"),
    ("mfu:ratio", "MFU", "percentunit"),
    ("mbu:ratio", "MBU", "percentunit"),
    ("prefill_tokens:rate", "prefill tokens/s", "short"),
    ("decode_tokens:rate", "decode tokens/s", "short"),
    ("requests_running:sum", "running", "short"),
    ("requests_waiting:sum", "waiting", "short"),
    ("kv_usage:ratio", "KV", "percentunit"),
    ("tokens_per_joule:ratio", "tokens/J", "short"),
)
"""Of the table per model: series, title, unit."""


def dashboard_json(*, priced: bool) -> str:
    """The dashboard, to import in Grafana; `priced`: the rules know prices. Ends with a line feed."""
    return msgspec.json.format(msgspec.json.encode(dashboard(priced=priced)), indent=2).decode() + "\n"


def dashboard(*, priced: bool) -> dict[str, Any]:
    """The same as an object."""
    shown = (*_PANELS, *(_MONEY if priced else _GPUS_IDLE))
    panels = [_table()]
    for at, panel in enumerate(shown):
        place = {"x": at % 3 * (WIDTH // 3), "y": HEIGHT + at // 3 * HEIGHT, "w": WIDTH // 3, "h": HEIGHT}
        panels.append(_chart(panel, at + 2, place))
    return {
        "title": "LLM serving: MFU, MBU and cost (gpumon)",
        "uid": "gpumon-rules",
        "tags": ["gpumon", "llm", "gpu"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "templating": {"list": _variables()},
        "panels": panels,
    }


def expressions(made: dict[str, Any]) -> list[str]:
    """The queries of all panels of a dashboard."""
    return [target["expr"] for panel in made["panels"] for target in panel["targets"]]


def _variables() -> list[dict[str, Any]]:
    asked = "label_values(gpumon:model_requests_running:sum, model_name)"
    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
        {
            "name": "model",
            "type": "query",
            "label": "Model",
            "datasource": SOURCE,
            "definition": asked,
            "query": {"query": asked, "refId": "model"},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        },
    ]


def _chart(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.meaning,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": {"spanNulls": False}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(65 + at), "expr": expr, "legendFormat": legend, "datasource": SOURCE}
            for at, (expr, legend) in enumerate(panel.queries)
        ],
    }


def _table() -> dict[str, Any]:
    targets, overrides, names = [], [], {}
    for at, (series, title, unit) in enumerate(_COLUMNS):
        ref = chr(65 + at)
        targets.append(
            {
                "refId": ref,
                "expr": f"gpumon:model_{series}{OF_MODEL}",
                "format": "table",
                "instant": True,
                "datasource": SOURCE,
            }
        )
        names[f"Value #{ref}"] = title
        overrides.append({"matcher": {"id": "byName", "options": title}, "properties": [{"id": "unit", "value": unit}]})
    return {
        "id": 1,
        "type": "table",
        "title": "Models",
        "datasource": SOURCE,
        "gridPos": {"x": 0, "y": 0, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {}, "overrides": overrides},
        "options": {"showHeader": True},
        "targets": targets,
        "transformations": [
            {"id": "joinByField", "options": {"byField": "model_name", "mode": "outer"}},
            {"id": "filterFieldsByName", "options": {"include": {"names": ["model_name", *names]}}},
            {"id": "organize", "options": {"renameByName": {**names, "model_name": "model"}}},
        ],
    }
