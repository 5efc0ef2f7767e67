"""`gpumon report --by` on a real Prometheus with three hours of a simulated fleet, against what the simulator knows.

A figure may be off by what happens between two looks (5 min of 3 h, 2.8%): a gauge stands for the time since the look
before, a counter that begins anew loses what it counted since, and a target that stops answering is noticed after three
scrapes (6 min).
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from gpumon.outputs import fleet_period
from tests.commands.past_fleet import HOURS, PRICES, SPAN_S, PastFleet, Truth
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.fakes.prometheus import Prometheus
from tests.outputs.validator import problems
from tests.program import run_gpumon
from tests.sources.prometheus.answering import asked

DOCS: Final = Path(__file__).parents[2] / "docs"
LOOK_H: Final = 5.0 / 60.0
NOTICED_H: Final = 6.0 / 60.0
TOKENS: Final = 0.028
"""Relative error of what is counted: one look of the 3 hours of an engine that restarted, beside one that did not."""


class Past(NamedTuple):
    fleet: PastFleet
    url: str
    config: Path


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    folder: Path = tmp_path_factory.mktemp("days")
    fleet = PastFleet(time.time() // 60.0 * 60.0 - SPAN_S)
    fleet.store(folder)
    config = folder / "config.toml"
    config.write_text(PRICES)
    with Prometheus(folder) as prometheus:
        yield Past(fleet, prometheus.url, config)


@pytest.fixture(scope="module")
def by_namespace(past: Past) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(report(past, "--by", "namespace", "--json"))
    return told


def report(past: Past, *arguments: str, code: int = 0) -> str:
    words = ("--config", str(past.config), "--prometheus", past.url)
    if "--every" not in arguments:
        words = (*words, "--every", "5m")
    if "--from" not in arguments:
        begin, end = utc(past.fleet.begin_s), utc(past.fleet.end_s)
        words = (*words, "--from", begin, "--to", end)
    done = run_gpumon("report", *words, *arguments, env={"COLUMNS": "160", "TZ": "UTC"})
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def utc(wall_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_s))


def groups(told: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {group["name"]: group for group in told["groups"]}


@pytest.mark.parametrize("name", ["chat", "search", ""])
def test_the_sums_of_a_namespace_are_what_the_simulator_knows(
    past: Past, by_namespace: dict[str, Any], name: str
) -> None:
    group = groups(by_namespace)[name]
    truth = past.fleet.truth[name]
    gpus = group["gpus"]
    hours = group["gpu_s"] / 3600.0
    assert hours == pytest.approx(truth.gpu_hours, abs=gpus * (LOOK_H + NOTICED_H))
    assert group["unused_gpu_s"] / 3600.0 == pytest.approx(truth.unused_hours, abs=gpus * LOOK_H)
    assert group["energy_j"] / 3.6e6 == pytest.approx(truth.kwh, rel=0.03)
    assert group["decode_tokens"] == pytest.approx(truth.decode_tokens, rel=TOKENS)
    assert group["prefill_computed_tokens"] == pytest.approx(truth.prompt_tokens, rel=TOKENS)
    kept = group["goodput"]["ttft_goal"]
    assert kept["count"] == pytest.approx(truth.requests, rel=TOKENS)
    assert kept["within_low"] == kept["within_high"] == pytest.approx(truth.within_1s, rel=TOKENS)
    assert group["cost"] == pytest.approx(2.0 * hours)
    assert group["unused_cost"] == pytest.approx(2.0 * group["unused_gpu_s"] / 3600.0)
    assert group["energy_cost"] == pytest.approx(0.25 * group["energy_j"] / 3.6e6)
    assert group["cost_per_million_tokens"] == pytest.approx(group["cost"] / group["decode_tokens"] * 1e6)


def test_the_namespaces_add_up_to_the_fleet_and_so_do_hosts_models_and_teams(
    past: Past, by_namespace: dict[str, Any]
) -> None:
    every: list[Truth] = list(past.fleet.truth.values())
    of_all = sum(truth.decode_tokens for truth in every)
    assert by_namespace["total"]["decode_tokens"] == pytest.approx(of_all, rel=TOKENS)
    summed = ("gpus", "gpu_s", "unused_gpu_s", "decode_tokens", "prefill_computed_tokens", "energy_j", "cost")
    by_model = json.loads(report(past, "--by", "model", "--every", "30m", "--json"))
    by_team = json.loads(report(past, "--by", "team", "--every", "30m", "--json"))
    for told, by in ((by_namespace, "namespace"), (by_model, "model"), (by_team, "team")):
        assert told["by"] == by
        for field in summed:
            parts = [group[field] for group in told["groups"] if group[field] is not None]
            assert sum(parts) == pytest.approx(told["total"][field]), (by, field)
        requests = [group["goodput"]["ttft_goal"]["count"] or 0.0 for group in told["groups"]]
        assert sum(requests) == pytest.approx(told["total"]["goodput"]["ttft_goal"]["count"])
    for field in summed:
        assert by_model["total"][field] == pytest.approx(by_team["total"][field]), field
    assert set(groups(by_team)) == {"apps", "research", "edge", ""}


def test_mfu_is_weighted_with_time_and_gpus_and_says_of_how_much_it_is_known(by_namespace: dict[str, Any]) -> None:
    known = [group for group in by_namespace["groups"] if group["mfu_ratio"] is not None]
    reached = sum(group["mfu_ratio"] * group["mfu_known_s"] for group in known)
    whole = by_namespace["total"]
    assert whole["mfu_ratio"] == pytest.approx(reached / whole["mfu_known_s"])
    assert 0.05 < whole["mfu_ratio"] < 0.4
    assert whole["mfu_known_s"] < whole["gpu_s"]


def test_the_largest_wasters_come_first_with_their_place(by_namespace: dict[str, Any]) -> None:
    told = [(waster["host"], waster["group"], waster["gpus"]) for waster in by_namespace["wasters"]]
    assert sorted(told[:2]) == [("gpu-0", "", [3]), ("gpu-2", "", [1])] or told[0] == ("gpu-0", "search", [1, 2])
    costs = [waster["unused_cost"] for waster in by_namespace["wasters"]]
    assert costs == sorted(costs, reverse=True)
    (search,) = [waster for waster in by_namespace["wasters"] if waster["group"] == "search"]
    assert search["models"] == ["Qwen/Qwen3-30B-A3B"]
    assert search["unused_cost"] == pytest.approx(2.0 * 2 * (HOURS / 2), abs=2.0 * 2 * LOOK_H)


def test_a_time_without_scrapes_is_no_zero_and_is_told(by_namespace: dict[str, Any]) -> None:
    (silent,) = by_namespace["partial"]
    assert silent["host"] == "gpu-1"
    assert silent["measured_s"] / 3600.0 == pytest.approx(HOURS - 0.5, abs=LOOK_H + NOTICED_H)
    assert by_namespace["measured_s"] == pytest.approx(SPAN_S)


def test_alerts_and_verdicts_are_counted_to_who_they_are_about(by_namespace: dict[str, Any]) -> None:
    told = [(one["group"], one["host"], one["what"], one["level"], one["ended"]) for one in by_namespace["incidents"]]
    assert told == [
        ("search", "gpu-1", "GpumonXid", "critical", True),
        ("chat", "gpu-0", "GpumonKvCacheFull", "warn", True),
        ("", "gpu-2", "queue limit (max num seqs)", "warn", True),
    ]
    assert [one["consequences"] for one in by_namespace["incidents"]] == [0, 0, 2]
    assert by_namespace["incidents"][1]["seconds"] == pytest.approx(1800.0, abs=300.0)
    by_name = groups(by_namespace)
    counts = {name: group["incidents"] for name, group in by_name.items()}
    assert counts == {"chat": 1.0, "search": 1.0, "": 1.0}
    assert by_name["search"]["critical_incidents"] == 1.0


def test_a_time_of_more_looks_than_one_answer_holds_is_asked_for_in_parts(past: Past) -> None:
    """With 640 looks the second of two parts begins in the middle of what was scraped. Looks are 240.9375 s apart,
    and a query says milliseconds: steps that are rounded up would put the last look of a part behind its end."""
    begin, end = utc(past.fleet.begin_s - 143400.0), utc(past.fleet.end_s)
    told = json.loads(report(past, "--from", begin, "--to", end, "--every", "241s", "--by", "namespace", "--json"))
    assert told["step_s"] == 240.937
    assert told["measured_s"] == pytest.approx(SPAN_S, abs=250.0)
    for name, group in groups(told).items():
        truth = past.fleet.truth[name]
        assert group["decode_tokens"] == pytest.approx(truth.decode_tokens, rel=TOKENS)
        assert group["gpu_s"] / 3600.0 == pytest.approx(truth.gpu_hours, abs=group["gpus"] * (LOOK_H + NOTICED_H))


def test_a_host_whose_queries_are_refused_costs_the_report_that_host_alone(past: Past) -> None:
    def answer(request: Request) -> Reply:
        words = asked(request)
        if "start" in words and "gpu-1:" in words["query"]:
            wrong = {
                "status": "error",
                "errorType": "execution",
                "error": "query processing would load too many samples",
            }
            return Reply(422, json.dumps(wrong).encode(), "application/json")
        with urllib.request.urlopen(past.url + request.path, request.body, timeout=60.0) as forwarded:
            return Reply(body=forwarded.read(), content_type="application/json")

    with LoopbackServer(answer) as server:
        told = json.loads(report(past._replace(url=server.url), "--every", "15m", "--json"))
    assert told["without_data"] == ["gpu-1"]
    assert sorted(group["name"] for group in told["groups"] if group["gpus"]) == ["gpu-0", "gpu-2"]
    assert any(note.startswith("gpu-1: ") and "load too many samples" in note for note in told["notes"])


def test_markdown_has_totals_above_the_groups_and_says_what_is_left_out(past: Past, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[prices.by_type]\n"H200 SXM 141GB" = 4.0\n')
    told = report(past._replace(config=config), "--markdown")
    lines = told.splitlines()
    assert lines[0].startswith("## GPUs by host")
    total = next(at for at, line in enumerate(lines) if line.startswith("| GPUs | 10 GPUs, "))
    heads = [
        lines.index(f"### {head}") for head in ("By host", "Most unused", "Incidents", "Not in these figures", "Words")
    ]
    assert [total, *heads] == sorted([total, *heads])
    rows = [line.split(" | ")[0] for line in lines[heads[0] : heads[1]]]
    assert {"| gpu-0", "| gpu-1", "| gpu-2", "| total"} <= set(rows)
    assert "| incidents | 3, 1 of them critical, " in told
    assert "GpumonKvCacheFull" in told
    assert "- no price of 10 x H100 SXM5 80GB (" in told
    assert "measured: gpu-1 (2 h 3" in told
    assert "unused cost" not in told


def test_the_json_keeps_its_schema(by_namespace: dict[str, Any]) -> None:
    schema = json.loads((DOCS / "report.schema.json").read_text(encoding="utf-8"))
    assert list(problems(by_namespace, schema)) == []
    assert schema == json.loads(json.dumps(fleet_period.schema()))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--by", "rack", "--from", "-20m"),
            "--by rack: nothing has such a label; there are host, model, namespace",
        ),
        (("--by", "a-b"), "--by: 'a-b' is no label: give host, model, or a label such as namespace or team"),
        (("--from", "-30d", "--to", "-29d"), "prometheus: it scraped no GPU and no engine from"),
        (("--from", "-1h", "--to", "-2h"), "--from -1h is not before --to -2h"),
        (("--from", "yesterday"), "--from is no time: 'yesterday'"),
        (("a.sqlite",), "FILE and --prometheus are two pasts: give one of them"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(past: Past, arguments: tuple[str, ...], said: str) -> None:
    text = report(past, *arguments, code=2)
    assert said in text
    assert text.count("\n") == 1


def test_a_server_that_is_not_there_is_named_with_what_to_look_at(past: Past) -> None:
    nobody = past._replace(url="http://127.0.0.1:9")
    assert "nothing listens on 127.0.0.1:9: is the Prometheus up?" in report(nobody, code=2)
