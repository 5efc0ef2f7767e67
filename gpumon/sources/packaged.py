"""The catalogues that ship with gpumon, read once; that of the GPUs with what the config knows better."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gpumon.config.resources import resource
from gpumon.config.schema import Gpu
from gpumon.specs.gpus import GpuCatalogue, OwnPeaks, parse_gpus
from gpumon.specs.networks import NetworkCatalogue, parse_networks
from gpumon.specs.precision import Precision

if TYPE_CHECKING:
    from gpumon.specs.llms import LlmCatalogue


@cache
def gpu_catalogue(own: tuple[Gpu, ...] = ()) -> GpuCatalogue:
    """The packaged `gpus.csv` and `cloud_servers.csv`, under the `[[gpu]]` tables of a config."""
    if own:
        return gpu_catalogue().with_own(map(_peaks, own))
    return parse_gpus(_text("gpus.csv"), _text("cloud_servers.csv"))


@cache
def llm_catalogue() -> LlmCatalogue:
    """The packaged `llms.jsonl`."""
    from gpumon.specs.llms import parse_llms  # reads architectures, which a host without engines has no use for

    return parse_llms(_text("llms.jsonl"))


@cache
def network_catalogue() -> NetworkCatalogue:
    """The packaged `networks.csv`."""
    return parse_networks(_text("networks.csv"))


def _peaks(gpu: Gpu) -> OwnPeaks:
    """The peaks of a `[[gpu]]` table in FLOP/s and bytes; FP16 has those of BF16."""
    tflops_by_precision = {
        Precision.FP32: gpu.fp32_tflops,
        Precision.FP16: gpu.bf16_tflops,
        Precision.BF16: gpu.bf16_tflops,
        Precision.FP8: gpu.fp8_tflops,
        Precision.INT8: gpu.int8_tops,
        Precision.MXFP4: gpu.fp4_tflops,
        Precision.NVFP4: gpu.fp4_tflops,
    }
    flops_per_s = {precision: tflops * 1e12 for precision, tflops in tflops_by_precision.items() if tflops is not None}
    bandwidth = (gpu.bandwidth_gbs or 0.0) * 1e9
    memory_bytes = (gpu.memory_gb or 0.0) * 2.0**30
    return OwnPeaks(gpu.name, bandwidth, memory_bytes, flops_per_s)


def _text(name: str) -> str:
    return resource(f"specs/data/{name}").read_text(encoding="utf-8")
