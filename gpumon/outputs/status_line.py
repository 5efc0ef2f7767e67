"""Output of `gpumon status`: a snapshot in one short line for status bars and prompts, or as one JSON object."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from gpumon.efficiency.merged import merge_known
from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import Figure
from gpumon.figures.gpu import GPU, SHARES_OF_PEAKS
from gpumon.readings.format import count, counted, ratio
from gpumon.readings.missing import NOT_EXPOSED, Reading, number
from gpumon.readings.text import clean
from gpumon.readings.verdict import Level
from gpumon.triage.marks import MARKS

_SCHEMA: Final = 1
"""Version of `gpumon status --json`."""
_UNKNOWN_LEVEL: Final = "unknown"
"""Level where nothing was judged yet."""
_FORMATS: Final = re.compile(r"#|\^|`|%(?=[{(A-Za-z])|<(?=[A-Za-z/])")
"""Begins of what bars and prompts take for formats: tmux, dzen, polybar, lemonbar, zsh, and xmobar. Some of them make
a button of it that runs a command."""
_UP_STATES: Final = ("ok", "starting", "draining")
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
    flops_peak_per_s: float | None = None
    bandwidth_peak_bytes_per_s: float | None = None


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
    name: str = ""
    gpus: list[int] = []
    key: str = ""

    @property
    def was_stopped(self) -> bool:
        """Whether somebody stopped the engine."""
        return any(departure.planned for departure in self.departure)

    @property
    def has_crashed(self) -> bool:
        """Whether the engine served, and its process ended without anybody's doing."""
        return self.state == "down" and not self.was_stopped

    @property
    def is_mute(self) -> bool:
        """Whether the engine's processes are on GPUs of this host, and nothing came back in time."""
        return self.state == "timeout" and bool(self.gpus)

    @property
    def is_down(self) -> bool:
        """Whether the engine gives no figures, and nobody stopped it."""
        return self.state not in _UP_STATES and not self.was_stopped


class _Action(msgspec.Struct):
    """An action of a verdict."""

    text: str = ""


class _Acknowledged(msgspec.Struct):
    """Somebody knows of a verdict."""


class _Verdict(msgspec.Struct):
    """A verdict."""

    scope: str
    code: str
    level: str
    text: str = ""
    actions: list[_Action] = []
    id: str = ""
    key: str = ""
    acknowledged: _Acknowledged | None = None

    @property
    def is_urgent(self) -> bool:
        """Whether somebody suffers under it."""
        return self.level in (Level.CRITICAL.value, Level.WARN.value)


class _Root(msgspec.Struct):
    """A cause with its consequences, or several things that are alike: one item of what is counted."""

    id: str
    scope: str
    code: str
    level: str
    text: str = ""
    """Its consequences in words: `3 GPUs and llama-70b wait for it`."""
    acknowledged: bool = False
    """Whether somebody has acknowledged it."""


class StatusSnapshot(msgspec.Struct):
    """The part of a snapshot's JSON (docs/json.md) that `gpumon status` reads, its own or that of `serve-metrics`."""

    time: str
    simulated: bool
    gpus: list[_Gpu]
    engines: list[_Engine]
    verdicts: list[_Verdict]
    is_own: bool = False
    """Whether this process has read it, from the first answers on: an engine that is late has given none at all."""
    roots: list[_Root] | None = None
    """None: of an older gpumon, which does not tell causes from consequences."""

    @property
    def troubles(self) -> list[_Root]:
        """The items that are counted, the most urgent first."""
        if self.roots is not None:
            return [root for root in self.roots if not root.acknowledged]
        return [
            _Root(verdict.id, verdict.scope, verdict.code, verdict.level)
            for verdict in self.verdicts
            if verdict.level != Level.OK.value and verdict.acknowledged is None
        ]

    def verdict_of(self, root: _Root) -> _Verdict:
        """The verdict whose words stand for a root; one without words, if it is not among them."""
        for verdict in self.verdicts:
            if verdict.id and verdict.id == root.id:
                return verdict
        return _Verdict(scope=root.scope, code=root.code, level=root.level)

    @property
    def whole_gpus(self) -> list[_Gpu]:
        """GPUs without MIG slices."""
        return [gpu for gpu in self.gpus if not gpu.parent_uuid]

    @property
    def busy_ratio(self) -> float | None:
        """Mean of the busy shares that are known."""
        return _over_things(GPU["busy_ratio"], self.whole_gpus)

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Tokens/s of all engines whose rate is known."""
        return _over_things(ENGINE["decode_tokens_per_s"], self.engines)

    def share_of_peak(self, field: str) -> float | None:
        """MFU or MBU of the GPUs of which it is known together; where no GPU is known, of the engines."""
        if self.whole_gpus:
            return _over_things(GPU[field], self.whole_gpus)
        return _over_things(ENGINE[field], self.engines)

    @property
    def engines_down(self) -> int:
        """Engines that give no figures, and that nobody stopped."""
        return sum(engine.is_down for engine in self.engines)

    @property
    def engines_stopped(self) -> int:
        """Engines that somebody stopped."""
        return sum(engine.was_stopped for engine in self.engines)


def _over_things(row: Figure, things: Sequence[_Gpu | _Engine]) -> float | None:
    """A figure of the things of which it is known, by the rule of its row; None where it is known of none."""
    weights = [_reading(getattr(thing, row.weight)) for thing in things] if row.weight else ()
    return number(merge_known(row, [_reading(getattr(thing, row.field)) for thing in things], weights).value)


def _reading(value: float | None) -> Reading:
    """A figure of the JSON, whose null says that it is missing."""
    return NOT_EXPOSED if value is None else value


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
    acknowledged: int
    """Verdicts that somebody has acknowledged: they are in no other count."""
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
        decode_tokens_per_s=snapshot.decode_tokens_per_s,
        mfu_ratio=snapshot.share_of_peak("mfu_ratio"),
        mbu_ratio=snapshot.share_of_peak("mbu_ratio"),
        busy_ratio=snapshot.busy_ratio,
        power_w=_over_things(GPU["power_w"], gpus),
        critical=_count_at_level(snapshot, Level.CRITICAL),
        warnings=_count_at_level(snapshot, Level.WARN),
        acknowledged=_count_acknowledged(snapshot),
        worst=_worst_to_print(snapshot),
    )


def status_line(snapshot: StatusSnapshot) -> str:
    """Sums and the worst verdict in one line: `1.1k tok/s MFU 31% MBU 62% 8 GPUs 91% busy x 1 critical: vllm:1 hung`.

    ASCII without what bars begin formats with. A figure of engines that serve has a `?` while it is not
    known; others are left out.
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
    return _FORMATS.sub("?", " ".join(filter(None, parts)).encode("ascii", "replace").decode())


