"""Settings of engines, GPUs and the host as words, so that two moments can be told apart by what was set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.format import amount
from gpumon.readings.frame import CPU_OFFLOAD_GB, SERVER_COMMAND, EndpointState, EngineReading, GpuProcess, HostReading
from gpumon.readings.missing import Reading, number
from gpumon.readings.option_words import SWITCH_WORDS
from gpumon.readings.snapshot import Engine, Gpu, Snapshot, physical_gpus
from gpumon.readings.text import clean

OPTION: Final = "option"
"""Code of a fact about an option of a command line; its name follows after a blank."""
OPTIONS_KNOWN: Final = "options_known"
"""Key beside the options: the command line is known, so that an option which is not among them was not given."""
STARTED: Final = "started"
"""Code of the start of an engine's process, in whole seconds of Unix time."""
_POOL: Final = "kv_pool"
"""Code of the size of the KV pool in tokens."""
CLOCK_FACT: Final = "clock"
"""Code of the highest SM clock that a busy GPU reached while nothing but a setting held it back."""
_MOST_TEXT: Final = 200
"""Characters of a fact."""
_MOST_COMMAND: Final = 1024
"""Characters of a command line: as many as are kept of a server's (`SERVER_COMMAND`)."""
_LATEST_S: Final = 1e11
"""Unix time, of the year 5138, after which nothing starts: a page may say anything, and calendars end."""
_CUT: Final = "…"
"""End of a text that was cut."""
_SETTINGS: Final = {
    "block_size": "block_size",
    "gpu_memory_utilization": "memory_share",
    "enable_prefix_caching": "prefix_caching",
    "sliding_window": "sliding_window",
    CPU_OFFLOAD_GB: "cpu_offload",
}
"""Key of `EngineReading.info` -> code of the fact."""
_OPTIONS_OF_ADDRESS: Final = frozenset({"--port", "-p"})
"""Options that are no facts: they say where an engine listens, by which it is known."""

_LEAST_LOAD: Final = 0.5
"""Busy share from which on a GPU's clock is one under load."""
_CHOSEN_CLOCK_REASONS: Final = frozenset({"applications_clocks_setting", "sync_boost"})
"""Clock event reasons that somebody set: a clock that they hold is a setting, too."""
_TOLERANCES: Final = {STARTED: 2.5, _POOL: 0.01, CLOCK_FACT: 0.03}
"""Fact -> difference up to which it is the same: seconds of a start, which is known to a second or two; the share of a
KV pool, whose size an engine measures at each start; the share of a clock, which warmth lowers by some steps."""

Facts = dict[str, str]
"""Code -> value in words. What is not known is not in it."""


def engine_facts(engine: Engine, reading: EngineReading | None, processes: Iterable[GpuProcess]) -> Facts:
    """Settings of an engine that answers; empty of one that does not. `processes`: those on its GPUs."""
    if engine.state is not EndpointState.OK:
        return {}
    hardware = engine.hardware
    dimensions = engine.dimensions
    facts = {
        "version": engine.version,
        "model": engine.model,
        "weights": dimensions.weight_precision,
        "kv_cache": dimensions.kv_precision,
        "gpu_type": hardware.gpu_type,
        "gpus": _whole_text(hardware.gpu_count),
        "tp": _size_text(hardware.tp),
        "pp": _size_text(hardware.pp),
        "ranks": _size_text(hardware.ranks),
        _POOL: _whole_text(engine.load.kv_pool_tokens),
    }
    command = _command(engine, processes)
    if reading is not None:
        facts |= _facts_of_reading(reading)
        command = reading.info.get(SERVER_COMMAND, "") or command
    facts |= options_of(command)
    return _known_facts(facts)


def _facts_of_reading(reading: EngineReading) -> Facts:
    """Settings that a snapshot does not have."""
    facts = {"slots": _slots(reading), "model_root": reading.model_root}
    if 0.0 < reading.started_wall_s < _LATEST_S:
        facts[STARTED] = f"{reading.started_wall_s:.0f}"
    for key, code in _SETTINGS.items():
        facts[code] = reading.info.get(key, "")
    return facts


def _slots(reading: EngineReading) -> str:
    """Requests that may run at once, all ranks together."""
    slots = [rank.gauges[q.MOST_RUNNING] for rank in reading.ranks if q.MOST_RUNNING in rank.gauges]
    if slots:
        return f"{sum(slots):.0f}"
    return ""


def _command(engine: Engine, processes: Iterable[GpuProcess]) -> str:
    """Command line of the engine's process on a GPU; empty where several differ, or none has options."""
    commands = {process.command for process in processes if process.engine == engine.name and " -" in process.command}
    if len(commands) == 1:
        return commands.pop()
    return ""


