"""Parallelism of an instance: typed, or measured, or the smallest that holds the model."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.efficiency.lengths import KV_SHARE
from gpumon.sizing import memory
from gpumon.sizing.instance import engine_to_size
from gpumon.sizing.profile import Observed
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import LlmSpec


class Parallelism(NamedTuple):
    """How an instance is split over its GPUs."""

    tp: int
    pp: int
    fitting_tps: tuple[int, ...]
    """TPs that hold the model, among which a plan searches; empty where they are not known."""


class _ModelOnServer(NamedTuple):
    """A model on GPUs of one NVLink domain of a server."""

    llm: LlmSpec
    gpu_memory_bytes: float
    domain: int
    """GPUs of an NVLink domain."""
    usable_ratio: float
    """Share of a GPU's memory that engines may take."""
    pp: int
    startup: memory.Startup

    def fitting_tps(self, kv_tokens: float, dp: int = 1) -> tuple[int, ...] | str:
        """The TPs that hold the weights and so many tokens of KV cache, or the reason why none does."""
        return memory.tensor_parallels(
            self.llm,
            self.gpu_memory_bytes,
            domain=self.domain,
            usable_ratio=self.usable_ratio,
            context_tokens=kv_tokens,
            pp=self.pp,
            dp=dp,
            startup=self.startup,
        )


def parallelism_of(
    workload: Workload, seen: Observed | None, llm: LlmSpec | None, gpu: GpuSpec, server: Server, scenario: Scenario,
    *, context_tokens: float,
) -> Parallelism:  # fmt: skip
    """TP and PP of an instance: typed, or measured, or else the smallest TP that holds the model.

    On another GPU the measured TP stays unless that GPU holds too little. `context_tokens`: those of a request. Raises
    ValueError where no TP holds the model, or where engines refuse the typed one.
    """
    dp = workload.dp or 1
    _check_split(llm, workload.pp or 1, dp)
    pp = workload.pp or (seen.parallel[1] if seen is not None and dp == 1 else 1)
    measured_tp = _measured_tp(seen, pp, dp)
    fitting: tuple[int, ...] | str = ()
    model = _model_on_server(workload, seen, llm, gpu, server, scenario, pp)
    if model is not None:
        # A measured pool has to be held where it is not known on how many GPUs it lies.
        pool_tokens = seen.kv_pool_tokens if seen is not None and not measured_tp else None
        fitting = _fitting_tps(model, pool_tokens, context_tokens, dp)
        if workload.tp:
            _check_even(model.llm, workload.tp, measured_tp)
    on_measured_gpu = seen is not None and seen.gpu in ("", gpu.name)
    tp = workload.tp or _untyped_tp(measured_tp, fitting, on_measured_gpu=on_measured_gpu)
    return Parallelism(tp, pp, () if isinstance(fitting, str) else fitting)


def _model_on_server(
    workload: Workload, seen: Observed | None, llm: LlmSpec | None, gpu: GpuSpec, server: Server, scenario: Scenario,
    pp: int,
) -> _ModelOnServer | None:  # fmt: skip
    """The model of a workload on a server; None where its dimensions are not known, or a typed memory or capacity is
    the user's word for what an instance holds."""
    if llm is None or workload.memory_gb is not None or workload.capacity_per_instance is not None:
        return None
    return _ModelOnServer(
        llm=llm,
        gpu_memory_bytes=gpu.memory_bytes,
        domain=max(server.domain, workload.dp or 1),  # the experts of more ranks are spread over servers
        usable_ratio=scenario.usable_memory_ratio,
        pp=pp,
        startup=memory.startup_of(gpu, engine_to_size(workload, seen)),
    )


def _fitting_tps(
    model: _ModelOnServer, pool_tokens: float | None, context_tokens: float, dp: int
) -> tuple[int, ...] | str:
    """The TPs that hold the model with a measured KV pool, or else with one request; or the reason why none does.

    `pool_tokens`: None where there is no pool to hold. `context_tokens`: those of a request.
    """
    if pool_tokens:
        holding_pool = model.fitting_tps(pool_tokens)
        if holding_pool and not isinstance(holding_pool, str):
            return holding_pool
    return model.fitting_tps(context_tokens / KV_SHARE, dp)


def _check_split(llm: LlmSpec | None, typed_pp: int, dp: int) -> None:
    """Raises ValueError for data-parallel ranks of a model that has nothing to share among them, and for more stages
    than it has layers."""
    if dp > 1 and (llm is None or not llm.experts):
        reason = "this model has none of" if llm is not None else "nobody knows of this model"
        raise ValueError(f"DP {dp}: data-parallel ranks share experts, which {reason}; ask for more instances")
    if llm is not None and typed_pp > llm.layers:
        raise ValueError(f"PP {typed_pp}: the model has {llm.layers} layers, and each stage needs one")


def _untyped_tp(measured_tp: int, fitting: tuple[int, ...] | str, *, on_measured_gpu: bool) -> int:
    """The measured TP, unless it holds too little on another GPU; else the smallest that holds the model.

    `fitting`: the TPs that hold the model, rising, or the reason why none does, with which ValueError is raised then.
    """
    if measured_tp and on_measured_gpu:
        return measured_tp
    if isinstance(fitting, str):
        raise ValueError(fitting)
    if not fitting:
        return max(measured_tp, 1)
    return max(measured_tp, fitting[0])


def _measured_tp(seen: Observed | None, pp: int, dp: int) -> int:
    """TP of a profile; 0 where it is not known, or was measured without these data-parallel ranks."""
    if seen is None:
        return 0
    tp = seen.tp
    if not tp and seen.gpus:
        tp = max(1, seen.gpus // pp)
    if dp > 1 and seen.gpus != tp * dp:
        return 0
    return tp


def _check_even(llm: LlmSpec, tp: int, measured_tp: int) -> None:
    """Raises ValueError where engines refuse to split the model so. A measured TP works, as it ran."""
    if tp == measured_tp:
        return
    problem = memory.tp_problem(llm, tp)
    if problem:
        raise ValueError(problem)
