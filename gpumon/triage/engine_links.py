"""GPUs of one instance that are busy with each other: links in use, ranks that lie apart, no link at all."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low
from typing import Final, NamedTuple

from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Confidence, Engine, Evidence, Gpu, Level
from gpumon.triage.advice import advice
from gpumon.triage.engine_fewer import fits
from gpumon.triage.engine_replicas import apart
from gpumon.triage.engine_signals import (
    ACTIVITY,
    MEASURED,
    Activity,
    activity,
    dram_of,
    evidence,
    finite,
    gpu_mean,
    mean,
    no_bandwidth,
    no_compute,
    of_gpu,
    of_gpus,
    percent,
    served,
)
from gpumon.triage.engine_wider import quantise
from gpumon.triage.goals import missed
from gpumon.triage.rule import Finding, Unsure
from gpumon.triage.scene import Scene

NVLINK_BYTES_PER_S: Final = (
    (("GB200", "GB300", "B100", "B200", "B300"), 1.8e12),
    (("H100 SXM", "H200", "H20", "GH200"), 9e11),
    (("H800", "A800"), 4e11),
    (("H100", "A100"), 6e11),
    (("V100",), 3e11),
)
"""Names of a type -> NVLink of one GPU, both directions together (data sheets)."""
PCIE_LANE_BYTES_PER_S: Final = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.56e9}
"""Generation -> one lane, one direction (PCI-SIG: 8, 16, 32 GT/s with 128b/130b; 64 GT/s in flits)."""
_FIELDS: Final = {"dram": "bandwidth_bytes_per_s", "sm": "sm_active_ratio"}
SLOW_CLOCK: Final = 0.95
"""Share of the highest clock of its peers below which a GPU's clock explains why it is slow."""
APART: Final = 0.1
"""Least difference in activity that counts between two GPUs."""


class _Sign(NamedTuple):
    text: str
    proof: tuple[Evidence, ...]
    action: str
    confidence: Confidence


def communication(scene: Scene) -> Finding | Unsure | None:
    """Busy GPUs of one instance that neither compute nor read memory: they wait for each other."""
    engine = served(scene)
    if engine is None or not (engine.hardware.tp > 1 or engine.uneven):
        return None
    limits, seen = scene.thresholds, activity(scene)
    if seen.busy is None or seen.busy < limits.communication_busy_ratio or (mean(scene, "running") or 0.0) < 1.0:
        return None
    sign = _apart(scene, engine)
    if sign is not None:
        return _said(scene, seen, sign)
    if engine.hardware.tp < 2:
        return None
    arithmetic, reads = _or(seen.tensor, mean(scene, "mfu_ratio")), _or(seen.dram, mean(scene, "mbu_ratio"))
    lacking = tuple(text for text in (no_compute(engine, seen), no_bandwidth(engine, seen)) if text)
    if arithmetic is None or reads is None:
        return Unsure(lacking) if lacking else None
    if arithmetic >= limits.communication_tensor_ratio or reads >= limits.communication_dram_ratio:
        return None
    sign = _links(scene, engine)
    if sign is None:
        unseen = _unseen(scene, seen)
        return Unsure(unseen) if unseen else None
    idle = f"GPUs {percent(seen.busy)} busy, arithmetic {percent(arithmetic)}, memory {percent(reads)}"
    return _said(scene, seen, sign._replace(text=f"{idle}: {sign.text}"))


def _said(scene: Scene, seen: Activity, sign: _Sign) -> Finding:
    late, waiting = missed(scene), mean(scene, "waiting") or 0.0
    level = Level.WARN if late or waiting >= scene.thresholds.queue_waiting else Level.NOTE
    proof = (*sign.proof, *_quiet(scene, seen), *late)
    return apart(scene, Finding(sign.text, proof, sign.action, level, sign.confidence))


def _unseen(scene: Scene, seen: Activity) -> tuple[str, ...]:
    """What would show whether busy GPUs wait for each other, and is not there."""
    lacking = []
    if seen.sm is None and seen.dram is None:
        lacking.append(f"what each of its busy GPUs does ({ACTIVITY})")
    if _nvlink(scene) is None and (_pcie(scene) is None or any(_joined(gpu) for gpu in scene.gpus)):
        lacking.append("bytes over NVLink and PCIe between its GPUs")
    return tuple(lacking)


def _or(measured: float | None, modelled: float | None) -> float | None:
    return modelled if measured is None else measured


