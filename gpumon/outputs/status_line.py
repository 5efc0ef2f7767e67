"""Output of `gpumon status`: a snapshot in one short line for status bars and prompts, or as one JSON object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from gpumon.efficiency.ratio import mean_known
from gpumon.readings.format import count, counted, ratio
from gpumon.readings.text import clean
from gpumon.readings.verdict import Level
from gpumon.triage.marks import MARKS

_SCHEMA: Final = 1
"""Version of `gpumon status --json`."""
_UNKNOWN_LEVEL: Final = "unknown"
"""Level where nothing was judged yet."""
_UP_STATES: Final = ("ok", "starting")
"""States of engines that are not down."""


class _Gpu(msgspec.Struct):
    """A GPU or a MIG slice."""

    state: str
    parent_uuid: str
    """The GPU that a slice is part of; empty: it is a whole GPU."""
    busy_ratio: float | None
    mfu_ratio: float | None
    mbu_ratio: float | None
    power_w: float | None = None


class _Departure(msgspec.Struct):
    """An end of an engine."""

    planned: bool
    """Whether somebody stopped it."""


class _Engine(msgspec.Struct):
    """An engine."""

    state: str
    mfu_ratio: float | None
    mbu_ratio: float | None
    decode_tokens_per_s: float | None
    departure: list[_Departure] = []

    @property
    def was_stopped(self) -> bool:
        """Whether somebody stopped the engine."""
        return any(departure.planned for departure in self.departure)

    @property
    def has_crashed(self) -> bool:
        """Whether the engine served, and its process ended without anybody's doing."""
        return self.state == "down" and not self.was_stopped

    @property
    def is_down(self) -> bool:
        """Whether the engine gives no figures, and nobody stopped it."""
        return self.state not in _UP_STATES and not self.was_stopped


class _Action(msgspec.Struct):
    """An action of a verdict."""

    text: str = ""


class _Verdict(msgspec.Struct):
    """A verdict."""

    scope: str
    code: str
    level: str
    text: str = ""
    actions: list[_Action] = []


class StatusSnapshot(msgspec.Struct):
    """The part of a snapshot's JSON (docs/json.md) that `gpumon status` reads, its own or that of `serve-metrics`."""

    time: str
    simulated: bool
    gpus: list[_Gpu]
    engines: list[_Engine]
    verdicts: list[_Verdict]

    @property
    def whole_gpus(self) -> list[_Gpu]:
        """GPUs without MIG slices."""
        whole = []
        for gpu in self.gpus:
            if not gpu.parent_uuid:
                whole.append(gpu)
        return whole

    @property
    def measured_things(self) -> Sequence[_Gpu | _Engine]:
        """Things whose MFU and MBU count: the GPUs; the engines where no GPU is known."""
        return self.whole_gpus or self.engines

    @property
    def mfu_ratio(self) -> float | None:
        """Mean of the MFUs that are known."""
        return mean_known(thing.mfu_ratio for thing in self.measured_things)

    @property
    def mbu_ratio(self) -> float | None:
        """Mean of the MBUs that are known."""
        return mean_known(thing.mbu_ratio for thing in self.measured_things)

    @property
    def busy_ratio(self) -> float | None:
        """Mean of the busy shares that are known."""
        return mean_known(gpu.busy_ratio for gpu in self.whole_gpus)

    @property
    def engines_down(self) -> int:
        """Engines that give no figures, and that nobody stopped."""
        return sum(engine.is_down for engine in self.engines)

    @property
    def engines_stopped(self) -> int:
        """Engines that somebody stopped."""
        return sum(engine.was_stopped for engine in self.engines)


class WorstVerdict(msgspec.Struct):
    """The most urgent verdict."""

    scope: str
    code: str
    level: str
    name: str
    """Name of the limit."""
    text: str
    action: str
    """First thing to do; empty: none."""


class Status(msgspec.Struct):
    """`gpumon status --json`. A figure that is not known is null."""

    schema: int
    time: str
    simulated: bool
    source: str
    level: str
    exit_code: int
    line: str
    gpus: int
    gpus_not_ok: int
    engines: int
    engines_down: int
    engines_stopped: int
    decode_tokens_per_s: float | None
    mfu_ratio: float | None
    mbu_ratio: float | None
    busy_ratio: float | None
    power_w: float | None
    critical: int
    warnings: int
    worst: WorstVerdict | None


def status_of(snapshot: StatusSnapshot, source: str) -> Status:
    """The object that `--json` prints; `source`: who read the snapshot."""
    gpus = snapshot.whole_gpus
    return Status(
        schema=_SCHEMA,
        time=snapshot.time,
        simulated=snapshot.simulated,
        source=source,
        level=_level(snapshot),
        exit_code=int(is_critical(snapshot)),
        line=status_line(snapshot),
        gpus=len(gpus),
        gpus_not_ok=sum(gpu.state != "ok" for gpu in gpus),
        engines=len(snapshot.engines),
        engines_down=snapshot.engines_down,
        engines_stopped=snapshot.engines_stopped,
        decode_tokens_per_s=_decode_tokens_per_s(snapshot),
        mfu_ratio=snapshot.mfu_ratio,
        mbu_ratio=snapshot.mbu_ratio,
        busy_ratio=snapshot.busy_ratio,
        power_w=_power_w(gpus),
        critical=_count_at_level(snapshot, Level.CRITICAL),
        warnings=_count_at_level(snapshot, Level.WARN),
        worst=_worst_to_print(snapshot),
    )


