"""The fake driver answers the real pynvml as its script and README say."""

from __future__ import annotations

import math
import os
from typing import Any

import pytest

from tests.fakes.nvml.driver import FakeDriver

NVML_NOT_FOUND, NVML_NOT_SUPPORTED = 6, 3
NO_INSTANCE = 0xFFFFFFFF

# name, MiB, bandwidth GB/s, max SM MHz, compute capability, NVML architecture, SMs x cores per SM, power limit W.
# Sources: vendor data sheets; bandwidth = 2 x memory clock x bus width / 8.
HARDWARE = {
    "h100-sxm": ("NVIDIA H100 80GB HBM3", 81559, 3352, 1980, [9, 0], 9, 132 * 128, 700),
    "a100-sxm": ("NVIDIA A100-SXM4-80GB", 81920, 2039, 1410, [8, 0], 7, 108 * 64, 400),
    "l4": ("NVIDIA L4", 23034, 300, 2040, [8, 9], 8, 58 * 128, 72),
    "rtx4090": ("NVIDIA GeForce RTX 4090", 24564, 1008, 3105, [8, 9], 8, 128 * 128, 450),
    "h100-mig": ("NVIDIA H100 80GB HBM3", 81559, 3352, 1980, [9, 0], 9, 132 * 128, 700),
}


@pytest.mark.parametrize("profile", HARDWARE)
def test_a_profile_has_the_hardwares_facts(fake_driver: FakeDriver, profile: str) -> None:
    fake_driver.write(f"profile {profile}\n")
    answer = fake_driver.ask("""
        nvmlInit()
        gpu = nvmlDeviceGetHandleByIndex(0)
        bandwidth = 2 * nvmlDeviceGetMaxClockInfo(gpu, NVML_CLOCK_MEM) * nvmlDeviceGetMemoryBusWidth(gpu) / 8 / 1000
        answer = [nvmlDeviceGetName(gpu), nvmlDeviceGetMemoryInfo(gpu).total / 2**20, bandwidth,
                  nvmlDeviceGetMaxClockInfo(gpu, NVML_CLOCK_SM), nvmlDeviceGetCudaComputeCapability(gpu),
                  nvmlDeviceGetArchitecture(gpu), nvmlDeviceGetNumGpuCores(gpu),
                  nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000]
    """)
    expected = list(HARDWARE[profile])
    expected[2] = pytest.approx(expected[2], rel=1e-3)
    assert answer == expected


def test_gb10_has_no_memory_of_its_own(fake_driver: FakeDriver) -> None:
    fake_driver.write("profile gb10\ngpu 0 busy 40\n")
    codes, rates = fake_driver.ask("""
        nvmlInit()
        gpu = nvmlDeviceGetHandleByIndex(0)
        answer = [[code(nvmlDeviceGetMemoryInfo, gpu), code(nvmlDeviceGetMemoryInfo, gpu, nvmlMemory_v2),
                   code(nvmlDeviceGetMemoryBusWidth, gpu), code(nvmlDeviceGetMaxClockInfo, gpu, NVML_CLOCK_MEM),
                   code(nvmlDeviceGetEnforcedPowerLimit, gpu), code(nvmlGpmSampleGet, gpu, nvmlGpmSampleAlloc())]]
        rates = nvmlDeviceGetUtilizationRates(gpu)
        answer.append([rates.gpu, rates.memory])
    """)
    assert codes == [NVML_NOT_SUPPORTED] * 6
    assert rates == [40, 0]


def test_memory_versions(fake_driver: FakeDriver) -> None:
    fake_driver.write("gpu 0 total_mib 1000\ngpu 0 reserved_mib 50\ngpu 0 used_mib 600.5\n")
    first, second, wrong = fake_driver.ask("""
        nvmlInit()
        gpu = nvmlDeviceGetHandleByIndex(0)
        one, two = nvmlDeviceGetMemoryInfo(gpu), nvmlDeviceGetMemoryInfo(gpu, version=nvmlMemory_v2)
        answer = [[n / 2**20 for n in (one.total, one.used, one.free)],
                  [n / 2**20 for n in (two.total, two.reserved, two.used, two.free)],
                  code(nvmlDeviceGetMemoryInfo, gpu, 0x3000028)]
    """)
    assert first == [1000, 650.5, 349.5]
    assert second == [1000, 50, 600.5, 349.5]
    assert wrong == 25


