"""The fake driver's two-sample GPM flow and its events, through the real pynvml."""

from __future__ import annotations

import pytest

from tests.fakes.nvml.driver import FakeDriver

NVML_NOT_SUPPORTED, NVML_TIMEOUT, NVML_NO_DATA = 3, 10, 21
FILE_TIME_S = 0.01  # the kernel stamps files with the time of its last tick

GPM = """
nvmlInit()

def metrics(first, second, *ids):
    request = c_nvmlGpmMetricsGet_t(version=NVML_GPM_METRICS_GET_VERSION, numMetrics=len(ids))
    request.sample1, request.sample2 = first, second
    for n, id in enumerate(ids):
        request.metrics[n].metricId = id
    nvmlGpmMetricsGet(request)
    return [[m.nvmlReturn, None if m.value != m.value else m.value] for m in request.metrics[:len(ids)]]

gpu = nvmlDeviceGetHandleByIndex(0)
first, second = nvmlGpmSampleAlloc(), nvmlGpmSampleAlloc()
"""

ALL_METRICS = """
gpu 0 busy 91
gpu 0 sm 64.5
gpu 0 occupancy 31
gpu 0 tensor 22
gpu 0 dram 69.25
gpu 0 pcie_tx_mibs 900
gpu 0 pcie_rx_mibs 1400
gpu 0 nvlink_rx_mibs 30001
gpu 0 nvlink_tx_mibs 30002
"""


def ask_gpm(driver: FakeDriver, program: str) -> list[object]:
    answer: list[object] = driver.ask(GPM + program)
    return answer


def test_metrics_between_two_samples(fake_driver: FakeDriver) -> None:
    fake_driver.write(ALL_METRICS)
    answer = ask_gpm(
        fake_driver,
        """
nvmlGpmSampleGet(gpu, first)
time.sleep(0.15)
nvmlGpmSampleGet(gpu, second)
answer = [nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice, *metrics(first, second, 1, 2, 3, 5, 10, 20, 21, 60, 61, 7)]
nvmlGpmSampleFree(first)
""",
    )
    values = (91, 64.5, 31, 22, 69.25, 900, 1400, 30001, 30002)
    assert answer == [1, *([0, pytest.approx(value)] for value in values), [NVML_NOT_SUPPORTED, 0]]


TIMED = """
def sample(into):
    before = time.time()
    nvmlGpmSampleGet(gpu, into)
    return [before, time.time()]
"""


def test_a_metric_is_the_mean_of_its_interval(fake_driver: FakeDriver) -> None:
    fake_driver.write("gpu 0 sm square:0:100:0.02\n")
    (_, square), (_, ramp), now, begin, end = ask_gpm(
        fake_driver,
        TIMED
        + """
now = time.time()
rewrite(f"gpu 0 sm square:0:100:0.02\\ngpu 0 dram ramp:0:100:60:{now}\\n")
time.sleep(0.01)
begin = sample(first)
time.sleep(0.3)
end = sample(second)
answer = [*metrics(first, second, 2, 10), now, begin, end]
""",
    )
    assert square == pytest.approx(50, abs=3)
    means = [100 / 60 * ((start + stop) / 2 - now) for start, stop in zip(begin, end, strict=True)]
    assert means[0] - 0.01 <= ramp <= means[1] + 0.01


def test_a_mean_spans_a_change_of_the_script(fake_driver: FakeDriver) -> None:
    fake_driver.write("gpu 0 dram 10\n")
    (_, mean), begin, change, end = ask_gpm(
        fake_driver,
        TIMED
        + """
begin = sample(first)
time.sleep(0.2)
change = [time.time()]
rewrite("gpu 0 dram 90\\n")
change.append(time.time())
time.sleep(0.2)
end = sample(second)
answer = [*metrics(first, second, 10), begin, change, end]
""",
    )
    share = (end[0] - change[0]) / (end[0] - begin[0])
    blur = sum(after - before for before, after in (begin, change, end)) + FILE_TIME_S
    assert mean == pytest.approx(10 + 80 * share, abs=80 * blur / (end[0] - begin[0]))


def test_samples_too_close_together(fake_driver: FakeDriver) -> None:
    fake_driver.write(ALL_METRICS)
    answer = ask_gpm(
        fake_driver,
        TIMED
        + """
apart_s = 1.0
while apart_s > 0.08:  # on a busy machine the second one may come late
    begin, _ = sample(first)
    _, end = sample(second)
    apart_s = end - begin
answer = metrics(first, second, 2, 10, 20, 60)
""",
    )
    assert answer == [[NVML_NO_DATA, 0], [NVML_NO_DATA, 0], [0, 0], [0, 0]]


