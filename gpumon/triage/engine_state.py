"""Is an engine or a training run stuck: it has work, gives nothing, and its GPUs do nothing either."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.service import FRONTENDS
from gpumon.readings.engine_snapshot import value_of
from gpumon.readings.format import GIB
from gpumon.readings.frame import Advance, EndpointState, GpuState, Phase
from gpumon.readings.missing import number
from gpumon.readings.quantities import DECODE_TOKENS, PREFILL_CACHED, PREFILL_COMPUTED, PROMPT_TOKENS
from gpumon.readings.snapshot import BandwidthSource, Confidence, Engine, Evidence, Gpu, Level, Limit, Process
from gpumon.readings.text import clean
from gpumon.triage.engine_signals import (
    ACTIVITY,
    activity,
    dram_of,
    evidence,
    finite,
    gpu_mean,
    lasted,
    now,
    of_gpus,
    percent,
    requests,
    served,
)
from gpumon.triage.rule import Finding, Unsure
from gpumon.triage.scene import KEPT_S, Scene
from gpumon.triage.thresholds import Thresholds

LONGEST_S: Final = KEPT_S - 10.0
"""A longer time to first token is one of queueing: the requests that run give tokens all the same."""
TTFT_TIMES: Final = 3.0
TOKENS: Final = ("tokens_total.decode", "tokens_total.prefill_computed", "tokens_total.prefill_cached")
_STEPS: Final = ("tokens_total.trained", "tokens_total.samples")
_COUNTED_AT_END: Final = Advance.END.value
_MOST_NAMED: Final = 4
_DOWN: Final = frozenset({GpuState.LOST, GpuState.RESET_REQUIRED})
_SILENT: Final = frozenset({EndpointState.TIMEOUT, EndpointState.REFUSED})
BAND: Final = 2.0
"""How many times as much its GPUs may do while it is told as stalled."""
STEADY: Final = 0.9
"""Part of the memory that stays in use while an engine hangs: one that loads fills it."""
_COUNTS: Final = (DECODE_TOKENS, PREFILL_COMPUTED, PREFILL_CACHED, PROMPT_TOKENS)


class _Rest(NamedTuple):
    """Its GPUs do no work."""

    proof: Evidence
    spins: bool
    """They are busy all the same: kernels wait for each other."""


def stalled(scene: Scene) -> Finding | Unsure | None:
    """Requests run and no token comes, or it ceased to answer, while its GPUs do nothing."""
    engine = scene.engine
    if engine is None or engine.kind in FRONTENDS:
        return None
    if engine.state in _SILENT:
        return _silent(scene, engine)
    if engine.phase is Phase.TRAINING:
        return _stuck(scene, engine, "step", still_s(scene, _STEPS), scene.thresholds.stalled_training_s)
    return _no_tokens(scene) if served(scene) is not None and not engine.asleep else None


def still_s(scene: Scene, fields: tuple[str, ...]) -> float | None:
    """For how long none of these counters has moved; None where none is there."""
    recent = scene.recent
    known = [recent.steady_s(field) for field in fields if recent.last(field) is not None]
    return min(known) if known else None


def _no_tokens(scene: Scene) -> Finding | Unsure | None:
    engine = scene.engine
    assert engine is not None
    running, waiting = now(scene, "running"), now(scene, "waiting")
    if not (running or waiting) or engine.advances.get("decode_tokens_per_s", _COUNTED_AT_END) == _COUNTED_AT_END:
        return None
    seconds = still_s(scene, TOKENS)
    if seconds is None or seconds < scene.thresholds.stalled_s:
        return None
    seconds = min(seconds, _loaded_s(scene))  # an idle night gives no token either
    ttft = max((value for _, value in scene.recent.values("ttft_s.mean", KEPT_S)), default=0.0)
    least_s = max(scene.thresholds.stalled_s, min(TTFT_TIMES * ttft, LONGEST_S))
    return _stuck(scene, engine, "token", seconds, least_s)


def _loaded_s(scene: Scene) -> float:
    """For how long it has had a request without a break; infinite where no sample that is kept shows it without one."""
    waiting = dict(scene.recent.values("waiting", KEPT_S))
    running = dict(scene.recent.values("running", KEPT_S)) or waiting
    free = [at_s for at_s, count in running.items() if count == 0.0 and not waiting.get(at_s)]
    return scene.now_s - free[-1] if free else float("inf")


def _stuck(scene: Scene, engine: Engine, what: str, seconds: float | None, least_s: float) -> Finding | Unsure | None:
    """The verdict, once nothing has come for `least_s` and its GPUs do not work either: a long prefill's do."""
    if seconds is None or seconds < least_s:
        return None
    answer = _idle(scene, engine, what, seconds, least_s)
    return None if answer is None else answer._replace(began_s=scene.now_s - seconds)


