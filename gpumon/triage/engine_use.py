"""Is a serving engine used: idle, far below what it could run, or healthy with how much room."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.service import NO_TOKENS
from gpumon.readings.engine_snapshot import value_of
from gpumon.readings.format import counted
from gpumon.readings.frame import GpuState
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Confidence, Engine, Evidence, Level
from gpumon.triage.advice import advice
from gpumon.triage.engine_fewer import Fewer, fewer, freed, money, price_per_hour
from gpumon.triage.engine_little import Little, few, idle_s, is_idle, left_s, little
from gpumon.triage.engine_replicas import apart
from gpumon.triage.engine_signals import (
    ACTIVITY,
    PASSING,
    Activity,
    activity,
    evidence,
    finite,
    gpu_mean,
    lasted,
    lasting,
    mean,
    missing,
    no_bandwidth,
    no_compute,
    now,
    of_gpus,
    percent,
    requests,
    served,
    slots,
)
from gpumon.triage.engine_state import TOKENS, still_s
from gpumon.triage.goals import grown, missed
from gpumon.triage.gpu_hardware import ECC_SOURCE, ecc_risen
from gpumon.triage.gpu_throttle import REASONS, slowed_by
from gpumon.triage.rule import Finding, Unsure
from gpumon.triage.scene import KEPT_S, Scene
from gpumon.triage.scene import REASONS as HOLDING
from gpumon.triage.starved import rhythm_of

HELD: Final = 0.95
"""SM clock, of the highest, below which a GPU's arithmetic has less room than its peak says."""
FACTOR: Final = 99.0
"""More room than this is not told apart."""
NOT_YET: Final = "use not judged yet"
"""How the evidence begins that a verdict of little use may come yet."""
CONTRADICTS: Final = "held against what its GPUs measure"
UNBELIEVABLE: Final = "what its figures are worth"
CHECK: Final = "check its model, precision and GPUs: gpumon doctor"


def under_used(scene: Scene) -> Finding | None:
    """Far fewer requests than fit, at little arithmetic and bandwidth; or none at all."""
    engine = served(scene)
    if engine is None or scene.found or engine.asleep:
        return None
    quiet_s = idle_s(scene)
    if quiet_s is not None and is_idle(scene):
        return apart(scene, _idle(scene, engine, quiet_s))
    found = few(scene)
    return None if found is None else apart(scene, _few(scene, engine, found))


def not_yet(scene: Scene, left_s: float) -> Evidence:
    """That its use is not judged yet, so that no verdict of it says little; `left_s` is until it can be found."""
    minutes = max(1, math.ceil((left_s + scene.thresholds.hold_s) / 60.0))
    return Evidence(f"{NOT_YET}, {minutes} min more", "under-used needs minutes", left_s)


def _idle(scene: Scene, engine: Engine, quiet_s: float) -> Finding:
    count = freed(scene, engine)
    price = price_per_hour(scene, engine)
    text = f"no request for {lasted(quiet_s)}"
    proof = [evidence(scene, text, "running", quiet_s, "running")]
    cost = ""
    if price is not None and count:
        cost = f": {counted(count, 'GPU')} idle, {money(price * count)}"
        proof.append(Evidence(f"{money(price)} for each of {counted(count, 'GPU')}", "config", price * count))
    elif count:
        cost = f": {counted(count, 'GPU')} idle"
    gain = "give its GPUs to another model" if count else "give its memory to another model"
    action = f"send it traffic, or stop it and {gain}"
    sure = Confidence.HIGH if scene.recent.last("running") is not None else Confidence.MEDIUM
    return Finding(f"{text}{cost}", tuple(proof), action, Level.NOTE, sure, scene.now_s - quiet_s)


