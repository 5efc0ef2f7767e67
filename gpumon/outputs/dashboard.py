"""A Grafana dashboard as JSON, from `dashboard.toml` beside this file: over the rules, over serve-metrics, or both."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import starmap
from math import ceil
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Final, NamedTuple

import msgspec
import tomli

_TEMPLATE: Final = Path(__file__).with_name("dashboard.toml")
_SCHEMA: Final = 39
"""Grafana's `schemaVersion`: that of Grafana 11, which later ones read."""
_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH: Final = 24
"""Units of Grafana's grid from left to right."""
HEIGHT: Final = 8
"""Units of the grid that a panel is high."""
CHARTS_PER_LINE: Final = 3
"""Charts beside each other."""


class _ChartRow(NamedTuple):
    """A row of `panels` in the template."""

    title: str
    unit: str
    """Grafana's name of the unit."""
    meaning: str
    queries: list[list[str]]
    """Query and legend of each line."""


def dashboard_json(*, priced: bool, scraped: bool = True, served: bool = False) -> str:
    """The dashboard, to import in Grafana. Ends with a line feed."""
    board = dashboard(priced=priced, scraped=scraped, served=served)
    return msgspec.json.format(msgspec.json.encode(board), indent=2).decode() + "\n"


def dashboard(*, priced: bool, scraped: bool = True, served: bool = False) -> dict[str, Any]:
    """The dashboard as an object: one board below the other.

    `priced`: the rules know prices; `scraped`: the Prometheus scrapes engines or dcgm-exporters; `served`: some
    `gpumon serve-metrics`.
    """
    template = tomli.loads(_TEMPLATE.read_text("utf-8"))
    boards = _fill_in(template["board"], template["macros"])
    is_shown = {"scraped": scraped, "served": served}
    left_out = "Idle GPUs" if priced else "Idle money per hour"
    panels: list[dict[str, Any]] = []
    variables: list[dict[str, Any]] = []
    shown = [board for board in boards if is_shown[board["name"]]]
    y = 0  # grid line
    for board in shown:
        if len(shown) > 1:
            panels.append(_heading(board, len(panels) + 1, y))
            y += 1
        panels.append(_table(board, len(panels) + 1, {"x": 0, "y": y, "w": _WIDTH, "h": HEIGHT}))
        y += HEIGHT
        charts = [chart for chart in starmap(_ChartRow, board["panels"]) if chart.title != left_out]
        for number, chart in enumerate(charts):
            panels.append(_chart(chart, len(panels) + 1, _chart_place(number, y)))
        y += ceil(len(charts) / CHARTS_PER_LINE) * HEIGHT
        for name, label, query in board["variables"]:
            variables.append(_variable(name, label, query))
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "title": "LLM serving: MFU, MBU and cost (gpumon)",
        "uid": "gpumon-rules",
        "tags": ["gpumon", "llm", "gpu"],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "templating": {"list": [source, *variables]},
        "panels": panels,
    }


def _heading(board: dict[str, Any], number: int, y: int) -> dict[str, Any]:
    """The line that parts a board from the one above it."""
    place = {"x": 0, "y": y, "w": _WIDTH, "h": 1}
    return {"id": number, "type": "row", "title": board["title"], "gridPos": place, "panels": []}


def _chart_place(number: int, y: int) -> dict[str, int]:
    """Place of a chart on the grid. `number`: from 0, of the charts that begin in grid line `y`."""
    line, column = divmod(number, CHARTS_PER_LINE)
    width = _WIDTH // CHARTS_PER_LINE
    return {"x": column * width, "y": y + line * HEIGHT, "w": width, "h": HEIGHT}


def _fill_in(part: Any, macros: Mapping[str, str]) -> Any:
    """A part of the template with its macros, `<name argument ...>`, replaced by their texts, nested ones too."""
    if isinstance(part, dict):
        return {key: _fill_in(value, macros) for key, value in part.items()}
    if isinstance(part, list):
        return [_fill_in(value, macros) for value in part]

    def text(name_in_text: re.Match[str]) -> str:
        name, *arguments = name_in_text[1].split()
        macro = macros[name]
        for number, argument in enumerate(arguments, 1):
            macro = macro.replace(f"#{number}", argument)
        return str(_fill_in(macro, macros))

    return re.sub(r"<([a-z_]+(?: [\w:#]+)*)>", text, part)


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    """A choice above the dashboard: the values that `query` gives, several at once or all."""
    return {
        "name": name,
        "type": "query",
        "label": label,
        "datasource": _DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,  # when the time range changes
        "sort": 1,  # by the alphabet
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _chart(chart: _ChartRow, number: int, place: dict[str, int]) -> dict[str, Any]:
    """A panel with lines over time. `number`: the id of the panel."""
    targets = [
        {"refId": letter, "expr": expr, "legendFormat": legend, "datasource": _DATASOURCE}
        for letter, (expr, legend) in zip(ascii_uppercase, chart.queries, strict=False)
    ]
    return {
        "id": number,
        "type": "timeseries",
        "title": chart.title,
        "description": chart.meaning,
        "datasource": _DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": chart.unit, "min": 0, "custom": {"spanNulls": False}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": targets,
    }


def _table(board: dict[str, Any], number: int, place: dict[str, int]) -> dict[str, Any]:
    """The panel with a row per model and the columns of a board, each from a query of its own."""
    targets = []
    overrides = []
    names = {}
    for letter, (title, unit, expr) in zip(ascii_uppercase, board["columns"], strict=False):
        targets.append(
            {
                "refId": letter,
                "expr": expr,
                "format": "table",
                "instant": True,
                "datasource": _DATASOURCE,
            }
        )
        names[f"Value #{letter}"] = title
        overrides.append({"matcher": {"id": "byName", "options": title}, "properties": [{"id": "unit", "value": unit}]})
    return {
        "id": number,
        "type": "table",
        "title": "Models",
        "datasource": _DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {}, "overrides": overrides},
        "options": {"showHeader": True},
        "targets": targets,
        "transformations": [
            {"id": "joinByField", "options": {"byField": board["model"], "mode": "outer"}},
            {"id": "filterFieldsByName", "options": {"include": {"names": [board["model"], *names]}}},
            {"id": "organize", "options": {"renameByName": {**names, board["model"]: "model"}}},
        ],
    }