def _idle(scene: Scene, engine: Engine, what: str, seconds: float, least_s: float) -> Finding | Unsure | None:
    said = f"no {what} for {lasted(seconds)}"
    proof = _load(scene, engine, said, seconds)
    if down := [gpu for gpu in scene.gpus if gpu.state in _DOWN]:
        return _without(down, said, proof)
    rest = _resting(scene, min(seconds, least_s))
    if isinstance(rest, Unsure):
        return Unsure(rest.missing, proof)
    if rest is None:
        return None
    running = finite(engine.load.running)
    load = f" with {requests(running)} running" if running else ""
    head, proof = f"{said}{load}: {rest.proof.text}", (*proof, rest.proof)
    look = _look(processes(scene, engine))
    if engine.phase is not Phase.TRAINING and _compiles(scene, seconds):
        action = f"wait: the first request compiles kernels and graphs for minutes; look at its log; else {look}"
        return Finding(f"{head}. No token yet: compiling?", proof, action, Level.NOTE, Confidence.LOW)
    if rest.spins:
        return Finding(head, proof, look, Level.CRITICAL, Confidence.HIGH)
    text, action, level = _ended(scene) if engine.phase is Phase.TRAINING else _FROZEN
    return Finding(f"{head}. {text}", proof, f"{action}; else {look}", level, Confidence.MEDIUM)


def _without(down: Sequence[Gpu], said: str, proof: tuple[Evidence, ...]) -> Finding:
    """It waits for GPUs that are gone."""
    names = " and ".join(f"gpu {gpu.index}" for gpu in down)
    what = f"{names}, which it runs on, {'is' if len(down) == 1 else 'are'} lost"
    action = f"see to {names} first: a restart on the same GPUs can not work before"
    return Finding(f"{said}: {what}", (*proof, Evidence(what, "state of the GPU")), action, Level.CRITICAL)


_FROZEN: Final = (
    "It hangs, or its gauges froze after an abort",
    "send it one request: a token tells that only its gauges froze",
    Level.WARN,
)
"""Engines renew their gauges with their steps: after an abort of all requests there is none (vLLM #22545)."""


def _ended(scene: Scene) -> tuple[str, str, Level]:
    """Words for a training run on idle GPUs, and how urgent it is: one that lives holds memory."""
    used = [(number(gpu.vram_used_bytes), number(gpu.vram_total_bytes)) for gpu in scene.gpus]
    limit = scene.thresholds.held_ratio
    action = "where it has ended, stop its exporter or take it out of the config"
    if all(held is not None and total and held <= limit * total for held, total in used):
        return "They hold nothing of it: it has ended", action, Level.NOTE
    return "It hangs, or has ended and left its exporter", action, Level.WARN


