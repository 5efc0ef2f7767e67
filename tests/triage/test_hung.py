"""An engine without tokens, in steps: nothing, wait or check, then restart; and what is no hang of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpumon.readings.frame import EngineKind, GpuProcess, GpuState, RankReading, XidEvent
from gpumon.readings.missing import NOT_EXPOSED, NOT_SUPPORTED, Missing
from gpumon.readings.quantities import DECODE_TOKENS, KV_TRANSFERRED_BYTES, PAUSED, SLEEP_OPERATIONS, WEIGHT_UPDATES
from gpumon.readings.snapshot import Family, Level, Limit, Quantiles, Snapshot, Verdict
from gpumon.triage.marks import peers_waited_for
from gpumon.triage.render import actions_text, evidence_text, verdict_text
from tests.each_row import each_row
from tests.records import replace
from tests.triage.engines import BUSY, IDLE, PEAK, SPINS, limits, of_engine, only, scene
from tests.triage.stage import GIB, START_S, Of, Stage

STOPS = {"decode_tokens_per_s": 0.0, "prefill_tokens_per_s": 0.0, "mfu_ratio": 0.0, "mbu_ratio": 0.0}
QUEUES = {**STOPS, "running": 14.0, "waiting": 3.0}
QUIET_PCIE = {"pcie_tx_bytes_per_s": 4e5, "pcie_rx_bytes_per_s": 2e5}
LOADS = {"pcie_tx_bytes_per_s": 4e5, "pcie_rx_bytes_per_s": 2.1e10}
MOVES = {**IDLE, "bandwidth_bytes_per_s": 0.2 * PEAK}
PREFILL = {**SPINS, "sm_active_ratio": 0.94, "tensor_active_ratio": 0.83}
NEVER = NOT_SUPPORTED


def card(
    of: Mapping[str, Any] = IDLE,
    cpu: float | Missing = 0.02,
    pcie: Mapping[str, Any] = QUIET_PCIE,
    children: float | Missing = NEVER,
    **more: Any,
) -> dict[str, Any]:
    """A GPU with the engine's process on it, which uses this much of a core, and what it started this much."""
    use = {"cpu_ratio": cpu, "children_cpu_ratio": children}
    holder = GpuProcess(4711, "vllm", vram_bytes=70.0 * GIB, engine="vllm:8000", **use)
    return {**of, **pcie, "processes": (holder,), **more}


def stalled(
    seconds: int, changes: Mapping[str, Any] = QUEUES, gpu: Mapping[str, Any] | None = None, **more: Any
) -> tuple[Stage, Snapshot]:
    """An engine that served for a minute and has given no token for so many seconds."""
    stage = Stage()
    stage.play(60, scene(gpus=card(BUSY, 0.9)))
    return stage, stage.play(seconds, scene(changes, gpu or card(), moves=False, **more))


def quantities(found: Verdict) -> dict[str, Any]:
    return {one.quantity: one.value for one in found.evidence}


