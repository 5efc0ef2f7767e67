"""Each alert is raised by what it names, for as long as it lasts, and by nothing else: promtool evaluates them."""

from __future__ import annotations

from pathlib import Path

from gpumon.outputs.rules import RuleInputs
from gpumon.triage.thresholds import Thresholds
from tests.rules.checked import NAN, SCOPE, check, check_times, facts, spec
from tests.rules.loads import Load, dcgm, gauge, vllm

DENSE = "Llama-3.1-70B"
FEW = {"decode": 40.0, "steps": (1.0,), "computed": 10.0, "running": 2.0, "waiting": 0.0, "usage": 0.1}
XIDS = {
    "new": ({'pod="a"': "0x280 79x120"}, True),
    "first": ({'pod="a"': "_x280 79x120"}, True),
    "other code": ({'pod="a", err_code="43"': "43x280 stale", 'pod="a", err_code="79"': "_x280 79x120"}, True),
    "with code": ({'pod="a", err_code="0"': "0x280 stale", 'pod="a", err_code="79"': "_x280 79x120"}, True),
    "again": ({'pod="a"': "79x280 0x10 79x110"}, True),
    "old": ({'pod="a"': "79x400"}, False),
    "pod": ({'pod="a"': "79x280 stale", 'pod="b"': "_x280 79x120"}, False),
    "gap": ({'pod="a"': "79x20 _x40 79x340"}, False),
    "none": ({'pod="a"': "0x400"}, False),
}
"""Series of a GPU, and whether its Xid is new."""


def test_an_xid_is_raised_when_it_is_new(tmp_path: Path):
    card = 'job="dcgm", instance="gpu01:9400", Hostname="gpu01"'
    series = [
        f"  - {{series: 'DCGM_FI_DEV_XID_ERRORS{{{card}, gpu=\"{gpu}\", {labels}}}', values: '{text}'}}"
        for gpu, (values, _) in XIDS.items()
        for labels, text in values.items()
    ]
    asked = {
        f'count(ALERTS{{alertname="GpumonXid", alertstate="firing", gpu="{gpu}"}})': 1.0 if there else NAN
        for gpu, (_, there) in XIDS.items()
    }
    check(tmp_path, RuleInputs((), SCOPE), series, asked, "75m", evaluated="1m", groups=("gpumon-alerts",))


ALERTS = (
    "GpumonKvCacheFull",
    "GpumonLowEfficiency",
    "GpumonGpuIdleVramHeld",
    "GpumonXid",
    "GpumonThrottled",
    "GpumonEngineDown",
    "GpumonGpusSilent",
    "GpumonGpuLost",
)


def host_where(wrong: str) -> list[str]:
    """The series of an engine and its GPU on a host of that name, where what this alert is about goes wrong."""
    load = Load(decode=12000.0, steps=(250.0,), computed=20000.0, usage=0.95 if wrong == "GpumonKvCacheFull" else 0.25)
    if wrong == "GpumonLowEfficiency":
        load = load._replace(**FEW)
    target = f'job="vllm", instance="{wrong}:8000"'
    exporter = f'job="dcgm", instance="{wrong}:9400"'
    card = f'{exporter}, Hostname="{wrong}", gpu="0"'
    up = "1x280 0x120" if wrong == "GpumonEngineDown" else "1x60"
    exporter_up = "1x280 0x120" if wrong == "GpumonGpusSilent" else "1x60"
    busy = 0.01 if wrong == "GpumonGpuIdleVramHeld" else 0.9
    xid = "0x280 79x120" if wrong == "GpumonXid" else "43x60"
    series = [
        *vllm(load, wrong, target),
        *dcgm(wrong, 0, busy, 300.0),
        f"  - {{series: 'up{{{target}}}', values: '{up}'}}",
        f"  - {{series: 'up{{{exporter}}}', values: '{exporter_up}'}}",
        f"  - {{series: 'DCGM_FI_DEV_XID_ERRORS{{{card}}}', values: '{xid}'}}",
        # 4: at its power limit, which is normal work; 64: the hardware slows down for heat.
        gauge("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", card, 68.0 if wrong == "GpumonThrottled" else 4.0),
    ]
    if wrong == "GpumonGpuLost":
        series += [line.replace("x60", "x200 stale") for line in dcgm(wrong, 1, 0.9, 300.0)]
    if wrong == "GpumonGpusSilent":
        series = [line.replace("x60", "x280 stale") if "DCGM_FI_DEV" in line else line for line in series]
    return [line.replace("x60", "x400") for line in series]


def test_an_alert_is_raised_by_what_it_names_and_by_nothing_else(tmp_path: Path):
    """A host for each alert, and one where nothing is wrong; each has a model of its own."""
    series = []
    models = []
    asked = {}
    for wrong in ("nothing", *ALERTS):
        series += host_where(wrong)
        models.append(facts(spec(DENSE), wrong, Load()))
        for name in ALERTS:
            firing = f'ALERTS{{alertname="{name}", alertstate="firing", instance=~"{wrong}:.*"}}'
            asked[f"(count({firing}) > bool 0)"] = 1.0 if name == wrong else NAN
    check(tmp_path, RuleInputs(tuple(models), SCOPE), series, asked, "76m", evaluated="4m")


LOW_USE = {
    "few requests": ({}, True),
    "requests wait": ({"waiting": 2.0}, False),
    "the KV cache is full": ({"usage": 0.95, "running": 48.0}, False),
    "many requests fit no more": ({"usage": 0.3, "running": 48.0}, False),
    "much arithmetic": ({"computed": 20000.0}, False),
    "much memory traffic": ({"decode": 1000.0, "steps": (150.0,)}, False),
    "no requests": ({"running": 0.0}, False),
    "stalled": ({"decode": 0.0, "computed": 0.0, "prompts": 0.0, "steps": (0.0,)}, False),
}
"""What differs from an engine that is under used, and whether it still is."""


