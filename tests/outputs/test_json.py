"""The JSON contract: every key of the design, null with its reason, valid by docs/schema.json whatever comes in."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.fleet.snapshot import NOTHING_YET
from gpumon.outputs import fleet, fleet_schema
from gpumon.outputs.json import MOST_CHARACTERS, encode, printed_fields
from gpumon.outputs.schema import definition, schema
from gpumon.readings.catalogue import FIGURES_OF_THINGS
from gpumon.readings.frame import GpuProcess
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Quantiles
from gpumon.readings.verdict import Limit
from gpumon.sources.nvml.figures import THROTTLE_NS
from tests.each_row import each_row
from tests.fleet.fleets import fed, fleet_frame
from tests.outputs import shots
from tests.outputs.validator import problems

DOCS = Path(__file__).parents[2] / "docs"


@functools.cache
def own_schema() -> dict[str, Any]:
    return schema()


CONTRACT = {
    "": "schema time simulated interval_s host self gpus engines verdicts faults",
    "host": "name driver cuda cpu_ratio memory_used_bytes missing",
    "self": "cpu_ratio pss_bytes missing",
    "gpus": "index uuid name state age_s busy_ratio sm_active_ratio tensor_active_ratio vram_used_bytes "
    "vram_total_bytes bandwidth_bytes_per_s bandwidth_source bandwidth_peak_bytes_per_s mfu_ratio mbu_ratio power_w "
    "power_limit_w energy_j temperature_c sm_clock_hz throttle xid engines processes busy_mean_ratio tokens_per_j "
    "parent_uuid mig_profile compute_capability memory_temperature_c fan_ratio sm_occupancy_ratio memory_busy_ratio "
    "sm_clock_max_hz memory_clock_hz memory_clock_max_hz vram_reserved_bytes flops_peak_per_s flops_peak_precision "
    "pcie_tx_bytes_per_s pcie_rx_bytes_per_s nvlink_tx_bytes_per_s nvlink_rx_bytes_per_s pcie_generation "
    "pcie_generation_max pcie_width pcie_width_max ecc_corrected remap_failed throttle_s missing",
    "gpus.processes": "pid name user vram_bytes container engine command sm_ratio type pod missing",
    "engines": "name kind phase url state age_s model model_source gpus gpu_type tp running waiting kv_usage_ratio "
    "prefill_tokens_per_s decode_tokens_per_s cached_tokens_per_s requests_per_s steps_per_s ttft_s itl_s queue_s "
    "e2e_s preemptions_per_s tokens_total mfu_ratio mfu_prefill_ratio mfu_decode_ratio mbu_ratio flops_per_s "
    "bytes_per_s tokens_per_j flops_per_j samples_per_s precision sources since gpu_count power_w params active_params "
    "layers weight_precision kv_precision flops_per_decode_token prefill_flops_per_s decode_flops_per_s "
    "peak_flops_per_s batch weight_bytes kv_bytes_per_token weight_bytes_per_s kv_bytes_per_s "
    "peak_bandwidth_bytes_per_s kv_pool_tokens missing",
    "engines.ttft_s": "p50 p95 p99 mean p50_low p50_high p95_low p95_high p99_low p99_high",
    "engines.tokens_total": "prefill_computed prefill_cached decode",
    "verdicts": "scope code cause evidence actions confidence since kind key family level text unknown parameters "
    "until",
    "verdicts.evidence": "text quantity source value limit chart missing parameters",
    "verdicts.actions": "code text team parameters",
    "faults": "source text since code",
}
"""Keys that other programs rely on: they never go away and never change their meaning within schema 1."""


def decoded(shot: Any) -> Any:
    return json.loads(encode(shot), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def objects(value: Any, path: str) -> Iterator[dict[str, Any]]:
    for key in path.split(".") if path else ():
        value = [item for one in (value if isinstance(value, list) else [value]) for item in _list(one[key])]
    yield from _list(value)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@each_row("path", CONTRACT)
@each_row("shot", shots.ALL)
def test_every_key_of_the_contract_is_there(shot: str, path: str) -> None:
    for found in objects(decoded(shots.ALL[shot]()), path):
        assert set(CONTRACT[path].split()) <= set(found)


def test_the_schema_number_comes_first() -> None:
    assert encode(shots.snapshot()).startswith(b'{"schema":1,"time":"2026-01-02T14:03:22.500+01:00"')


def test_a_value_that_is_there_is_the_value() -> None:
    gpu = decoded(shots.snapshot())["gpus"][0]
    assert (gpu["busy_ratio"], gpu["bandwidth_source"], gpu["state"]) == (0.91, "gpm", "ok")
    assert gpu["processes"][0]["pid"] == 4711
    engine = decoded(shots.snapshot())["engines"][0]
    assert (engine["running"], engine["tp"], engine["ttft_s"]["p95"]) == (24.0, 2, 0.21)
    assert engine["tokens_total"]["decode"] == 3e5


def test_a_value_that_is_not_there_is_null_with_its_reason_in_that_object() -> None:
    shot = shots.snapshot(
        gpus=(shots.gpu(mfu_ratio=Missing(Reason.UNKNOWN_MODEL, "detail"), busy_ratio=Missing(Reason.UNDER_MIG)),),
    )
    gpu = decoded(shot)["gpus"][0]
    assert gpu["mfu_ratio"] is None
    assert gpu["missing"]["mfu_ratio"] == "unknown_model"
    assert gpu["missing"]["busy_ratio"] == "under_mig"
    queue = decoded(shot)["engines"][0]["queue_s"]
    assert queue["p95"] is None
    assert queue["missing"]["p95"] == "few_observations"
    assert queue["mean"] == 0.0004


def test_what_is_not_known_is_no_zero_and_no_word() -> None:
    shot = decoded(shots.bare())
    gpu, engine = shot["gpus"][0], shot["engines"][0]
    assert gpu["bandwidth_source"] is None
    assert gpu["missing"]["bandwidth_source"] == gpu["missing"]["bandwidth_bytes_per_s"] == "not_supported"
    assert engine["tp"] is None
    assert engine["missing"]["tp"] == "no_gpu"


def test_every_null_has_a_reason_and_every_reason_a_null() -> None:
    def check(value: Any) -> None:
        if isinstance(value, list):
            for item in value:
                check(item)
        if isinstance(value, dict):
            nulls = {key for key, item in value.items() if item is None} - {"acknowledged"}  # nobody: no figure
            assert nulls == set(value.get("missing", {}))
            for item in value.values():
                check(item)

    for shot in shots.ALL.values():
        check(decoded(shot()))


def test_numbers_that_are_none_are_invalid_not_printed() -> None:
    gpu = decoded(shots.hostile())["gpus"][0]
    assert (gpu["busy_ratio"], gpu["power_w"]) == (None, None)
    assert gpu["missing"]["busy_ratio"] == gpu["missing"]["power_w"] == "invalid"


def test_hostile_text_is_escaped_and_cut_and_stays_one_line() -> None:
    text = encode(shots.hostile()).decode()
    assert text.isprintable()
    name = decoded(shots.hostile())["gpus"][0]["name"]
    assert name.startswith("a\\x1b[31m\\x0a\\u202e[bold]\\x9b")
    assert len(name) <= MOST_CHARACTERS


def test_the_internal_clock_is_not_printed_and_the_time_has_its_offset() -> None:
    shot = decoded(shots.snapshot())
    assert "wall_s" not in shot
    assert datetime.fromisoformat(shot["time"]).utcoffset() is not None


@each_row("name", shots.ALL)
def test_it_fits_the_schema(name: str) -> None:
    assert list(problems(decoded(shots.ALL[name]()), own_schema())) == []


def test_the_schema_in_the_docs_is_the_one_of_the_types() -> None:
    written = json.loads((DOCS / "schema.json").read_text(encoding="utf-8"))
    assert written == own_schema(), "run: python -m gpumon.outputs.schema > docs/schema.json"


def test_the_schema_refuses_what_breaks_the_contract() -> None:
    broken: list[tuple[str, Any]] = [
        ("gpus", [{"index": 0}]),
        ("schema", 2),
        ("time", None),
        ("host", {"name": 5}),
        ("extra", 1),
        ("interval_s", math.nan),
    ]
    for key, value in broken:
        assert list(problems({**decoded(shots.snapshot()), key: value}, own_schema())), key


def test_every_reason_and_state_is_in_the_schema() -> None:
    definitions = own_schema()["$defs"]
    assert definitions["Reason"]["enum"] == [reason.value for reason in Reason]
    assert definitions["BandwidthSource"]["enum"] == ["gpm", "dcgm", "engine", "engine_mean", "upper_bound"]
    assert set(definitions) >= {"Gpu", "Engine", "Host", "Self", "Process", "Quantiles", "TokensTotal", "Verdict"}


def test_the_documentation_names_every_key_and_reason() -> None:
    text = (DOCS / "json.md").read_text(encoding="utf-8")
    keys = {key for keys in CONTRACT.values() for key in keys.split()}
    keys |= {key for kind in (Gpu, Engine, GpuProcess, Quantiles) for key in printed_fields(kind)}
    keys |= {limit.value for limit in Limit}
    keys |= {reason.value for reason in Reason} | {source.value for source in BandwidthSource} - {"none"}
    unnamed = sorted(key for key in keys - set(figures_that_the_schema_explains()) if f"`{key}`" not in text)
    assert unnamed == [], "docs/json.md does not name these"


def figures_that_the_schema_explains() -> Iterator[str]:
    """Figures of things whose row has a sentence, which the schema has, too: the page need not repeat it."""
    for record, rows in FIGURES_OF_THINGS.items():
        name = definition(record, {})["$ref"].rpartition("/")[2]
        properties = own_schema()["$defs"][name]["properties"]
        for row in rows.values():
            if properties.get(row.field, {}).get("description"):
                yield row.field


def test_a_fleet_fits_its_schema_and_that_in_the_docs_is_the_one_of_the_types() -> None:
    written = json.loads((DOCS / "fleet.schema.json").read_text(encoding="utf-8"))
    assert written == fleet_schema.schema(), "run: python -m gpumon.outputs.fleet_schema > docs/fleet.schema.json"
    printed = json.loads(fleet.encode(fed(fleet_frame(0), fleet_frame(1)), {"": 2.0}))
    assert list(problems(printed, written)) == []
    assert list(problems({**printed, "total": {**printed["total"], "engines": "4"}}, written))
    assert list(problems(json.loads(fleet.encode(NOTHING_YET, {})), written)) == []


TABLES = {"missing", "sources", "throttle_s", "labels", "uses", "fits", "groups"}
"""Objects whose keys are no names of the contract."""


def keys_of(value: Any) -> Iterator[str]:
    for one in value if isinstance(value, list) else ():
        yield from keys_of(one)
    for key, one in value.items() if isinstance(value, dict) else ():
        yield key
        yield from () if key in TABLES else keys_of(one)


@each_row("name", [*shots.ALL, "a fleet"])
def test_the_documentation_names_every_key_that_is_printed(name: str) -> None:
    text = (DOCS / "json.md").read_text(encoding="utf-8")
    printed = (
        decoded(shots.ALL[name]())
        if name in shots.ALL
        else json.loads(fleet.encode(fed(fleet_frame(0), fleet_frame(1)), {}))
    )
    keys = set(keys_of(printed))
    assert len(keys) > 50
    assert sorted(key for key in keys - set(figures_that_the_schema_explains()) if f"`{key}`" not in text) == []


def test_the_documentation_names_every_cause_of_throttling() -> None:
    text = (DOCS / "json.md").read_text(encoding="utf-8")
    assert [cause for cause in THROTTLE_NS.values() if f"`{cause}`" not in text] == []


VALUES = st.one_of(
    st.floats(),
    st.sampled_from(Reason).map(Missing),
)


@given(st.lists(VALUES, min_size=80, max_size=80), st.text(max_size=30))
def test_any_values_give_valid_json(values: list[Reading], text: str) -> None:
    pool = iter(values)
    readings = {
        field.name: next(pool)
        for kind in (Gpu,)
        for field in msgspec.structs.fields(kind)
        if field.type == Reading and field.name != "index"
    }
    shot = shots.snapshot(gpus=(shots.gpu(name=text, **readings),), engines=())
    assert list(problems(decoded(shot), own_schema())) == []