@each_row(
    ("seconds", "gpu", "cause", "level", "first"),
    [
        (20, card(), None, None, None),
        (34, card(), "no_tokens", Level.WARN, "wait_or_check"),
        (50, card(cpu=1.0), "no_tokens", Level.WARN, "wait_or_check"),
        (66, card(), "hung_idle", Level.CRITICAL, "save_stacks_and_restart"),
        (66, card(cpu=1.0), "no_tokens", Level.WARN, "wait_or_check"),
        (140, card(cpu=1.0), "no_tokens", Level.WARN, "wait_or_check"),
        (140, card(children=3.0), "no_tokens", Level.WARN, "wait_or_check"),  # compilers below a process that sleeps
        (140, card(pcie=LOADS), "no_tokens", Level.WARN, "wait_or_check"),
        (140, card(nvlink_bytes_per_s=5e10), "no_tokens", Level.WARN, "wait_or_check"),
        (154, card(cpu=1.0), "hung_idle", Level.CRITICAL, "save_stacks_and_restart"),
        (154, card(pcie=LOADS), "hung_idle", Level.CRITICAL, "save_stacks_and_restart"),
        # Kernels that wait for each other keep a core busy, too.
        (140, card(SPINS, cpu=1.0), "no_tokens", Level.WARN, "wait_or_check"),
        (140, card(SPINS), "no_tokens", Level.WARN, "wait_or_check"),
        (154, card(SPINS, cpu=1.0), "hung_spinning", Level.CRITICAL, "save_stacks_and_restart"),
        # Weights or KV cache come in: that may take as long as it will.
        (300, card(MOVES), "no_tokens", Level.WARN, "wait_or_check"),
        # What is not measured is not quiet.
        (140, card(cpu=NOT_EXPOSED), "no_tokens", Level.WARN, "wait_or_check"),
        (140, card(pcie={}), "no_tokens", Level.WARN, "wait_or_check"),
        (154, card(pcie={}), "hung_idle", Level.CRITICAL, "save_stacks_and_restart"),
        (34, card(state=GpuState.LOST), "hung_lost_gpu", Level.CRITICAL, "fix_gpu_first"),
    ],
)
def test_a_stall_is_a_warning_first_and_a_hang_when_nothing_moves_or_it_lasts(
    seconds: int, gpu: Mapping[str, Any], cause: str | None, level: Level | None, first: str | None
) -> None:
    _, last = stalled(seconds, gpu=gpu)
    if cause is None:
        assert Limit.HUNG not in limits(last)
        return
    found = only(last)
    assert (found.code, found.cause, found.level) == (Limit.HUNG, cause, level)
    assert found.actions[0].code == first


@each_row(
    ("cards", "words"),
    [
        ((card(state=GpuState.LOST), card()), "gpu 0, which it runs on, is lost"),
        ((card(state=GpuState.LOST), card(state=GpuState.LOST)), "gpu 0 and gpu 1, which it runs on, are lost"),
    ],
)
def test_all_lost_gpus_of_an_engine_that_hangs_are_named(cards: tuple[Mapping[str, Any], ...], words: str) -> None:
    stage = Stage()
    stage.play(60, scene(gpus=(card(BUSY, 0.9), card(BUSY, 0.9))))
    found = of_engine(stage.play(34, scene(QUEUES, cards, moves=False)), Family.STATE)
    assert found is not None
    assert verdict_text(found).endswith(words)


LOST = card(state=GpuState.LOST)
RESET = card(state=GpuState.RESET_REQUIRED)
ONE_LOST = "its gpu 0 is lost"


@each_row(
    ("seconds", "broken", "hardware", "moves", "waits", "words"),
    [
        (20, (LOST,), {"tp": 2}, False, "for_it", f"{ONE_LOST}: its other GPUs wait for it"),
        (20, (RESET,), {"tp": 2}, False, "for_it", "its gpu 0 needs a reset: its other GPUs wait for it"),
        (
            20,
            (LOST, LOST),
            {"tp": 4},
            False,
            "for_it",
            f"{ONE_LOST}: its other GPUs wait for gpu 0 and gpu 1",
        ),
        # The first one has wrong data, and goes on.
        (
            20,
            (card(BUSY, xid=(XidEvent(48, START_S + 60.0),)), LOST),
            {"tp": 4},
            False,
            "for_it",
            "data in memory is wrong): its other GPUs wait for gpu 1",
        ),
        (34, (LOST, RESET), {"tp": 4}, False, "for_it", "gpu 0 and gpu 1, which it runs on, are lost"),
        # Too short a time without a token: a step may take as long.
        (6, (LOST,), {"tp": 2}, False, None, ONE_LOST),
        # It may be lost for the driver alone: the engine gives tokens.
        (6, (LOST,), {"tp": 2}, True, None, ONE_LOST),
        (34, (LOST,), {"tp": 2}, True, None, ONE_LOST),
        # Data-parallel ranks do not wait for each other.
        (20, (LOST,), {"tp": 1, "ranks": 2}, False, None, ONE_LOST),
        (34, (LOST,), {"tp": 1, "ranks": 2}, False, None, "gpu 0, which it runs on, is lost"),
        # Nobody is left to wait.
        (34, (LOST, LOST), {"tp": 2}, False, None, "gpu 0 and gpu 1, which it runs on, are lost"),
    ],
)
def test_gpus_wait_for_broken_ones_of_their_group_from_which_no_token_comes_any_more(
    seconds: int,
    broken: tuple[Mapping[str, Any], ...],
    hardware: Mapping[str, Any],
    moves: bool,
    waits: str | None,
    words: str,
) -> None:
    number = 4 if hardware["tp"] == 4 else 2
    well = (card(BUSY, 0.9),) * number
    stage = Stage()
    stage.play(60, scene(hardware, well))
    changes = hardware if moves else {**QUEUES, **hardware}
    last = stage.play(seconds, scene(changes, (*broken, *well[len(broken) :]), moves=moves))
    found = of_engine(last, Family.STATE)
    assert found is not None
    assert found.parameters.get("waits") == waits
    assert verdict_text(found).endswith(words)
    peer = replace(last.gpus[-1], engines=("vllm:8000",))
    assert bool(peers_waited_for(peer, found)) == bool(waits)


