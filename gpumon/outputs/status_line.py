"""A snapshot in one short line: what `gpumon status` prints, for status bars and prompts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from gpumon.readings.format import count, counted, ratio
from gpumon.readings.text import clean
from gpumon.readings.verdict import Level
from gpumon.triage.marks import MARKS


class _Gpu(msgspec.Struct):
    state: str
    parent_uuid: str
    busy_ratio: float | None
    mfu_ratio: float | None
    mbu_ratio: float | None


class _Departure(msgspec.Struct):
    planned: bool


class _Engine(msgspec.Struct):
    state: str
    mfu_ratio: float | None
    mbu_ratio: float | None
    decode_tokens_per_s: float | None
    departure: list[_Departure] = []

    @property
    def stopped(self) -> bool:
        """Somebody stopped it."""
        return any(departure.planned for departure in self.departure)

    @property
    def crashed(self) -> bool:
        """It served, and its process ended without anybody's doing."""
        return self.state == "down" and not self.stopped


class _Verdict(msgspec.Struct):
    scope: str
    code: str
    level: str


class Shot(msgspec.Struct):
    """What the line needs of the JSON of a snapshot (docs/json.md), this program's own or that of `serve-metrics`."""

    time: str
    simulated: bool
    gpus: list[_Gpu]
    engines: list[_Engine]
    verdicts: list[_Verdict]


def status_line(shot: Shot) -> str:
    """The sums and the worst verdict: `8 GPUs 91% busy MFU 31% MBU 62% 1.1k tok/s x 1 critical: vllm:1 hung`.

    ASCII. A figure that is not known is left out.
    """
    gpus = [gpu for gpu in shot.gpus if not gpu.parent_uuid]
    parts = ["SIMULATED"] if shot.simulated else []
    if gpus:
        busy = _mean(gpu.busy_ratio for gpu in gpus)
        parts.append(counted(len(gpus), "GPU") + ("" if busy is None else f" {ratio(busy)} busy"))
    states = Counter(gpu.state for gpu in gpus if gpu.state != "ok")
    parts += [f"{number} {clean(state, 30).replace('_', ' ')}" for state, number in states.items()]
    owners: list[_Gpu] | list[_Engine] = gpus or shot.engines
    for name, share in (
        ("MFU", _mean(one.mfu_ratio for one in owners)),
        ("MBU", _mean(one.mbu_ratio for one in owners)),
    ):
        parts += [] if share is None else [f"{name} {ratio(share)}"]
    decoded = [one.decode_tokens_per_s for one in shot.engines if one.decode_tokens_per_s is not None]
    parts += [f"{count(sum(decoded))} tok/s"] if decoded else []
    stopped = sum(one.stopped for one in shot.engines)
    down = sum(one.state not in ("ok", "starting") and not one.stopped for one in shot.engines)
    parts += [f"{counted(down, 'engine')} down"] if down else []
    parts += [f"{counted(stopped, 'engine')} stopped"] if stopped else []
    for level in (Level.CRITICAL, Level.WARN):
        if found := [verdict for verdict in shot.verdicts if verdict.level == level.value]:
            mark = MARKS[level]
            first = f"{clean(found[0].scope, 60)} {_named(found[0].code)}"
            more = f" +{len(found) - 1}" if len(found) > 1 else ""
            parts.append(f"{mark.plain} {len(found)} {mark.word}: {first}{more}")
            break
    return " ".join(parts).encode("ascii", "replace").decode()


def is_critical(shot: Shot) -> bool:
    """Whether somebody suffers right now, or an engine has ended that nobody stopped."""
    crashed = any(one.crashed for one in shot.engines)
    return crashed or any(verdict.level == "critical" for verdict in shot.verdicts)


def _named(code: str) -> str:
    from gpumon.triage.render import LIMITS

    return next((name for limit, name in LIMITS.items() if limit.value == code), clean(code, 60))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