def _few(scene: Scene, engine: Engine, work: Little) -> Finding:
    """`15 % MFU at 6 of 48 slots: this traffic fits on 2 of 8 GPUs, 14.9 $/h idle`."""
    room, running, seen, arithmetic, reads = work
    name = "MFU" if not isinstance(engine.efficiency.mfu_ratio, Missing) else "tensor activity"
    most = requests(room[0])
    fit = f"{most} slots" if slots(scene) == room else f"about {most} requests that fill its KV cache"
    text = f"{percent(arithmetic)} {name} at {requests(running)} of {fit}"
    seconds = f"mean of {lasting(min(scene.thresholds.under_used_s, KEPT_S))}"
    proof = [
        evidence(scene, f"{requests(running)} running, {seconds}", "running", running, "running"),
        Evidence(fit, room[1], room[0]),
        _share(scene, engine, "mfu", arithmetic, seen.tensor),
        _share(scene, engine, "mbu", reads, seen.dram),
    ]
    found = fewer(scene, engine, room[0], running)
    price = price_per_hour(scene, engine)
    saved = 0.0 if found is None or found.told_at or price is None else price * (found.here - found.needed)
    if found is not None and not found.told_at:
        text += f": this traffic fits on {found.needed} of {counted(found.here, 'GPU')}"
        text += f", {money(saved)} idle" if saved else ""
        share = f"{requests(room[0])} x {percent(scene.thresholds.planning_ratio)} an instance"
        source = f"requests running / ({share})" if found.instances else "weights, KV cache and use on fewer GPUs"
        proof.append(Evidence(f"needs {counted(found.needed, 'GPU')} of {found.here}", source, float(found.needed)))
    if saved:
        proof.append(Evidence(f"{money(saved)} idle", "config", saved))
    bursts = rhythm_of(scene) if found is None else None
    if bursts is None:
        return Finding(text, tuple(proof), _consolidate(scene, engine, found), Level.NOTE, Confidence.MEDIUM)
    every = f"in bursts every {bursts.period_s:.0f} s"
    shown = f"busy drops every {bursts.period_s:.1f} s from {percent(bursts.upper)} to {percent(bursts.lower)}"
    proof.append(of_gpus(scene, shown, "busy_ratio", bursts.lower, "busy"))
    action = (
        f"its requests come {every}, and it has none in between: let the client send the next ones before the last are "
        "done, or let its GPU serve another model, too"
    )
    return Finding(f"{text}, {every}", tuple(proof), action, Level.NOTE, Confidence.MEDIUM)


def _share(scene: Scene, engine: Engine, name: str, value: float, measured: float | None) -> Evidence:
    if not isinstance(value_of(engine, f"{name}_ratio"), Missing) or measured is None:
        return evidence(scene, f"{name.upper()} {percent(value)}", f"{name}_ratio", value, name)
    if name == "mfu":
        return of_gpus(scene, f"tensor cores {percent(value)} active", "tensor_active_ratio", value, "tensor")
    return of_gpus(scene, f"DRAM {percent(value)} active", "bandwidth_bytes_per_s", value, "dram")


def _consolidate(scene: Scene, engine: Engine, found: Fewer | None) -> str:
    seen = lasting(min(scene.thresholds.under_used_s, KEPT_S))
    unless = f"; {seen} were looked at, and a quiet hour proves nothing: gpumon report tells of the busy ones"
    if found is not None and found.told_at:
        return f"see {found.told_at}, which tells on how many GPUs the traffic of its replicas fits"
    if found is not None and found.instances:
        return (
            f"stop {found.of - found.instances} of {found.of} instances, and send their requests to the others{unless}"
        )
    if found is not None:
        return f"lower {_split(engine, found)}, and give the other GPUs to another model{unless}"
    return "send it more requests at once, or let its GPU serve another model, too"


def _split(engine: Engine, found: Fewer) -> str:
    """The settings of one instance on fewer GPUs: fewer stages first, as they only add to the latency."""
    words, stages = advice(engine.kind), found.here // engine.hardware.tp if engine.hardware.tp else 1
    if stages < 2:
        return f"{words.tp} to {found.needed}"
    tp = min(engine.hardware.tp, found.needed)
    parts = [f"{words.pp} from {stages} to {max(1, found.needed // tp)}"]
    parts += [f"{words.tp} from {engine.hardware.tp} to {tp}"] if tp < engine.hardware.tp else []
    return " and ".join(parts)