def _engine_parts(snapshot: StatusSnapshot) -> list[str]:
    """Output of the engines: the figure that counts comes first."""
    decode_rate = snapshot.decode_tokens_per_s
    serves = any(engine.state == "ok" for engine in snapshot.engines)
    parts = []
    if decode_rate is not None:
        parts.append(f"{count(decode_rate)} tok/s")
    elif serves:
        parts.append("? tok/s")
    for field in SHARES_OF_PEAKS:
        share = snapshot.share_of_peak(field)
        if share is not None:
            parts.append(f"{GPU[field].name} {ratio(share)}")
        elif serves:
            parts.append(f"{GPU[field].name} ?")
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
    for state, in_state in states.items():
        if state != "ok":
            parts.append(f"{in_state} {clean(state, 30).replace('_', ' ')}")
    return parts


def _verdict_part(snapshot: StatusSnapshot) -> str:
    """The worst item, or that nothing was judged yet."""
    for level in (Level.CRITICAL, Level.WARN):
        roots = _of_level(snapshot, level)
        if roots:
            mark = MARKS[level]
            first = f"{clean(roots[0].scope, 60)} {_limit_name(roots[0].code)}"
            if roots[0].text:
                first = f"{first}; {clean(roots[0].text, 120)}"
            others = f" +{len(roots) - 1}" if len(roots) > 1 else ""
            return f"{mark.plain} {len(roots)} {mark.word}: {first}{others}"
    acknowledged = _count_acknowledged(snapshot)
    if acknowledged:
        return f"{acknowledged} acknowledged"
    if snapshot.verdicts and not _has_unjudged_engine(snapshot):
        return ""
    return "not judged yet"


def _has_unjudged_engine(snapshot: StatusSnapshot) -> bool:
    """Whether an engine that answers has no verdict: verdicts on GPUs say nothing of it."""
    judged = {verdict.scope for verdict in snapshot.verdicts}
    return any(engine.state == "ok" and engine.name and engine.name not in judged for engine in snapshot.engines)


def is_critical(snapshot: StatusSnapshot) -> bool:
    """Whether somebody suffers right now, or an engine has ended that nobody stopped, or is there and mute; but for
    what somebody has acknowledged."""
    known = {verdict.key for verdict in snapshot.verdicts if verdict.acknowledged is not None and verdict.is_urgent}
    others = [engine for engine in snapshot.engines if engine.key not in known]
    crashed = any(engine.has_crashed for engine in others)
    mute = snapshot.is_own and any(engine.is_mute for engine in others)
    return crashed or mute or bool(_of_level(snapshot, Level.CRITICAL))


def _level(snapshot: StatusSnapshot) -> str:
    """The worst level; an engine that crashed is critical before a verdict says so."""
    if is_critical(snapshot):
        return Level.CRITICAL.value
    worst = _worst_root(snapshot)
    if worst is not None:
        return worst.level
    if snapshot.verdicts:
        return Level.OK.value
    return _UNKNOWN_LEVEL


def _worst_root(snapshot: StatusSnapshot) -> _Root | None:
    """The first item of the most urgent level; None where nothing is wrong."""
    for level in Level:
        roots = _of_level(snapshot, level)
        if roots:
            return roots[0]
    return None


def _worst_to_print(snapshot: StatusSnapshot) -> WorstVerdict | None:
    """The most urgent item; None where nothing is wrong."""
    worst = _worst_root(snapshot)
    if worst is None:
        return None
    verdict = snapshot.verdict_of(worst)
    action = verdict.actions[0].text if verdict.actions else ""
    return WorstVerdict(
        scope=worst.scope,
        code=worst.code,
        level=worst.level,
        name=_limit_name(worst.code),
        text="; ".join(text for text in (verdict.text, worst.text) if text),
        action=action,
    )


def _count_at_level(snapshot: StatusSnapshot, level: Level) -> int:
    """Number of items of one level."""
    return len(_of_level(snapshot, level))


def _count_acknowledged(snapshot: StatusSnapshot) -> int:
    """Number of verdicts that somebody has acknowledged."""
    return sum(verdict.acknowledged is not None for verdict in snapshot.verdicts)


def _of_level(snapshot: StatusSnapshot, level: Level) -> list[_Root]:
    """The items of one level, in their order."""
    return [root for root in snapshot.troubles if root.level == level.value]


def _limit_name(code: str) -> str:
    """Name of a limit by its code."""
    from gpumon.triage.render import LIMIT_NAMES

    for limit, name in LIMIT_NAMES.items():
        if limit.value == code:
            return name
    return clean(code, 60)  # of a newer gpumon