def test_every_scripted_number_comes_out(fake_driver: FakeDriver) -> None:
    fake_driver.write(
        "driver 535.104.05\nnvml 12.535.104.05\ncuda 12020\ngpu 0 name My  GPU (x)\ngpu 0 uuid GPU-1\n"
        "gpu 0 pci 00000001:C3:00.0\n"
        "gpu 0 throttle 0x48\ngpu 0 temp_c 71.6\ngpu 0 sm_clock_mhz 1755\ngpu 0 graphics_clock_mhz 1750\n"
        "gpu 0 ecc_uncorrected 3\ngpu 0 ecc_corrected 9\ngpu 0 remap_pending 1\ngpu 0 remap_uncorrectable 2\n"
        "gpu 0 pcie_gen 3\ngpu 0 pcie_width 8\ngpu 0 persistence 0\ngpu 0 virtualization 1\ngpu 0 power_limit_w 650\n"
    )
    answer = fake_driver.ask("""
        nvmlInit()
        gpu = nvmlDeviceGetHandleByUUID("GPU-1")
        answer = [nvmlSystemGetDriverVersion(), nvmlSystemGetNVMLVersion(), nvmlSystemGetCudaDriverVersion_v2(),
            nvmlDeviceGetName(gpu), nvmlDeviceGetIndex(nvmlDeviceGetHandleByPciBusId("00000001:C3:00.0")),
            nvmlDeviceGetPciInfo(gpu).busId, nvmlDeviceGetCurrentClocksEventReasons(gpu),
            nvmlDeviceGetTemperature(gpu, 0), nvmlDeviceGetTemperatureV(gpu, 0),
            nvmlDeviceGetClockInfo(gpu, NVML_CLOCK_SM), nvmlDeviceGetClockInfo(gpu, NVML_CLOCK_GRAPHICS),
            nvmlDeviceGetTotalEccErrors(gpu, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_AGGREGATE_ECC),
            nvmlDeviceGetTotalEccErrors(gpu, NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_VOLATILE_ECC),
            nvmlDeviceGetEccMode(gpu), nvmlDeviceGetRemappedRows(gpu), nvmlDeviceGetCurrPcieLinkGeneration(gpu),
            nvmlDeviceGetCurrPcieLinkWidth(gpu), nvmlDeviceGetPersistenceMode(gpu),
            nvmlDeviceGetVirtualizationMode(gpu), nvmlDeviceGetPowerManagementLimit(gpu),
            nvmlDeviceGetMigMode(gpu), nvmlDeviceGetAddressingMode(gpu),
            code(nvmlDeviceGetHandleByUUID, "GPU-2")]
    """)
    assert answer == [
        *("535.104.05", "12.535.104.05", 12020, "My GPU (x)", 0, "00000001:C3:00.0", 0x48, 72, 72, 1755, 1750),
        *(3, 9, [1, 1], [0, 2, 1, 0], 3, 8, 0, 1, 650_000, [0, 0], 0, NVML_NOT_FOUND),
    ]


def test_unsupported_values_and_idle_reason(fake_driver: FakeDriver) -> None:
    fake_driver.write("gpus 2\ngpu 0 busy unsupported\ngpu 0 power_w unsupported\ngpu 0 ecc 0\ngpu 1 busy 5\n")
    answer = fake_driver.ask("""
        nvmlInit()
        gpu, busy = nvmlDeviceGetHandleByIndex(0), nvmlDeviceGetHandleByIndex(1)
        answer = [code(nvmlDeviceGetUtilizationRates, gpu), code(nvmlDeviceGetPowerUsage, gpu),
                  code(nvmlDeviceGetTotalEnergyConsumption, gpu), code(nvmlDeviceGetTotalEccErrors, gpu, 1, 0),
                  code(nvmlDeviceGetFanSpeed, gpu), nvmlDeviceGetCurrentClocksEventReasons(busy)]
    """)
    assert answer == [NVML_NOT_SUPPORTED] * 5 + [0]


def value_at(wave: str, t: float) -> float:
    kind, *words = wave.split(":")
    a, b, c, *start = map(float, words)
    if kind == "sine":
        return a + b * math.sin(2 * math.pi * t / c)
    if kind == "square":
        return a if t % c < c / 2 else b
    share = min(1, max(0, (t - start[0]) / c)) if start else t % c / c
    return a + (b - a) * share


