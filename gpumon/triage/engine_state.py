"""Is an engine or a training run broken: it hangs, does not answer, or runs on GPUs that are broken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from gpumon.efficiency.service import FRONTENDS
from gpumon.readings.flat import value_of
from gpumon.readings.frame import Advance, EndpointState, GpuState, Phase
from gpumon.readings.missing import NOT_EXPOSED, number
from gpumon.readings.quantities import DECODE_TOKENS, PREFILL_CACHED, PREFILL_COMPUTED, PROMPT_TOKENS
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Process
from gpumon.readings.verdict import Action, Confidence, Evidence, Family, Level, Limit, Parameters, Signal
from gpumon.triage.samples import KEPT_S
from gpumon.triage.signals import (
    TOKENS,
    Activity,
    Case,
    Finding,
    action,
    finite,
    params,
    unsure,
)
from gpumon.triage.thresholds import Thresholds

LONGEST_S: Final = KEPT_S - 10.0
"""A longer time to first token is one of queueing: the requests that run give tokens all the same."""
TTFT_TIMES: Final = 3.0
_STEPS: Final = ("tokens_total.trained", "tokens_total.samples")
_COUNTED_AT_END: Final = Advance.END.value
_MOST_NAMED: Final = 4
_DOWN: Final = frozenset({GpuState.LOST, GpuState.RESET_REQUIRED})
_SILENT: Final = frozenset({EndpointState.TIMEOUT, EndpointState.REFUSED})
BAND: Final = 2.0
"""How many times as much its GPUs may do while it stands as hung."""
STEADY: Final = 0.9
"""Part of the memory that stays in use while an engine hangs: one that loads fills it."""
SM_AT_WORK: Final = 0.5
"""SM activity from which on a GPU computes: kernels that wait for other GPUs take a sixth of the SMs (NCCL: 16 to 24
blocks of 132)."""
POWER_AT_WORK: Final = 0.5
"""Share of the power limit from which on a GPU computes: one that spins draws a third."""
_COUNTS: Final = (DECODE_TOKENS, PREFILL_COMPUTED, PREFILL_CACHED, PROMPT_TOKENS)


def hung(case: Case) -> Finding | None:
    """Requests run and no token comes, or a training run makes no step, while its GPUs do not work."""
    engine = case.engine
    if engine is None or engine.kind in FRONTENDS or engine.state in _SILENT:
        return None
    limits = case.thresholds
    if engine.phase is Phase.TRAINING:
        return _stuck(case, engine, "step", case.still_s(_STEPS), limits.stalled_training_s)
    running, waiting = case.now("running"), case.now("waiting")
    if case.served() is None or engine.asleep or not (running or waiting):
        return None
    if engine.advances.get("decode_tokens_per_s", _COUNTED_AT_END) == _COUNTED_AT_END:
        return None
    seconds = case.still_s(TOKENS)
    if seconds is None or seconds < limits.stalled_s:
        return None
    # An idle night gives no token either, nor does a process that is not there.
    seconds = min(seconds, _loaded_s(case), case.now_s - case.recent.refused_s)
    ttft = max((value for _, value in case.recent.values("ttft_s.mean", KEPT_S)), default=0.0)
    return _stuck(case, engine, "token", seconds, max(limits.stalled_s, min(TTFT_TIMES * ttft, LONGEST_S)))


def _loaded_s(case: Case) -> float:
    """For how long it has had a request without a break; infinite where no sample that is kept shows it without one."""
    waiting = dict(case.recent.values("waiting", KEPT_S))
    running = dict(case.recent.values("running", KEPT_S)) or waiting
    free = [at_s for at_s, count in running.items() if count == 0.0 and not waiting.get(at_s)]
    return case.now_s - free[-1] if free else float("inf")


def _stuck(case: Case, engine: Engine, unit: str, seconds: float | None, least_s: float) -> Finding | None:
    """The verdict, once nothing has come for `least_s` and its GPUs do not work either: a long prefill's do."""
    if seconds is None or seconds < least_s:
        return None
    began_s, training = case.now_s - seconds, engine.phase is Phase.TRAINING
    proof = [case.evidence(f"no_{unit}", "decode_tokens_per_s", seconds, "" if training else "decode", least_s)]
    load: dict[str, float] = {}
    for name in () if training else ("running", "waiting"):
        if value := finite(value_of(engine, name)):
            load[name] = value
            proof.append(case.evidence(name, name, value, name))
    said = params(seconds=seconds, unit=unit, **load)
    if down := [gpu for gpu in case.gpus if gpu.state in _DOWN]:
        lost = " and ".join(f"gpu {gpu.index}" for gpu in down)
        fix = action("fix_gpu_first", gpus=lost)
        said |= {"gpus": lost}
        return Finding(Limit.HUNG, "hung_lost_gpu", said, tuple(proof), (fix,), Level.CRITICAL, began_s=began_s)
    rest = _resting(case, min(seconds, least_s))
    if isinstance(rest, Finding):
        return rest._replace(evidence=tuple(proof), began_s=began_s)
    if rest is None:
        return None
    shown, spins, figures = rest
    proof.append(shown)
    said |= figures
    look = look_and_restart(processes(case, engine))
    if not training and _compiles(case, seconds):
        wait = action("wait_for_compile")  # after `compile_s` it is a hang, with what to do then
        finding = Finding(Limit.HUNG, "hung_compiling", said, tuple(proof), (wait,), Level.NOTE, Confidence.LOW)
    elif training and not spins:
        finding = _ended(case, engine, said, tuple(proof))
    else:
        queues = bool(load.get("waiting")) or _load_moves(case, seconds)
        level = Level.CRITICAL if spins or queues else Level.WARN
        sure = Confidence.HIGH if spins else Confidence.MEDIUM
        cause = "hung_spinning" if spins else "hung_idle" if queues else "hung_or_frozen"
        # Engines renew their gauges with their steps: after an abort of all requests there is none (vLLM #22545).
        fixes = (look,) if spins or queues else (action("send_one_request"), _otherwise(look))
        finding = Finding(Limit.HUNG, cause, said, tuple(proof), fixes, level, sure)
    return finding._replace(began_s=began_s)