def test_a_gpu_that_was_lost_while_tokens_came_is_not_what_the_others_wait_for() -> None:
    well = (card(BUSY, 0.9),) * 2
    stage = Stage()
    stage.play(60, scene({"tp": 2}, well))
    stage.play(30, scene({"tp": 2}, (LOST, well[1])))
    found = of_engine(stage.play(40, scene({**QUEUES, "tp": 2}, (LOST, well[1]), moves=False)), Family.STATE)
    assert found is not None
    assert (found.cause, found.parameters.get("waits")) == ("hung_lost_gpu", None)


def test_a_gpu_that_was_lost_before_gpumon_began_is_waited_for_where_no_token_came_since() -> None:
    found = of_engine(Stage().play(20, scene({**QUEUES, "tp": 2}, (LOST, card(SPINS)), moves=False)), Family.STATE)
    assert found is not None
    assert found.parameters.get("waits") == "for_it"


@each_row("seconds", [34, 70, 154])
def test_the_next_token_ends_it_at_once(seconds: int) -> None:
    stage, last = stalled(seconds)
    assert Limit.HUNG in limits(last)
    assert Limit.HUNG not in limits(stage.play(3, scene(gpus=card(BUSY, 0.9))))


def test_a_long_prefill_is_no_stall() -> None:
    _, last = stalled(200, gpu=card(PREFILL))
    assert only(last).cause == "long_prefill"


def test_what_was_looked_at_stands_in_the_evidence_and_what_speaks_for_work_in_the_line() -> None:
    _, last = stalled(40, gpu=card(cpu=0.98, pcie={}), changes={**QUEUES, "kv_loaded_bytes_per_s": 3e8})
    found = only(last)
    seen = quantities(found)
    assert seen["process_cpu"] == 0.98
    assert seen["kv_transfer_rate"] == 3e8
    assert isinstance(seen["pcie_traffic"], Missing)
    assert {"no_token", "running", "waiting", "dram_active"} <= seen.keys()
    assert "PCIe not measured" in [evidence_text(one) for one in found.evidence]
    assert {name: found.parameters.get(name) for name in ("cpu", "pcie", "kv")} == {
        "cpu": 0.98,
        "pcie": None,
        "kv": 3e8,
    }
    assert verdict_text(found).startswith("no token for over 30 s, 14 running, 3 waiting: wait or check")
    assert "py-spy dump --pid 4711" in actions_text(found)
    assert "restart" not in actions_text(found)


def test_where_nothing_tells_what_its_gpus_do_it_is_no_certain_hang() -> None:
    """A prompt of minutes cannot be told from it."""
    blind = {
        "busy_ratio": NEVER,
        "sm_active_ratio": NEVER,
        "bandwidth_bytes_per_s": NEVER,
        "tensor_active_ratio": NEVER,
    }
    _, last = stalled(200, gpu=card({**IDLE, **blind}))
    found = only(last)
    assert (found.cause, found.level) == ("no_tokens", Level.WARN)
    assert [one.code for one in found.actions] == ["wait_or_check"]
    assert "restart it only if its stacks do not change" in actions_text(found)
    assert "gpu_activity" in quantities(found)


def told(changes: Mapping[str, Any], **of_reading: Any) -> tuple[Of, ...]:
    """The stalled engine on idle GPUs, with these fields of its reading."""
    *cards, one = scene(changes, card(cpu=1.0), moves=False)(0)
    return (*cards, Of(replace(one.read, **of_reading), one.shown))