@pytest.mark.parametrize(
    "wave", ["sine:400:200:0.5", "square:100:700:0.4", "ramp:100:700:0.3", "ramp:100:700:0.4:START", "ramp:9:1:5:1"]
)
def test_values_and_counters_over_time(fake_driver: FakeDriver, wave: str) -> None:
    """The counter is the integral of the gauge, and the gauge is the formula of CLOCK_REALTIME."""
    samples = fake_driver_samples(fake_driver, wave)
    start = samples.pop(0)[0]
    wave = wave.replace("START", repr(start))
    for before, watts, after in ((s[0], s[1], s[2]) for s in samples):
        ends = sorted(value_at(wave, t) for t in (before, after))
        assert ends[0] - 1 <= watts <= ends[1] + 1 or after - before > 0.005
    first, last = samples[0], samples[-1]
    assert last[0] > first[0] + 0.5
    joules = last[4] - first[4]
    # A reading lies between the times that stand around it, however long the process waited for the processor there.
    assert integral(wave, first[3], last[2]) * 0.99 <= joules <= integral(wave, first[2], last[3]) * 1.01


def integral(wave: str, begin: float, end: float) -> float:
    """J between two times, by the middle of many short steps."""
    steps = 20_000
    width = (end - begin) / steps
    return sum(value_at(wave, begin + (step + 0.5) * width) for step in range(steps)) * width


def fake_driver_samples(driver: FakeDriver, wave: str) -> list[list[float]]:
    """[start], then time before, power in W, time between, time after, energy in J (read between the two)."""
    driver.write("gpu 0 power_w 0\n")
    samples: list[list[float]] = driver.ask(f"""
        nvmlInit()
        gpu = nvmlDeviceGetHandleByIndex(0)
        start = time.time() + 0.2
        rewrite("gpu 0 power_w " + "{wave}".replace("START", repr(start)) + "\\n")
        time.sleep(0.01)
        answer = [[start]]
        for _ in range(60):
            before = time.time()
            watts = nvmlDeviceGetPowerUsage(gpu) / 1000
            after = time.time()
            joules = nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000
            answer.append([before, watts, after, time.time(), joules])
            time.sleep(0.01)
    """)
    return samples


def test_energy_goes_on_when_the_script_changes(fake_driver: FakeDriver) -> None:
    fake_driver.write("loaded 1700000000\ngpu 0 power_w 100\n")
    (begin, first), change, (end, last) = fake_driver.ask("""
        nvmlInit()
        gpu = nvmlDeviceGetHandleByIndex(0)
        def read():
            before = time.time()
            joules = nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000
            return [[before, time.time()], joules]
        answer = [read()]
        time.sleep(0.3)
        before = time.time()
        rewrite("loaded 1700000000\\ngpu 0 power_w 700\\n")
        answer.append([before, time.time()])
        time.sleep(0.3)
        answer.append(read())
    """)
    assert first == pytest.approx(100 * (begin[0] - 1700000000), rel=1e-6)
    joules = 100 * (change[0] - begin[0]) + 700 * (end[0] - change[0])
    blur_s = 0.01 + sum(after - before for before, after in (begin, change, end))
    assert last - first == pytest.approx(joules, abs=700 * blur_s)


def test_field_values(fake_driver: FakeDriver) -> None:
    fake_driver.write(
        "gpu 0 power_w 300\ngpu 0 nvlink_tx_mibs 1800\ngpu 0 mem_temp_c 77\ngpu 0 recovery 1\ngpu 0 remap_failure 1\n"
    )
    first, second, energy = fake_driver.ask("""
        nvmlInit()
        gpu = nvmlDeviceGetHandleByIndex(0)
        wanted = [82, 83, 91, (138, 0xFFFFFFFF), (138, 3), (138, 18), 145, 185, 186, 190, 230, 999]
        def fields():
            values = nvmlDeviceGetFieldValues(gpu, wanted)
            return [[v.nvmlReturn, v.timestamp, v.value.ullVal if v.valueType == 3 else v.value.uiVal] for v in values]
        first = fields()
        time.sleep(0.25)
        answer = [first, fields(), nvmlDeviceGetTotalEnergyConsumption(gpu)]
    """)
    assert [row[0] for row in first] == [0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, NVML_NOT_SUPPORTED]
    gauges = {at: first[at][2] for at in (0, 2, 6, 7, 8, 9, 10)}
    assert gauges == {0: 77, 2: 18, 6: 1, 7: 300_000, 8: 300_000, 9: 700_000, 10: 1}
    seconds = (second[3][1] - first[3][1]) / 1e6
    rates = [(second[at][2] - first[at][2]) / seconds for at in (1, 3, 4)]
    assert rates == pytest.approx([300_000, 1800 * 1024, 100 * 1024], rel=1e-4)
    a_minute_mj = 60 * 300_000
    assert energy == pytest.approx(second[1][2], abs=a_minute_mj)


