"""The example file against the schema: every key, its default, and a word on what it means."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import tomli

from gpumon.config.keymap import COMMANDS, split_keys
from gpumon.config.load import load
from gpumon.config.resources import resource
from gpumon.config.schema import (
    Alert,
    Config,
    Dcgm,
    Discovery,
    Endpoint,
    Exporter,
    Feed,
    Fleet,
    General,
    Goals,
    Gpu,
    Host,
    Levels,
    Model,
    Prices,
    Prometheus,
    Recorder,
    Screen,
    Sizing,
    Webhook,
)
from gpumon.config.validate import validated
from gpumon.triage.thresholds import Thresholds
from tests.each_row import each_row

EXAMPLE = resource("config.example.toml").read_text(encoding="utf-8")
TABLES: dict[str, type[msgspec.Struct]] = {
    "general": General,
    "screen": Screen,
    "levels": Levels,
    "goals": Goals,
    "prices": Prices,
    "discovery": Discovery,
    "dcgm": Dcgm,
    "endpoint": Endpoint,
    "feed": Feed,
    "model": Model,
    "gpu": Gpu,
    "sizing": Sizing,
    "triage": Thresholds,
    "recorder": Recorder,
    "alert": Alert,
    "webhook": Webhook,
    "prometheus": Prometheus,
    "host": Host,
    "exporter": Exporter,
    "fleet": Fleet,
}
TABLES_INSIDE = {"prices.by_type", "prices.kwh_hours", "prometheus.gpus_per_engine", "feed.quantities"}
"""Tables of a table, whose keys the user chooses."""
EXCLUDED = {"file", "params_b", "flops_per_token"}
"""Settings of a [[feed]] that go without others: a url, or serving."""


def switched_on() -> dict[str, Any]:
    """The example with its `#key = value` and `#[[table]]` lines taken in."""
    return tomli.loads(re.sub(r"(?m)^#(?=[\[\"a-z])", "", EXAMPLE))


def entry(raw: dict[str, Any], name: str) -> dict[str, Any]:
    table: dict[str, Any] = raw[name][0] if isinstance(raw[name], list) else raw[name]
    return table


def test_as_it_stands_it_is_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(EXAMPLE, encoding="utf-8")
    assert load(str(path), {}).config == Config()


def test_it_shows_every_section_and_no_other() -> None:
    assert set(switched_on()) == {*TABLES, "keys"} == {field.name for field in msgspec.structs.fields(Config)}


@each_row("name", TABLES)
def test_it_shows_every_key_with_its_default(name: str) -> None:
    shown = entry(switched_on(), name)
    fields = msgspec.structs.fields(TABLES[name])
    assert set(shown) == {field.name for field in fields}, f"[{name}] of config.example.toml has each key, and no other"
    for field in fields:
        if f"{name}.{field.name}" in TABLES_INSIDE:
            assert shown[field.name]
        elif not field.required and field.default is not None:
            default = list(field.default) if isinstance(field.default, tuple) else field.default
            assert shown[field.name] == default, field.name


def test_it_lists_every_command_with_its_keys_and_what_it_does() -> None:
    shown = switched_on()["keys"]
    assert list(shown) == [command.id for command in COMMANDS], "each command has a line in config.example.toml"
    for command in COMMANDS:
        assert split_keys(shown[command.id]) == command.keys
        assert f"# {command.does}\n" in EXAMPLE


def test_with_everything_switched_on_it_is_valid() -> None:
    raw = switched_on()
    assert entry(raw, "feed").keys() >= EXCLUDED
    raw["feed"] = [{key: value for key, value in entry(raw, "feed").items() if key not in EXCLUDED}]
    entry(raw, "webhook")["url"] = "http://127.0.0.1:9000/verdicts"  # the example has its default, which is none
    config = validated(raw, Config)
    assert len(config.endpoint) == len(config.feed) == len(config.model) == 1


@each_row("name", TABLES)
def test_a_setting_without_a_default_says_so_and_every_setting_is_explained(name: str) -> None:
    lines = EXAMPLE.splitlines()
    begin = next(at for at, line in enumerate(lines) if re.fullmatch(rf"#?\[+{name}\]+", line))
    for field in msgspec.structs.fields(TABLES[name]):
        table = f"{name}.{field.name}"
        line = rf"#?\[{table}\]" if table in TABLES_INSIDE else rf"#?{field.name} = "
        at = next((at for at in range(begin, len(lines)) if re.match(line, lines[at])), 0)
        assert at, f"{table} has no line in config.example.toml"
        above = at - 1
        while re.match(r"#?[a-z0-9_]+ = ", lines[above]):
            above -= 1
        assert lines[above].startswith("# "), f"{table} has no comment above it in config.example.toml"
        if not field.required and field.default is None:
            assert "no default" in lines[above], field.name
