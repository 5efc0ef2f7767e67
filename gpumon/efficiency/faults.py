"""Faults of a GPU or an engine right now, by their readings; the figures that will not come, and what helps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.efficiency.rates import gpus_of_all_ranks, layout_of, rates_of
from gpumon.efficiency.service import FRONTENDS, Service
from gpumon.efficiency.tracks import Track
from gpumon.readings import quantities as q
from gpumon.readings.dcgm import DCGM
from gpumon.readings.frame import NO_DRIVER, STARTS, EndpointState, EngineKind, EngineReading, GpuReading, GpuState
from gpumon.readings.missing import Missing, Reading, Reason, number
from gpumon.readings.snapshot import Engine, FaultShown
from gpumon.readings.topology import is_below
from gpumon.readings.untrusted import MOST_URL, Untrusted
from gpumon.readings.verdict import Limit

_STATES: Final = {
    GpuState.LOST: "fallen off the bus: drain this server, see dmesg for its Xid, power-cycle it",
    GpuState.MUTE: "the driver's calls for it do not return: end what holds it, reset it; reboot where that hangs",
    GpuState.RESET_REQUIRED: "needs a reset: drain its work, then nvidia-smi --gpu-reset or a reboot",
    GpuState.NO_PERMISSION: "the driver does not let this user read it",
    GpuState.ERROR: "returns errors; retried",
}
"""State of a GPU that is a fault -> its sentence, behind the GPU's name and a colon."""
_SILENT: Final = "on no page any more: nvidia-smi -L and dmesg on its host show whether the driver still lists it"
"""Sentence of a lost GPU that only an exporter told of: the driver was not asked."""
SLOWED: Final = {
    "hw_thermal_slowdown": "slowed down by heat (hardware): check cooling and airflow",
    "sw_thermal_slowdown": "slowed down by heat (driver): check cooling and airflow",
    "hw_power_brake_slowdown": "slowed down by the power brake: check the server's power supply",
    "hw_slowdown": "slowed down by the hardware: check cooling and power",
}
"""Clock event reason that is a fault -> its sentence, as of `_STATES`; the software power cap at full load is none."""
UNNAMED: Final = "hw_slowdown"
"""Clock event reason without a cause; it comes along with the cause where the driver names that, too."""
REMAP_FAILED: Final = "a memory row could not be remapped: replace this GPU"
REMAP_PENDING: Final = "a memory row waits to be remapped: reset this GPU when it is free"
PAGES_PENDING: Final = "bad memory pages wait to be taken out of use: reset this GPU when it is free"
LINKS_DOWN: Final = "XGMI links are up: see dmesg and amd-smi xgmi; reseat the GPU or replace it"
ECC: Final = "uncorrected memory errors (ECC): reset it, replace it if more come"
_UNREACHED: Final = (EndpointState.REFUSED.value, EndpointState.TIMEOUT.value, EndpointState.DNS.value)
_COVERED_CAUSES: Final[Mapping[Limit, tuple[str, ...]]] = MappingProxyType(
    {
        Limit.THROTTLED: tuple(SLOWED),
        Limit.HARDWARE_FAULT: (
            GpuState.LOST.value,
            GpuState.MUTE.value,
            GpuState.RESET_REQUIRED.value,
            "remap_failed",
            "remap_pending",
            "ecc",
        ),
        Limit.DOWN: _UNREACHED,
        Limit.UNRESPONSIVE: _UNREACHED,
    }
)
"""Verdict on a GPU or an engine -> causes of its faults that it covers."""
NO_DRIVER_CODE: Final = "no_driver"
_MOST_FREE_VRAM_RATIO: Final = 0.05
"""Share of a GPU's VRAM up to which nothing is loaded there: the driver and its contexts take some."""
UNMAPPED: Final = "no MFU or MBU: GPUs unknown"


def source_code(text: str) -> str:
    """Code of a source's own fault: `no_driver`, or empty."""
    if text.startswith(NO_DRIVER):
        return NO_DRIVER_CODE
    return ""


def is_loud(fault: FaultShown, engines: Sequence[Engine]) -> bool:
    """Whether a fault asks for somebody; the missing driver of a host that watches engines elsewhere does not."""
    return fault.code != NO_DRIVER_CODE or not engines


def gpu_faults(gpu: GpuReading) -> Iterator[tuple[str, str]]:
    """(Cause, sentence) of each fault of a GPU: of its state, its memory, its links, and slowdowns."""
    if gpu.state in _STATES:
        detail = f" ({gpu.state_text})" if gpu.state_text else ""
        sentence = _SILENT if gpu.state is GpuState.LOST and gpu.source == DCGM else _STATES[gpu.state]
        yield gpu.state.value, sentence + detail
    if _is_above_zero(gpu.remap_failed):
        yield "remap_failed", REMAP_FAILED
    if _is_above_zero(gpu.remap_pending):
        yield "remap_pending", REMAP_PENDING
    if _is_above_zero(gpu.bad_pages_pending):
        yield "bad_pages_pending", f"{number(gpu.bad_pages_pending):.0f} {PAGES_PENDING}"
    if is_below(gpu.xgmi_links_up, gpu.xgmi_links):
        up = number(gpu.xgmi_links_up) or 0.0
        yield "xgmi_down", f"{up:.0f} of {number(gpu.xgmi_links):.0f} {LINKS_DOWN}"
    if _is_above_zero(gpu.ecc_uncorrected):
        yield "ecc", f"{number(gpu.ecc_uncorrected):.0f} {ECC}"
    for reason in _slow_downs(gpu):
        yield reason, SLOWED[reason]


def _slow_downs(gpu: GpuReading) -> list[str]:
    """Why a GPU is slowed down; the one without a cause only where it stands alone."""
    reasons = [reason for reason in gpu.throttle if reason in SLOWED]
    if len(reasons) == 1:
        return reasons
    return [reason for reason in reasons if reason != UNNAMED]