def test_processes(fake_driver: FakeDriver) -> None:
    fake_driver.write(
        f"gpus 2\ngpu 0 process {os.getpid()} 70000 compute 87\ngpu 0 process 4242 -\n"
        "gpu 0 process 4243 10 graphics\ngpu 0 process 4244 20 mps 0\n"
    )
    lists, utilization, used, nobody = fake_driver.ask("""
        nvmlInit()
        gpu, other = nvmlDeviceGetHandleByIndex(0), nvmlDeviceGetHandleByIndex(1)
        calls = (nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetComputeRunningProcesses_v2,
                 nvmlDeviceGetGraphicsRunningProcesses, nvmlDeviceGetMPSComputeRunningProcesses)
        since = int(time.time() * 1e6)
        time.sleep(0.001)
        samples = nvmlDeviceGetProcessUtilization(gpu, since)
        answer = [[[[p.pid, p.usedGpuMemory, p.gpuInstanceId] for p in call(gpu)] for call in calls],
                  [[s.pid, s.smUtil, s.timeStamp > since] for s in samples],
                  nvmlDeviceGetMemoryInfo(gpu, nvmlMemory_v2).used / 2**20,
                  [nvmlDeviceGetComputeRunningProcesses(other), code(nvmlDeviceGetProcessUtilization, other, 0)]]
    """)
    compute = [[os.getpid(), 70000 * 2**20, NO_INSTANCE], [4242, None, NO_INSTANCE]]
    assert lists == [compute, compute, [[4243, 10 * 2**20, NO_INSTANCE]], [[4244, 20 * 2**20, NO_INSTANCE]]]
    assert utilization == [[os.getpid(), 87, True]]
    assert used == 70030
    assert nobody == [[], NVML_NOT_FOUND]


def test_pcie_throughput_blocks_as_the_real_call(fake_driver: FakeDriver) -> None:
    fake_driver.write("gpu 0 pcie_tx_mibs 900\ngpu 0 pcie_rx_mibs 1400\n")
    seconds, *rates = fake_driver.ask("""
        nvmlInit()
        gpu = nvmlDeviceGetHandleByIndex(0)
        start = time.monotonic()
        rates = [nvmlDeviceGetPcieThroughput(gpu, way) for way in (NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES)]
        answer = [time.monotonic() - start, *rates]
    """)
    assert rates == [900 * 1024, 1400 * 1024]
    assert seconds >= 0.04


def test_links_and_what_lies_between_gpus(fake_driver: FakeDriver) -> None:
    fake_driver.write(
        "gpus 3\nprofile a100-sxm\ngpu 0 nvlink_peer 1\ngpu 1 nvlink_down 2\ngpu * numa 0\ngpu 2 numa 1\n"
        "gpu 0 pcie_switch 4\ngpu 1 pcie_switch 4\n"
    )
    found = fake_driver.ask(
        """
        nvmlInit()
        a, b, c = (nvmlDeviceGetHandleByIndex(index) for index in range(3))
        answer = dict(
            kinds=[nvmlDeviceGetNvLinkRemoteDeviceType(gpu, 0) for gpu in (a, b)],
            peer=nvmlDeviceGetNvLinkRemotePciInfo(a, 0).busId == nvmlDeviceGetPciInfo(b).busId,
            states=[nvmlDeviceGetNvLinkState(b, link) for link in range(12)],
            beyond=code(nvmlDeviceGetNvLinkState, b, 12),
            levels=[nvmlDeviceGetTopologyCommonAncestor(a, other) for other in (a, b, c)],
            nodes=list(nvmlDeviceGetMemoryAffinity(c, 2, 0)),
            cpus=[hex(word) for word in nvmlDeviceGetCpuAffinity(c, 2)],
        )
        """
    )
    assert found == {
        "kinds": [0, 2],
        "peer": True,
        "states": [1] * 10 + [0] * 2,
        "beyond": 2,
        "levels": [0, 10, 50],
        "nodes": [2, 0],
        "cpus": ["0xffffffff00000000", "0x0"],
    }


