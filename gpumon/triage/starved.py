"""Do GPUs wait for their input? They stop in a rhythm while work is at hand, and the host is at a limit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Final, NamedTuple

from gpumon.readings.format import amount
from gpumon.readings.frame import EngineKind, Phase
from gpumon.readings.snapshot import Confidence, Evidence, Kind, Level, Limit
from gpumon.triage.engine_replicas import apart
from gpumon.triage.engine_signals import evidence, finite, mean, of_gpu, percent, requests, served
from gpumon.triage.engine_state import processes
from gpumon.triage.gpu_words import SPINNER, is_called, named
from gpumon.triage.rule import Finding, Unsure
from gpumon.triage.scene import Recent, Scene
from gpumon.triage.thresholds import Thresholds

WINDOW_S: Final = 120.0
HOST_S: Final = 60.0
LEAST_S: Final = 30.0
"""Of samples that are needed; at 1 s they show periods of 4 s and more."""
LEAST_SAMPLES: Final = 15
MEAN: Final = ", mean of 60 s"
"""Of `HOST_S`."""
HARDLY: Final = 0.9
"""Mean busy share above which drops cost next to nothing."""
_CORE: Final = "one core"
"""Which one is not known: it may belong to another program, so that it is never more than a hint."""
_RX: Final = "network_rx_bytes_per_s"
_CLOCKS: Final = ("host_ratio", "scheduler_idle_ratio", "forward_ratio")
"""What an engine says of its scheduler's time."""


class Rhythm(NamedTuple):
    """Drops of a busy share that come at even distances."""

    period_s: float
    drops: int
    upper: float
    """Busy share that it reaches between the drops (9th decile)."""
    lower: float
    """Its mean in the drops."""


class _Cause(NamedTuple):
    """What the host is slow at: a row of `_ACTIONS`."""

    name: str
    text: str
    confidence: Confidence


_ACTIONS: Final = {
    (True, "disk"): (
        "training data from disk: put it on local NVMe, in larger files (shards), raise num_workers and "
        "prefetch_factor, save checkpoints in the background"
    ),
    (True, "CPU"): (
        "data loading is CPU-bound: prepare (tokenise, decode, augment) ahead of time or on the GPU; num_workers up to "
        "the free cores, persistent_workers=True, prefetch_factor=4, pin_memory=True with non_blocking copies"
    ),
    (True, _CORE): (
        "one thread feeds the GPUs: DataLoader(num_workers > 0, prefetch_factor=4, persistent_workers=True, "
        "pin_memory=True); {stacks} what it does"
    ),
    (
        True,
        "network",
    ): "training data over the network: copy it to local NVMe first, or raise num_workers and prefetch_factor",
    (
        False,
        "disk",
    ): "something reads or writes a disk: KV offload, model swapping, logs; iotop -o names it; move it to NVMe",
    (
        False,
        "CPU",
    ): "give the server cores of its own: move other jobs away, pin it (taskset, numactl), raise its CPU limit",
    (False, _CORE): "a single thread holds the requests back: {stacks} what it does",
    (False, "network"): "the network feeds it: check who receives (nethogs)",
}
"""By whether it trains, and by the cause."""
_SERVERS: Final = {
    EngineKind.VLLM: "tokenise in more processes: --api-server-count 4; ",
    EngineKind.SGLANG: "tokenise in more processes: --tokenizer-worker-num 4; ",
    EngineKind.TGI: "tokenise in more threads: --validation-workers 8; ",
}
"""How an engine takes its front end to more cores."""


