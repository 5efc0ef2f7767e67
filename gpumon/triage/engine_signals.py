"""What the rules about engines go by: an engine's loads, the activity of its GPUs, and words for what is missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from gpumon.efficiency.lengths import requests_that_fit
from gpumon.efficiency.service import BY_NATURE, FRONTENDS
from gpumon.readings.format import phrase
from gpumon.readings.frame import EndpointState, Phase
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.process_words import briefly
from gpumon.readings.quantities import MOST_RUNNING
from gpumon.readings.snapshot import BandwidthSource, Engine, Evidence, Gpu, Limit
from gpumon.triage.advice import advice
from gpumon.triage.scene import Scene

NOW_S: Final = 10.0
"""Length of the window of the rates; the GPUs' own figures are means of it, too."""
PINNED_S: Final = 30.0
"""Requests that run are at the scheduler's limit where their number did not move for so long while others waited."""
PINNED_SAMPLES: Final = 5
PINNED_SHARE: Final = 0.02
"""Part of the running requests that may end and be replaced between two polls at the limit."""
PINNED_LEAST: Final = 8.0
"""Fewer requests than this stand still by chance, or as long prompts take turns; no engine's default limit is lower."""
FULL_SLOTS: Final = 0.95
"""Share of the slots that are in use on average while requests wait for one: some are just being handed on."""
LARGEST: Final = 1e21
"""FLOP/s, bytes or tokens beyond which a counter is broken."""
MEASURED: Final = frozenset({BandwidthSource.GPM, BandwidthSource.DCGM})
PASSING: Final = frozenset(
    {Reason.WARMING_UP, Reason.RESET, Reason.IDLE, Reason.FEW, Reason.STALE, Reason.UNREACHABLE, Reason.LOST}
)
"""Reasons that go away, or that another row of the screen explains."""
_FIXES: Final = {
    Reason.UNKNOWN_MODEL: "add a [[model]] entry",
    Reason.NO_GPU: "add gpus to its [[endpoint]]",
    Reason.NO_ENGINE: "add gpus to its [[endpoint]]",
    Reason.UNMAPPED: "add gpus to its [[endpoint]]",
    Reason.NO_CONTEXT: "add context_tokens to its [[endpoint]]",
}
ACTIVITY: Final = "needs Hopper or newer, or a dcgm-exporter in [dcgm] url"
"""What gives the activity of SMs, tensor cores and DRAM."""


class Activity(NamedTuple):
    """Means over an engine's GPUs that report it, 0..1; None: none of them does."""

    busy: float | None
    sm: float | None
    tensor: float | None
    dram: float | None
    """Measured share of the peak bandwidth: neither modelled, nor an upper bound."""


UNSEEN: Final = Activity(None, None, None, None)


def served(scene: Scene) -> Engine | None:
    """The engine, if it serves requests itself, answers, and does not hang."""
    engine = scene.engine
    if engine is None or engine.phase is not Phase.INFERENCE or engine.kind in FRONTENDS:
        return None
    return engine if engine.state is EndpointState.OK and Limit.STALLED not in scene.found else None


def finite(reading: Reading | None) -> float | None:
    """The number, where it is one that a figure can be: not below zero, and no more than any server comes to."""
    if reading is None or isinstance(reading, Missing):
        return None
    return reading if 0.0 <= reading < LARGEST else None


def mean(scene: Scene, field: str, seconds: float = NOW_S) -> float | None:
    """Mean of a sampled field; None where it is not known right now."""
    recent = scene.recent
    return finite(recent.mean(field, seconds)) if recent.last(field) is not None else None


def now(scene: Scene, field: str) -> float | None:
    """Newest sample of a field, if it is a number that makes sense."""
    return finite(scene.recent.last(field))


def gpu_mean(scene: Scene, gpu: Gpu, field: str, seconds: float = NOW_S) -> float | None:
    """Mean of a GPU's sampled field; None where it is not known."""
    recent = scene.others.get(gpu.uuid)
    return None if recent is None or recent.last(field) is None else finite(recent.mean(field, seconds))


def dram_of(scene: Scene, gpu: Gpu, seconds: float = NOW_S) -> float | None:
    """Measured share of a GPU's peak bandwidth."""
    peak = finite(gpu.bandwidth_peak_bytes_per_s)
    if gpu.bandwidth_source not in MEASURED or not peak:
        return None
    moved = gpu_mean(scene, gpu, "bandwidth_bytes_per_s", seconds)
    return None if moved is None else finite(moved / peak)


