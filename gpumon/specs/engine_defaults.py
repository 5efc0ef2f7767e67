"""Limits that engines take where nobody sets them: by the memory and the name of the GPUs, and the size of the KV pool.

Sources. vLLM: vllm/engine/arg_utils.py, `EngineArgs.get_batch_defaults`, for `UsageContext.OPENAI_API_SERVER`; its
offline class `LLM` takes 16384 and 8192 tokens. SGLang: python/sglang/srt/model_executor/model_runner.py,
`resolve_max_num_reqs`, and server_args.py, `chunked_prefill_size` by memory (0.4 to 0.5; from 0.5.4 on GPUs of 35 to
60 GB take 4096).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from gpumon.specs.units import GIB

_LARGE_GPU_BYTES: Final = 70.0 * GIB
"""Memory from which on vLLM counts a GPU as large."""
_LARGEST_GPU_BYTES: Final = 160.0 * GIB
"""Memory from which on its steps take twice the tokens again."""
_COUNTS_AS_SMALL: Final = "A100"
"""Name of the GPU that vLLM counts as small whatever memory it has: larger steps lowered its throughput (vLLM's pull
request 17885)."""


class DefaultBounds(NamedTuple):
    """Limits of a step."""

    max_num_batched_tokens: int
    max_num_seqs: int


SMALL_GPU: Final = DefaultBounds(max_num_batched_tokens=2048, max_num_seqs=256)
LARGE_GPU: Final = DefaultBounds(max_num_batched_tokens=8192, max_num_seqs=1024)
LARGEST_GPU: Final = DefaultBounds(max_num_batched_tokens=16384, max_num_seqs=1024)


_VERSION: Final = re.compile(r"(\d{1,4})\.(\d{1,4})")
_LARGE_SINCE: Final = (0, 9)
"""First release of vLLM whose limits depend on the GPU."""


def default_bounds(memory_bytes: float, name: str, release: str = "") -> DefaultBounds:
    """The limits on a GPU of this memory and name; 0 bytes: not known, and counted as small.

    `release`: a text with the number of vLLM's; one without counts as the newest.
    """
    if memory_bytes < _LARGE_GPU_BYTES or _COUNTS_AS_SMALL in name.upper() or _is_before_large(release):
        return SMALL_GPU
    if memory_bytes >= _LARGEST_GPU_BYTES:
        return LARGEST_GPU
    return LARGE_GPU


def release_number(text: str) -> tuple[int, int] | None:
    """The first two parts of a version: `0.9.2` is (0, 9); None where a text has none."""
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2])) if match is not None else None


def _is_before_large(release: str) -> bool:
    """Whether a release takes the same limits on every GPU."""
    number = release_number(release)
    return number is not None and number < _LARGE_SINCE


_SGLANG_CONTEXTS: Final = 512
"""Requests that SGLang expects in a pool of one context: one of whole length leaves room for so many usual ones."""
_SGLANG_LEAST: Final = 2048
_SGLANG_MOST: Final = 4096
_SGLANG_SMALL_BYTES: Final = 35.0 * GIB
_SGLANG_MIDDLE_BYTES: Final = 60.0 * GIB
_SGLANG_LARGEST_BYTES: Final = 160.0 * GIB


def sglang_slots(pool_tokens: float, context_tokens: float) -> int:
    """Requests that SGLang runs at once, by the tokens of its KV pool and those of the longest request."""
    expected = int(pool_tokens / max(1.0, context_tokens) * _SGLANG_CONTEXTS)
    return min(max(_SGLANG_LEAST, min(expected, _SGLANG_MOST)), int(pool_tokens / 2.0))


def sglang_step_tokens(memory_bytes: float) -> int:
    """Prompt tokens that SGLang computes at once on GPUs of this memory."""
    if memory_bytes < _SGLANG_SMALL_BYTES:
        return 2048
    if memory_bytes < _SGLANG_MIDDLE_BYTES:
        return 4096
    if memory_bytes < _SGLANG_LARGEST_BYTES:
        return 8192
    return 16384