def rhythm(samples: Sequence[tuple[float, float]], limits: Thresholds) -> Rhythm | None:
    """The rhythm of (s, busy share) samples, oldest first: at least some drops below half of the upper level, evenly
    spaced, the last of them not long ago."""
    values = sorted([value for _, value in samples])
    if len(values) < LEAST_SAMPLES:
        return None
    upper = values[int(0.9 * (len(values) - 1))]
    if upper < limits.starved_upper_ratio or values[0] >= upper / 2.0:
        return None
    half = upper / 2.0
    drops = [now_s for (_, before), (now_s, now) in pairwise(samples) if before >= half > now]
    if len(drops) < max(2.0, limits.starved_drops):
        return None
    gaps = [after - before for before, after in pairwise(drops)]
    period_s = fmean(gaps)
    spread_s = math.sqrt(fmean([(gap - period_s) ** 2 for gap in gaps]))
    if spread_s > limits.starved_regular_ratio * period_s or samples[-1][0] - drops[-1] > 2.0 * period_s:
        return None
    return Rhythm(period_s, len(drops), upper, fmean(value for value in values if value < half))


def rhythm_of(scene: Scene) -> Rhythm | None:
    """The rhythm in which its GPUs are busy: of the first one that tells, as a step takes all of them."""
    recents = (scene.others[gpu.uuid] for gpu in scene.gpus)
    told = next((recent for recent in recents if recent.last("busy_ratio") is not None), None)
    return rhythm(told.values("busy_ratio", WINDOW_S), scene.thresholds) if told is not None else None


def host_bound(scene: Scene) -> Finding | None:
    """The engine's own clocks say it: requests are there, its scheduler does not idle, and no forward pass runs."""
    engine, limits = served(scene), scene.thresholds
    host, idle, forward = (mean(scene, field, HOST_S) for field in _CLOCKS)
    running, waiting = mean(scene, "running", HOST_S), mean(scene, "waiting", HOST_S)
    if engine is None or host is None or idle is None or forward is None or not (running or waiting):
        return None
    if 1.0 - idle < limits.host_bound_least_ratio or host < limits.host_bound_ratio * (1.0 - idle):
        return None
    proof = [
        evidence(scene, f"no pass ran {percent(host)} of the time, with work at hand{MEAN}", "host_ratio", host),
        evidence(scene, f"forward passes {percent(forward)}", "forward_ratio", forward),
        evidence(scene, f"scheduler idle {percent(idle)}", "scheduler_idle_ratio", idle),
    ]
    for field, value in (("running", running), ("waiting", waiting)):
        if value is not None:
            proof.append(evidence(scene, f"{requests(value)} {field}", field, value, field))
    beside = scene.others.get("")
    if beside is not None and not any(gpu.host for gpu in scene.gpus):
        proof += _figures(beside)
    part = percent(host / (1.0 - idle))
    text = f"its GPUs wait for the host {part} of the time with work: the scheduler's process runs no forward pass then"
    action = (
        "keep overlap scheduling and CUDA graphs on (no --disable-overlap-schedule, --cuda-graph-max-bs above the "
        "batch), give its scheduler a core of its own (numactl, taskset), fewer stop strings and grammars; "
        f"{_stacks(scene)} what it does"
    )
    return apart(scene, Finding(text, tuple(proof), action))


def even_drops(scene: Scene) -> Finding | None:
    """An engine's GPUs that stop in a rhythm: queues and waits come of that, so it is asked before them."""
    found = rhythm_of(scene) if _low_busy(scene) is not None and _at_hand(scene) is not None else None
    answer = input_starved(scene) if found is not None else None
    return answer if isinstance(answer, Finding) else None


def input_starved(scene: Scene) -> Finding | Unsure | None:
    """GPUs that wait for their host with work at hand."""
    busy = _low_busy(scene)
    at_hand = _at_hand(scene) if busy is not None else None
    if busy is None or at_hand is None:
        return None
    found = rhythm_of(scene)
    if found is None and (scene.kind is Kind.GPU or busy >= scene.thresholds.starved_busy_ratio):
        return None
    said, mean = f"busy {percent(busy)}", MEAN
    if found is not None:
        said = f"busy drops every {found.period_s:.1f} s from {percent(found.upper)} to {percent(found.lower)}"
        mean = ""
    shown = Evidence(f"{said}{mean}", "nvmlDeviceGetUtilizationRates", busy, of_gpu(scene.gpus[0], "busy"))
    return _judged(scene, found is not None, said, (shown, *at_hand))


