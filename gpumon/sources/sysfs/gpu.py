"""One GPU by the files of the kernel: what is alike for all drivers.

Units of sensors are those of Documentation/hwmon/sysfs-interface.rst: uW, uJ, thousandths of a degree Celsius, Hz.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from gpumon.readings.frame import GPU_FIGURES, GpuProcess, GpuReading, XidEvent
from gpumon.readings.missing import NOT_IN_SYSFS, NOT_SUPPORTED, Missing, Reading, Reason
from gpumon.readings.sysfs import SYSFS, SysfsFigure
from gpumon.readings.text import clean
from gpumon.sources.driver.bounds import EnergyCheck, drop_implausible
from gpumon.sources.driver.calls import Calls, CallTrace
from gpumon.sources.driver.fleet import Pcie
from gpumon.sources.driver.names import ProcessNames, largest_first
from gpumon.sources.driver.wire import Timings
from gpumon.sources.sysfs.cards import Card, Hwmon
from gpumon.sources.sysfs.fdinfo import ClientUsage, FdinfoClients
from gpumon.sources.sysfs.files import API, number_of

_MOST_PROCESSES: Final = 256
"""Processes of one GPU that a reading has."""
ASLEEP: Final = Missing(Reason.OFF, "the GPU is asleep (runtime power management): reading it would wake it")
GENERATIONS: Final = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""GT/s of a PCIe lane -> generation."""
_SPEED: Final = re.compile(r"(\d+(?:\.\d+)?) GT/s")


_BLANK: Final[dict[str, Any]] = dict.fromkeys(GPU_FIGURES, NOT_SUPPORTED)


class SysfsGauge(NamedTuple):
    """One field and the files that have it, best first, with the factor to the field's unit."""

    field: str
    files: tuple[str, ...]
    """Relative to the card's folder; empty names are left out."""
    scale: float = 1.0


def card_gauges(card: Card, figures: Sequence[SysfsFigure], when: str) -> tuple[SysfsGauge, ...]:
    """Gauges of a card for those figures that are read together and are not computed."""
    return tuple(
        SysfsGauge(figure.field, _files(card.hwmon, figure), figure.factor)
        for figure in figures
        if figure.when == when and not figure.computed
    )


def _files(hwmon: Hwmon, figure: SysfsFigure) -> tuple[str, ...]:
    """Files that have a figure, best first."""
    channel = hwmon.channel(*figure.channels)
    if channel:
        return (f"{channel}_input",)
    sensors = [hwmon.file(sensor) for sensor in figure.sensors]
    return (*(f"device/{file}" for file in figure.files), *sensors)