def _quiet(scene: Scene, seen: Activity) -> tuple[Evidence, ...]:
    """How busy the GPUs are, and what they do of it."""
    proof = [of_gpus(scene, f"busy {percent(seen.busy or 0.0)}", "busy_ratio", seen.busy or 0.0, "busy")]
    for measured, name, text, field, chart in (
        (seen.tensor, "mfu", "tensor cores", "tensor_active_ratio", "tensor"),
        (seen.dram, "mbu", "DRAM", "bandwidth_bytes_per_s", "dram"),
    ):
        modelled = mean(scene, f"{name}_ratio")
        if measured is not None:
            proof.append(of_gpus(scene, f"{text} {percent(measured)} active", field, measured, chart))
        elif modelled is not None:
            proof.append(evidence(scene, f"{name.upper()} {percent(modelled)}", f"{name}_ratio", modelled, name))
    return tuple(proof)


def _apart(scene: Scene, engine: Engine) -> _Sign | None:
    """Ranks that do different amounts of the same work: the fastest wait for the slowest at every layer."""
    if engine.uneven:
        text = "its ranks share the work unevenly"
        proof = tuple(
            Evidence(said, "per-rank series of the engine", finite(len(engine.uneven)) or 0.0) for said in engine.uneven
        )
        action = "route by load (fewest requests, or prefix-aware with a cap) over the ranks"
        return _Sign(text, proof, action, Confidence.MEDIUM)
    # Pipeline stages and data-parallel ranks may differ by their share of the traffic: only one group of TP is alike.
    if engine.hardware.tp != len(scene.gpus):
        return None
    for name, chart in (("DRAM", "dram"), ("SM", "sm")):
        shares = [(gpu, share) for gpu in scene.gpus if (share := _share(scene, gpu, chart)) is not None]
        if len(shares) < len(scene.gpus):
            continue
        most, least = (pick(share for _, share in shares) for pick in (max, min))
        if most - least >= APART and most - least >= scene.thresholds.communication_spread_ratio * most:
            return _odd(scene, shares, name, chart)
    return None


def _odd(scene: Scene, shares: Sequence[tuple[Gpu, float]], name: str, chart: str) -> _Sign:
    """The GPU that lies apart from the others; one that works longer for the same is the slow one."""
    middle = median_low(share for _, share in shares)
    odd, own = max(shares, key=lambda one: abs(one[1] - middle))
    others = [share for gpu, share in shares if gpu is not odd]
    rest = sum(others) / len(others)
    wait = "they wait for it" if own > rest else "the ranks wait for each other"
    said = f"GPU {odd.index} is at {percent(own)} {name} activity"
    text = f"{said}, {'the others' if len(others) > 1 else 'the other one'} at {percent(rest)}"
    proof = [Evidence(text, odd.sources.get(_FIELDS[chart], f"{name} activity of each GPU"), own, of_gpu(odd, chart))]
    clock, clocks = gpu_mean(scene, odd, "sm_clock_hz"), [gpu_mean(scene, gpu, "sm_clock_hz") for gpu, _ in shares]
    top = max((one for one in clocks if one is not None), default=None)
    if clock is not None and top is not None and clock < SLOW_CLOCK * top:
        slow = f"its clock is at {clock / 1e9:.2f} GHz, others are at {top / 1e9:.2f} GHz"
        proof.append(Evidence(slow, "SM clock", clock, of_gpu(odd, "clock")))
    action = (
        f"look at GPU {odd.index}: clocks and locks (nvidia-smi -q -d CLOCK,PERFORMANCE), heat, link, "
        "other processes on it; else lower the tensor parallelism"
    )
    return _Sign(f"{text}: {wait}", tuple(proof), action, Confidence.HIGH)


def _share(scene: Scene, gpu: Gpu, chart: str) -> float | None:
    return dram_of(scene, gpu) if chart == "dram" else gpu_mean(scene, gpu, _FIELDS[chart])