def test_low_use_is_what_triage_calls_under_used(tmp_path: Path):
    """An engine for each case, with a model of its own."""
    llm = spec(DENSE)
    series = []
    models = []
    asked = {}
    for case, (more, there) in LOW_USE.items():
        load = Load(**{**FEW, **more})
        series += vllm(load, case, f'job="vllm", instance="{case}:8000"')
        models.append(facts(llm, case, load))
        firing = f'ALERTS{{alertname="GpumonLowEfficiency", alertstate="firing", model_name="{case}"}}'
        asked[f"count({firing})"] = 1.0 if there else NAN
    longer = [line.replace("x60", "x200") for line in series]
    check(tmp_path, RuleInputs(tuple(models), SCOPE), longer, asked, "45m", evaluated="5m")


def test_the_limits_of_low_use_are_those_of_triage(tmp_path: Path):
    llm, load = spec(DENSE), Load(**FEW)
    series = [line.replace("x60", "x200") for line in vllm(load, "m")]
    limits = Thresholds(under_used_slots_ratio=0.05)
    ruled = RuleInputs((facts(llm, "m", load),), SCOPE, thresholds=limits)
    firing = 'count(ALERTS{alertname="GpumonLowEfficiency", alertstate="firing"})'
    check(tmp_path, ruled, series, {firing: NAN}, "44m", evaluated="4m")


TARGETS = {
    "GpumonEngineDown": (
        'job="vllm", instance="gpu01:8000"',
        'vllm:num_requests_running{{{}, model_name="m", engine="0"}}',
        "gpumon:engine_target:known",
    ),
    "GpumonGpusSilent": (
        'job="dcgm", instance="gpu01:9400"',
        'DCGM_FI_DEV_GPU_UTIL{{{}, Hostname="gpu01", gpu="0", UUID="GPU-1", pod="a"}}',
        "gpumon:gpu_target:known",
    ),
}
"""Alert -> labels of a target, the series that it gave, and the one that remembers it."""
TARGET_GROUPS = ("gpumon-vllm", "gpumon-targets-before", "gpumon-targets")
"""Groups that say what ought to answer, after those that say which engines do."""


def once_up(name: str) -> list[str]:
    """The target answers for an hour, is down for 25, and is no target any more; a value for each 4 minutes."""
    target, sign, _ = TARGETS[name]
    return [
        f"  - {{series: '{sign.format(target)}', values: '1x15 stale'}}",
        f"  - {{series: 'up{{{target}}}', values: '1x15 0x375 stale'}}",
    ]


def test_what_is_down_is_told_as_long_as_it_is_a_target(tmp_path: Path):
    """Its figures are older than the day that the rules look back, too."""
    firing = 'count(ALERTS{{alertname="{}", alertstate="firing"}})'.format
    asked = {at: {firing(name): value for name in TARGETS} for at, value in (("26h", 1.0), ("27h", NAN))}
    series = [line for name in TARGETS for line in once_up(name)]
    check_times(
        tmp_path,
        RuleInputs((), SCOPE),
        series,
        asked,
        every="4m",
        evaluated="5m",
        groups=(*TARGET_GROUPS, "gpumon-alerts"),
    )


def test_what_was_down_when_the_rules_were_loaded_is_known(tmp_path: Path):
    """Evaluated every 20 minutes, nothing that was recorded before is there: as where the rules are new."""
    asked = {f"count({known})": 1.0 for _, _, known in TARGETS.values()}
    series = [line for name in TARGETS for line in once_up(name)]
    check(tmp_path, RuleInputs((), SCOPE), series, asked, "20h", every="4m", evaluated="20m", groups=TARGET_GROUPS)


def test_an_engine_that_serves_another_model_now_is_not_down(tmp_path: Path):
    target = 'job="vllm", instance="gpu01:8000"'
    times = {"m": "1x60 stale", "n": "_x60 1x60 stale"}
    series = [
        f"  - {{series: 'vllm:num_requests_running{{{target}, model_name=\"{model}\"}}', values: '{values}'}}"
        for model, values in times.items()
    ]
    series.append(f"  - {{series: 'up{{{target}}}', values: '1x120 0x600'}}")
    firing = 'count(ALERTS{{alertname="GpumonEngineDown", alertstate="firing", model_name="{}"}})'.format
    check(
        tmp_path,
        RuleInputs((), SCOPE),
        series,
        {firing("n"): 1.0, firing("m"): NAN},
        "3h",
        every="1m",
        evaluated="4m",
        groups=(*TARGET_GROUPS, "gpumon-alerts"),
    )


def test_a_gpu_of_an_exporter_that_writes_uuid_in_small_letters_is_lost_too(tmp_path: Path):
    there = dcgm("small", 0, 0.9, 300.0)
    lost = [line.replace("x60", "x200 stale") for line in dcgm("small", 1, 0.9, 300.0)]
    series = [line.replace("x60", "x400").replace("UUID=", "uuid=") for line in (*there, *lost)]
    asked = {'count(ALERTS{alertname="GpumonGpuLost", alertstate="firing"})': 1.0}
    groups = ("gpumon-targets-before", "gpumon-alerts")
    check(tmp_path, RuleInputs((), SCOPE), series, asked, "75m", evaluated="1m", groups=groups)
