"""One simulated GPU: its clock and its power under a limit."""

from gpumon.demo.gpus import LOWEST_CLOCK, AverageWork, SimulatedGpu
from gpumon.demo.physics import H100


def test_an_idle_gpu_takes_a_limit_below_its_idle_power() -> None:
    gpu = SimulatedGpu(H100, 0, ())
    gpu.advance(1.0, AverageWork(), 1.0, 60.0)
    assert gpu.reading(1.0).power_w == 60.0
    assert gpu.clock_share == LOWEST_CLOCK
