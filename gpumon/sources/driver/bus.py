"""PCI addresses of GPUs in one spelling, that of sysfs, and what their slots can do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from gpumon.readings.missing import Reading, number

BUS_ID: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def short_bus_id(text: str) -> str:
    """A PCI address as sysfs writes it: `00000000:41:00.0` of NVML is `0000:41:00.0`; empty where it is none."""
    text = text.lower()
    if not BUS_ID.fullmatch(text):
        return ""
    domain, _, rest = text.partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def slot_lanes(bus_id: str, sys: Path = Path("/sys")) -> float | None:
    """Lanes of the port above a PCI device, which are those that its slot has wired; None where that is not told.

    What drivers give as the most of a card is mostly the card's own: in a slot of four lanes it is never reached.
    """
    if not bus_id:
        return None
    try:
        port = (sys / "bus/pci/devices" / bus_id).resolve(strict=True).parent
        lanes = float((port / "max_link_width").read_text())
    except (OSError, ValueError):
        return None
    return lanes if lanes > 0.0 else None


def most_lanes(of_card: Reading, now: Reading, of_slot: float | None) -> Reading:
    """The most lanes of a card in its slot. The port of a virtual machine may tell of fewer than there are."""
    card = number(of_card)
    if card is None or of_slot is None or of_slot < (number(now) or 0.0):
        return of_card
    return min(card, of_slot)
