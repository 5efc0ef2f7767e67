"""What the slot of a card can do, as sysfs tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.readings.missing import NOT_SUPPORTED, Reading
from gpumon.sources.driver.bus import most_lanes, slot_lanes

BUS_ID = "0000:41:00.0"


def card_in_slot(folder: Path, lanes: str) -> Path:
    """The folder of sysfs of a machine with one card, under a port of so many lanes."""
    port = folder / "devices/pci0000:40/0000:40:01.1"
    (port / BUS_ID).mkdir(parents=True)
    if lanes:
        (port / "max_link_width").write_text(f"{lanes}\n")
    devices = folder / "bus/pci/devices"
    devices.mkdir(parents=True)
    (devices / BUS_ID).symlink_to(f"../../../devices/pci0000:40/0000:40:01.1/{BUS_ID}")
    return folder


@pytest.mark.parametrize(("lanes", "slot"), [("4", 4.0), ("16", 16.0), ("0", None), ("", None), ("many", None)])
def test_the_port_above_a_card_tells_the_lanes_of_its_slot(tmp_path: Path, lanes: str, slot: float | None) -> None:
    assert slot_lanes(BUS_ID, card_in_slot(tmp_path, lanes)) == slot
    assert slot_lanes("0000:42:00.0", tmp_path) is None
    assert slot_lanes("", tmp_path) is None


@pytest.mark.parametrize(
    ("card", "now", "slot", "most"),
    [
        (16.0, 4.0, 4.0, 4.0),  # a slot of four lanes: its link does what it can
        (16.0, 4.0, 16.0, 16.0),  # badly seated
        (16.0, 16.0, 1.0, 16.0),  # the port of a virtual machine
        (16.0, 4.0, None, 16.0),
        (NOT_SUPPORTED, 4.0, 4.0, NOT_SUPPORTED),
        (8.0, NOT_SUPPORTED, 16.0, 8.0),
    ],
)
def test_the_most_lanes_are_those_of_card_and_slot(
    card: Reading, now: Reading, slot: float | None, most: Reading
) -> None:
    assert most_lanes(card, now, slot) == most
