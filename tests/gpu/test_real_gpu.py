"""On a real NVIDIA GPU: what gpumon reads and derives, against programs whose bytes and FLOPs are known.

python -m pytest -m gpu tests/gpu          # needs a GPU of Hopper or newer, and torch with CUDA
"""

from __future__ import annotations

import pytest

from gpumon.readings.missing import number
from tests.gpu import kernels
from tests.gpu.kernels import Serving, Steady

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def copying() -> Steady:
    return kernels.copying()


@pytest.fixture(scope="module")
def decoding() -> Serving:
    return kernels.decoding()


def test_measured_bandwidth_is_the_bytes_that_a_copy_moves(copying: Steady):
    assert {gpu.bandwidth_source.value for gpu in copying.gpus} == {"gpm"}
    assert copying.mean("bandwidth_bytes_per_s") == pytest.approx(copying.rate, rel=0.1)


def test_a_copy_is_busy_and_uses_no_tensor_cores(copying: Steady):
    assert copying.mean("busy_ratio") > 0.9
    assert copying.mean("tensor_active_ratio") < 0.02


def test_memory_holds_what_was_allocated(copying: Steady):
    assert copying.mean("vram_used_bytes") > 8 * 2**30
    assert any(number(process.vram_bytes) for gpu in copying.gpus for process in gpu.reading.processes)


def test_tensor_activity_bounds_the_flops_of_a_product():
    multiplied = kernels.multiplying()
    share = multiplied.rate / kernels.bf16_peak(multiplied.gpus[0].reading.name)
    assert 0.3 < share < 1.1
    active = multiplied.mean("tensor_active_ratio")
    assert share * 0.9 < active <= 1.0, "the pipe is active at least as long as its arithmetic takes at the peak"


def test_mbu_of_decoding_is_the_bandwidth_that_the_gpu_measures(decoding: Serving):
    assert decoding.of_engine("decode_tokens_per_s") == pytest.approx(decoding.per_s("tokens"), rel=0.02)
    assert {gpu["bandwidth_source"] for gpu in decoding.gpus} == {"gpm"}
    measured = decoding.of_gpu("bandwidth_bytes_per_s")
    # Activations and writes are not derived.
    assert 0.95 * measured < decoding.of_engine("bytes_per_s") < 1.01 * measured


def test_power_never_exceeds_the_limit_that_holds_it(decoding: Serving):
    """At full load the GPU is held at its limit: a reading above it would be one of ours."""
    assert max(gpu["power_w"] / gpu["power_limit_w"] for gpu in decoding.gpus) < 1.03
    watts = [gpu["power_w"] for gpu in decoding.gpus]
    assert max(watts) - min(watts) < 0.06 * kernels.mean(watts)


def test_mfu_of_prefill_is_the_flops_that_torch_counts():
    prefilled = kernels.prefilling()
    flops_per_s = prefilled.per_s("prompts") * prefilled.account["flops"]
    assert prefilled.of_engine("flops_per_s") == pytest.approx(flops_per_s, rel=0.02)
    mfu = prefilled.of_engine("mfu_ratio")
    active = prefilled.of_gpu("tensor_active_ratio")
    assert 0.9 * mfu < active <= 1.0, "tensor cores are active at least as long as their arithmetic takes at the peak"
