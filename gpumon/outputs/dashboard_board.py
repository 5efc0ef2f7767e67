"""What a Grafana dashboard is made of: panels, the columns of its table, and its variables."""

from __future__ import annotations

from typing import NamedTuple


class Panel(NamedTuple):
    """One chart: title, unit (Grafana's id), and its queries with their legends."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    meaning: str = ""


class Column(NamedTuple):
    """One column of the table of models."""

    title: str
    unit: str
    expr: str


class Variable(NamedTuple):
    """One choice above the panels; all at first."""

    name: str
    label: str
    asked: str
    """Grafana's query for its values."""


class Board(NamedTuple):
    """One set of panels, all of them cut down by its variables."""

    title: str
    panels: tuple[Panel, ...]
    columns: tuple[Column, ...]
    model: str
    """Label that names a model."""
    variables: tuple[Variable, ...]


def kv_cache(usage: str, model: str) -> Panel:
    """How full the caches of each model's engines are: their selector, and the label that names a model."""
    shown = (("avg", "mean"), ("max", "fullest"))
    queries = tuple((f"{how} by ({model}) ({usage})", f"{{{{{model}}}}} {said}") for how, said in shown)
    return Panel("KV cache", "percentunit", queries, "mean of the engines, and the fullest of them")
