"""The graphics cards that the kernel shows in /sys/class/drm, with their sensors.

Sources: Documentation/gpu/amdgpu, Documentation/ABI/testing/sysfs-bus-pci and sysfs-class-hwmon of Linux.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.sources.driver.bus import BUS_ID
from gpumon.sources.sysfs import INTEGRATED_VARIABLE
from gpumon.sources.sysfs.files import read_text, text_or

AMD_DRIVERS: Final = ("amdgpu",)
INTEL_DRIVERS: Final = ("xe", "i915")
INTEGRATED_SLOT: Final = ":00:02.0"
"""End of the PCI address of Intel's integrated GPU: it is always device 2 of the first bus of its domain."""
_CARD: Final = re.compile(r"card\d+")
_IDS: Final = re.compile(r"([0-9A-Fa-f]{4}):([0-9A-Fa-f]{4})")
"""Vendor and device."""
_CHANNEL: Final = re.compile(r"((?:temp|power|energy|freq)\d+)_(?:input|average|max|label)")


class Hwmon(NamedTuple):
    """The sensors of a card."""

    folder: str = ""
    """Relative to the card, `device/hwmon/hwmon4`; empty: it has none."""
    channels: tuple[tuple[str, str], ...] = ()
    """(label, channel) as (`junction`, `temp2`); a channel without a label has its own name as label."""

    def channel(self, *labels: str) -> str:
        """Path of the first channel with one of these labels, as `device/hwmon/hwmon4/temp2`; empty: none."""
        channels = dict(self.channels)
        for label in labels:
            if label in channels:
                return f"{self.folder}/{channels[label]}"
        return ""

    def file(self, name: str) -> str:
        """Path of a file among the sensors."""
        return f"{self.folder}/{name}" if self.folder else ""


class Card(NamedTuple):
    """One PCI device with a DRM driver."""

    slot: str
    """PCI address, `0000:03:00.0`."""
    folder: Path
    """/sys/class/drm/card0; what belongs to the PCI device is in `device`."""
    driver: str
    vendor_id: int
    device_id: int
    revision: int
    hwmon: Hwmon

    @property
    def is_integrated(self) -> bool:
        """Whether it is the GPU of an Intel CPU."""
        return self.driver in INTEL_DRIVERS and self.slot.endswith(INTEGRATED_SLOT)


def cards(sys: Path, drivers: Collection[str]) -> list[Card]:
    """The cards of these drivers by PCI address. Partitions of a GPU, which are no PCI devices, are not among them."""
    by_slot: dict[str, Card] = {}
    for folder in _folders(sys / "class" / "drm", _CARD):
        card = _card(folder, drivers)
        if card is not None:
            by_slot.setdefault(card.slot, card)
    return [by_slot[slot] for slot in sorted(by_slot)]


def shows_integrated() -> bool:
    """Whether the user asked for the GPU in an Intel CPU."""
    return os.environ.get(INTEGRATED_VARIABLE, "") not in ("", "0")


def shown_cards(sys: Path, drivers: Collection[str]) -> list[Card]:
    """The cards of these drivers, without the GPU in an Intel CPU unless the user asked for it."""
    return [card for card in cards(sys, drivers) if not card.is_integrated or shows_integrated()]


def _folders(parent: Path, name: re.Pattern[str]) -> list[Path]:
    """Entries of a folder with such names, by the numbers in them; none where it cannot be listed."""
    try:
        entries = [entry for entry in parent.iterdir() if name.fullmatch(entry.name)]
    except OSError:
        return []
    return sorted(entries, key=lambda entry: (len(entry.name), entry.name))


def _card(folder: Path, drivers: Collection[str]) -> Card | None:
    """The card in this folder; None if another driver has it, or it is no PCI device."""
    try:
        event = _event(read_text(folder / "device" / "uevent"))
    except OSError:
        return None
    slot = event.get("PCI_SLOT_NAME", "").lower()
    ids = _IDS.fullmatch(event.get("PCI_ID", ""))
    driver = event.get("DRIVER", "")
    if driver not in drivers or ids is None or not BUS_ID.fullmatch(slot):
        return None
    revision = _hexadecimal(text_or(folder / "device" / "revision"))
    vendor_id = int(ids[1], 16)
    device_id = int(ids[2], 16)
    return Card(slot, folder, driver, vendor_id, device_id, revision, _hwmon(folder, driver))


def _event(text: str) -> dict[str, str]:
    """Variables of a uevent file."""
    entries = (line.partition("=") for line in text.splitlines())
    return {name: value for name, _, value in entries}


def _hexadecimal(text: str) -> int:
    """`0xc8`; 0 where it cannot be read."""
    try:
        return int(text, 16)
    except ValueError:
        return 0


def _hwmon(folder: Path, driver: str) -> Hwmon:
    """The sensors that the card's driver has registered; those of its tiles have other names (`i915_gt0`)."""
    for sensors in _folders(folder / "device" / "hwmon", re.compile(r"hwmon\d+")):
        if text_or(sensors / "name") == driver:
            return Hwmon(f"device/hwmon/{sensors.name}", tuple(_channels(sensors)))
    return Hwmon()


def _channels(sensors: Path) -> Iterator[tuple[str, str]]:
    """(label, channel) of all temperatures, powers, energies and frequencies.

    Power and energy of the whole card and of its package have the same labels (`card`, `pkg`): the kind stands before.
    """
    try:
        names = sorted(entry.name for entry in sensors.iterdir())
    except OSError:
        return
    channels = []
    for name in names:
        match = _CHANNEL.fullmatch(name)
        if match and match[1] not in channels:
            channels.append(match[1])
    for channel in channels:
        kind = channel.rstrip("0123456789")
        label = text_or(sensors / f"{channel}_label")
        if label:
            yield f"{kind} {label}", channel
        yield channel, channel