def activity(scene: Scene, seconds: float = NOW_S) -> Activity:
    """What the engine's GPUs do."""
    kept = scene.recent.worked_out
    if ("activity", seconds) not in kept:
        kept["activity", seconds] = _activity(scene, seconds)
    found: Activity = kept["activity", seconds]
    return found


def _activity(scene: Scene, seconds: float) -> Activity:
    if not scene.gpus:
        return UNSEEN
    busy, sm, tensor = (
        _over(gpu_mean(scene, gpu, field, seconds) for gpu in scene.gpus)
        for field in ("busy_ratio", "sm_active_ratio", "tensor_active_ratio")
    )
    return Activity(busy, sm, tensor, _over(dram_of(scene, gpu, seconds) for gpu in scene.gpus))


def _over(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def slots(scene: Scene) -> tuple[float, str] | None:
    """Requests that may run at once, all ranks, and where that comes from; None where the engine does not say."""
    engine, reading = scene.engine, scene.reading
    if engine is None or reading is None:
        return None
    limits = [limit for rank in reading.ranks if (limit := finite(rank.gauges.get(MOST_RUNNING)))]
    if limits and len(limits) == len(reading.ranks):
        return sum(limits), reading.live.get(MOST_RUNNING, MOST_RUNNING)
    flag = advice(engine.kind).slots
    if not flag.startswith("-"):
        return None
    for gpu in scene.gpus:
        for process in gpu.processes:
            if process.engine == engine.name and (value := _option(process.command, flag)):
                return value * max(1, engine.hardware.ranks), f"{flag} of its command line"
    return None


def _option(command: str, flag: str) -> float:
    """The positive number behind an option; 0 where there is none."""
    _, found, rest = command.partition(flag)
    word = rest.lstrip(" =").partition(" ")[0] if found and rest[:1] in (" ", "=") else ""
    return float(word) if word.isascii() and word.isdigit() and len(word) < 8 else 0.0


def pinned(scene: Scene) -> bool:
    """The scheduler runs as many requests as it may; where the limit is not known: their number stands still.

    Beside much prefill it stands still, too: the prompts are what is waited for.
    """
    running, known = mean(scene, "running"), slots(scene)
    if running is None or running < 1.0:
        return False
    if known is not None:
        return running >= FULL_SLOTS * known[0]
    if running < PINNED_LEAST or (mean(scene, "mfu_prefill_ratio") or 0.0) >= scene.thresholds.compute_queued_mfu_ratio:
        return False
    samples = [value for _, value in scene.recent.values("running", PINNED_S)]
    return len(samples) >= PINNED_SAMPLES and max(samples) - min(samples) <= max(1.0, PINNED_SHARE * max(samples))


def works(scene: Scene) -> bool:
    """It had something to do: what its GPUs do is then its own work. Also where it tells nothing of that."""
    fields = ("running", "decode_tokens_per_s", "prefill_tokens_per_s", "inferences_per_s")
    tells = False
    for field in fields:
        value = mean(scene, field)
        if value:
            return True
        tells = tells or value is not None
    return not tells


def shared_with(scene: Scene) -> str:
    """Who else works on its GPUs, as far as it can be told: `emb:8001`, `python (pid 999)`; empty: nobody."""
    own, limits = scene.engine, scene.thresholds
    if own is None or not scene.gpus:
        return ""
    here = {gpu.uuid for gpu in scene.gpus}
    for other, reading in zip(scene.snapshot.engines, scene.frame.engines, strict=True):
        beside = other.key != own.key and other.kind not in FRONTENDS and not here.isdisjoint(reading.gpus)
        if beside and not _rests(scene, other):
            return other.name
    for gpu in scene.gpus:
        mine = [process for process in gpu.processes if process.engine == own.name]
        for process in gpu.processes if mine else ():
            held, total = finite(process.vram_bytes), finite(gpu.vram_total_bytes)
            small = held is not None and total is not None and held <= limits.held_ratio * total
            share = finite(process.sm_ratio)
            if not process.engine and not small and (share is None or share > limits.stalled_busy_ratio):
                return briefly(process)
    return ""


def _rests(scene: Scene, other: Engine) -> bool:
    """Whether another engine has had nothing to do."""
    recent = scene.others.get(other.key)
    return recent is not None and recent.last("running") is not None and not recent.mean("running", NOW_S)


def own_activity(scene: Scene, *, urgent: bool) -> tuple[Activity, str]:
    """What its GPUs do for it, and with whom it shares them.

    Beside others MFU and MBU are its own; the GPUs' activity stands in where one of them is not known, or where it is
    `urgent` to know what its GPUs are full of.
    """
    seen, others = activity(scene), shared_with(scene)
    if others and not urgent:
        tensor = seen.tensor if mean(scene, "mfu_ratio") is None else None
        seen = seen._replace(tensor=tensor, dram=seen.dram if mean(scene, "mbu_ratio") is None else None)
    return seen, others


def request_tokens(engine: Engine) -> float | None:
    """KV tokens that a running request takes: its mean context, else prompt and half its answer."""
    context = finite(engine.load.context_tokens)
    if context:
        return context
    prompt, answer = finite(engine.load.prompt_tokens_mean), finite(engine.load.answer_tokens_mean)
    return prompt + answer / 2.0 if prompt and answer is not None else None


def held(engine: Engine) -> float | None:
    """Requests of the size seen that the KV pool holds, all ranks."""
    pool, each = finite(engine.load.kv_pool_tokens), request_tokens(engine)
    return finite(requests_that_fit(pool, each)) if pool and each else None


def missing(what: str, reading: Reading, fix: str = "") -> str | None:
    """Words for a signal that is not there, with what would give it; None where it is, or comes by itself."""
    if not isinstance(reading, Missing) or reading.reason in PASSING or reading in BY_NATURE:
        return None
    fix = fix or _FIXES.get(reading.reason, "")
    return f"{what} ({phrase(reading)}{': ' if fix else ''}{fix})"


def no_compute(engine: Engine, seen: Activity) -> str | None:
    """Words for the lack of any figure of the arithmetic; None where there is one, or it is only warming up."""
    return None if seen.tensor is not None else missing("MFU or tensor activity", engine.efficiency.mfu_ratio)


def no_bandwidth(engine: Engine, seen: Activity) -> str | None:
    """The same of the memory's bandwidth."""
    return None if seen.dram is not None else missing("MBU or DRAM activity", engine.efficiency.mbu_ratio)


def percent(value: float) -> str:
    """`41 %`, `<1 %`."""
    return "<1 %" if 0.0 < value < 0.005 else f"{round(min(value, 99.0) * 100.0)} %"


def requests(value: float) -> str:
    """A mean number of requests: `24`, `3.4`."""
    value = min(value, 1e9)
    return f"{value:.0f}" if value >= 9.95 or abs(value - round(value)) < 0.05 else f"{value:.1f}"


def tokens(value: float) -> str:
    """A number of tokens: `800`, `3.2k`, `1.1M`."""
    for least, unit in ((1e6, "M"), (1e3, "k")):
        if value >= least:
            return f"{min(value / least, 99999.0):.3g}{unit}"
    return f"{value:.0f}"


def latency(value: float) -> str:
    """`40 ms`, `1.2 s`."""
    return f"{value * 1e3:.{1 if value < 0.00995 else 0}f} ms" if value < 0.9995 else f"{min(value, 1e6):.3g} s"


def lasting(seconds: float) -> str:
    """`45 s`, `5 min`, `3 h`."""
    for length, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2.0 * length or (length == 60.0 and seconds >= 90.0):
            return f"{min(seconds / length, 9999.0):.0f} {unit}"
    return f"{seconds:.0f} s"


def lasted(seconds: float) -> str:
    """A time that goes on, in steps below 2 min, so that texts of some seconds ago are right: `over 30 s`, `5 min`."""
    if not 10.0 <= seconds < 120.0:
        return lasting(seconds)
    step = 10.0 if seconds < 30.0 else 30.0
    return f"over {seconds // step * step:.0f} s"


def evidence(scene: Scene, text: str, field: str, value: float, chart: str = "") -> Evidence:
    """A figure of the engine, with its source and its chart."""
    source = scene.engine.sources.get(field, "") if scene.engine is not None else ""
    return Evidence(text, source, value, f"{chart}@{scene.key}" if chart else "")


def of_gpu(gpu: Gpu, chart: str) -> str:
    """Its chart; a MIG slice has its parent's index, and no chart of its own."""
    return "" if gpu.parent_uuid or not chart else f"{chart}:{gpu.index}"


def of_gpus(scene: Scene, text: str, field: str, value: float, chart: str) -> Evidence:
    """A mean over the engine's GPUs; its chart is that of the first."""
    gpu = scene.gpus[0]
    source = gpu.sources.get(field, "")
    several = f", mean of {len(scene.gpus)} GPUs" if len(scene.gpus) > 1 else ""
    return Evidence(text, f"{source}{several}".removeprefix(", "), value, of_gpu(gpu, chart))
