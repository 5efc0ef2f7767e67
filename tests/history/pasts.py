"""A simulated server as the collector keeps it: every tick derived, judged and given to keepers, in fast time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator

import msgspec

from gpumon.collector import TickKeeper
from gpumon.efficiency.deriver import Deriver
from gpumon.history.frame_store import Tick
from gpumon.history.recorder import Recorder
from gpumon.readings.frame import Frame
from gpumon.readings.snapshot import Snapshot
from gpumon.sources.packaged import gpu_catalogue
from gpumon.triage.triage import Triage


def make() -> tuple[Deriver, Triage]:
    """As a run without a config has them."""
    return Deriver(gpu_catalogue()), Triage()


def lived(frames: Iterable[Frame], *keepers: TickKeeper) -> list[Snapshot]:
    """What the screen showed while these frames came; the keepers get what the collector gives them."""
    deriver, triage = make()
    shown = []
    for frame in frames:
        snapshot, points, _ = deriver.derive(frame)
        snapshot = triage.judge(frame, snapshot)
        shown.append(snapshot)
        for keeper in keepers:
            keeper.keep(Tick(frame, points, snapshot.events, snapshot.verdicts))
    return shown


def paced(frames: Iterable[Frame], recorder: Recorder) -> Iterator[Frame]:
    """The frames, no faster than they are written: the queue of the recorder is bounded."""
    end_s = time.monotonic() + 60.0
    for number, frame in enumerate(frames):
        while recorder.written < number - 30:
            assert recorder.fault() is None
            assert time.monotonic() < end_s
            time.sleep(0.01)
        yield frame


LONGER = {
    "": ("counted_since", "events"),
    "gpus": ("energy_j", "throttle_s", "busy_mean_ratio", "unused_s", "unused_cost", "energy_cost"),
    "engines": ("tokens_total", "since"),
    "faults": ("since",),
    "verdicts": ("evidence", "parameters", "actions", "since", "until"),
}
"""What goes back further than the three minutes that are derived before a moment that is opened. Verdicts are in the
order of their level and age, so they are compared by their thing."""


def without_longer(snapshot: Snapshot) -> object:
    """The snapshot without what begins anew where a past is opened."""
    found = msgspec.to_builtins(snapshot)
    for part, fields in LONGER.items():
        for thing in [found] if not part else found[part]:
            for field in fields:
                thing.pop(field, None)
            if part == "engines":
                thing["rates"].pop("decode_mean_tokens_per_s")
                thing["served"].pop("seen")
                without_sums(thing["costs"])
    for replicas in found["replicas"]:
        without_sums(replicas["costs"])
    without_sums(found["costs"])
    found["verdicts"] = sorted(found["verdicts"], key=lambda verdict: (verdict["scope"], verdict["code"]))
    return found


def without_sums(costs: dict[str, object]) -> None:
    """Leave out what is counted since gpumon started."""
    for field in ("unused_s", "unused_gpu_s", "unused_cost", "energy_j", "energy_cost"):
        costs.pop(field, None)


def apart(one: object, other: object) -> list[tuple[str, object, object]]:
    """Where two snapshots differ; floats by more than their last digits."""
    return [*_apart(msgspec.to_builtins(one), msgspec.to_builtins(other), "")]


def _apart(one: object, other: object, path: str) -> Iterable[tuple[str, object, object]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            yield from _apart(one.get(key), other.get(key), f"{path}.{key}")
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for at, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _apart(left, right, f"{path}[{at}]")
    elif isinstance(one, float) and isinstance(other, float):
        if not math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12):
            yield path, one, other
    elif one != other:
        yield path, one, other
