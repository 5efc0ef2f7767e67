"""A Grafana dashboard as JSON: over the recorded rules, over the series of serve-metrics, or over both."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gpumon.outputs.dashboard_board import Board, Panel, Variable
from gpumon.outputs.dashboard_scraped import scraped as of_scraped
from gpumon.outputs.dashboard_served import served as of_served

SCHEMA: Final = 39
"""Grafana's `schemaVersion`: that of Grafana 11, which later ones read."""
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
WIDTH: Final = 24
HEIGHT: Final = 8
BESIDE: Final = 3
"""Panels in one line."""


def dashboard_json(*, priced: bool, scraped: bool = True, served: bool = False) -> str:
    """The dashboard, to import in Grafana; `priced`: the rules know prices. Ends with a line feed."""
    made = dashboard(boards(priced=priced, scraped=scraped, served=served))
    return msgspec.json.format(msgspec.json.encode(made), indent=2).decode() + "\n"


def boards(*, priced: bool, scraped: bool = True, served: bool = False) -> list[Board]:
    """`scraped`: the Prometheus scrapes engines or dcgm-exporters; `served`: some `gpumon serve-metrics`."""
    return [*([of_scraped(priced=priced)] if scraped else []), *([of_served()] if served else [])]


def dashboard(of: list[Board]) -> dict[str, Any]:
    """The same as an object: one board below the other."""
    panels: list[dict[str, Any]] = []
    y = 0
    for board in of:
        if len(of) > 1:
            place = {"x": 0, "y": y, "w": WIDTH, "h": 1}
            panels.append({"id": len(panels) + 1, "type": "row", "title": board.title, "gridPos": place, "panels": []})
            y += 1
        panels.append(_table(board, len(panels) + 1, {"x": 0, "y": y, "w": WIDTH, "h": HEIGHT}))
        y += HEIGHT
        for at, panel in enumerate(board.panels):
            line, column = divmod(at, BESIDE)
            each = WIDTH // BESIDE
            place = {"x": column * each, "y": y + line * HEIGHT, "w": each, "h": HEIGHT}
            panels.append(_chart(panel, len(panels) + 1, place))
        y += -(-len(board.panels) // BESIDE) * HEIGHT
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
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
        "templating": {"list": [source, *(_variable(one) for board in of for one in board.variables)]},
        "panels": panels,
    }


def expressions(made: dict[str, Any]) -> list[str]:
    """The queries of all panels of a dashboard."""
    return [target["expr"] for panel in made["panels"] for target in panel.get("targets", ())]


def _variable(one: Variable) -> dict[str, Any]:
    return {
        "name": one.name,
        "type": "query",
        "label": one.label,
        "datasource": SOURCE,
        "definition": one.asked,
        "query": {"query": one.asked, "refId": one.name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


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


def _table(board: Board, number: int, place: dict[str, int]) -> dict[str, Any]:
    targets, overrides, names = [], [], {}
    for at, (title, unit, expr) in enumerate(board.columns):
        ref = chr(65 + at)
        targets.append(
            {
                "refId": ref,
                "expr": expr,
                "format": "table",
                "instant": True,
                "datasource": SOURCE,
            }
        )
        names[f"Value #{ref}"] = title
        overrides.append({"matcher": {"id": "byName", "options": title}, "properties": [{"id": "unit", "value": unit}]})
    return {
        "id": number,
        "type": "table",
        "title": "Models",
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {}, "overrides": overrides},
        "options": {"showHeader": True},
        "targets": targets,
        "transformations": [
            {"id": "joinByField", "options": {"byField": board.model, "mode": "outer"}},
            {"id": "filterFieldsByName", "options": {"include": {"names": [board.model, *names]}}},
            {"id": "organize", "options": {"renameByName": {**names, board.model: "model"}}},
        ],
    }
