"""Classes of servers that the reference rows are of: which band holds for an instance, or why none does."""

from __future__ import annotations

from typing import Final

from gpumon.sizing.measured_errors import MEASURED_ARCHITECTURES
from gpumon.sizing.roofline import InstanceSetting
from gpumon.specs.llm import CONVOLUTION, LlmSpec, Reach
from gpumon.specs.networks import LinkKind
from gpumon.specs.precision import Precision

_MOST_RANKS: Final = 8
"""Most data-parallel ranks of a measured server, each on one GPU."""
_LEAST_BANDWIDTH: Final = 1.95e12
"""Bytes per second of the slowest memory of a GPU that rows are of: an H100 PCIe."""
_LEAST_PARAMS: Final = 3e9
"""Parameters of the smallest model of the rows that no constant was fitted on, rounded down."""
_MEASURED_STATES: Final = frozenset(("delta net", CONVOLUTION))
_FOUR_BIT: Final = (Precision.INT4, Precision.MXFP4)
_LINKS: Final = {
    LinkKind.PCIE: "TP over PCIe, but those that its cost was fitted on",
    LinkKind.RDMA: "TP over several servers",
    LinkKind.TCP: "TP over several servers",
}
"""Kind of a link between the GPUs of a tensor-parallel group -> what no reference row has."""


def itl_figure(setting: InstanceSetting) -> str:
    """Key of `measured_errors.BANDS` for the ITL of an instance by the roofline: data-parallel ranks, NVFP4, other
    weights of 4 bits, or all else."""
    if setting.expert_gpus:
        return "itl dp"
    if setting.llm.precision is Precision.NVFP4:
        return "itl nvfp4"
    if setting.llm.precision in _FOUR_BIT:
        return "itl 4 bit"
    return "itl"


def unlike_reference(setting: InstanceSetting) -> str:
    """Why no reference row is like an instance, so that a prediction has no error band; empty where some are."""
    return _unlike_gpu(setting) or _unlike_split(setting) or _unlike_model(setting.llm)


def unknown_generation(architecture: str) -> str:
    """Why no reference row is of a GPU's generation; empty where some are."""
    if architecture in MEASURED_ARCHITECTURES:
        return ""
    return f"no reference row is of a GPU of the generation {architecture or 'that it has'}"


def _unlike_gpu(setting: InstanceSetting) -> str:
    """Why no reference row is of such a GPU."""
    gpu = setting.gpu
    if gpu.architecture in MEASURED_ARCHITECTURES and gpu.bandwidth_bytes_per_s < _LEAST_BANDWIDTH:
        return f"no reference row is of a GPU whose memory is as slow as that of {gpu.name}"
    return unknown_generation(gpu.architecture)


def _unlike_split(setting: InstanceSetting) -> str:
    """Why no reference row is of an instance that is split so over its GPUs."""
    if setting.pp > 1:
        return "no reference row has pipeline stages"
    ranks = setting.gpus // setting.tp
    if ranks > 1 and (setting.tp > 1 or ranks > _MOST_RANKS):
        return f"no reference row has {ranks} data-parallel ranks of TP {setting.tp}"
    if setting.tp > 1:
        lacking = _LINKS.get(setting.links.widest(setting.tp).link.kind)
        if lacking:
            return f"no reference row has {lacking}"
    return ""


def _unlike_model(llm: LlmSpec) -> str:
    """Why no reference row is of such a model."""
    if llm.attention_layers(Reach.INDEX):
        return "no reference row is of a model with sparse attention by an indexer"
    if llm.params < _LEAST_PARAMS:
        return f"no reference row is of a model below {_LEAST_PARAMS / 1e9:.0f} billion parameters"
    if any(state.kind not in _MEASURED_STATES for state in llm.states):
        return "no reference row is of a model with such recurrent layers"
    if not llm.experts and (llm.weight_only or llm.precision is Precision.INT4):
        return "no reference row is of a dense model whose weights are widened as they are read"
    return ""