def _load_moves(case: Case, seconds: float) -> bool:
    """Requests came or went meanwhile: its gauges are alive."""
    for field in ("running", "waiting"):
        values = [value for at_s, value in case.recent.values(field, seconds) if at_s > case.now_s - seconds + 5.0]
        if values and max(values) != min(values):
            return True
    return False


def _ended(case: Case, engine: Engine, said: Parameters, proof: tuple[Evidence, ...]) -> Finding:
    """A training run on idle GPUs: one that lives holds memory."""
    used = [(number(gpu.vram_used_bytes), number(gpu.vram_total_bytes)) for gpu in case.gpus]
    limit = case.thresholds.held_ratio
    gone = all(held is not None and total and held <= limit * total for held, total in used)
    cause, level = ("run_ended", Level.NOTE) if gone else ("run_hung_or_ended", Level.WARN)
    fixes = (action("stop_exporter"), _otherwise(look_and_restart(processes(case, engine))))
    return Finding(Limit.HUNG, cause, said, proof, fixes, level, Confidence.MEDIUM)


def _otherwise(then: Action) -> Action:
    """What to do only where the action before it does not help: what may be well is not restarted."""
    return Action(then.code, then.parameters | params(otherwise="yes"))


def _compiles(case: Case, seconds: float) -> bool:
    """It has not given a token since its process began, and its first requests are there for minutes at most."""
    engine, reading = case.engine, case.reading
    counts = [] if reading is None else [rank.counters.get(name) for rank in reading.ranks for name in _COUNTS]
    known = [count for count in counts if count is not None]
    if not known and engine is not None:  # what gpumon itself counted
        totals = engine.tokens_total
        known = [number(one) or 0.0 for one in (totals.decode, totals.prefill_computed, totals.prefill_cached)]
    steady = max(KEPT_S, case.recent.steady_s("running"))
    return not any(known) and min(seconds, steady) < case.thresholds.compile_s


