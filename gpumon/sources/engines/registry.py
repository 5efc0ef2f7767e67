"""The engines that gpumon reads: one line each; all else stands in the engine's own module, as `ENGINE`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpumon.readings.frame import EngineKind
from gpumon.sources.engines import (
    dynamo,
    fastdeploy,
    forks,
    gateway,
    litellm,
    llamacpp,
    lmdeploy,
    modular_max,
    nim,
    ollama,
    omni,
    ray,
    sglang,
    sglang_diffusion,
    tei,
    tgi,
    triton,
    trtllm,
    vllm,
    vllm_stack,
    worker_router,
    xinference,
)
from gpumon.sources.engines.adapter import EngineRow, FirstAnswer
from gpumon.sources.engines.launch_form import HOST_PORT, LaunchForm

ENGINE_ROWS: Final = (
    # These hold other engines' names, or wrap them.
    nim.ENGINE,
    ray.ENGINE,
    dynamo.ENGINE,
    triton.ENGINE,
    omni.ENGINE,
    sglang_diffusion.ENGINE,
    vllm.ENGINE,
    *forks.FORK_ROWS,
    lmdeploy.ENGINE,
    sglang.ENGINE,
    llamacpp.ENGINE,
    ollama.ENGINE,
    trtllm.ENGINE,
    tgi.ENGINE,
    tei.ENGINE,
    fastdeploy.ENGINE,
    modular_max.ENGINE,
    xinference.ENGINE,
    # Front ends.
    litellm.ENGINE,
    gateway.ENGINE,
    # After vLLM, whose prefix it has.
    vllm_stack.ENGINE,
    worker_router.ENGINE,
    worker_router.VLLM_ENGINE,
)
"""In the order in which a page is offered to them: the first that claims it reads it."""
BY_KIND: Final = {row.kind: row for row in ENGINE_ROWS}
NO_METRICS: Final = "has no metrics that gpumon can read: its GPUs are shown, its tokens are not"
_WITHOUT_METRICS: Final = {
    "transformers serve": ("transformers serve",),
    "MLC LLM": ("mlc_llm serve", "mlc_llm.serve.server"),
    "llama-cpp-python": ("llama_cpp.server",),
    "FastChat": ("fastchat.serve.model_worker", "fastchat.serve.vllm_worker"),
    "KoboldCpp": ("koboldcpp", "koboldcpp-linux-x64"),
}
"""Title of an engine without metrics -> its commands."""


def _forms() -> Iterator[LaunchForm]:
    """The launch forms of all engines, those with metrics first."""
    for row in ENGINE_ROWS:
        yield from row.forms
    for title, commands in _WITHOUT_METRICS.items():
        yield LaunchForm(EngineKind.UNKNOWN, title, commands, options=HOST_PORT, why_no_page=NO_METRICS)


LAUNCH_FORMS: Final = tuple(_forms())
"""How engines are started; the first that fits counts."""


def claiming_row(page: FirstAnswer, rows: tuple[EngineRow, ...] = ENGINE_ROWS) -> EngineRow | None:
    """The engine that a page is of; None where none knows it."""
    return next((row for row in rows if row.adapter.claims(page)), None)
