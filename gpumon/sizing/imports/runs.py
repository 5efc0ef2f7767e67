"""One operating point of a load test, and what readers of several formats share.

Readers give seconds, tokens/s, requests/s, bytes and watts. They raise ImportRefused for a run that was cancelled or
lost requests, and LeftOut for one that is no instance that can be planned with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpumon.sizing.imports.files import FilePlace, ImportProblem, Record, refused

LEAST_COMPLETED: Final = 0.95
"""Share of the requests that have to succeed: a run that lost more did not carry its load."""
TAILS: Final = {"itl_s": "itl_p95_s", "ttft_s": "ttft_p95_s", "e2e_s": "e2e_p95_s"}
"""Field of a mean -> field of its p95."""
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


class BenchmarkRun(msgspec.Struct, frozen=True, kw_only=True):
    """One operating point, in seconds, tokens/s, requests/s, bytes, watts. None and empty: the file does not say."""

    place: FilePlace
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
    """Per output token after the first (the TPOT formula)."""
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
    prefix_hit_ratio: float | None = None
    """Share of the prompt tokens that came from the prefix cache."""
    tokens_per_step: float | None = None
    """Tokens that a step of speculative decoding yields, where the file tells it."""
    settings: str = ""
    """Options of the server that change how fast it is: `max-num-batched-tokens8192-block-size16`."""
    key: tuple[str, ...] = ()
    """Name that a second file about the same measurement has for it."""
    notes: tuple[str, ...] = ()


class LeftOut(Exception):  # noqa: N818 - nothing is wrong with the file
    """A part of a load test that no profile is made of, and why. The other files are imported all the same."""

    def __init__(self, place: FilePlace, field: str, reason: str, allowed: str = "") -> None:
        self.problem = ImportProblem(place, field, reason, allowed)
        super().__init__(str(self.problem))


def precision(text: str) -> str:
    """The name that gpumon has for a number format, e.g. of `fp8_block`, `bfloat16`, `w4a16`; empty where none fits."""
    lowered = text.lower()
    return next((name for pattern, name in _PRECISIONS if pattern.search(lowered)), "")


def check_completed(place: FilePlace, done: float | None, failed: float | None, asked: float | None = None) -> None:
    """Raises ImportRefused where fewer than 95 % of the requests succeeded, or none did."""
    if done == 0.0:
        raise refused(place, "completed", "is 0: no request succeeded")
    total = max(asked or 0.0, (done or 0.0) + (failed or 0.0))
    if done is not None and done < LEAST_COMPLETED * total:
        reason = f"{done:.0f} of {total:.0f} requests succeeded"
        raise refused(place, "completed", reason, f"at least {LEAST_COMPLETED:.0%}")


def fields_by_name(record: Record, names: Mapping[str, tuple[str, ...]], scale: float = 1.0) -> dict[str, Any]:
    """Field of a run -> the first of the names that the record may have for it."""
    return {field: record.number(*known, scale=scale) for field, known in names.items()}
