"""Settings that changed, and when: settings of GPUs and engines, their neighbours and replicas, noted as they change.

A change of a figure is held against them: what was set at that time comes first as its cause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.facts import OPTION, STARTED, Facts, differing_facts, engine_facts, gpu_settings
from gpumon.readings.frame import EndpointState, EngineReading, GpuProcess
from gpumon.readings.missing import number
from gpumon.readings.process_words import program_title
from gpumon.readings.snapshot import Engine, Gpu, Snapshot

_MOST_TURNS: Final = 32
"""Changes of one thing that are remembered."""
PROCESS: Final = "process"
"""Setting of a turn: a program that began on a GPU."""
REPLICAS: Final = "replicas"
"""Setting of a turn: engines of the same model that answer."""


class Turn(NamedTuple):
    """A setting that is another since some moment."""

    at_s: float
    """Monotonic: when it was seen first."""
    setting: str
    """Code of the fact (`change_words.FACT_NAMES`), or an option of the command line."""
    before: str
    """In words; empty where it was not given."""
    after: str
    gpu: int | None = None
    """Index of its GPU; None: it is one of the engine or the host."""


class Turns:
    """Settings of one thing as they were seen last, and what changed. Knows no clock."""

    def __init__(self) -> None:
        self.noted: deque[Turn] = deque(maxlen=_MOST_TURNS)
        self._key: object = None
        """Readings that the settings were made from: nothing is worked out while they are the same."""
        self._link: tuple[float | None, float | None] = (None, None)
        """Generation and lanes of a GPU's PCIe link when it worked last: an idle one trains its link down."""
        self._settings: Facts = {}
        self._pids: frozenset[int] | None = None

    def note_gpu(self, now_s: float, gpu: Gpu, *, is_awake: bool) -> None:
        """Note the settings of a GPU, and the programs on it."""
        if is_awake:
            self._link = (number(gpu.reading.pcie_generation), number(gpu.reading.pcie_width))
        pids = [process.pid for process in gpu.reading.processes]
        key = (
            gpu.reading.power_limit_w,
            gpu.reading.sm_clock_max_hz,
            gpu.reading.ecc_mode,
            self._link,
            gpu.reading.nvlinks_active,
            pids,
        )
        if key == self._key:
            return
        self._key = key
        settings = gpu_settings(gpu)
        for code, figure in zip(("pcie_generation", "pcie_width"), self._link, strict=True):
            settings.pop(code, None)
            if figure is not None:
                settings[code] = f"{figure:.0f}"
        self._note(now_s, settings, gpu.reading.index)
        self._note_programs(now_s, gpu.reading.processes, gpu.reading.index)

    def _note_programs(self, now_s: float, processes: Iterable[GpuProcess], gpu: int) -> None:
        """Note programs that have begun on a GPU, but for engines."""
        programs = {process.pid: process for process in processes}
        if self._pids is not None:
            for pid in programs.keys() - self._pids:
                if not programs[pid].engine:
                    title = f"{program_title(programs[pid])} (pid {pid})"
                    self.noted.append(Turn(now_s, PROCESS, before="", after=title, gpu=gpu))
        self._pids = frozenset(programs)

    def note_engine(
        self, now_s: float, engine: Engine, reading: EngineReading, gpus: Sequence[Gpu], replicas: Mapping[str, int]
    ) -> None:
        """Note the settings of an engine that answers, and how many engines serve its model (`replicas`, by name)."""
        if engine.state is not EndpointState.OK:
            return
        number_of_replicas = replicas.get(engine.name)
        key = (engine.version, reading.started_wall_s, reading.info, reading.gpus, number_of_replicas)
        if key == self._key:
            return
        self._key = key
        processes = [process for gpu in gpus for process in gpu.reading.processes]
        settings = engine_facts(engine, reading, processes)
        if number_of_replicas is not None:
            settings[REPLICAS] = f"{number_of_replicas}"
        self._note(now_s, settings)

    def _note(self, now_s: float, settings: Facts, gpu: int | None = None) -> None:
        """Note the settings that are others than before."""
        for code, before, after in differing_facts(self._settings, settings):
            if code != STARTED:
                self.noted.append(Turn(now_s, code.removeprefix(f"{OPTION} "), before, after, gpu))
        self._settings = settings


def replicas_by_name(snapshot: Snapshot) -> dict[str, int]:
    """Name of an engine -> engines of its model that answer, where there are several."""
    return {name: group.answering for group in snapshot.replicas for name in group.engines}