def _low_busy(scene: Scene) -> float | None:
    """Mean busy share of the GPUs, where drops could have cost something and nothing else explains them."""
    if Limit.STALLED in scene.found or not scene.gpus or (scene.kind is Kind.GPU and scene.engines):
        return None
    if scene.recent.seconds < LEAST_S:
        return None
    means = [finite(scene.others[gpu.uuid].mean("busy_ratio", HOST_S)) for gpu in scene.gpus]
    known = [value for value in means if value is not None]
    busy = fmean(known) if known else HARDLY
    return busy if busy < HARDLY else None


def _judged(scene: Scene, is_even: bool, said: str, evidence: tuple[Evidence, ...]) -> Finding | Unsure | None:
    elsewhere = next((gpu.host for gpu in scene.gpus if gpu.host), "")
    host = scene.others.get("")
    if host is None or elsewhere or not _is_known(host):
        return Unsure((f"CPU, disk and network of {elsewhere or 'this host'}: what the GPUs wait for",), evidence)
    figures = tuple(_figures(host))
    spins = _spins(scene)
    cause = next((one for one in _causes(scene, host) if not (spins and one.name == _CORE)), None)
    if cause is None:
        if not is_even or scene.kind is Kind.GPU:
            return None
        core = "(a core that is at work all the time may be SGLang's, which waits for requests so)"
        where = f"no disk or network {core}" if spins else "no core, disk or network here"
        waits = f"what the GPUs wait for: {where} is at its limit (a remote store? the steps?)"
        return Unsure((waits,), (*evidence, *figures))
    trains = scene.engine is None or scene.engine.phase is Phase.TRAINING
    action = _ACTIONS[trains, cause.name]
    if not trains and scene.engine is not None and cause.name in ("CPU", _CORE):
        action = _SERVERS.get(scene.engine.kind, "") + action
    action = action.replace("{stacks}", _stacks(scene))
    sure = cause.confidence if is_even and scene.kind is Kind.ENGINE else Confidence.LOW
    level = Level.WARN if scene.kind is Kind.ENGINE and cause.name != _CORE else Level.NOTE
    text = f"{said} with work at hand: waits for {cause.text}"
    return apart(scene, Finding(text, (*evidence, *figures), action, level, sure))


def _stacks(scene: Scene) -> str:
    """How to see what its thread does. Of a server the process on the GPU is known, whose parent takes the requests."""
    engine = scene.engine
    here = list(scene.gpu.processes) if scene.gpu is not None else processes(scene, engine) if engine else []
    if not here:
        return "py-spy dump --pid PID shows"
    serves = engine is not None and engine.phase is not Phase.TRAINING
    return f"py-spy dump --pid {here[0].pid}{' (and of its parent)' if serves else ''} shows"


def _spins(scene: Scene) -> bool:
    """Whether an engine is here that keeps a core at work while it waits."""
    return any(engine.kind is EngineKind.SGLANG for engine in scene.snapshot.engines) or any(
        is_called(SPINNER, process) for gpu in scene.snapshot.gpus for process in gpu.processes
    )


def _at_hand(scene: Scene) -> tuple[Evidence, ...] | None:
    """What says that there was work all the time; None where there was none, or where it did not go on."""
    engine, recent = scene.engine, scene.recent
    if scene.gpu is not None:
        text = f"on it: {named(scene.gpu.processes)}"
        return (Evidence(text, "NVML processes"),) if scene.gpu.processes else None
    if engine is None:
        return None
    if engine.phase is Phase.TRAINING:
        tokens, samples = (
            finite(recent.mean("trained_tokens_per_s", WINDOW_S)),
            finite(recent.mean("samples_per_s", WINDOW_S)),
        )
        rate, unit, chart = (
            (tokens, "tok/s", f"decode@{scene.key}") if tokens is not None else (samples, "samples/s", "")
        )
        return (Evidence(f"trains on {amount(rate)} {unit}", "steps", rate, chart),) if rate else None
    if not recent.last("running"):
        return None
    running = [value for _, value in recent.values("running", HOST_S) if finite(value) is not None]
    if not running or min(running) <= 0.0 or not _goes_on(recent):
        return None
    text = f"{min(running):.0f} to {max(running):.0f} requests ran at all times"
    return (Evidence(text, engine.sources.get("running", "running"), fmean(running), f"running@{scene.key}"),)


