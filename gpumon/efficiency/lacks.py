"""What an engine does not export and MFU or MBU would need, told of one poll; and what helps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.efficiency.engine_track import EngineTrack
from gpumon.efficiency.layout import layout
from gpumon.efficiency.rates import rates
from gpumon.efficiency.service import Service
from gpumon.readings.frame import EngineKind, EngineReading
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.quantities import PROMPT_LENGTH, REQUESTS, TTFT


class Lack(NamedTuple):
    """Why a figure is not there, and what to do."""

    sentence: str
    todo: str


NO_STEPS: Final = Lack(
    "steps are counted once only with one API server, and no ITL is exported to estimate them from",
    "start vLLM without --api-server-count and without --disable-log-stats",
)
NO_PREFILL: Final = Lack(
    "the engine does not tell computed prompt tokens from cached ones",
    "vLLM 0.16 and newer do; with an older one: --no-enable-prefix-caching",
)
NO_CONTEXT: Final = Lack(
    "the mean context length cannot be had, so what the KV cache costs is not known",
    'add to its [[endpoint]] in the config (url = "{url}"): context_tokens = 2000',
)
_OF_VLLM: Final[Mapping[str, Lack]] = MappingProxyType({"prefill": NO_PREFILL, "steps": NO_STEPS})
_NOT_COUNTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "prefill": "the engine does not export the prompt tokens that it computed",
        "decode": "the engine does not export the tokens that it generated",
        "steps": "the engine exports neither its steps nor an ITL to estimate them from",
    }
)


def lacks(reading: EngineReading) -> Iterator[tuple[str, Lack]]:
    """`MFU` or `MBU` -> why it will not come, however long one waits; of a poll of an engine whose model is known."""
    track = EngineTrack()
    if reading.llm is None or not track.add(reading, 0.0):
        return
    found = rates(reading, track, layout(reading, len(track.points[-1].ranks), len(reading.gpus) or reading.gpu_count))
    if found.service is not Service.GENERATION:
        return
    needs: dict[str, Reading] = {"decode": found.decode, "prefill": found.prefill, "steps": found.steps}
    why = {part: _why(reading.kind, part, needs[part]) for part in needs}
    # Lengths of requests come with the second poll.
    lengths = {PROMPT_LENGTH, TTFT, REQUESTS} & reading.live.keys()
    unknown = NO_CONTEXT._replace(todo=NO_CONTEXT.todo.replace("{url}", reading.url))
    context = unknown if found.context == Missing(Reason.NO_CONTEXT) and not lengths else None
    for figure, parts in (("MFU", ("prefill", "decode")), ("MBU", ("steps", "decode"))):
        told = next((why[part] for part in parts if why[part] is not None), context)
        if told is not None:
            yield figure, told


def _why(kind: EngineKind, part: str, rate: Reading) -> Lack | None:
    if not isinstance(rate, Missing) or rate.reason not in (Reason.NOT_EXPOSED, Reason.OFF):
        return None
    if rate.detail:
        return Lack(rate.detail, "")
    return (_OF_VLLM if kind is EngineKind.VLLM else {}).get(part) or Lack(_NOT_COUNTED[part], "")
