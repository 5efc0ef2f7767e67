"""One run of a load test as any format gives it, what the user adds to it, and what makes it unusable."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gpumon.sizing.sweeps.record import Place, refused

LEAST_COMPLETED: Final = 0.95
"""Share of the requests that have to succeed: a run that lost more did not carry its load."""
_PRECISIONS: Final = (
    (re.compile(r"nvfp4|^fp4"), "nvfp4"),
    (re.compile(r"mxfp4"), "mxfp4"),
    (re.compile(r"int4|w4a16|awq|gptq"), "int4"),
    (re.compile(r"fp8|e4m3|e5m2"), "fp8"),
    (re.compile(r"int8|w8a8|^sq$"), "int8"),
    (re.compile(r"bfloat16|bf16"), "bf16"),
    (re.compile(r"float16|fp16|half"), "fp16"),
    (re.compile(r"float32|fp32"), "fp32"),
)


class Given(msgspec.Struct, frozen=True):
    """What the user knows and a file may leave out. A file that says something else is refused, but for the names."""

    name: str = ""
    model: str = ""
    gpu: str = ""
    """Catalogue name of the GPUs."""
    gpus: int = 0
    tp: int = 0
    pp: int = 0
    weight_precision: str = ""
    kv_precision: str = ""
    prompt_tokens: float | None = None
    answer_tokens: float | None = None
    concurrency: tuple[float, ...] = ()
    """Of the files that do not tell it, in their order."""
    memory_bytes: float | None = None
    """Of one instance."""
    busy_ratio: float | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One operating point, in seconds, tokens/s, requests/s, bytes, watts. None and empty: the file does not say."""

    place: Place
    tool: str
    model: str = ""
    variant: str = ""
    """Tells configurations of one model apart that the other fields do not."""
    gpu: str = ""
    """As the file calls it."""
    gpus: int = 0
    tp: int = 0
    pp: int = 0
    weight_precision: str = ""
    kv_precision: str = ""
    time: str = ""
    offered: float | None = None
    open_loop: bool = False
    """The load was a rate: in flight is what Little's law says."""
    prompt_tokens: float | None = None
    answer_tokens: float | None = None
    itl_s: float | None = None
    itl_p95_s: float | None = None
    ttft_s: float | None = None
    ttft_p95_s: float | None = None
    e2e_s: float | None = None
    e2e_p95_s: float | None = None
    queue_s: float | None = None
    """Mean wait in the server, part of `e2e_s`."""
    tokens_per_s: float | None = None
    requests_per_s: float | None = None
    power_w: float | None = None
    busy_ratio: float | None = None
    memory_bytes: float | None = None
    kv_pool_tokens: float | None = None
    max_num_seqs: int = 0
    settings: str = ""
    """Of the server, as far as they change what it does: `max-num-batched-tokens8192-block-size16`."""
    weight: int = 1
    watched_gpus: int = 0
    """GPUs that power, busy share and memory are of; 0: those of the instance."""
    key: tuple[str, ...] = ()
    """What a second file about the same measurement calls it."""
    notes: tuple[str, ...] = ()


def completed(place: Place, done: float | None, failed: float | None, asked: float | None = None) -> None:
    """Raises SweepError where fewer than 95 % of the requests succeeded, or none did."""
    if done is None:
        return
    if done == 0.0:
        raise refused(place, "completed", "is 0: no request succeeded")
    total = max(asked or 0.0, done + (failed or 0.0))
    if done < LEAST_COMPLETED * total:
        raise refused(
            place, "completed", f"{done:.0f} of {total:.0f} requests succeeded", f"at least {LEAST_COMPLETED:.0%}"
        )


def precision(text: str) -> str:
    """The name that gpumon has for a number format, e.g. of `fp8_block`, `bfloat16`, `w4a16`; empty where none fits."""
    lowered = text.lower()
    return next((name for pattern, name in _PRECISIONS if pattern.search(lowered)), "")
