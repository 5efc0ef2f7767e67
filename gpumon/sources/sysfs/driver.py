"""The files of the kernel as a driver of the worker: it lists the cards and opens one."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from gpumon.readings.frame import XidEvent
from gpumon.readings.sysfs import SYSFS
from gpumon.sources.driver.calls import CallTrace
from gpumon.sources.driver.fleet import DriverGpu
from gpumon.sources.driver.wire import Timings
from gpumon.sources.sysfs.cards import Card, shown_cards
from gpumon.sources.sysfs.fdinfo import FdinfoClients
from gpumon.sources.sysfs.files import API, text_or
from gpumon.sources.sysfs.gpu import SysfsGpu

ROOT: Final = Path("/")
UNVERIFIED_HARDWARE: Final = "unverified on hardware"


class NoEvents:
    """A driver whose error events are not read."""

    def watch(self, handles: dict[str, Any]) -> None:
        """None is watched."""

    def events_of(self, uuid: str) -> tuple[XidEvent, ...]:  # noqa: ARG002 - the signature of a driver's events
        """None comes."""
        return ()


class SysfsDriver:
    """The cards of one vendor. `root` is the folder that has `sys` and `proc`."""

    source = SYSFS
    api = API
    reload: frozenset[int] = frozenset()

    def __init__(self, drivers: Collection[str], no_gpu: str, gpu: type[SysfsGpu], root: Path = ROOT) -> None:
        """`gpu` reads one card of these kernel drivers."""
        self.no_gpu = no_gpu
        self._drivers = drivers
        self._gpu = gpu
        self._root = root
        self._cards: list[Card] = []
        self._clients = FdinfoClients(root / "proc")

    def start(self) -> int:
        """Nothing is to be loaded."""
        return 0

    def explain(self, code: int) -> str:
        """The fault behind an error number."""
        return f"/sys/class/drm cannot be read: {os.strerror(code)}"

    def versions(self) -> tuple[str, str]:
        """The kernel's driver with its version, where it has one of its own; marked as not tried."""
        names = sorted({card.driver for card in shown_cards(self._root / "sys", self._drivers)})
        words = [
            f"{name} {text_or(self._root / 'sys' / 'module' / name / 'version')}".rstrip()
            for name in names or sorted(self._drivers)
        ]
        return f"{', '.join(words)} (sysfs), {UNVERIFIED_HARDWARE}", ""

    def events(self) -> NoEvents:
        """None."""
        return NoEvents()

    def count(self) -> int:
        """Cards that the kernel lists."""
        return len(self.listed())

    def listed(self) -> list[Card]:
        """The cards, by PCI address."""
        self._cards = shown_cards(self._root / "sys", self._drivers)
        return self._cards

    def open(self, index: int, last: DriverGpu | None, timings: Timings, trace: CallTrace) -> DriverGpu:
        """The card at an index: `last` where its files are where they were. Raises OSError."""
        trace.begin("/sys/class/drm")
        listed = self._cards
        if index >= len(listed):
            raise OSError(errno.ENODEV, "no such card")
        card = listed[index]
        if last is not None and last.handle == card:
            return last
        uuid = self._gpu.identity(card)
        if sum(self._gpu.identity(other) == uuid for other in listed) > 1:
            uuid = SysfsGpu.identity(card)  # virtual functions of one chip
        return self._gpu(index, uuid, card, timings, trace, self._clients, self._root)
