"""Broken GPUs: Xids by class, lost, ECC, rows; what a program caused is not told as broken hardware."""

from __future__ import annotations

from typing import Any

from gpumon.readings.dcgm import DCGM
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import GpuState, XidEvent
from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.snapshot import Confidence, Family, Level, Limit, TokensTotal
from gpumon.triage.copyable import to_copy
from gpumon.triage.other_vendors import OF_AMD
from gpumon.triage.render import ACTION_WORDS, action_texts, actions_text, evidence_text, verdict_text
from tests.each_row import each_row
from tests.records import replace
from tests.triage.stage import START_S, Of, Stage, engine, gpu, limit, process, said


def with_xid(*codes: int, ago_s: float = 0.0, **fields: object) -> Of:
    return gpu(3, xid=tuple(XidEvent(code, START_S - ago_s) for code in codes), **fields)  # type: ignore[arg-type]


@each_row("code", [13, 31, 43, 45])
def test_a_programs_xid_is_a_note_that_names_programs_and_drains_nothing(code: int) -> None:
    holder = process(name="/usr/bin/python3", command="python3 -u train.py", user="ada")
    found = said(Stage().tick(with_xid(code, processes=(holder,))), Family.STATE)
    assert found.level is Level.NOTE
    assert "no hardware action" in actions_text(found)
    assert "drain" not in actions_text(found)
    assert "python3 train.py (pid 4711) of ada" in verdict_text(found)


def test_a_code_that_is_not_known_says_so() -> None:
    found = said(Stage().tick(with_xid(987)), Family.STATE)
    assert (found.level, found.confidence) == (Level.WARN, Confidence.LOW)
    assert "not in gpumon's table" in verdict_text(found)


def test_the_worst_of_several_speaks_and_all_are_evidence() -> None:
    found = said(Stage().tick(with_xid(63, 79, 63, remap_pending=1.0, processes=(process(),))), Family.STATE)
    assert "Xid 79" in verdict_text(found)
    shown = " ".join(evidence_text(each) for each in found.evidence)
    assert "Xid 63" in shown
    assert "2 times" in shown
    assert "row waits" in shown


def test_an_old_xid_ages_out_and_what_persists_stays() -> None:
    stage = Stage(hold_s=5.0)
    assert limit(stage.tick(with_xid(48, ago_s=3590.0)), Family.STATE) is Limit.HARDWARE_FAULT
    assert limit(stage.play(30, (with_xid(48, ago_s=3590.0),)), Family.STATE) is None
    assert limit(stage.play(30, (with_xid(48, ago_s=3590.0, remap_failed=1.0),)), Family.STATE) is Limit.HARDWARE_FAULT


@each_row(("state", "text"), [(GpuState.LOST, "lost for over 10 s"), (GpuState.RESET_REQUIRED, "needs a reset")])
def test_a_gpu_that_is_gone_is_critical_and_its_use_is_no_question(state: GpuState, text: str) -> None:
    stage = Stage()
    stage.tick(gpu(3, processes=(process(),)))
    broken = gpu(3, state=state, age_s=14.0, state_text="fallen off the bus", vram_used_bytes=NOT_SUPPORTED)
    snapshot = stage.play(60, (broken,))
    found = said(snapshot, Family.STATE)
    assert (found.code, found.level, verdict_text(found)) == (Limit.HARDWARE_FAULT, Level.CRITICAL, text)
    assert "fallen off the bus" in evidence_text(found.evidence[0])
    assert limit(snapshot, Family.LIMIT) is None


def test_ecc_errors_that_rise_are_critical_and_old_ones_are_not() -> None:
    stage = Stage()
    old = said(stage.play(40, (gpu(ecc_uncorrected=2.0, processes=(process(),)),)), Family.STATE)
    assert (old.level, "2 uncorrectable" in verdict_text(old)) == (Level.WARN, True)
    risen = said(stage.play(5, (gpu(ecc_uncorrected=5.0, processes=(process(),)),)), Family.STATE)
    assert (risen.level, "3 more" in verdict_text(risen)) == (Level.CRITICAL, True)


UNREADABLE = {"state": GpuState.LOST, "vram_used_bytes": NOT_SUPPORTED, "busy_ratio": NOT_SUPPORTED}
FAULTS = [
    {"state": GpuState.RESET_REQUIRED},
    {"xid": (XidEvent(48, START_S),)},
    {"remap_failed": 1.0},
    UNREADABLE,
]


@each_row("fault", FAULTS)
def test_a_fault_on_a_gpu_that_nobody_uses_is_a_warning(fault: dict[str, Any]) -> None:
    stage = Stage()
    stage.play(5, (gpu(3),))
    found = said(stage.play(5, (gpu(3, **fault),)), Family.STATE)
    assert (found.code, found.level) == (Limit.HARDWARE_FAULT, Level.WARN)
    assert found.parameters["unused"] == "yes"
    assert found.actions


@each_row("fault", FAULTS)
@each_row("used_s_ago", [1, 300])
def test_a_fault_that_ended_its_program_is_critical(fault: dict[str, Any], used_s_ago: int) -> None:
    """Nothing runs on it any more, as of a program that died of it."""
    stage = Stage()
    stage.tick(gpu(3, processes=(process(),)))
    stage.play(used_s_ago, (gpu(3),))
    assert said(stage.tick(gpu(3, **fault)), Family.STATE).level is Level.CRITICAL