class _Headroom(NamedTuple):
    name: str
    factor: float
    """Times the traffic of now."""
    proof: Evidence


def stands_still(scene: Scene) -> bool:
    """Whether an engine gives nothing right now though it has requests, or has lost a GPU: that it did well until just
    now is no reason to say that it does."""
    if scene.engine is None:
        return False
    if any(gpu.state is not GpuState.OK for gpu in scene.gpus):
        return True
    rates = [now(scene, field) for field in ("decode_tokens_per_s", "prefill_tokens_per_s")]
    return bool(now(scene, "running") and now(scene, "waiting")) and rates == [0.0, 0.0]


def healthy(scene: Scene) -> Finding | Unsure | None:
    """Nothing holds it back and nothing is wrong: how much more traffic until the next limit."""
    engine = served(scene)
    if engine is None or scene.found:
        return None
    if engine.asleep:
        state = Evidence(engine.asleep, "the engine's own state")
        return Finding(f"asleep on purpose: {engine.asleep}", (state,), "", Level.OK, Confidence.HIGH)
    quiet_s = idle_s(scene)
    if quiet_s is not None:
        none = evidence(scene, "0 running", "running", 0.0, "running")
        ready = Finding("ready, no request right now", (none,), "", Level.OK, Confidence.HIGH)
        later = not_yet(scene, scene.thresholds.idle_s - quiet_s) if quiet_s >= scene.recent.seconds else None
        return apart(scene, _open(ready, later))
    if engine.rates.decode_tokens_per_s == NO_TOKENS:  # neither requests in flight nor MFU are to be had of such models
        return None
    seen = activity(scene)
    unknown = [no_compute(engine, seen), no_bandwidth(engine, seen), *_loads(engine)]
    if any(unknown):
        return Unsure(tuple(text for text in (*unknown, *_limits(engine)) if text))
    if lacking := _uncounted(scene, seen):
        return Unsure(lacking)
    if engine.contradicts:
        proof = tuple(Evidence(text, CONTRADICTS) for text in engine.contradicts)
        return Unsure((f"{UNBELIEVABLE} ({engine.contradicts[0]}; {CHECK})",), proof)
    late = missed(scene)
    if late:
        return Unsure((f"why {late[0].text}: no figure is near its limit",), late)
    if _passing(engine):
        return None
    room = _headroom(scene, engine, seen)
    if not room:
        return None
    room.sort(key=lambda one: one.factor)
    nearest = room[0]
    proof, slower = tuple(one.proof for one in room), grown(scene)
    if (doubt := _unsound(scene)) is not None:
        text = f"{nearest.name}, room unknown: {doubt.text}"
        return apart(scene, _open(Finding(text, (*proof, doubt), "", Level.OK, Confidence.LOW), slower))
    text = f"{nearest.name}: about {nearest.factor:.1f}x this traffic" if nearest.factor < FACTOR else nearest.name
    found = _open(Finding(text, proof, "", Level.OK, Confidence.MEDIUM), slower)
    if left_s(scene) > 0.0 and little(scene, engine) is not None:
        found = _open(found, not_yet(scene, left_s(scene)))
    return apart(scene, found)


def _open(finding: Finding, but: Evidence | None) -> Finding:
    """The finding, and what it leaves open."""
    if but is None:
        return finding
    return finding._replace(text=f"{finding.text}; {but.text}", evidence=(*finding.evidence, but))


def _uncounted(scene: Scene, seen: Activity) -> tuple[str, ...]:
    """What a long prefill hides: its tokens count at its end, and MFU shows none of it until then."""
    quiet_s = still_s(scene, TOKENS)
    if quiet_s is None or quiet_s < scene.thresholds.stalled_s / 2 or seen.tensor is not None:
        return ()
    return (f"its arithmetic (no token was counted for {lasting(quiet_s)}; tensor activity {ACTIVITY})",)


