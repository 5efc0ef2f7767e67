"""Weights on the CPU: what the GPUs are charged with, from the command line to MBU."""

from __future__ import annotations

import pytest

from gpumon.efficiency.offload import gpu_part
from gpumon.readings import quantities as q
from gpumon.readings.frame import CPU_OFFLOAD_GB, EngineKind
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine
from gpumon.sources.discovery.chain import Chain
from gpumon.sources.discovery.command_line import launch
from tests.each_row import each_row
from tests.efficiency.polls import LLAMA_8B, engine, only, served, there

PER_S = {q.DECODE_TOKENS: 50.0, q.STEPS: 50.0, q.PREFILL_COMPUTED: 100.0}
assert LLAMA_8B is not None
HEAD = LLAMA_8B.head_params / LLAMA_8B.matmul_params


def started(command: str) -> dict[str, str]:
    """What discovery tells of a server with this command line."""
    found = launch(command.split(" "))
    assert found is not None
    return Chain((), launch=found).hints({})


def shown(command: str, kind: EngineKind = EngineKind.LLAMA_CPP) -> Engine:
    return only(served(PER_S, info=started(command), kind=kind, tp=1))


WHOLE = shown("llama-server -m m.gguf")


def test_layers_on_the_cpu_are_not_the_gpus() -> None:
    half = shown("llama-server -m m.gguf -ngl 16")
    share = there(half.efficiency.mbu_ratio) / there(WHOLE.efficiency.mbu_ratio)
    assert share == pytest.approx(0.5 * (1.0 - HEAD), rel=0.02)
    assert there(half.efficiency.weight_bytes_per_s) < 0.5 * there(WHOLE.efficiency.weight_bytes_per_s)
    assert half.efficiency.mfu_ratio == Missing(
        Reason.NOT_MODELLED, "weights partly on the CPU: 16 of 32 layers on the GPUs"
    )
    # What the tokens need is what it was.
    assert half.efficiency.flops_per_s == WHOLE.efficiency.flops_per_s


@each_row("option", ["-ngl 33", "--n-gpu-layers 99", "-ngl all", "--gpu-layers auto", "--n-cpu-moe 0"])
def test_all_layers_on_the_gpus_change_nothing(option: str) -> None:
    assert shown(f"llama-server -m m.gguf {option}").efficiency == WHOLE.efficiency


@each_row(
    "option", ["--cpu-moe", "-cmoe", "--n-cpu-moe 12", "-ncmoe 12", "-ot exps=CPU", "--override-tensor=x=CUDA0,y=CPU"]
)
def test_experts_on_the_cpu_leave_no_mbu(option: str) -> None:
    efficiency = shown(f"llama-server -m m.gguf {option}").efficiency
    for reading in (efficiency.mbu_ratio, efficiency.mfu_ratio, efficiency.bytes_per_s):
        assert isinstance(reading, Missing)
        assert (reading.reason, reading.detail[:25]) == (Reason.NOT_MODELLED, "weights partly on the CPU")


def test_weights_that_a_gpu_fetches_are_no_reads_of_its_memory() -> None:
    """vLLM computes with them on the GPU all the same: MFU stands."""
    plain = shown("vllm serve m", EngineKind.VLLM)
    streams = shown("vllm serve m --cpu-offload-gb 4", EngineKind.VLLM)
    assert LLAMA_8B is not None
    left = 1.0 - 4 * 2.0**30 / LLAMA_8B.read_bytes
    ratio = there(streams.efficiency.weight_bytes_per_s) / there(plain.efficiency.weight_bytes_per_s)
    assert ratio == pytest.approx(left)
    assert streams.efficiency.mfu_ratio == plain.efficiency.mfu_ratio
    assert streams.efficiency.kv_bytes_per_s == pytest.approx(there(plain.efficiency.kv_bytes_per_s))


def test_without_the_number_of_gpus_it_is_not_known_how_much_is_fetched() -> None:
    part = gpu_part(engine(0.0, {}, info={CPU_OFFLOAD_GB: "4"}), 0)
    assert isinstance(part.weights, Missing)
    assert part.arithmetic == 1.0