def computes(case: Case, seen: Activity, seconds: float, limits: Thresholds) -> bool | None:
    """Whether its GPUs do arithmetic: by tensor activity, else SM activity or power; None: nothing tells."""
    if seen.tensor is not None:
        return seen.tensor > limits.stalled_tensor_ratio
    known = [] if seen.sm is None else [seen.sm >= SM_AT_WORK]
    for gpu in case.gpus:
        watts, limit = case.gpu_mean(gpu, "power_w", seconds), finite(gpu.power_limit_w)
        known += [watts >= POWER_AT_WORK * limit] if watts is not None and limit else []
    return any(known) if known else None


def _resting(case: Case, seconds: float) -> tuple[Evidence, bool, Parameters] | Finding | None:
    """The figure that says that its GPUs do nothing, neither memory traffic nor arithmetic; whether they are busy all
    the same, as kernels that wait for each other; and its parameters. None where one works."""
    limits = case.thresholds
    if Limit.HUNG in case.near:  # it goes at once, and must not come and go at an edge
        busy, dram = BAND * limits.stalled_busy_ratio, BAND * limits.stalled_dram_ratio
        limits = msgspec.structs.replace(limits, stalled_busy_ratio=busy, stalled_dram_ratio=dram)
    seen, least = case.activity(seconds), limits.stalled_busy_ratio
    if not case.gpus or (seen.busy is None and seen.sm is None and seen.dram is None):
        return unsure((case.unmeasured(),))
    if computes(case, seen, seconds, limits):
        return None
    measured = seen.dram is not None
    if not measured:
        for name, field, value in (("sm", "sm_active_ratio", seen.sm), ("busy", "busy_ratio", seen.busy)):
            if value is not None and value <= least:
                return case.of_gpus(f"{name}_share", field, value, name, least), False, params(**{name: value})
    shares = [case.dram_of(gpu, seconds) if measured else _upper_bound(case, gpu, seconds) for gpu in case.gpus]
    known = [share for share in shares if share is not None]
    if not measured and len(known) < len(shares):
        return unsure((Signal("dram", fix="needs_hopper"),))
    most = max(known, default=0.0)
    if most > limits.stalled_dram_ratio:
        return None
    quantity = "dram_active" if measured else "dram_at_most"
    proof = case.of_gpus(quantity, "bandwidth_bytes_per_s", most, "dram", limits.stalled_dram_ratio)
    active = seen.sm if seen.busy is None else seen.busy
    spins = not measured or (active is not None and active > least)
    return proof, spins, params(dram=most, busy=seen.busy, tensor=seen.tensor)


def _upper_bound(case: Case, gpu: Gpu, seconds: float) -> float | None:
    """Share of time in which a GPU read memory: next to none of it is next to no traffic."""
    peak, moved = finite(gpu.bandwidth_peak_bytes_per_s), case.gpu_mean(gpu, "bandwidth_bytes_per_s", seconds)
    bounded = gpu.bandwidth_source is BandwidthSource.UPPER_BOUND and peak and moved is not None
    return moved / peak if bounded and peak and moved is not None else None


def unresponsive(case: Case) -> Finding | None:
    """It does not answer, and the processes that were there when it did still hold their GPU: nobody restarted it."""
    engine = case.engine
    if engine is None or engine.kind in FRONTENDS or engine.state not in _SILENT:
        return None
    seconds, answered = finite(engine.age_s), case.recent.holders
    here = {process.pid: process for gpu in case.gpus for process in gpu.processes}
    if seconds is None or seconds < case.thresholds.silent_s or not answered or not answered <= here.keys():
        return None
    if _loads(case, min(seconds, KEPT_S)):
        return None
    holding = [process for pid, process in here.items() if pid in answered]
    held = finite(sum(number(process.vram_bytes) or 0.0 for process in holding)) or None
    state = "refuses" if engine.state is EndpointState.REFUSED else "silent"
    memory, pids = NOT_EXPOSED if held is None else held, params(pids=_pids(holding))
    proof = (
        Evidence("no_answer", seconds, case.thresholds.silent_s, engine.url),
        Evidence("vram_held", memory, source="processes of its GPUs", parameters=pids),
    )
    said, fixes = params(seconds=seconds, how=state, vram_bytes=held), (look_and_restart(holding),)
    sure, began_s = Confidence.MEDIUM, case.now_s - seconds
    return Finding(Limit.UNRESPONSIVE, "unresponsive", said, proof, fixes, Level.CRITICAL, sure, began_s)


