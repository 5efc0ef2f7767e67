"""Measures the processor time that calls of NVIDIA's library take on a real GPU, as CSV.

    python -m tests.gpu.call_costs > tests/data/nvml-call-costs.csv        # a minute and a half; needs a GPU

The library waits for the GPU without leaving the processor to others, so its calls cost what they last. `make bench`
lets the fake driver's calls cost the same.
"""

from __future__ import annotations

import contextlib
import csv
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import pynvml

COLD_S: Final = 0.3
"""Pause before a call, after which the driver asks the GPU again."""
TIMES: Final = 9
GPM_METRICS: Final = (2, 3, 5, 10, 20, 21, 60, 61)

Call = Callable[[], object]


class Activity:
    """The two calls of GPU performance monitoring, on two samples in turn: an answer is about a pair."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._samples = [pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()]
        self._request = pynvml.c_nvmlGpmMetricsGet_t()
        self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(GPM_METRICS)
        for place, metric in enumerate(GPM_METRICS):
            self._request.metrics[place].metricId = metric

    def sample(self) -> None:
        """Take a sample in the place of the older one."""
        self._samples.reverse()
        pynvml.nvmlGpmSampleGet(self._handle, self._samples[1])

    def difference(self) -> None:
        """Ask for the metrics between the two samples."""
        self._request.sample1, self._request.sample2 = self._samples
        pynvml.nvmlGpmMetricsGet(self._request)


def calls(handle: Any) -> dict[str, tuple[Call, int]]:
    """The library's name of each call that gpumon or nvitop repeats: pynvml's function, and how often that makes it."""
    plain = (
        *("TotalEnergyConsumption", "UtilizationRates", "PowerUsage", "PowerManagementLimit", "EnforcedPowerLimit"),
        *("CurrentClocksEventReasons", "EncoderUtilization", "DecoderUtilization", "FanSpeed", "PersistenceMode"),
        *("CurrPcieLinkGeneration", "CurrPcieLinkWidth", "ComputeMode", "MigMode", "DisplayActive"),
    )
    found: dict[str, tuple[Call, int]] = {}
    for name in plain:
        call = getattr(pynvml, f"nvmlDeviceGet{name}")
        found[f"nvmlDeviceGet{name}"] = (lambda call=call: call(handle), 1)
    # pynvml asks for the length of a list first.
    for kind in ("Compute", "Graphics", "MPSCompute"):
        listed = getattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses")
        found[f"nvmlDeviceGet{kind}RunningProcesses_v3"] = (lambda listed=listed: listed(handle), 2)
    found["nvmlDeviceGetProcessUtilization"] = (lambda: pynvml.nvmlDeviceGetProcessUtilization(handle, 0), 2)
    found["nvmlDeviceGetMemoryInfo_v2"] = (lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2), 1)
    found["nvmlDeviceGetTemperatureV"] = (lambda: pynvml.nvmlDeviceGetTemperatureV(handle, 0), 1)
    found["nvmlDeviceGetClockInfo"] = (lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM), 1)
    found["nvmlDeviceGetTotalEccErrors"] = (lambda: pynvml.nvmlDeviceGetTotalEccErrors(handle, 1, 0), 1)
    found["nvmlDeviceGetFieldValues"] = (lambda: pynvml.nvmlDeviceGetFieldValues(handle, [82, 138, 139, 74, 269]), 1)
    return found


def cost_s(call: Call) -> float:
    """Processor time of one call; an error of the library costs, too."""
    began_s = time.process_time()
    with contextlib.suppress(pynvml.NVMLError):
        call()
    return time.process_time() - began_s


def paused(costs: Callable[[], tuple[float, float]]) -> list[str]:
    """Two costs at a time, each time after a pause: the medians in milliseconds."""
    both: list[tuple[float, float]] = []
    for _ in range(TIMES):
        time.sleep(COLD_S)
        both.append(costs())
    return [f"{statistics.median(seconds) * 1e3:.3f}" for seconds in zip(*both, strict=True)]


def main() -> None:
    """Print the table."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    name, driver = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlSystemGetDriverVersion()
    print(f"# milliseconds of processor time, medians of {TIMES}: {name}, driver {driver}")
    print("# warm: the same call again at once")
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(("call", "ms", "warm_ms"))
    for symbol, (call, made) in calls(handle).items():
        table.writerow((symbol, *paused(lambda call=call, made=made: (cost_s(call) / made, cost_s(call) / made))))
    activity = Activity(handle)
    sample, difference = paused(lambda: (cost_s(activity.sample), cost_s(activity.difference)))
    table.writerow(("nvmlGpmSampleGet", sample, sample))
    table.writerow(("nvmlGpmMetricsGet", difference, difference))
    pynvml.nvmlShutdown()


if __name__ == "__main__":
    main()