def after(seconds: int, things: tuple[Of, ...]) -> Snapshot:
    stage = Stage()
    stage.play(60, scene(gpus=card(BUSY, 0.9)))
    return stage.play(seconds, things)


@each_row(("seconds", "level"), [(40, Level.NOTE), (140, Level.NOTE), (160, Level.WARN), (900, Level.WARN)])
def test_requests_that_the_server_holds_are_no_hang(seconds: int, level: Level) -> None:
    held = (RankReading("0", {}, {PAUSED: 14.0}, {}),)
    found = only(after(seconds, told(QUEUES, ranks=held, kind=EngineKind.SGLANG)))
    assert (found.code, found.cause, found.level) == (Limit.HUNG, "paused", level)
    assert found.actions[0].code == "wait_or_check"
    assert quantities(found)["paused_requests"] == 14.0


@each_row(("gauge", "quantity"), [(WEIGHT_UPDATES, "weight_updates"), (SLEEP_OPERATIONS, "sleep_operations")])
def test_operations_in_flight_are_no_hang_nor_is_the_moment_after_them(gauge: str, quantity: str) -> None:
    stage = Stage()
    stage.play(60, scene(gpus=card(BUSY, 0.9)))
    last = stage.play(100, told(QUEUES, ranks=(RankReading("0", {}, {gauge: 1.0}, {}),)))
    assert (only(last).cause, only(last).level) == ("paused", Level.NOTE)
    assert quantities(only(last))[quantity] == 1.0
    ended = told(QUEUES, ranks=(RankReading("0", {}, {gauge: 0.0}, {}),))
    assert Limit.HUNG not in limits(stage.play(10, ended))
    assert only(stage.play(20, ended)).code is Limit.HUNG


def passed_over(seconds: int, waiting: Callable[[int], float]) -> Snapshot:
    """An engine at work of which nothing runs any more while requests wait, its scheduler still asking itself why."""
    stage = Stage()
    stage.play(60, scene(gpus=card(BUSY, 0.9)))
    served = (RankReading("0", {DECODE_TOKENS: 900.0}, {}, {}),)
    for tick in range(seconds):
        changes = {**STOPS, "running": 0.0, "waiting": waiting(tick), "kv_usage_ratio": 0.0}
        last = stage.play(1, told(changes, ranks=served))
    return last


@each_row(
    ("seconds", "waiting", "level"),
    [
        (45, lambda tick: 1.0 + tick, Level.WARN),
        (90, lambda tick: 1.0 + tick, Level.CRITICAL),
        (200, lambda tick: 1.0 + tick, Level.CRITICAL),
        (100, lambda _: 1.0, Level.WARN),  # nobody else asks
        (100, lambda tick: 2.0 if tick < 4 else 1.0, Level.WARN),  # its gauges settle
        (100, lambda tick: 2.0 if tick < 9 else 1.0, Level.CRITICAL),  # somebody came or went
    ],
)
def test_requests_that_fit_nowhere_hold_up_all_behind_them(
    seconds: int, waiting: Callable[[int], float], level: Level
) -> None:
    found = only(passed_over(seconds, waiting))
    assert (found.code, found.cause, found.level) == (Limit.HUNG, "stuck_waiting", level)
    assert [one.code for one in found.actions] == ["find_stuck_request", "save_stacks_and_restart"]
    assert "else save its log" in actions_text(found)


def test_a_queue_that_stands_still_for_minutes_is_a_hang() -> None:
    assert only(passed_over(200, lambda _: 3.0)).cause == "hung_idle"


DEFERRED = {**STOPS, "running": 0.0, "waiting": 9.0, "waiting_deferred": 9.0, "kv_transferred_bytes_per_s": 0.0}
NIXL = {"live": {KV_TRANSFERRED_BYTES: "vllm:nixl_bytes_transferred_sum"}}