def _loads(case: Case, seconds: float) -> bool:
    """Its GPUs work, or their memory came or went meanwhile: it has just been started anew."""
    seen = case.activity()
    if (seen.busy or 0.0) > case.thresholds.stalled_busy_ratio and (seen.dram is None or seen.dram > 0.0):
        return True
    for gpu in case.gpus:
        recent = case.others.get(gpu.uuid)
        used = [] if recent is None else [value for _, value in recent.values("vram_used_bytes", seconds)]
        if not used or min(used) < STEADY * max(used):
            return True
    return False


def restarting(case: Case) -> Finding | None:
    """Its process ends and begins anew again and again: whatever it serves between, requests are lost each time."""
    engine, ago = case.engine, case.restarts_s
    if engine is None or engine.kind in FRONTENDS or len(ago) < case.thresholds.restarts:
        return None
    said = params(times=float(len(ago)), seconds=max(ago), last=min(ago))
    proof = (Evidence("restarts", float(len(ago)), case.thresholds.restarts, engine.url, parameters=said),)
    alone = not any(one.model == engine.model and one.key != engine.key for one in case.snapshot.engines)
    level = Level.CRITICAL if alone else Level.WARN
    fixes = (action("read_last_log"),)
    return Finding(Limit.UNRESPONSIVE, "restart_loop", said, proof, fixes, level, began_s=case.now_s - max(ago))


def degraded(case: Case) -> Finding | None:
    """It answers, on a GPU that is broken or whose clocks are held down: by the verdict that stands on that GPU."""
    engine = case.engine
    if engine is None or engine.kind in FRONTENDS or engine.state is not EndpointState.OK:
        return None
    bad = [
        (gpu, one)
        for gpu in case.gpus
        for one in case.standing.get(gpu.uuid, ())
        if one.family is Family.STATE and one.level in (Level.CRITICAL, Level.WARN) and not one.until
    ]
    if not bad:
        return None
    gpu, worst = min(bad, key=lambda pair: (pair[1].level is not Level.CRITICAL, list(Limit).index(pair[1].code)))
    held = {name: worst.parameters[name] for name in ("clock_hz", "clock_max_hz", "xid") if name in worst.parameters}
    said = params(gpu=f"gpu {gpu.index}", fault=worst.cause, of=float(len(case.gpus)), bad=float(len(bad)))
    level = Level.CRITICAL if worst.level is Level.CRITICAL and case.suffers(engine) else Level.WARN
    return Finding(worst.code, "gpu_degraded", said | held, worst.evidence, worst.actions, level, worst.confidence)


def processes(case: Case, engine: Engine) -> list[Process]:
    """Its processes on its GPUs."""
    return list(holders(engine, case.gpus).values())


def holders(engine: Engine, gpus: Sequence[Gpu]) -> dict[int, Process]:
    """By pid the processes of an engine on these GPUs; where it has them alone, whatever runs there."""
    found = {process.pid: process for gpu in gpus for process in gpu.processes if process.engine == engine.name}
    if not found and all(gpu.engines in ((), (engine.name,)) for gpu in gpus):
        found = {process.pid: process for gpu in gpus for process in gpu.processes if not process.engine}
    return found


def _pids(holding: Sequence[Process]) -> str:
    shown = ", ".join(str(process.pid) for process in holding[:_MOST_NAMED])
    more = f" and {len(holding) - _MOST_NAMED} more" if len(holding) > _MOST_NAMED else ""
    return f"pid {shown}{more}" if holding else ""


def look_and_restart(holding: Sequence[Process]) -> Action:
    """Save what tells of the hang, then restart; the log is where the process's cgroup says."""
    first = holding[0] if holding else None
    log = "" if first is None else "journal" if not first.container else "crictl" if first.pod else "docker"
    return action(
        "save_stacks_and_restart",
        pids=_pids(holding),
        pid=None if first is None else str(first.pid),
        log=log,
        container=first.container[:12] if first is not None else "",
    )