def test_a_metric_can_be_nan_or_unsupported(fake_driver: FakeDriver) -> None:
    fake_driver.write("gpu 0 sm nan\ngpu 0 tensor unsupported\ngpu 0 dram 5\n")
    answer = ask_gpm(
        fake_driver,
        """
nvmlGpmSampleGet(gpu, first)
time.sleep(0.12)
nvmlGpmSampleGet(gpu, second)
answer = metrics(first, second, 2, 5, 10)
""",
    )
    assert answer == [[0, None], [NVML_NOT_SUPPORTED, 0], [0, pytest.approx(5)]]


@pytest.mark.parametrize(
    ("script", "supported"),
    [("profile a100-sxm", 0), ("profile rtx4090", 0), ("gpu 0 virtualization 2", 1), ("profile h100-mig", 1)],
)
def test_gpus_that_cannot_be_sampled(fake_driver: FakeDriver, script: str, supported: int) -> None:
    fake_driver.write(script + "\n")
    answer = ask_gpm(
        fake_driver, "answer = [nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice, code(nvmlGpmSampleGet, gpu, first)]"
    )
    assert answer == [supported, NVML_NOT_SUPPORTED]


def test_mig_slices_are_sampled_one_by_one(fake_driver: FakeDriver) -> None:
    fake_driver.write("profile h100-mig\ngpu 0/0 dram 11\ngpu 0/1 dram 77\ngpu 0/1 sm 40\n")
    answer = ask_gpm(
        fake_driver,
        """
slice = nvmlDeviceGetMigDeviceHandleByIndex(gpu, 1)
third, fourth = nvmlGpmSampleAlloc(), nvmlGpmSampleAlloc()
nvmlGpmMigSampleGet(gpu, 1, first), nvmlGpmSampleGet(slice, third)
time.sleep(0.12)
nvmlGpmMigSampleGet(gpu, 1, second), nvmlGpmSampleGet(slice, fourth)
answer = [*metrics(first, second, 10), *metrics(third, fourth, 2, 10, 20, 60),
          code(nvmlGpmMigSampleGet, gpu, 3, first), code(metrics, first, fourth, 10)]
""",
    )
    unsupported = [NVML_NOT_SUPPORTED, 0]
    expected = [[0, pytest.approx(11)], [0, pytest.approx(40)], [0, pytest.approx(77)], unsupported, unsupported, 2, 2]
    assert answer == expected


EVENTS = """
nvmlInit()
gpus = [nvmlDeviceGetHandleByIndex(n) for n in range(2)]
events = nvmlEventSetCreate()

def wait(milliseconds):
    start = time.monotonic()
    try:
        event = nvmlEventSetWait_v2(events, milliseconds)
        what = [nvmlDeviceGetIndex(event.device), event.eventType, event.eventData]
    except NVMLError as error:
        what = error.value
    return [what, round(time.monotonic() - start, 2)]
"""


def test_xid_events_reach_a_waiting_thread(fake_driver: FakeDriver) -> None:
    fake_driver.write("gpus 2\n")
    types, (quiet, waited), seen, again = fake_driver.ask(
        EVENTS
        + """
for gpu in gpus:
    nvmlDeviceRegisterEvents(gpu, nvmlEventTypeXidCriticalError, events)
answer = [nvmlDeviceGetSupportedEventTypes(gpus[0]), wait(200)]
seen = []
thread = threading.Thread(target=lambda: seen.append(wait(60000)))
thread.start()
time.sleep(0.2)
rewrite("gpus 2\\ngpu 1 xid 79\\ngpu 0 event 0x4000 1\\n")
thread.join()
answer += [seen[0], [wait(100)[0]]]
rewrite("gpus 2\\ngpu 1 xid 79\\ngpu 1 xid 79\\n")
answer[3] += [wait(60000)[0], wait(100)[0]]
"""
    )
    assert types & 0x8
    assert quiet == NVML_TIMEOUT
    assert waited >= 0.2
    assert seen[0] == [1, 0x8, 79]
    assert again == [NVML_TIMEOUT, [1, 0x8, 79], NVML_TIMEOUT]


def test_events_at_a_time(fake_driver: FakeDriver) -> None:
    fake_driver.write("gpus 2\ngpu 0 xid 31 1700000000\n")
    (future, _), early_s, past, unregistered = fake_driver.ask(
        EVENTS
        + """
nvmlDeviceRegisterEvents(gpus[0], nvmlEventTypeXidCriticalError, events)
at = time.time() + 0.3
rewrite(f"gpus 2\\ngpu 0 xid 31 1700000000\\ngpu 0 xid 48 {at}\\ngpu 1 xid 13\\n")
answer = [wait(60000), at - time.time(), wait(50)[0]]
answer.append(code(nvmlDeviceRegisterEvents, gpus[0], 1 << 40, events))
nvmlEventSetFree(events)
"""
    )
    assert future == [0, 0x8, 48]
    assert early_s < 0.01
    assert past == NVML_TIMEOUT
    assert unregistered == NVML_NOT_SUPPORTED