class SysfsGpu:
    """One card. A driver's class says what is read beyond the gauges."""

    lacks: ClassVar[Mapping[str, Missing]] = {}
    """Why a figure is not there that no file has, by field."""

    def __init__(
        self, index: int, uuid: str, card: Card, timings: Timings, trace: CallTrace, clients: FdinfoClients, root: Path
    ) -> None:
        self.handle = card
        self.uuid = uuid
        self.read_s = 0.0
        self._index = index
        self._card = card
        self._calls = Calls(API, timings, trace)
        self._timings = timings
        self._clients = clients
        self._root = root
        self._names = ProcessNames()
        self._energy = EnergyCheck()
        self._name = ""
        self._values: dict[str, Any] = {"energy_j": NOT_SUPPORTED, "power_limit_w": NOT_SUPPORTED}
        self._slow_due_s = 0.0
        self._minute_due_s = 0.0
        self._unread = ASLEEP
        """Why a figure is not there that no file gave: until the card is awake once, none was looked for."""

    @property
    def name(self) -> str:
        """Market name of the card; empty until it was read."""
        return self._name

    def troubles(self) -> dict[str, tuple[str, float]]:
        """The files that could be read before and cannot now: why, and since when (Unix time)."""
        return self._calls.troubles()

    def close(self) -> None:
        """Nothing is to be given back."""

    def read(self, now_s: float, xid: tuple[XidEvent, ...], pcie: Pcie) -> tuple[GpuReading, ...]:  # noqa: ARG002 - the signature of a driver's GPU
        """Its row; reads all that is due. The kernel counts no PCIe traffic of a GPU for everybody to read."""
        self._calls.begin(now_s)
        if self._text("device/power/runtime_status") == "suspended":
            self._sleep()
        else:
            self._unread = NOT_IN_SYSFS
            self._read_due(now_s)
        self.read_s = time.monotonic()
        drop_implausible(self._values)
        self._energy.check(self._values, self.read_s)
        state, text = self._calls.badge()
        own = (self._index, self.uuid, self._name, state, self.read_s, text)
        return (GpuReading(*own, source=SYSFS, xid=xid, bus_id=self._card.slot, **self._figures()),)

    def _figures(self) -> dict[str, Any]:
        """All that was read, with a reason for what no file has."""
        figures = {**_BLANK, **self._values}
        for field in GPU_FIGURES:
            if figures[field] == NOT_SUPPORTED:
                figures[field] = self.lacks.get(field, self._unread)
        return figures

    def _read_due(self, now_s: float) -> None:
        """Read what is due at this moment: each minute, each few seconds, each tick."""
        if now_s >= self._minute_due_s:
            self._minute_due_s = now_s + self._timings.minute_s
            self._name = self._name or self._market_name()
            self._read_minute()
        if now_s >= self._slow_due_s:
            self._slow_due_s = now_s + self._timings.slow_s
            self._values["processes"] = self._processes(now_s)
            self._read_slow(now_s)
        self._read_tick()

    def _sleep(self) -> None:
        """Blank what only an awake card tells. The name and the size of the memory stay."""
        if not self._name:
            self._name = self._market_name()
        for field, value in self._values.items():
            if field not in ("vram_total_bytes", "sm_count", "processes"):
                self._values[field] = value if isinstance(value, Missing) else ASLEEP
        self._minute_due_s = 0.0

    @staticmethod
    def identity(card: Card) -> str:
        """Its identity over restarts."""
        return f"pci-{card.slot}"

    def _market_name(self) -> str:
        """The name that the catalogue knows it by, else its PCI ids."""
        raise NotImplementedError

    def _read_minute(self) -> None:
        """Read limits, counts of errors and the like."""

    def _read_slow(self, now_s: float) -> None:
        """Read figures that cost more than a file or two."""

    def _read_tick(self) -> None:
        """Read figures that change all the time."""

    def _text(self, file: str) -> str | Missing:
        """Text of one of the card's files."""
        text: str | Missing = self._calls.read(file, self._card.folder, key=file)
        return text

    def _number(self, file: str, scale: float = 1.0) -> Reading:
        """Number of one of the card's files."""
        if not file:
            return NOT_SUPPORTED
        text = self._text(file)
        if isinstance(text, Missing):
            return text
        return number_of(text, scale)

    def _gauges(self, gauges: Sequence[SysfsGauge]) -> None:
        for gauge in gauges:
            self._values[gauge.field] = self._first(gauge.files, gauge.scale)

    def _first(self, files: Sequence[str], scale: float) -> Reading:
        """Number of the first file that this card has."""
        value: Reading = NOT_SUPPORTED
        for file in files:
            value = self._number(file, scale)
            if not (isinstance(value, Missing) and value.reason is Reason.NOT_SUPPORTED):
                break
        return value

    def _processes(self, now_s: float) -> tuple[GpuProcess, ...]:
        """The processes that have it open, the largest first."""
        rows = []
        for pid, usage in self._usage(now_s).items():
            look = self._names.of(pid, now_s)
            rows.append(GpuProcess(pid, vram_bytes=usage.vram_bytes, sm_ratio=usage.engine_ratio, **look._asdict()))
        rows.sort(key=largest_first)
        return tuple(rows[:_MOST_PROCESSES])

    def _usage(self, now_s: float) -> dict[int, ClientUsage]:
        """pid -> usage, of the processes that this user may read."""
        look = self._clients.look(now_s, self._timings.slow_s / 2.0)
        return look.usage.get(self._card.slot, {})

    def _link(self, device: str) -> dict[str, Reading]:
        """Generation and lanes of a PCI device's link, now and possible; `device` is its folder."""
        return {
            "pcie_generation": self._generation(f"{device}/current_link_speed"),
            "pcie_generation_max": self._generation(f"{device}/max_link_speed"),
            "pcie_width": self._number(f"{device}/current_link_width"),
            "pcie_width_max": self._number(f"{device}/max_link_width"),
        }

    def _generation(self, file: str) -> Reading:
        """Generation of a PCIe link by its `16.0 GT/s PCIe`."""
        text = self._text(file)
        if isinstance(text, Missing):
            return text
        speed = _SPEED.match(text)
        if speed is None:
            return Missing(Reason.INVALID, f"the kernel says {clean(text, 40)!r}, which is no speed")
        generation = GENERATIONS.get(float(speed[1]))
        if generation is None:
            return Missing(Reason.INVALID, f"no PCIe generation has {speed[1]} GT/s")
        return float(generation)


def listed_name(file: Path, line_start: str) -> str:
    """The rest of the first line of a file that begins so (in small letters); empty where there is none."""
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.casefold().startswith(line_start):
                    return clean(line[len(line_start) :].strip(), 80)
    except OSError:
        pass
    return ""
