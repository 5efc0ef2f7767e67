"""Links of GPUs: slower than slot, peers or before is told; idle, narrow and bridged ones are not."""

from __future__ import annotations

from typing import Any

from gpumon.readings.snapshot import Family, Kind, Level, Limit, Verdict
from gpumon.triage.render import actions_text, evidence_text, verdict_text
from tests.each_row import each_row
from tests.records import replace
from tests.triage.stage import Of, Stage, engine, gpu, process, verdict

WIDE = {"pcie_width": 16.0, "pcie_width_max": 16.0, "pcie_generation": 5.0, "pcie_generation_max": 5.0}
BUSY = {"busy_ratio": 0.9}
LANES = {"nvlinks": 18.0, "nvlinks_active": 18.0}


def fault_of(stage: Stage, index: int = 0) -> Verdict | None:
    assert stage.last is not None
    return verdict(stage.last, Family.STATE, Kind.GPU, f"GPU-{index}")


def card(index: int = 0, **fields: Any) -> Of:
    return gpu(index, processes=(process(),), **{**WIDE, **BUSY, **fields})


def played(*things: Of, seconds: int = 30) -> Stage:
    stage = Stage()
    stage.play(seconds, things)
    return stage


@each_row(
    ("fields", "text"),
    [
        ({"pcie_width": 4.0}, "its PCIe link runs at x4 Gen5 of x16 Gen5: 25% of what its slot can do, under load"),
        ({"pcie_generation": 1.0}, "its PCIe link runs at x16 Gen1 of x16 Gen5: 6%"),
        ({"pcie_width": 1.0, "busy_ratio": 0.0, "pcie_generation": 1.0}, "its PCIe link runs at x1 of x16: 6%"),
    ],
)
def test_a_pcie_link_far_below_its_slot_is_told_with_where_to_look(fields: dict[str, float], text: str) -> None:
    on = card(**fields, sources={"pcie_width": "amdsmi_get_pcie_info"})
    on = on._replace(read=replace(on.read, bus_id="0000:41:00.0"))
    found = fault_of(played(on))
    assert found is not None
    assert (found.code, found.cause, found.level) == (Limit.HARDWARE_FAULT, "pcie_slow", Level.WARN)
    assert text in verdict_text(found)
    assert (found.evidence[0].source, found.evidence[0].chart) == ("amdsmi_get_pcie_info", "")
    assert actions_text(found).startswith("hardware: sudo lspci -vv -s 0000:41:00.0")


@each_row(
    "things",
    [
        (card(pcie_generation=1.0, busy_ratio=0.0),),  # idle: it saves power
        (card(pcie_width=8.0, pcie_width_max=8.0),),  # the slot has no more lanes
        (card(pcie_width=8.0),),  # or has them, but not wired
        (card(pcie_width=8.0), card(1, pcie_width=8.0)),
        (card(pcie_generation=4.0), card(1, pcie_generation=4.0)),  # a board of the generation before
        (card(pcie_generation=4.0), card(1, busy_ratio=0.0)),  # its peer idles, and shows nothing
        (card(**LANES), card(1, **LANES)),
        (card(nvlinks=12.0, nvlinks_active=4.0), card(1, nvlinks=12.0, nvlinks_active=4.0)),
        (card(nvlinks=12.0, nvlinks_active=0.0), card(1, nvlinks=12.0, nvlinks_active=12.0)),  # no bridge on it
        (card(nvlinks=18.0, nvlinks_active=12.0),),  # alone, and so from the start
        (card(nvlinks=18.0, nvlinks_active=0.0, mig=True), card(1, **LANES), card(2, **LANES), card(3, **LANES)),
        (card(pcie_replays=40_000.0, nvlink_errors=40_000.0),),  # of long ago
    ],
)
def test_links_that_are_as_they_should_be_are_silent(things: tuple[Of, ...]) -> None:
    assert fault_of(played(*things)) is None


def test_half_a_link_is_told_if_it_was_whole_before_or_a_peer_has_more() -> None:
    stage = played(card(), seconds=20)
    stage.play(6, (card(pcie_width=8.0),))
    found = fault_of(stage)
    assert found is not None
    assert verdict_text(found).endswith("; x16 Gen5 until 00:00:20 UTC")
    assert found.since == "2026-01-01T00:00:20.000Z"
    beside = fault_of(played(card(pcie_width=8.0), card(1)))
    assert beside is not None
    lower = fault_of(played(card(pcie_generation=4.0), card(1)))
    assert lower is not None
    assert "x16 Gen4 of x16 Gen5" in verdict_text(lower)


def test_links_that_are_all_alike_are_a_note_for_a_machine_may_be_made_so() -> None:
    slow = {"pcie_width": 1.0, "pcie_generation": 1.0}
    stage = played(card(**slow), card(1, **slow), engine(gpus=(0, 1), running=4.0), seconds=60)
    found = fault_of(stage)
    assert found is not None
    assert found.level is Level.NOTE
    assert "as those of its peers" in verdict_text(found)
    assert stage.last is not None
    assert verdict(stage.last, Family.STATE, Kind.ENGINE) is None


def test_nvlinks_that_go_down_are_named_against_the_peers_or_what_was_before() -> None:
    down = card(nvlinks=18.0, nvlinks_active=12.0)
    down = down._replace(shown=replace(down.shown, nvlinks_down=(12, 13, 14, 15, 16, 17)))
    found = fault_of(played(down, card(1, **LANES), card(2, **LANES)))
    assert found is not None
    assert (found.cause, found.level) == ("nvlinks_down", Level.WARN)
    assert verdict_text(found).endswith(
        "6 of its NVLinks are down (12, 13, 14, 15, 16, 17): 12 are up, 18 on its peers"
    )
    assert "nvidia-smi nvlink -s -i 0" in actions_text(found)
    assert "NVLinks: 12 of 18 up" in evidence_text(found.evidence[0])
    alone = played(card(**LANES), seconds=20)
    alone.play(6, (down,))
    later = fault_of(alone)
    assert later is not None
    assert verdict_text(later).endswith("6 of its NVLinks are down: 12 are up, 18 until 00:00:20 UTC")


def test_all_links_gone_on_one_of_four_is_no_missing_bridge() -> None:
    bare = card(nvlinks=18.0, nvlinks_active=0.0)
    assert fault_of(played(bare, *(card(index, **LANES) for index in (1, 2, 3)))) is not None


def test_errors_that_grow_are_a_note() -> None:
    stage = Stage()
    stage.play(90, lambda tick: (card(pcie_replays=10.0 * tick),))
    found = fault_of(stage)
    assert found is not None
    assert (found.cause, found.level) == ("link_errors", Level.NOTE)
    assert "errors of its PCIe link grow" in verdict_text(found)


def test_a_gpu_that_nobody_uses_is_no_warning() -> None:
    found = fault_of(played(gpu(0, **{**WIDE, "pcie_width": 1.0})))
    assert found is not None
    assert found.level is Level.NOTE


def test_an_engine_over_several_gpus_names_the_link_and_one_on_a_single_gpu_does_not() -> None:
    slow = card(pcie_width=1.0, pcie_generation=1.0)
    pair = played(slow, card(1), engine(gpus=(0, 1), running=4.0), seconds=60)
    assert pair.last is not None
    found = verdict(pair.last, Family.STATE, Kind.ENGINE)
    assert found is not None
    assert "its gpu 0 has a slow PCIe link (x1 Gen1 of x16 Gen5)" in verdict_text(found)
    single = played(slow, engine(running=4.0), seconds=60)
    assert single.last is not None
    assert verdict(single.last, Family.STATE, Kind.ENGINE) is None
