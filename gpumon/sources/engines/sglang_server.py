"""What SGLang's /server_info says of the server: its settings, and how many requests and tokens fit (0.4 to 0.5.23)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gpumon.sources.engines.json_body import count, decoded, items, mapping, text
from gpumon.specs import hints

SETTINGS: Final = {
    "model_path": hints.MODEL_PATH,
    "dtype": hints.WEIGHT_PRECISION,
    "quantization": hints.QUANTIZATION,
    "kv_cache_dtype": hints.KV_DTYPE,
    "context_length": hints.CONTEXT_LEN,
    "speculative_algorithm": hints.SPECULATION,
    "page_size": "block_size",
    "mem_fraction_static": "gpu_memory_utilization",
    "disaggregation_mode": "disaggregation_mode",
}
"""Server argument -> key in `info`."""
NOT_SET: Final = ("", "null", "None", "none")
CACHE_DTYPE: Final = "cache_dtype"
"""Key of the KV cache's format, as vLLM has it."""


class Server(NamedTuple):
    """The settings of one server. 0 and empty: it does not say."""

    info: Mapping[str, str] = MappingProxyType({})
    model_path: str = ""
    version: str = ""
    tp: int = 0
    """So that tp x pp x dp is the number of GPUs."""
    pp: int = 0
    dp: int = 0
    most_running: int = 0
    """Requests that one data-parallel rank runs at once."""
    pool_tokens: int = 0
    """Tokens of KV that one data-parallel rank holds."""


def server_of(body: bytes) -> Server:
    """The answer of /server_info; empty where it is none. Raises nothing."""
    said = mapping(decoded(body))
    info = {key: value for name, key in SETTINGS.items() if (value := text(said.get(name))) not in NOT_SET}
    if hints.KV_DTYPE in info:
        info[CACHE_DTYPE] = info[hints.KV_DTYPE]
    if said.get("disable_radix_cache") in (True, False):
        info["enable_prefix_caching"] = str(not said["disable_radix_cache"])
    tp, dp = count(said.get("tp_size")), count(said.get("dp_size"))
    # The ranks of data-parallel attention share the GPUs of the tensor-parallel group.
    if said.get("enable_dp_attention") is True and dp:
        info["dp_attention"], tp = "yes", max(1, tp // dp)
    states = [mapping(state) for state in items(said.get("internal_states"))]
    return Server(
        info=info,
        model_path=info.get(hints.MODEL_PATH, ""),
        version=text(said.get("version")),
        tp=tp,
        pp=count(said.get("pp_size")),
        dp=dp,
        most_running=_first(states, "effective_max_running_requests_per_dp")
        or count(said.get("max_running_requests")) // max(1, dp),
        pool_tokens=_first([mapping(state.get("memory_usage")) for state in states], "token_capacity")
        or count(said.get("max_total_num_tokens")),
    )


def _first(states: list[dict[str, Any]], name: str) -> int:
    return next((value for state in states if (value := count(state.get(name)))), 0)