@each_row(
    ("changes", "of_reading", "first"),
    [
        (DEFERRED, NIXL, "check_prefill_side"),
        (DEFERRED, {}, "check_prefill_side"),
        (DEFERRED, {"info": {"role": "decode"}, "kind": EngineKind.SGLANG}, "check_prefill_side"),
        (DEFERRED, {"info": {"role": "prefill"}, "kind": EngineKind.SGLANG}, "check_decode_side"),
        ({**DEFERRED, "running": 2.0}, NIXL, "check_prefill_side"),
    ],
)
def test_requests_that_wait_for_kv_cache_are_the_other_sides_stall(
    changes: Mapping[str, Any], of_reading: Mapping[str, Any], first: str
) -> None:
    found = only(after(75, told(changes, **of_reading)))
    assert (found.code, found.cause, found.level) == (Limit.KV_TRANSFER, "kv_transfer_waits", Level.WARN)
    assert [one.code for one in found.actions] == [first]
    assert found.parameters["waiting"] == 9.0


def test_a_stall_of_the_other_side_is_its_own_only_when_it_lasts_and_nothing_moves() -> None:
    quiet, busy = (scene(DEFERRED, card(cpu=cpu), moves=False)(0) for cpu in (0.01, 1.0))
    assert only(after(140, quiet)).code is Limit.KV_TRANSFER
    assert only(after(400, busy)).code is Limit.KV_TRANSFER
    found = only(after(160, quiet))
    assert (found.cause, found.level) == ("hung_idle", Level.CRITICAL)
    assert [one.code for one in found.actions] == ["check_prefill_side", "save_stacks_and_restart"]
    assert "else save its log" in actions_text(found)


def test_requests_that_wait_for_a_lora_slot_beside_others_wait_for_no_kv_cache() -> None:
    waits = {"waiting": 9.0, "waiting_deferred": 9.0}
    assert Limit.KV_TRANSFER not in limits(Stage().play(120, scene(waits, card(BUSY, 0.9))))


def test_short_transfers_of_a_healthy_decode_engine_are_no_verdict() -> None:
    stage = Stage()
    for _ in range(120):
        *cards, one = scene({"waiting": 3.0, "waiting_deferred": 3.0}, card(BUSY, 0.9))(stage.at)
        last = stage.tick(*cards, Of(replace(one.read, **NIXL), one.shown))
    assert Limit.KV_TRANSFER not in limits(last)


def test_a_limit_does_not_outlast_the_tokens_and_late_ones_after_a_stall_make_no_overload() -> None:
    reads = {**BUSY, "bandwidth_bytes_per_s": 0.85 * PEAK}
    stage = Stage()
    stage.play(60, scene({"mbu_ratio": 0.8}, card(reads, 0.9)))
    assert limits(stage.last) == (Limit.BANDWIDTH_BOUND,)
    assert Limit.BANDWIDTH_BOUND not in limits(stage.play(24, scene(QUEUES, card(cpu=1.0), moves=False)))
    stage.play(30, scene(QUEUES, card(cpu=1.0), moves=False))
    late = scene({"mbu_ratio": 0.8, "ttft_s": Quantiles(mean=30.0, p95=40.0)}, card(reads, 0.9))
    found = only(stage.play(60, late))
    assert (found.code, found.level) == (Limit.BANDWIDTH_BOUND, Level.NOTE)
    assert only(stage.play(120, late)).level is Level.CRITICAL


def test_a_stall_does_not_make_the_next_one_a_usual_wait() -> None:
    stage, _ = stalled(45, gpu=card(cpu=1.0))
    stage.play(70, scene({"ttft_s": Quantiles(mean=22.0, p95=40.0)}, card(BUSY, 0.9)))
    assert only(stage.play(36, scene(QUEUES, card(cpu=1.0), moves=False))).cause == "no_tokens"


def test_requests_of_an_engine_that_does_not_count_deferred_ones_wait_for_kv_cache_too() -> None:
    old = {**STOPS, "running": 0.0, "waiting": 9.0}
    assert only(after(75, told(old, **NIXL))).code is Limit.KV_TRANSFER
    assert only(after(75, told(old))).code is Limit.HUNG


def test_a_stall_is_suspected_before_it_is_told_and_no_longer_than_it_lasts() -> None:
    stage, _ = stalled(8)
    assert not stage.triage.suspects
    stage.play(5, scene(QUEUES, card(), moves=False))
    assert stage.triage.suspects == {"GPU-0"}
    stage.play(3, scene(gpus=card(BUSY, 0.9)))
    assert not stage.triage.suspects