def _links(scene: Scene, engine: Engine) -> _Sign | None:
    """What goes over the links between the GPUs."""
    nvlink, pcie = _nvlink(scene), _pcie(scene)
    smaller = _smaller(scene, engine)
    limit = scene.thresholds.communication_link_ratio
    if nvlink is not None and nvlink[1] >= limit:
        text = f"NVLink carries {nvlink[0] / 1e9:.0f} GB/s, {percent(nvlink[1])} of its peak"
        proof = (of_gpus(scene, text, "nvlink_bytes_per_s", nvlink[0], ""),)
        return _Sign(text, _uncharted(proof), f"{smaller}, or data parallelism instead", Confidence.HIGH)
    without = _without_nvlink(scene)
    own = without or not any(_joined(gpu) for gpu in scene.gpus)
    if pcie is not None and pcie[1] >= limit and nvlink is None and own:
        text = f"PCIe carries {pcie[0] / 1e9:.1f} GB/s, {percent(pcie[1])} of its peak"
        proof = (of_gpus(scene, text, "pcie_bytes_per_s", pcie[0], ""),)
        action = f"{smaller}, or GPUs that NVLink joins (nvidia-smi topo -m)"
        bridged = not without and any(_nvlink_peak(gpu) for gpu in scene.gpus)
        sure = Confidence.MEDIUM if bridged else Confidence.HIGH
        return _Sign(f"{text}: tensor parallelism over PCIe", _uncharted(proof), action, sure)
    if without:
        text = f"tensor parallelism of {engine.hardware.tp} without NVLink"
        proof = (Evidence(text, "the GPUs count no NVLink bytes", float(engine.hardware.tp)),)
        return _Sign(text, proof, f"{smaller}, or GPUs that NVLink joins (nvidia-smi topo -m)", Confidence.MEDIUM)
    return None


def _uncharted(proof: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    return tuple(Evidence(one.text, one.source, one.value) for one in proof)


def _smaller(scene: Scene, engine: Engine) -> str:
    """Half the tensor parallelism, where half the GPUs hold an instance; else what makes its layers talk less."""
    words, half = advice(engine.kind), engine.hardware.tp // 2
    stages = engine.hardware.pp or max(1, len(scene.gpus) // max(1, engine.hardware.ranks) // engine.hardware.tp)
    fit = fits(scene, engine, half * stages, (mean(scene, "running") or 0.0) / 2.0)
    if fit is False:
        split = f"{words.pp} {2 * stages} with {words.tp} {half} (stages talk less than ranks)"
        return ", or ".join((*quantise(engine), split))
    unless = "" if fit else ", if the model fits"
    return f"lower {words.tp} from {engine.hardware.tp} to {half} with twice the instances{unless}"


def _nvlink(scene: Scene) -> tuple[float, float] | None:
    """Bytes/s of a GPU over NVLink, and their share of its peak: the mean of the GPUs; None where not known."""
    found = []
    for gpu in scene.gpus:
        moved, peak = gpu_mean(scene, gpu, "nvlink_bytes_per_s"), _nvlink_peak(gpu)
        if moved is not None and peak:
            found.append((moved, moved / peak))
    return _mean(found)


def _nvlink_peak(gpu: Gpu) -> float:
    if "PCIe" in gpu.gpu_type and not gpu.gpu_type.startswith(("A100", "H100")):
        return 0.0
    names = (peak for words, peak in NVLINK_BYTES_PER_S if any(gpu.gpu_type.startswith(word) for word in words))
    return next(names, 0.0)


def _joined(gpu: Gpu) -> bool:
    """NVLink is part of its board, so that PCIe carries no all-reduce: offloaded KV cache, or weights that load."""
    return bool(_nvlink_peak(gpu)) and "PCIe" not in gpu.gpu_type


def _pcie(scene: Scene) -> tuple[float, float] | None:
    """Bytes/s of a GPU over PCIe in its busier direction, and their share of its link."""
    found = []
    for gpu in scene.gpus:
        sides = (gpu_mean(scene, gpu, f"pcie_{side}_bytes_per_s") for side in ("tx", "rx"))
        ways = [way for way in sides if way is not None]
        lanes, generation = finite(gpu.pcie_width), finite(gpu.pcie_generation)
        lane = PCIE_LANE_BYTES_PER_S.get(int(generation), 0.0) if generation and generation < 100.0 else 0.0
        if ways and lanes and lane:
            found.append((max(ways), max(ways) / (lanes * lane)))
    return _mean(found)


def _mean(found: list[tuple[float, float]]) -> tuple[float, float] | None:
    if not found:
        return None
    rate, share = (sum(part) / len(found) for part in zip(*found, strict=True))
    return rate, share


def _without_nvlink(scene: Scene) -> bool:
    """Its GPUs measure what they do (so they would count NVLink's bytes, too), and say that there are none."""
    return bool(scene.gpus) and all(
        isinstance(gpu.nvlink_bytes_per_s, Missing)
        and gpu.nvlink_bytes_per_s.reason is Reason.NOT_SUPPORTED
        and gpu.bandwidth_source in MEASURED
        and gpu.activity_source == "gpm"
        and not gpu.parent_uuid
        for gpu in scene.gpus
    )
