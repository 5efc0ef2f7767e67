"""[[feed]] in the config: every bad one is refused with the line at the top of its file, the good ones are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.config.effective import effective_toml
from gpumon.config.errors import ConfigError
from gpumon.config.feed_rules import ALLOWED, FEED_QUANTITIES, MetricType, shared_sources
from gpumon.config.load import load
from gpumon.config.schema import Config
from tests.each_row import each_row

BAD = sorted((Path(__file__).parent / "bad_feeds").glob("*.toml"))
TWO = """
[[endpoint]]
url = "http://h:1"
[[feed]]
url = "h:1/metrics"
name = "a"
at_end = ["decode_tokens"]
quantities = { decode_tokens = 'my:tokens{a="b"}' }
[[feed]]
file = "~/steps.jsonl"
phase = "training"
precision = "fp8"
[feed.quantities]
trained_tokens = "metrics.tokens"
samples_per_s = "rate"
"""


def read(text: str, folder: Path) -> Config:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return load(str(path), {}).config


@each_row("file", BAD, named=lambda file: file.stem)
def test_a_bad_feed_is_refused_with_line_key_value_and_what_is_allowed(file: Path):
    said = file.read_text(encoding="utf-8").split("\n")[0].removeprefix("# ").replace("ALLOWED", ALLOWED)
    with pytest.raises(ConfigError) as refused:
        load(str(file), {})
    assert str(refused.value) == f"{file}:{said}"
    assert "hunter2" not in str(refused.value)


def test_the_allowed_quantities_are_told_by_kind():
    assert ALLOWED.startswith("counters: decode_tokens, ")
    assert all(name in ALLOWED for name in FEED_QUANTITIES)
    assert {FEED_QUANTITIES["trained_tokens"], FEED_QUANTITIES["running"], FEED_QUANTITIES["ttft_s"]} == set(MetricType)


def test_good_ones_are_read(tmp_path: Path):
    config = read(TWO, tmp_path)
    page, file = config.feed
    assert (page.url, page.name, page.phase, page.at_end) == (
        "http://h:1/metrics",
        "a",
        "inference",
        ("decode_tokens",),
    )
    assert page.quantities == {"decode_tokens": 'my:tokens{a="b"}'}
    assert (file.file, file.phase, file.precision) == ("~/steps.jsonl", "training", "fp8")
    assert shared_sources(config) == {"http://h:1"}


def test_the_settings_in_effect_show_them_and_can_be_read_again(tmp_path: Path):
    path = tmp_path / "config.toml"
    path.write_text(TWO, encoding="utf-8")
    loaded = load(str(path), {})
    shown = effective_toml(loaded)
    assert 'decode_tokens = "my:tokens{a=\\"b\\"}"' in shown
    assert read(shown, tmp_path).feed == loaded.config.feed
