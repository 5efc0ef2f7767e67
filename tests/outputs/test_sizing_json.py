"""The JSON and CSV of a sizing: the contract, null with its reason, empty cells, valid by docs/sizing.schema.json."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from gpumon.outputs.sizing_data import PLAN_COLUMNS, csv_table, encode, schema
from gpumon.sizing.answer import LimitKind, Source
from tests.each_row import each_row
from tests.outputs import answers
from tests.outputs.validator import problems
from tests.records import replace

DOCS = Path(__file__).parents[2] / "docs"

CONTRACT = {
    "": "schema name packing workloads totals plans warnings problem without totals_without compared gpus_range",
    "compared": "gpu totals workloads best problem as_planned pooled",
    "workloads": "name model target target_kind concurrency capacity_per_instance instances gpus limit next_limit "
    "limits source band extrapolated gpus_per_instance tp pp spares memory_bytes memory_source busy_ratio "
    "running itl_s ttft_s e2e_s itl_p95_s ttft_p95_s tokens_per_s requests_per_s power_w power_source degraded notes "
    "problem seen_name seen_time ttft_band ttft_basis servers servers_shared on dp tokens_per_step "
    "disaggregated runs goals layout alternatives searched network pool gpus_range missing",
    "workloads.alternatives": "layout gpus instances gpus_per_instance capacity_per_instance limit is_bound",
    "workloads.on": "gpu instances gpus gpus_per_instance tp pp dp capacity_per_instance limit",
    "workloads.limits": "kind concurrency text",
    "workloads.goals": "name goal_s value_s basis is_least missing",
    "workloads.degraded": "lost instances running itl_s ttft_s text itl_p95_s ttft_p95_s missing",
    "totals": "instances gpus servers memory_bytes price_per_hour power_w tokens_per_s price_per_mtok tokens_per_j "
    "missing",
    "plans": "memory_only busy_aware",
    "plans.memory_only": "instances gpus servers memory_bytes price_per_hour servers_least layout problem "
    "spare_servers spare_shape by_gpu saving_per_hour missing",
    "plans.busy_aware": "instances gpus servers memory_bytes price_per_hour servers_least layout problem "
    "spare_servers spare_shape by_gpu saving_per_hour missing",
    "plans.busy_aware.by_gpu": "gpu gpus servers",
    "plans.busy_aware.layout": "times shape gpus filled",
    "plans.busy_aware.layout.filled": "times gpus workloads memory_bytes busy_ratio",
}
"""Keys that other programs rely on: they never go away and never change their meaning within schema 2."""


def decoded(name: str) -> Any:
    return json.loads(encode(answers.ALL[name]()), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def objects(value: Any, path: str) -> list[dict[str, Any]]:
    found = [value]
    for key in path.split(".") if path else ():
        found = [item for one in found for item in (one[key] if isinstance(one[key], list) else [one[key]])]
    return found


@each_row("path", CONTRACT)
def test_every_key_of_the_contract_is_there(path: str) -> None:
    found = objects(decoded("compared" if path == "compared" else "full"), path)
    assert found
    for each in found:
        assert set(CONTRACT[path].split()) == set(each)


@each_row("name", answers.ALL)
def test_it_fits_the_schema_and_is_one_printable_line(name: str) -> None:
    assert list(problems(decoded(name), schema())) == []
    assert encode(answers.ALL[name]()).decode().isprintable()


def test_the_schema_number_comes_first() -> None:
    assert encode(answers.full()).startswith(b'{"schema":2,"name":"chat","packing":"busy","workloads":[{')


def test_values_and_reasons() -> None:
    shot = decoded("full")
    large = shot["workloads"][0]
    assert (large["target"], large["capacity_per_instance"], large["instances"], large["gpus"]) == (500.0, 16, 5, 20)
    assert (large["limit"], large["next_limit"], large["source"]) == ("ITL", "KV", "measured")
    assert large["missing"] == {"ttft_band": "not_measured"}
    assert large["ttft_band"] is None
    assert large["degraded"][0]["missing"] == {"ttft_s": "not_given", "ttft_p95_s": "not_given"}
    assert shot["totals"]["tokens_per_s"] is None
    assert shot["totals"]["missing"]["tokens_per_s"] == "not_given"
    none = decoded("infeasible")
    assert none["problem"].startswith("large: not even one request")
    assert set(none["totals"]["missing"].values()) == {"infeasible"}
    assert none["workloads"][0]["instances"] is None
    assert (none["without"], none["totals_without"]["gpus"]) == ([], None)


def test_the_sums_of_some_workloads_are_not_the_totals() -> None:
    shot = decoded("partly")
    assert (shot["without"], shot["totals"]["gpus"]) == (["large"], None)
    assert (shot["totals_without"]["gpus"], shot["totals_without"]["servers"]) == (2.0, 1.0)
    assert shot["totals_without"]["missing"] == {"price_per_hour": "no_price", "price_per_mtok": "no_price"}
    assert [each["servers"] for each in shot["workloads"]] == [None, 1.0]
    *workloads, total, others = rows("partly")
    assert [each["row"] for each in workloads] == ["workload", "workload"]
    assert (total["row"], total["gpus"], total["problem"]) == ("total", "", "large: no room")
    assert (others["row"], others["gpus"], others["servers"]) == ("total_without", "2", "1")
    assert others["problem"] == "without large"


def test_the_layout_is_compact() -> None:
    layout = decoded("full")["plans"]["busy_aware"]["layout"]
    assert [(each["times"], each["gpus"]) for each in layout] == [(2, 8), (1, 8)]
    assert layout[1]["filled"] == [
        {"times": 1, "gpus": 4, "workloads": [0], "memory_bytes": 36e9, "busy_ratio": 0.9},
        {"times": 2, "gpus": 1, "workloads": [1, 1], "memory_bytes": 40e9, "busy_ratio": 0.8},
        {"times": 2, "gpus": 1, "workloads": [], "memory_bytes": 0.0, "busy_ratio": 0.0},
    ]
    assert len(encode(answers.hostile())) < 10_000


def test_the_schema_in_the_docs_is_the_one_of_the_types() -> None:
    written = json.loads((DOCS / "sizing.schema.json").read_text(encoding="utf-8"))
    assert written == schema(), "run: make schema"


def test_the_documentation_names_every_key_and_word() -> None:
    text = (DOCS / "sizing-file.md").read_text(encoding="utf-8")
    keys = {key for keys in CONTRACT.values() for key in keys.split()} | set(PLAN_COLUMNS)
    words = {each.value for each in (*Source, *LimitKind)}
    assert sorted(key for key in keys | words if f"`{key}`" not in text) == []


def rows(name: str) -> list[dict[str, str]]:
    return list(
        csv.DictReader(
            io.StringIO(
                csv_table(
                    answers.ALL[name](),
                ),
                newline="",
            )
        )
    )


def test_csv_has_a_row_per_workload_and_one_of_totals() -> None:
    large, small, total = rows("full")
    assert tuple(large) == PLAN_COLUMNS
    assert (large["row"], large["name"], large["target"], large["target_kind"]) == ("workload", "large", "500", "users")
    assert (large["itl_s"], large["extrapolated"], large["source"], large["tp"]) == ("0.031", "yes", "measured", "4")
    assert (large["itl_p95_s"], large["ttft_p95_s"]) == ("0.045", "0.42")
    assert (small["instances"], small["servers"], small["servers_shared"]) == ("4", "1", "1")
    assert (total["row"], total["name"], total["servers"], total["price_per_hour"]) == ("total", "chat", "4", "79.68")
    assert total["tokens_per_s"] == ""


def test_csv_has_a_row_for_each_type_of_gpu_that_is_compared() -> None:
    *_, planned, h100, l40s = rows("compared")
    assert {each["row"] for each in (planned, h100, l40s)} == {"compared"}
    assert (planned["name"], planned["gpus"]) == ("H100 SXM5 80GB + L40S (as planned)", "22")
    assert (h100["name"], h100["price_per_hour"], h100["problem"]) == ("H100 SXM5 80GB", "79.68", "")
    assert (l40s["gpus"], l40s["problem"]) == ("", "large: no room")


def test_csv_holds_no_formula_and_no_line_break() -> None:
    for row in rows("hostile"):
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row.values())
    assert all(line.isprintable() for line in csv_table(answers.hostile()).split("\r\n"))
    formula = replace(answers.full(), workloads=(answers.workload(name="=HYPERLINK(1)"),))
    assert "'=HYPERLINK(1)" in csv_table(formula)
    # Spreadsheets of countries with a decimal comma begin a cell behind a semicolon.
    split = replace(answers.full(), workloads=(answers.workload(name="a; =HYPERLINK(1);b"),))
    assert "a; '=HYPERLINK(1);b" in csv_table(split)
    wide = replace(answers.full(), workloads=(answers.workload(name="＝HYPERLINK(1)"),))
    assert "'＝HYPERLINK(1)" in csv_table(wide)