def _compiles(scene: Scene, seconds: float) -> bool:
    """It has not given a token since its process began, and its first requests are there for minutes at most."""
    engine, reading = scene.engine, scene.reading
    counts = [] if reading is None else [rank.counters.get(name) for rank in reading.ranks for name in _COUNTS]
    known = [count for count in counts if count is not None]
    if not known and engine is not None:  # what gpumon itself counted
        totals = engine.tokens_total
        known = [number(one) or 0.0 for one in (totals.decode, totals.prefill_computed, totals.prefill_cached)]
    steady = max(KEPT_S, scene.recent.steady_s("running"))
    return not any(known) and min(seconds, steady) < scene.thresholds.compile_s


def _load(scene: Scene, engine: Engine, said: str, seconds: float) -> tuple[Evidence, ...]:
    training = engine.phase is Phase.TRAINING
    field, chart = ("trained_tokens_per_s", "") if training else ("decode_tokens_per_s", "decode")
    proof = [evidence(scene, said, field, seconds, chart)]
    for name in () if training else ("running", "waiting"):
        value = finite(value_of(engine, name))
        if value:
            proof.append(evidence(scene, f"{requests(value)} {name}", name, value, name))
    return tuple(proof)


def _resting(scene: Scene, seconds: float) -> _Rest | Unsure | None:
    """The figure that says that its GPUs do nothing; None where one works."""
    limits = _limits(scene)
    seen = activity(scene, seconds)
    if not scene.gpus:
        return Unsure((_unseen(scene),))
    if seen.busy is None and seen.sm is None and seen.dram is None:
        return Unsure((f"what its GPUs do (no figure of them: {ACTIVITY})",))
    active = seen.sm if seen.busy is None else seen.busy
    spins = active is not None and active > limits.stalled_busy_ratio
    if seen.dram is not None:
        most = max(dram_of(scene, gpu, seconds) or 0.0 for gpu in scene.gpus)
        text = f"its GPUs read {_none(most)} memory (DRAM {percent(most)}, busy {percent(seen.busy or 0.0)})"
        proof = of_gpus(scene, text, "bandwidth_bytes_per_s", most, "dram")
        return _Rest(proof, spins) if most <= limits.stalled_dram_ratio else None
    if seen.sm is not None and seen.sm <= limits.stalled_busy_ratio:
        text = f"its GPUs are idle (SM {percent(seen.sm)})"
        return _Rest(of_gpus(scene, text, "sm_active_ratio", seen.sm, "sm"), spins=False)
    if seen.busy is not None and not spins:
        text = f"its GPUs are idle ({percent(seen.busy)} busy)"
        return _Rest(of_gpus(scene, text, "busy_ratio", seen.busy, "busy"), spins=False)
    bound = [share for gpu in scene.gpus if (share := _upper_bound(scene, gpu, seconds)) is not None]
    if len(bound) < len(scene.gpus):
        return Unsure((f"DRAM activity of its busy GPUs ({ACTIVITY})",))
    most = max(bound)
    if most > limits.stalled_dram_ratio:
        return None
    text = f"its GPUs are busy and read {_none(most)} memory (DRAM at most {percent(most)})"
    return _Rest(of_gpus(scene, text, "bandwidth_bytes_per_s", most, "dram"), spins=True)


def _limits(scene: Scene) -> Thresholds:
    """Wider ones for what is told as stalled: that goes at once, and must not come and go at an edge."""
    limits = scene.thresholds
    if Limit.STALLED not in scene.near:
        return limits
    busy, dram = BAND * limits.stalled_busy_ratio, BAND * limits.stalled_dram_ratio
    return msgspec.structs.replace(limits, stalled_busy_ratio=busy, stalled_dram_ratio=dram)


def _none(share: float) -> str:
    return "next to no" if share > 0.0 else "no"


def _unseen(scene: Scene) -> str:
    """Why it is not known what its GPUs do, and what would help."""
    if scene.engine is not None and scene.engine.hardware.gpu_type:
        return "what its GPUs do (they are another host's: run gpumon there)"
    return "what its GPUs do (which GPUs? add gpus to its [[endpoint]])"


