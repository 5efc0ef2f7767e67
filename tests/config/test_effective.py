"""What `gpumon config` prints is a config file that gives the same settings."""

from __future__ import annotations

from pathlib import Path

import tomli

from gpumon.config.effective import effective_toml
from gpumon.config.load import load


def test_it_loads_to_the_same_settings(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        'general.interval_s = 5\n[[endpoint]]\nurl = "http://h"\nname = "a\\"\\\\\\u007f\\u2028ü"\ngpus = [0, 3]\n'
        'context_tokens = 10\n[[model]]\nmatch = "m"\nparams_b = 1\nlayers = 16\nhidden = 2048\nheads = 32\n'
    )
    loaded = load(str(path), {"GPUMON_ASCII": "1"})
    text = effective_toml(loaded)
    again = tmp_path / "again.toml"
    again.write_text(text, encoding="utf-8")
    assert load(str(again), {}).config == loaded.config


def test_it_names_the_file_and_who_set_what(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("general.interval_s = 5\n")
    lines = effective_toml(load(str(path), {"GPUMON_ASCII": "1", "GPUMON_ENDPOINTS": "http://h"})).splitlines()
    assert lines[0] == f"# config file: {path}"
    assert "interval_s = 5.0  # file" in lines
    assert "engine_interval_s = 2.0" in lines
    assert "ascii = true  # GPUMON_ASCII" in lines
    assert "[[endpoint]]  # GPUMON_ENDPOINTS" in lines


def test_own_keys_are_named_and_load_again(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[keys]\npane.next = "y"\nzoom = ""\n[levels]\nkv_warn = 0.5\n')
    loaded = load(str(path), {})
    text = effective_toml(loaded)
    assert '"pane.next" = "y"  # file' in text
    assert "kv_warn = 0.5  # file" in text
    path.write_text(text)
    assert load(str(path), {}).config == loaded.config


def test_prices_are_named_and_load_again(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[prices]\nby_type = {"H100 SXM 80GB" = 2.49, L40S = 1}\nkwh = 0.3\n')
    loaded = load(str(path), {})
    text = effective_toml(loaded)
    assert '[prices.by_type]\n"H100 SXM 80GB" = 2.49  # file\n"L40S" = 1.0  # file\n' in text
    assert "kwh = 0.3  # file" in text
    path.write_text(text)
    assert load(str(path), {}).config == loaded.config


def test_the_defaults_are_toml() -> None:
    assert tomli.loads(effective_toml(load("", {})))["general"]["theme"] == "default"