def test_the_script_is_read_again_while_running(fake_driver: FakeDriver) -> None:
    fake_driver.write("gpus 2\ngpu 0 busy 10\n")
    answer = fake_driver.ask("""
        nvmlInit()
        gpu, second = nvmlDeviceGetHandleByIndex(0), nvmlDeviceGetHandleByIndex(1)
        def see():
            time.sleep(0.003)
            return [nvmlDeviceGetCount(), nvmlDeviceGetUtilizationRates(gpu).gpu, code(nvmlDeviceGetName, second)]
        answer = [see()]
        rewrite("gpus 1\\ngpu 0 busy 77\\n")
        answer.append(see())
        rewrite("nonsense\\n")
        answer.append(see())
        rewrite("gpus 16\\n")
        answer.append(see())
    """)
    assert answer == [[2, 10, 0], [1, 77, 15], [1, 77, 15], [16, 0, 0]]


def test_the_call_log(fake_driver: FakeDriver) -> None:
    fake_driver.write("gpus 2\nprofile h100-mig\n")
    fake_driver.ask("""
        nvmlInit()
        gpu = nvmlDeviceGetHandleByIndex(1)
        for _ in range(3): nvmlDeviceGetTemperature(gpu, 0)
        nvmlDeviceGetName(nvmlDeviceGetMigDeviceHandleByIndex(gpu, 1))
    """)
    lines = fake_driver.call_lines()
    assert fake_driver.calls()["nvmlDeviceGetTemperature"] == 3
    assert {line.device for line in lines if line.name == "nvmlDeviceGetTemperature"} == {"1"}
    assert [line.device for line in lines if line.name == "nvmlDeviceGetName"] == ["1/1"]
    assert next(line for line in lines if line.name == "nvmlInitWithFlags").device == "-"
    assert [line.realtime_s for line in lines] == sorted(line.realtime_s for line in lines)


def test_mig_parent_and_slices(fake_driver: FakeDriver) -> None:
    fake_driver.write(
        "gpus 2\ngpu 0 profile h100-mig\ngpu 0/0 process 41 9000\ngpu 0/1 used_mib 700\ngpu 0/1 process 42 600\n"
        "gpu 1 mig 7 1g.10gb\n"
    )
    answer: dict[str, Any] = fake_driver.ask("""
        nvmlInit()
        gpu, other = nvmlDeviceGetHandleByIndex(0), nvmlDeviceGetHandleByIndex(1)
        slices = [nvmlDeviceGetMigDeviceHandleByIndex(gpu, n) for n in range(2)]
        used = lambda handle: nvmlDeviceGetMemoryInfo(handle, nvmlMemory_v2).used / 2**20
        attributes = nvmlDeviceGetAttributes(slices[1])
        by_uuid = nvmlDeviceGetHandleByUUID(nvmlDeviceGetUUID(slices[1]))
        answer = {
            "count": [nvmlDeviceGetCount(), nvmlDeviceGetMaxMigDeviceCount(gpu)],
            "mode": nvmlDeviceGetMigMode(gpu),
            "utilisation": code(nvmlDeviceGetUtilizationRates, gpu),
            "third slice": code(nvmlDeviceGetMigDeviceHandleByIndex, gpu, 2),
            "names": [nvmlDeviceGetName(s) for s in slices],
            "instances": [[nvmlDeviceGetGpuInstanceId(s), nvmlDeviceGetComputeInstanceId(s)] for s in slices],
            "is slice": [nvmlDeviceIsMigDeviceHandle(h).value for h in (gpu, *slices)],
            "used": [used(h) for h in (gpu, *slices)],
            "power": code(nvmlDeviceGetPowerUsage, slices[0]),
            "processes": [[[p.pid, p.gpuInstanceId] for p in nvmlDeviceGetComputeRunningProcesses(h)]
                          for h in (gpu, *slices)],
            "attributes": [attributes.multiprocessorCount, attributes.gpuInstanceSliceCount, attributes.memorySizeMB],
            "by uuid": nvmlDeviceGetGpuInstanceId(by_uuid),
            "parent": nvmlDeviceGetIndex(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(by_uuid)),
            "seventh": nvmlDeviceGetName(nvmlDeviceGetMigDeviceHandleByIndex(other, 6)),
        }
    """)
    assert answer == {
        "count": [2, 7],
        "mode": [1, 1],
        "utilisation": NVML_NOT_SUPPORTED,
        "third slice": NVML_NOT_FOUND,
        "names": ["NVIDIA H100 80GB HBM3 MIG 3g.40gb"] * 2,
        "instances": [[1, 0], [2, 0]],
        "is slice": [0, 1, 1],
        "used": [9700, 9000, 700],
        "power": NVML_NOT_SUPPORTED,
        "processes": [[[41, 1], [42, 2]], [[41, 1]], [[42, 2]]],
        "attributes": [60, 3, 40448],
        "by uuid": 2,
        "parent": 0,
        "seventh": "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
    }