def is_told(code: str, limit: Limit) -> bool:
    """Whether a verdict on a GPU or an engine tells what this fault of it says."""
    return code in _COVERED_CAUSES.get(limit, ())


def engine_faults(engine: EngineReading, wrong: str, has_gpus: bool) -> Iterator[tuple[str, str]]:
    """(Cause, sentence) of each fault of an engine: why it gives nothing; else what is `wrong` with its figures, or
    that its GPUs are not known."""
    if engine.state in (EndpointState.DOWN, EndpointState.DRAINING) or STARTS in engine.info:
        return  # its verdict says it
    if engine.state is not EndpointState.OK:
        if engine.fault:
            yield engine.state.value, engine.fault
        return
    if wrong:
        yield "wrong", wrong
    if is_unmapped(engine) and has_gpus and engine.gpus_source:
        yield "unmapped", f"{UNMAPPED} ({engine.gpus_source})"


def is_unmapped(engine: EngineReading) -> bool:
    """Whether an engine answers that may run on GPUs of this host, but nobody knows on which."""
    placed = bool(engine.gpus or engine.gpu_type) or engine.kind in FRONTENDS
    return engine.state is EndpointState.OK and not placed


def may_be_anywhere(engine: EngineReading) -> bool:
    """Whether an engine may run on GPUs of this host, but nobody knows on which."""
    if is_unmapped(engine):
        return True
    return bool(engine.gpu_type) and not engine.gpus and not engine.gpus_source.startswith("config")


def is_free(gpu: GpuReading) -> bool:
    """Whether no engine runs on a GPU, wherever engines run: it answers, has no process, and next to no VRAM in use."""
    return gpu.state is GpuState.OK and is_unoccupied(gpu)


def is_unoccupied(gpu: GpuReading) -> bool:
    """Whether nothing is on a GPU, be it usable or not: no process, and next to no VRAM in use."""
    used = number(gpu.vram_used_bytes)
    total = number(gpu.vram_total_bytes)
    if gpu.processes or gpu.vram_shared or used is None or not total:
        return False
    return used <= _MOST_FREE_VRAM_RATIO * total


def _is_above_zero(reading: Reading) -> bool:
    """Whether a count is known and not 0."""
    return (number(reading) or 0.0) > 0


class Lack(NamedTuple):
    """Why a figure is not there, and what to do."""

    sentence: str
    todo: str


NO_STEPS: Final = Lack(
    "steps are counted once only with one API server, and no ITL is exported to estimate them from",
    "start vLLM without --api-server-count and without --disable-log-stats",
)
NO_PREFILL: Final = Lack(
    "the engine does not separate computed from cached prompt tokens",
    "vLLM 0.16 and newer do; with an older one: --no-enable-prefix-caching",
)
NO_CONTEXT: Final = Lack(
    "mean context length unknown, so KV cache reads are unknown",
    "add to its [[endpoint]] in the config (url = {url}): context_tokens = 2000",
)
_LACKS_OF_VLLM: Final[Mapping[str, Lack]] = MappingProxyType({"prefill": NO_PREFILL, "steps": NO_STEPS})
"""Rate that a vLLM may lack -> why, and what to do."""
_NOT_COUNTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "prefill": "the engine does not export the prompt tokens that it computed",
        "decode": "the engine does not export the tokens that it generated",
        "steps": "the engine exports neither its steps nor an ITL to estimate them from",
    }
)
"""Rate that any other engine may lack -> why."""


def lacks(reading: EngineReading) -> Iterator[tuple[str, Lack]]:
    """`MFU` or `MBU` -> why it will not come, however long one waits; of a poll of an engine whose model is known."""
    track = Track()
    if reading.llm is None or not track.add(reading, 0.0):
        return
    layout = layout_of(reading, len(track.points[-1].ranks), gpus_of_all_ranks(reading, len(reading.gpus)))
    rates = rates_of(reading, track, layout)
    if rates.service is not Service.GENERATION:
        return
    no_decode = _lack_of_rate(reading.kind, "decode", rates.shown.decode_tokens_per_s)
    no_prefill = _lack_of_rate(reading.kind, "prefill", rates.shown.prefill_tokens_per_s)
    no_steps = _lack_of_rate(reading.kind, "steps", rates.shown.steps_per_s)
    no_context = _lack_of_context(reading, rates.context_tokens)
    no_mfu = no_prefill or no_decode or no_context
    if no_mfu is not None:
        yield "MFU", no_mfu
    no_mbu = no_steps or no_decode or no_context
    if no_mbu is not None:
        yield "MBU", no_mbu


def _lack_of_context(reading: EngineReading, context: Reading) -> Lack | None:
    """Why the length of the contexts will stay unknown. Lengths of requests come with the second poll."""
    lengths = {q.PROMPT_LENGTH, q.TTFT, q.REQUESTS} & reading.live.keys()
    if lengths or context != Missing(Reason.NO_CONTEXT):
        return None
    return NO_CONTEXT._replace(todo=NO_CONTEXT.todo.replace("{url}", Untrusted(reading.url).in_config(MOST_URL)))


def _lack_of_rate(kind: EngineKind, part: str, rate: Reading) -> Lack | None:
    """Why a rate will not come; None where it is there, or comes by itself."""
    if not isinstance(rate, Missing) or rate.reason not in (Reason.NOT_EXPOSED, Reason.OFF):
        return None
    if rate.detail:
        return Lack(rate.detail, "")
    if kind is EngineKind.VLLM and part in _LACKS_OF_VLLM:
        return _LACKS_OF_VLLM[part]
    return Lack(_NOT_COUNTED[part], "")