def _goes_on(recent: Recent) -> bool:
    """Whether tokens came; an engine that shows none may do other work."""
    rates = [
        finite(recent.mean(field, HOST_S))
        for field in ("decode_tokens_per_s", "prefill_tokens_per_s", "inferences_per_s")
    ]
    known = [rate for rate in rates if rate is not None]
    return not known or sum(known) > 0.0


def _is_known(host: Recent) -> bool:
    return any(
        finite(host.mean(field, HOST_S)) is not None for field in ("cpu_ratio", "busiest_core_ratio", "iowait_ratio")
    )


def _causes(scene: Scene, host: Recent) -> Iterator[_Cause]:
    """What the host is slow at, the most telling first."""
    limits = scene.thresholds

    def over(field: str, limit: float) -> float | None:
        value = finite(host.mean(field, HOST_S))
        return value if value is not None and value > limit else None

    if (value := over("io_pressure_ratio", limits.io_pressure_ratio)) is not None:
        yield _Cause("disk", f"the disk (tasks wait for it {percent(value)} of the time)", Confidence.HIGH)
    if (value := over("iowait_ratio", limits.iowait_high_ratio)) is not None:
        yield _Cause("disk", f"the disk (iowait {percent(value)} of all cores)", Confidence.HIGH)
    if (value := over("cpu_ratio", limits.cpu_high_ratio)) is not None:
        yield _Cause("CPU", f"the CPU ({percent(value)} of all cores)", Confidence.HIGH)
    if (value := over("cpu_pressure_ratio", limits.cpu_pressure_ratio)) is not None:
        yield _Cause("CPU", f"the CPU (tasks wait for a core {percent(value)} of the time)", Confidence.MEDIUM)
    if (value := over("disk_busy_ratio", limits.disk_busy_ratio)) is not None:
        yield _Cause("disk", f"the disk ({percent(value)} busy)", Confidence.MEDIUM)
    if (value := over("busiest_core_ratio", limits.core_high_ratio)) is not None:
        yield _Cause(_CORE, f"one CPU core ({percent(value)} busy), if that is what feeds it", Confidence.LOW)
    if (value := over(_RX, limits.network_bytes_per_s)) is not None:
        yield _Cause("network", f"the network ({amount(value)}B/s received)", Confidence.LOW)


_SHOWN: Final = (
    ("cpu_ratio", "CPU {} of all cores", "/proc/stat", "cpu@host"),
    ("busiest_core_ratio", "busiest core {}", "/proc/stat", "core@host"),
    ("cpu_pressure_ratio", "tasks wait for a core {} of the time", "/proc/pressure/cpu", ""),
    ("iowait_ratio", "iowait {}", "/proc/stat", "iowait@host"),
    ("io_pressure_ratio", "tasks wait for a disk {} of the time", "/proc/pressure/io", "io@host"),
    ("disk_busy_ratio", "busiest disk {} busy", "/proc/diskstats", "disk@host"),
)


def _figures(host: Recent) -> Iterator[Evidence]:
    for field, text, source, chart in _SHOWN:
        value = finite(host.mean(field, HOST_S))
        if value is not None:
            yield Evidence(f"{text.format(percent(value))}{MEAN}", source, value, chart)
    received = finite(host.mean(_RX, HOST_S))
    if received is not None:
        yield Evidence(f"receives {amount(received)}B/s{MEAN}", "/proc/net/dev", received, "net@host")