def _upper_bound(scene: Scene, gpu: Gpu, seconds: float) -> float | None:
    """Share of time in which a GPU read memory: next to none of it is next to no traffic."""
    peak, moved = finite(gpu.bandwidth_peak_bytes_per_s), gpu_mean(scene, gpu, "bandwidth_bytes_per_s", seconds)
    known = gpu.bandwidth_source is BandwidthSource.UPPER_BOUND and peak and moved is not None
    return moved / peak if known and moved is not None and peak else None


def _silent(scene: Scene, engine: Engine) -> Finding | None:
    """It does not answer, and the processes that were there when it did still hold their GPU: nobody restarted it."""
    seconds, answered = finite(engine.age_s), scene.recent.holders
    here = {process.pid: process for gpu in scene.gpus for process in gpu.processes}
    if seconds is None or seconds < scene.thresholds.silent_s or not answered or not answered <= here.keys():
        return None
    if _loads(scene, min(seconds, KEPT_S)):
        return None
    holding = [process for pid, process in here.items() if pid in answered]
    held = finite(sum(number(process.vram_bytes) or 0.0 for process in holding))
    memory = f"{held / GIB:.1f} GiB" if held else "their GPU"
    how = "refuses connections" if engine.state is EndpointState.REFUSED else "does not answer"
    said = f"{how} for {lasted(seconds)}"
    proof = (
        Evidence(said, engine.url, seconds),
        Evidence(f"its processes hold {memory}: {_pids(holding)}", "processes of its GPUs", held or 0.0),
    )
    text, began_s = f"{said} while its processes hold {memory}", scene.now_s - seconds
    return Finding(text, proof, _look(holding), Level.CRITICAL, Confidence.MEDIUM, began_s)


def _loads(scene: Scene, seconds: float) -> bool:
    """Its GPUs work, or their memory came or went meanwhile: it has just been started anew."""
    seen = activity(scene)
    if (seen.busy or 0.0) > scene.thresholds.stalled_busy_ratio and (seen.dram is None or seen.dram > 0.0):
        return True
    for gpu in scene.gpus:
        recent = scene.others.get(gpu.uuid)
        used = [] if recent is None else [value for _, value in recent.values("vram_used_bytes", seconds)]
        if not used or min(used) < STEADY * max(used):
            return True
    return False


def processes(scene: Scene, engine: Engine) -> list[Process]:
    """Its processes on its GPUs."""
    return list(holders(engine, scene.gpus).values())


def holders(engine: Engine, gpus: Sequence[Gpu]) -> dict[int, Process]:
    """By pid the processes of an engine on these GPUs; where it has them alone, whatever runs there."""
    found = {process.pid: process for gpu in gpus for process in gpu.processes if process.engine == engine.name}
    if not found and all(gpu.engines in ((), (engine.name,)) for gpu in gpus):
        found = {process.pid: process for gpu in gpus for process in gpu.processes if not process.engine}
    return found


def _pids(holding: Sequence[Process]) -> str:
    shown = ", ".join(str(process.pid) for process in holding[:_MOST_NAMED])
    more = f" and {len(holding) - _MOST_NAMED} more" if len(holding) > _MOST_NAMED else ""
    return f"pid {shown}{more}"


def _look(holding: Sequence[Process]) -> str:
    whose = f" of {_pids(holding)}" if holding else ""
    stack = "py-spy dump --pid" if holding else "py-spy dump"
    first = f" {holding[0].pid}" if holding else ""
    saved = f"save its log{_log(holding)} and the stacks{whose} ({stack}{first})"
    return f"{saved}, look for Xid and NCCL errors, then restart it"


def _log(holding: Sequence[Process]) -> str:
    """Where the log of a process is, as far as its cgroup tells."""
    if not holding:
        return ""
    first = holding[0]
    if not first.container:
        return f" (journalctl _PID={first.pid}, or where its output goes)"
    return f" ({'crictl' if first.pod else 'docker'} logs {clean(first.container, 12)})"
