"""One run of a load test, and helpers of the readers of all formats.

Readers give seconds, tokens/s, requests/s, bytes and watts. They raise ImportRefused for a run that was cancelled or
lost requests, and LeftOut for one that is no instance that can be planned with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpumon.sizing.imports.files import FilePlace, ImportProblem, Record, refusal

_LEAST_COMPLETED: Final = 0.95
"""Share of the requests that have to succeed: a run that lost more did not carry its load."""
MEDIANS: Final = "medians stand for means: the file has no means"
"""Note on a file without means."""
TAILS: Final = {"itl_s": "tpot_p95_s", "ttft_s": "ttft_p95_s", "e2e_s": "e2e_p95_s"}
"""Field of a mean -> field of its p95 over requests: the mean of the ITL is one of each request's tokens."""
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
"""(pattern in a name of a number format, gpumon's name of it): the first that is found counts, the narrowest first."""


class BenchmarkRun(msgspec.Struct, frozen=True, kw_only=True):
    """One operating point, in seconds, tokens/s, requests/s, bytes and watts. None, 0, empty: the file does not say."""

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
    """Requests in flight that the client held open."""
    open_loop: bool = False
    """Whether the load was a rate: then Little's law says how many requests were in flight."""
    sent_per_s: float | None = None
    """Requests per second of that rate."""
    completed: float | None = None
    """Number of requests that were answered."""
    prompt_tokens: float | None = None
    """Mean per request."""
    answer_tokens: float | None = None
    """Mean per request."""
    itl_s: float | None = None
    """Per output token after the first (the TPOT formula)."""
    tpot_p95_s: float | None = None
    """p95 over requests of the mean time between the tokens of each."""
    itl_p95_s: float | None = None
    """p95 over the gaps between two tokens."""
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
    of_medians: bool = False
    """Whether its latencies are medians, as the file has no means."""
    settings: str = ""
    """Options of the server that change how fast it is: `max-num-batched-tokens8192-block-size16`."""
    key: tuple[str, ...] = ()
    """Name of the measurement in a second file about it (`gpu_usage`)."""
    notes: tuple[str, ...] = ()


class LeftOut(Exception):  # noqa: N818 - nothing is wrong with the file
    """A part of a load test that no profile is made of, and why. The other files are imported all the same."""

    def __init__(self, place: FilePlace, field: str, reason: str, allowed: str = "") -> None:
        self.problem = ImportProblem(place, field, reason, allowed)
        super().__init__(str(self.problem))


def precision(text: str) -> str:
    """gpumon's name of a number format such as `fp8_block`, `bfloat16` or `w4a16`; empty where none fits."""
    lowered = text.lower()
    for pattern, name in _PRECISIONS:
        if pattern.search(lowered):
            return name
    return ""


def check_completed(place: FilePlace, done: float | None, failed: float | None, sent: float | None = None) -> None:
    """Raises ImportRefused where fewer than 95% of the requests succeeded, or none did.

    `done`, `failed` and `sent` are numbers of requests; None where the file does not have them. The number of all is
    the larger of those that were sent and those that ended.
    """
    if done == 0.0:
        raise refusal(place, "completed", "is 0: no request succeeded")
    total = max(sent or 0.0, (done or 0.0) + (failed or 0.0))
    if done is not None and done < _LEAST_COMPLETED * total:
        reason = f"{done:.0f} of {total:.0f} requests succeeded"
        raise refusal(place, "completed", reason, f"at least {_LEAST_COMPLETED:.0%}")


def fields_by_name(record: Record, names: Mapping[str, tuple[str, ...]], scale: float = 1.0) -> dict[str, Any]:
    """Field of a run -> its number in the record times `scale`. `names`: field -> the names that it may have there."""
    return {field: record.number(*record_names, scale=scale) for field, record_names in names.items()}