def options_of(command: str) -> Facts:
    """Options of a command line with their values, as facts; empty without a command line. Of one that was cut, which
    ends with an ellipsis, it is not known which options it lacks."""
    text = clean(command, _MOST_COMMAND)
    is_cut = text.endswith(_CUT)
    words: Sequence[str] = text.split()
    if is_cut:
        words = _without_last_option(words)
    facts = {}
    for index, word in enumerate(words):
        if not _is_option(word):
            continue
        name, _, value = word.partition("=")
        if not value:
            value = _value_after(words, index)
        if name not in _OPTIONS_OF_ADDRESS:
            facts[f"{OPTION} {name}"] = value or "on"
    if words and not is_cut:
        facts[OPTIONS_KNOWN] = "yes"
    return facts


def _without_last_option(words: Sequence[str]) -> Sequence[str]:
    """The words of a command line that was cut, up to its last option, which may be cut as well."""
    for index in range(len(words) - 1, -1, -1):
        if _is_option(words[index]):
            return words[:index]
    return ()


def _is_option(word: str) -> bool:
    """Whether a word is the name of an option, and no negative number."""
    return word.startswith("-") and not word[1:2].isdigit() and len(word) > 1


def _value_after(words: Sequence[str], option_index: int) -> str:
    """The words behind an option up to the next one."""
    values: list[str] = []
    for word in words[option_index + 1 :]:
        if _is_option(word):
            break
        values.append(word)
    return " ".join(values)


def gpu_settings(gpu: Gpu) -> Facts:
    """Settings of a GPU."""
    facts = {
        "gpu_name": gpu.reading.name,
        "mig": gpu.reading.mig_profile,
        "power_limit": _with_unit(gpu.reading.power_limit_w, " W"),
        "clock_limit": clock_text(gpu.reading.sm_clock_max_hz),
        "memory_clock_limit": clock_text(gpu.reading.memory_clock_max_hz),
        "pcie_width": _whole_text(gpu.reading.pcie_width),
        "nvlinks": _whole_text(gpu.reading.nvlinks_active),
        "ecc": _switch_text(gpu.reading.ecc_mode),
        "persistence": _switch_text(gpu.reading.persistence_mode),
    }
    return _known_facts(facts)


def clock_under_load(gpu: Gpu) -> float | None:
    """SM clock in Hz of a busy GPU that nothing but a setting may hold back; None of any other."""
    busy = number(gpu.reading.busy_ratio)
    is_chosen = all(reason in _CHOSEN_CLOCK_REASONS for reason in gpu.reading.throttle)
    if busy is None or busy < _LEAST_LOAD or not is_chosen:
        return None
    return number(gpu.reading.sm_clock_hz)


def host_facts(host: HostReading, snapshot: Snapshot) -> Facts:
    """Settings of a machine, and the number of its GPUs."""
    boards = physical_gpus(snapshot.gpus)
    return _known_facts({"driver": host.driver, "cuda": host.cuda, "gpus": f"{len(boards)}"})


def _known_facts(facts: Mapping[str, str]) -> Facts:
    """The facts that have a value, safe to print: a snapshot may be another machine's."""
    return {code: clean(value, _MOST_TEXT) for code, value in facts.items() if value}


def _whole_text(value: Reading) -> str:
    """A whole number; empty where it is missing."""
    return _with_unit(value, "")


def _with_unit(value: Reading, unit: str) -> str:
    """A whole number and its unit; empty where it is missing."""
    figure = number(value)
    if figure is None:
        return ""
    return f"{figure:.0f}{unit}"


def _size_text(value: int) -> str:
    """A size; empty for 0, which is not known."""
    if value > 0:
        return f"{value}"
    return ""


def clock_text(value: Reading) -> str:
    """A clock in MHz; empty where it is missing."""
    figure = number(value)
    if figure is None:
        return ""
    return f"{figure / 1e6:.0f} MHz"


def _switch_text(value: Reading) -> str:
    """`on` or `off`; empty where it is missing."""
    figure = number(value)
    if figure is None:
        return ""
    return SWITCH_WORDS.get(figure, amount(figure))


def differing_facts(before: Facts, after: Facts) -> Iterator[tuple[str, str, str]]:
    """Code and both values of each fact that is another one now. A fact that only one side knows is no difference, but
    for an option where both command lines are known."""
    options_known = OPTIONS_KNOWN in before and OPTIONS_KNOWN in after
    for code in dict.fromkeys((*before, *after)):
        old = before.get(code, "")
        new = after.get(code, "")
        if old == new or (code in _TOLERANCES and _is_near(old, new, _TOLERANCES[code])):
            continue
        is_option = code.startswith(f"{OPTION} ") and options_known
        if (old and new) or is_option:
            yield code, old, new


def _is_near(old: str, new: str, tolerance: float) -> bool:
    """Whether two numbers differ by at most this: an amount from 1 on, else a share of the larger one."""
    if not old or not new:
        return False
    before = float(old.split()[0])
    after = float(new.split()[0])
    if tolerance < 1.0:
        return abs(after - before) <= tolerance * max(before, after)
    return abs(after - before) <= tolerance
