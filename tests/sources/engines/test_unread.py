"""Every metric of a page is read, or listed in docs/engines.md with the reason why not."""

from __future__ import annotations

import pytest

from gpumon.sources.engines.registry import ENGINE_ROWS
from tests.fakes.engine import CAPTURES, Capture
from tests.sources.engines.unread import (
    Page,
    family,
    listed,
    page_of,
    read_families,
    recorded_pages,
    unread,
    version_names,
)

TABLE = listed()
NEWEST = list(version_names())
WITHOUT_METRICS = {"llamacpp-router", "vllm-nostats"}
"""Captures of servers that have no metrics of an engine: a router of models, and one with its statistics off."""
RECORDED = sorted({file.parent.name for file in CAPTURES.glob("*/metrics.jsonl.gz")} - WITHOUT_METRICS)


def named(page: Page) -> str:
    return page.where


def test_no_page_has_a_metric_that_is_neither_read_nor_listed():
    left = {page.where: unread(page.row, page.names, TABLE) for page in recorded_pages()}
    assert {where: names for where, names in left.items() if names} == {}


@pytest.mark.parametrize("page", NEWEST, ids=named)
def test_no_newest_version_has_one(page: Page):
    assert len(page.names) > 10
    assert unread(page.row, page.names, TABLE) == []


@pytest.mark.parametrize("name", RECORDED)
def test_no_recorded_engine_has_one(name: str):
    *_, last = [scrape.body for scrape in Capture(name).scrapes if scrape.status == 200 and scrape.body]
    page = page_of(f"{name}/metrics", last)
    assert unread(page.row, page.names, TABLE) == []


def test_a_new_metric_is_told():
    page = page_of("/metrics", b"vllm:num_requests_running 1\nvllm:generation_tokens_total 3\nvllm:news_total 1\n")
    assert unread(page.row, page.names, TABLE) == ["vllm:news"]


def test_rows_are_of_engines_that_there_are_and_have_a_reason():
    titles = {row.title for row in ENGINE_ROWS} | {"all"}
    for row in TABLE:
        assert row.engine in titles
        assert row.patterns
        assert row.why


def test_what_the_table_lists_by_its_name_is_not_read():
    for row in ENGINE_ROWS:
        listed_names = {name for listing in TABLE if listing.engine == row.title for name in listing.patterns}
        read = sorted(read_families(row) & listed_names)
        assert read == [], f"{row.title}: docs/engines.md lists as not read {', '.join(read)}"


def test_endings_of_samples_are_no_names():
    assert family("vllm:iteration_tokens_total_bucket") == "vllm:iteration_tokens"
    assert family("vllm:prompt_tokens_created") == "vllm:prompt_tokens"