def test_a_lost_gpu_of_which_nothing_else_was_ever_seen_is_critical() -> None:
    assert said(Stage().tick(gpu(3, **UNREADABLE)), Family.STATE).level is Level.CRITICAL


def test_a_fault_on_a_gpu_of_an_engine_or_with_a_used_slice_is_critical() -> None:
    broken = gpu(0, remap_failed=1.0, mig=True)
    parent = said(Stage().tick(broken, engine(gpus=(0,))), Family.STATE)
    part = gpu(0, uuid="MIG-1", processes=(process(),))
    slice_ = part._replace(read=replace(part.read, parent_uuid="GPU-0"), shown=replace(part.shown, parent_uuid="GPU-0"))
    split = said(Stage().tick(broken, slice_), Family.STATE)
    assert (parent.level, split.level) == (Level.CRITICAL, Level.CRITICAL)


def test_advice_on_a_gpu_of_amd_has_amds_commands() -> None:
    broken = gpu(3, ecc_uncorrected=2.0, processes=(process(),))
    of_amd = broken._replace(read=replace(broken.read, source="sysfs", name="AMD Instinct MI300X"))
    found = said(Stage().tick(of_amd), Family.STATE)
    assert "sudo amd-smi reset --gpureset --gpu 3" in actions_text(found)
    assert "nvidia-smi" not in actions_text(found)
    assert OF_AMD.keys() | set(OF_AMD.values()) <= ACTION_WORDS.keys()
    assert not [code for code in OF_AMD.values() if "nvidia-smi" in ACTION_WORDS[code] or "dcgmi" in ACTION_WORDS[code]]


def test_a_row_that_waits_to_be_remapped_is_a_warning_on_a_gpu_at_work() -> None:
    """The next reset mends it: nobody suffers meanwhile."""
    found = said(Stage().tick(gpu(3, remap_pending=1.0, processes=(process(),))), Family.STATE)
    assert (found.cause, found.level) == ("remap_pending", Level.WARN)


@each_row(("standing", "told"), [(48, True), (0, False), (43, False)])
def test_a_critical_xid_is_told_as_long_as_an_exporter_shows_it(standing: int, told: bool) -> None:
    """Its gauge stands until the GPU is reset, or another Xid comes. The driver's own event of that age is over."""
    event = with_xid(48, ago_s=3 * 86_400.0)
    shown_by_exporter = event._replace(read=replace(event.read, source=DCGM, standing_xid=standing))
    assert limit(Stage().tick(shown_by_exporter), Family.STATE) is (Limit.HARDWARE_FAULT if told else None)
    assert limit(Stage().tick(event), Family.STATE) is None


def test_a_gpu_that_its_exporter_shows_no_more_is_dated_by_its_last_sample() -> None:
    """Also on a host whose clock of ticks is not Unix time: the verdict stands since then, not since it was found."""
    shown = gpu(3, age_s=300.0, **UNREADABLE)
    silent = shown._replace(read=replace(shown.read, source=DCGM))
    found = said(Stage().tick(silent, gpu(4)), Family.STATE)
    assert "silent since" in verdict_text(found)
    assert found.since == rfc3339(START_S - 300.0)


def mute_gpu(**fields: Any) -> Of:
    return gpu(state=GpuState.MUTE, state_text="nvmlDeviceGetPowerUsage", age_s=12.0, processes=(process(),), **fields)


def test_a_gpu_whose_calls_do_not_return_is_critical_and_says_what_to_do() -> None:
    found = said(Stage().tick(mute_gpu()), Family.STATE)
    assert (found.code, found.cause, found.level) == (Limit.HARDWARE_FAULT, "mute", Level.CRITICAL)
    assert "its driver calls have hung for over 10 s (nvmlDeviceGetPowerUsage)" in verdict_text(found)
    ends, resets, _ = action_texts(found)
    assert ends.startswith("hardware: drain it, then end what holds it: sudo fuser -v /dev/nvidia0 lists it")
    assert resets.startswith("once nothing holds it: sudo nvidia-smi --gpu-reset -i 0; where that is refused, or hangs")
    assert resets.endswith("drain the node and reboot it")
    assert [each.text for each in to_copy(found.actions)][:2] == [
        "sudo fuser -v /dev/nvidia0",
        "sudo nvidia-smi --gpu-reset -i 0",
    ]
    assert "Xid 119" in verdict_text(said(Stage().tick(mute_gpu(xid=(XidEvent(119, START_S),))), Family.STATE))


def test_while_its_engine_gives_tokens_a_mute_gpu_is_not_urgent_and_after_that_it_is() -> None:
    stage = Stage()
    totals = [0.0]

    def scene(at: int) -> tuple[Of, ...]:
        totals[0] += 100.0
        return mute_gpu(), engine(read_s=float(at), tokens_total=TokensTotal(decode=totals[0]), running=2.0)

    found = said(stage.play(20, scene), Family.STATE)
    assert found.level is Level.WARN
    assert "vllm:8000 on it still gives tokens" in verdict_text(found)
    stands = (mute_gpu(), engine(tokens_total=TokensTotal(decode=totals[0]), running=2.0))
    assert said(stage.play(12, stands), Family.STATE).level is Level.CRITICAL


def test_an_unused_mute_gpu_is_a_warning() -> None:
    stage = Stage(gpu_idle_s=60)
    stage.play(120, (gpu(),))
    found = said(stage.tick(gpu(state=GpuState.MUTE, age_s=12.0)), Family.STATE)
    assert found.level is Level.WARN