def status_line(snapshot: StatusSnapshot) -> str:
    """Sums and the worst verdict in one line: `1.1k tok/s MFU 31% MBU 62% 8 GPUs 91% busy x 1 critical: vllm:1 hung`.

    ASCII. A figure of engines that serve has a `?` while it is not known; others are left out.
    """
    parts = []
    if snapshot.simulated:
        parts.append("SIMULATED")
    parts += _engine_parts(snapshot)
    parts += _gpu_parts(snapshot)
    if snapshot.engines_down:
        parts.append(f"{counted(snapshot.engines_down, 'engine')} down")
    if snapshot.engines_stopped:
        parts.append(f"{counted(snapshot.engines_stopped, 'engine')} stopped")
    parts.append(_verdict_part(snapshot))
    return " ".join(filter(None, parts)).encode("ascii", "replace").decode()


def _engine_parts(snapshot: StatusSnapshot) -> list[str]:
    """Output of the engines: the figure that counts comes first."""
    decode_rate = _decode_tokens_per_s(snapshot)
    serves = any(engine.state == "ok" for engine in snapshot.engines)
    parts = []
    if decode_rate is not None:
        parts.append(f"{count(decode_rate)} tok/s")
    elif serves:
        parts.append("? tok/s")
    for name, share in (("MFU", snapshot.mfu_ratio), ("MBU", snapshot.mbu_ratio)):
        if share is not None:
            parts.append(f"{name} {ratio(share)}")
        elif serves:
            parts.append(f"{name} ?")
    return parts


def _gpu_parts(snapshot: StatusSnapshot) -> list[str]:
    """Number of GPUs, how busy they are, and those that are not well by state."""
    gpus = snapshot.whole_gpus
    if not gpus:
        return []
    cards = counted(len(gpus), "GPU")
    if snapshot.busy_ratio is not None:
        cards = f"{cards} {ratio(snapshot.busy_ratio)} busy"
    parts = [cards]
    states = Counter(gpu.state for gpu in gpus)
    for state, number in states.items():
        if state != "ok":
            parts.append(f"{number} {clean(state, 30).replace('_', ' ')}")
    return parts


def _verdict_part(snapshot: StatusSnapshot) -> str:
    """The worst verdict, or that nothing was judged yet."""
    for level in (Level.CRITICAL, Level.WARN):
        verdicts = _of_level(snapshot, level)
        if verdicts:
            mark = MARKS[level]
            first = f"{clean(verdicts[0].scope, 60)} {_limit_name(verdicts[0].code)}"
            others = ""
            if len(verdicts) > 1:
                others = f" +{len(verdicts) - 1}"
            return f"{mark.plain} {len(verdicts)} {mark.word}: {first}{others}"
    if snapshot.verdicts:
        return ""
    return "not judged yet"


def is_critical(snapshot: StatusSnapshot) -> bool:
    """Whether somebody suffers right now, or an engine has ended that nobody stopped."""
    crashed = any(engine.has_crashed for engine in snapshot.engines)
    return crashed or bool(_of_level(snapshot, Level.CRITICAL))


def _level(snapshot: StatusSnapshot) -> str:
    """The worst level; an engine that crashed is critical before a verdict says so."""
    if is_critical(snapshot):
        return Level.CRITICAL.value
    worst = _worst_verdict(snapshot)
    if worst is None:
        return _UNKNOWN_LEVEL
    return worst.level


def _worst_verdict(snapshot: StatusSnapshot) -> _Verdict | None:
    """The first verdict of the most urgent level; None where there is none."""
    for level in Level:
        verdicts = _of_level(snapshot, level)
        if verdicts:
            return verdicts[0]
    return None


def _worst_to_print(snapshot: StatusSnapshot) -> WorstVerdict | None:
    """The most urgent verdict; None where nothing is urgent."""
    worst = _worst_verdict(snapshot)
    if worst is None or worst.level == Level.OK.value:
        return None
    action = ""
    if worst.actions:
        action = worst.actions[0].text
    return WorstVerdict(
        scope=worst.scope,
        code=worst.code,
        level=worst.level,
        name=_limit_name(worst.code),
        text=worst.text,
        action=action,
    )


def _count_at_level(snapshot: StatusSnapshot, level: Level) -> int:
    """Number of verdicts of one level."""
    return len(_of_level(snapshot, level))


def _of_level(snapshot: StatusSnapshot, level: Level) -> list[_Verdict]:
    """The verdicts of one level, in their order."""
    verdicts = []
    for verdict in snapshot.verdicts:
        if verdict.level == level.value:
            verdicts.append(verdict)
    return verdicts


def _power_w(gpus: Sequence[_Gpu]) -> float | None:
    """Watts of all GPUs whose power is known; None where that is none."""
    powers = []
    for gpu in gpus:
        if gpu.power_w is not None:
            powers.append(gpu.power_w)
    if powers:
        return sum(powers)
    return None


def _decode_tokens_per_s(snapshot: StatusSnapshot) -> float | None:
    """Tokens/s of all engines whose rate is known; None where that is none."""
    known = []
    for engine in snapshot.engines:
        if engine.decode_tokens_per_s is not None:
            known.append(engine.decode_tokens_per_s)
    if known:
        return sum(known)
    return None


def _limit_name(code: str) -> str:
    """Name of a limit by its code."""
    from gpumon.triage.render import LIMIT_NAMES

    for limit, name in LIMIT_NAMES.items():
        if limit.value == code:
            return name
    return clean(code, 60)  # of a newer gpumon