def _loads(engine: Engine) -> list[str | None]:
    return [missing("requests running", engine.load.running), missing("requests waiting", engine.load.waiting)]


def _limits(engine: Engine) -> list[str | None]:
    """What else would tell of a limit: named where the verdict is open anyway."""
    return [
        missing("KV cache use", engine.load.kv_usage_ratio),
        missing("preemptions", engine.rates.preemptions_per_s),
        missing("time in the queue", engine.latency.queue_s.mean),
    ]


def _passing(engine: Engine) -> bool:
    """It has no figures yet, or none any more."""
    return isinstance(engine.load.running, Missing) and engine.load.running.reason in PASSING


def _times(factor: float) -> float:
    """At least once: a verdict that nothing holds it back does not tell it to slow down."""
    return min(max(factor, 1.0), FACTOR)


def _unsound(scene: Scene) -> Evidence | None:
    """Why its figures say nothing of more traffic: `heat slowed gpu 0 down in the last minute`; None where they do."""
    for gpu in scene.gpus:
        recent = scene.others.get(gpu.uuid)
        if recent is not None and ecc_risen(recent) > 0.0:
            return Evidence(f"data in the memory of gpu {gpu.index} is wrong", ECC_SOURCE)
        if recent is not None and (cause := slowed_by(recent, scene.thresholds)):
            return Evidence(f"{cause} slowed gpu {gpu.index} down in the last minute", REASONS)
    return None


def _clock(scene: Scene) -> float:
    """SM clock of its slowest GPU that is held or at work, as a share of the highest: an idle one rests by itself."""
    shares = [1.0]
    for gpu in scene.gpus:
        clock, most, busy = gpu_mean(scene, gpu, "sm_clock_hz"), finite(gpu.sm_clock_max_hz), finite(gpu.busy_ratio)
        held = any(reason in HOLDING for reason in gpu.throttle)
        if clock and most and (held or (busy or 0.0) >= scene.thresholds.loaded_ratio):
            shares.append(clock / most)
    return min(shares)


def _headroom(scene: Scene, engine: Engine, seen: Activity) -> list[_Headroom]:
    limits, found = scene.thresholds, []

    def add(name: str, value: float, most: float, proof: Evidence) -> None:
        if value > 0.0:
            found.append(_Headroom(f"{name} at {percent(value)}", _times(most / value), proof))

    usage = mean(scene, "kv_usage_ratio")
    if usage is not None:
        add("KV", usage, 1.0, evidence(scene, f"KV cache {percent(usage)}", "kv_usage_ratio", usage, "kv"))
    known, running = slots(scene), mean(scene, "running")
    if known is not None and running:
        text = f"{requests(running)} of {requests(known[0])} slots"
        found.append(
            _Headroom(text, _times(known[0] / running), Evidence(text, known[1], running, f"running@{scene.key}"))
        )
    mfu, mbu = mean(scene, "mfu_ratio"), mean(scene, "mbu_ratio")
    if seen.dram is not None:  # measured: outweighs what is modelled, as it does where it is a limit
        proof = of_gpus(scene, f"DRAM {percent(seen.dram)} active", "bandwidth_bytes_per_s", seen.dram, "dram")
        add("DRAM", seen.dram, limits.bandwidth_dram_ratio, proof)
    elif mbu is not None:
        add("MBU", mbu, limits.bandwidth_mbu_ratio, _share(scene, engine, "mbu", mbu, None))
    if mfu is not None:
        clock = _clock(scene)
        proof = _share(scene, engine, "mfu", mfu, None)
        if clock < HELD:
            text = f"{proof.text} of the peak, at {percent(clock)} of the highest SM clock"
            proof = msgspec.structs.replace(proof, text=text)
        add("MFU", mfu, limits.compute_mfu_ratio * (clock if clock < HELD else 1.0), proof)
    elif seen.tensor is not None:
        share = _share(scene, engine, "mfu", seen.tensor, seen.tensor)
        add("tensor cores", seen.tensor, limits.compute_tensor_ratio, share)
    return found
