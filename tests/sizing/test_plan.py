"""The whole answer: hand-worked cases, every kind of target, and what has no answer."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.schema import Gpu
from gpumon.readings.missing import Missing, Reason
from gpumon.sizing.answer import Answer, Source
from gpumon.sizing.plan import NO_WORKLOAD, plan
from gpumon.sizing.profile import Origin
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.sources.packaged import gpu_catalogue
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.questions import GUIDE, KNOWN, NIM_70B, SEVENTY, changed

EIGHT_B = Workload("meta-llama/Llama-3.1-8B-Instruct", 400, prompt_tokens=1024, answer_tokens=512)


def ask(**fields: object) -> Answer:
    scenario = Scenario(itl_p95_ms=40, server=(Server("H100 SXM5 80GB"),), workload=(EIGHT_B,))
    return plan(changed(scenario, **fields), KNOWN)


class TestDesignGuide:
    def test_by_memory_it_says_what_the_guide_says(self):
        answer = plan(GUIDE, KNOWN)
        assert [each.instances for each in answer.workloads] == [16, 8]
        assert answer.totals.memory_bytes == pytest.approx(556.64e9)  # the guide prints "about 560"
        packed = answer.plans.memory_only
        assert (packed.gpus, packed.servers, packed.servers_least) == (8, 2, 2)
        assert all(sorted(gpu.workloads) == [0, 0, 1] for server in packed.layout for gpu in server.gpus)
        assert (answer.totals.gpus, answer.totals.servers) == (8, 2)

    def test_by_busy_share_every_instance_has_its_own_gpu(self):
        busy = plan(GUIDE, KNOWN).plans.busy_aware
        assert (busy.instances, busy.gpus, busy.servers, busy.servers_least) == (24, 24, 6, 6)

    def test_it_warns_that_the_instances_share_busy_gpus(self):
        warning = plan(GUIDE, KNOWN).warnings[0]
        assert "292%" in warning  # 0.935 + 2 x 0.99 rounded up
        assert "24 GPUs" in warning
        assert not plan(replace(GUIDE, packing="busy"), KNOWN).problem

    def test_packing_decides_what_is_needed(self):
        answer = plan(replace(GUIDE, packing="busy"), KNOWN)
        assert (answer.totals.gpus, answer.totals.servers) == (24, 6)


def asked(*workloads: Workload, **fields: object) -> Answer:
    scenario = Scenario(itl_p95_ms=40, server=(Server("H100 SXM5 80GB"),), workload=workloads)
    return plan(replace(scenario, **fields), KNOWN)


class TestPartly:
    """One workload without an answer hides nothing of the others."""

    BAD = Workload("meta-llama/Llama-3.3-70B-Instruct", 10, prompt_tokens=1000, answer_tokens=100, itl_p95_ms=0.1)

    def test_the_others_are_summed_up_and_the_missing_one_is_named(self):
        alone = ask()
        both = asked(self.BAD, EIGHT_B)
        assert both.without == (self.BAD.model,)
        assert both.totals_without == alone.totals
        assert isinstance(both.totals.gpus, Missing)
        assert both.workloads[1] == alone.workloads[0]
        assert both.problem.startswith(f"{self.BAD.model}: not even one request")

    def test_what_has_no_place_takes_none_from_the_others(self):
        few = (Server("H100 SXM5 80GB", gpus=4, count=1),)
        two = replace(EIGHT_B, name="two", target=10, tp=2)
        both = asked(replace(EIGHT_B, target=100_000, tp=1), two, server=few)
        assert "have no place" in both.workloads[0].problem
        assert both.without == (EIGHT_B.model,)
        assert both.totals_without == asked(two, server=few).totals
        assert (both.totals_without.gpus, both.workloads[1].servers_shared) == (2, 1)

    def test_nothing_is_left_out_where_all_or_none_have_an_answer(self):
        for answer in (ask(), asked(self.BAD), asked()):
            assert answer.without == ()
            assert isinstance(answer.totals_without.gpus, Missing)


class TestServers:
    """Servers of each workload, where they share some, too."""

    def test_each_has_its_own(self):
        both = asked(SEVENTY.workload[0], replace(EIGHT_B, spare_instances=40), itl_p95_ms=100.0)
        large, small = both.workloads
        assert (large.servers, small.servers) != (0, 0)
        layout = both.plans.busy_aware.layout
        for at, each in enumerate(both.workloads):
            held = [server for server in layout if any(at in slot.workloads for slot in server.gpus)]
            shared = [one for one in held if any(set(slot.workloads) - {at} for slot in one.gpus)]
            assert (each.servers, each.servers_shared) == (len(held), len(shared))

    def test_models_on_the_same_gpus_share_their_servers(self):
        for each in plan(GUIDE, KNOWN).workloads:
            assert (each.servers, each.servers_shared) == (2, 2)
        [alone] = plan(SEVENTY, KNOWN).workloads
        assert (alone.servers, alone.servers_shared) == (2, 0)

    def test_a_spare_server_holds_nobody(self):
        [alone] = plan(replace(SEVENTY, spare_servers=1), KNOWN).workloads
        assert alone.servers == 2


class TestMeasured:
    """NIM Llama-3.3-70B FP8 on 2 x H100, 5000 in and 500 out."""

    def test_kv_binds_first_and_itl_is_next(self):
        [row] = plan(SEVENTY, KNOWN).workloads
        assert (row.limit, row.next_limit) == ("KV", "ITL")
        assert row.limits[0].concurrency == pytest.approx(85.5)
        assert row.limits[1].concurrency == pytest.approx((100 - 17.69) / 0.841, rel=0.01)
        assert row.capacity_per_instance == 68  # floor(0.8 * 85.5)
        assert (row.instances, row.gpus, row.source) == (8, 16, Source.MEASURED)

    def test_latency_at_the_target_is_that_of_the_line(self):
        [row] = plan(SEVENTY, KNOWN).workloads
        assert row.running == 64
        assert row.itl_s == pytest.approx(0.01769 + 0.000841 * 64, rel=0.01)
        assert row.tokens_per_s == pytest.approx(8 * 64 * 500 / row.e2e_s)

    @pytest.mark.parametrize(("users", "tokens_per_s"), [(5, 218.0), (25, 623.0), (50, 814.0)])
    def test_throughput_is_what_was_measured(self, users: int, tokens_per_s: float):
        """A request that waits for its first token is in flight and yields none: running / ITL is 3% too much."""
        [row] = plan(changed(SEVENTY, target=users), KNOWN).workloads
        assert row.tokens_per_s == pytest.approx(tokens_per_s, rel=0.012)

    def test_price_is_of_whole_servers(self):
        totals = plan(SEVENTY, KNOWN).totals
        assert totals.price_per_hour == pytest.approx(2 * 8 * 2.49)
        assert totals.price_per_mtok == pytest.approx(2 * 8 * 2.49 / 3600 / totals.tokens_per_s * 1e6)

    def test_a_lost_server_is_told_with_what_it_costs(self):
        [row] = plan(SEVENTY, KNOWN).workloads
        instance, server = row.degraded
        assert (instance.instances, instance.running) == (7, pytest.approx(512 / 7))
        assert (server.instances, server.running) == (4, pytest.approx(128))
        assert server.text == "requests queue: 128 per instance, room for 86"
        [row] = plan(replace(SEVENTY, itl_p95_ms=70.0), KNOWN).workloads
        assert row.degraded[1].text.startswith("the ITL goal would be missed")

    def test_spares_come_on_top(self):
        answer = plan(replace(SEVENTY, spare_instances=1, spare_servers=1), KNOWN)
        assert answer.workloads[0].instances == 9
        assert answer.totals.servers == 3 + 1  # 18 GPUs are three servers of eight
        assert plan(changed(SEVENTY, spare_instances=0), KNOWN).workloads[0].instances == 8

    def test_here_against_needed(self):
        short = plan(SEVENTY, KNOWN, {"H100 SXM5 80GB": 8}).have
        assert short is not None
        assert (short.gpus, short.short_gpus, short.text) == (8, 8, "short 8 GPUs")
        less = plan(changed(SEVENTY, target=60), KNOWN, {"H100 SXM5 80GB": 8}).have
        assert less is not None
        # Whole servers are paid for: 6 idle GPUs of the one that is needed save nothing.
        assert (less.saving_per_hour, less.text) == (0, "fits on 2 of 8 GPUs: frees 6 GPUs")
        two = plan(changed(SEVENTY, target=60), KNOWN, {"H100 SXM5 80GB": 16}).have
        assert two is not None
        assert two.saving_per_hour == pytest.approx(8 * 2.49)
        assert two.text == "fits on 2 of 16 GPUs: frees 14 GPUs, saves 1 server, 19.92 per hour"
        spare = replace(changed(SEVENTY, target=60), spare_servers=1)
        kept = plan(spare, KNOWN, {"H100 SXM5 80GB": 16}).have
        assert kept is not None
        assert (kept.saving_per_hour, kept.text) == (0, "fits on 2 of 16 GPUs: frees 14 GPUs")
        unpriced = plan(changed(SEVENTY, target=60), KNOWN._replace(prices={}), {"H100 SXM5 80GB": 16}).have
        assert unpriced is not None
        assert unpriced.text == "fits on 2 of 16 GPUs: frees 14 GPUs, saves 1 server"

    def test_another_mix_moves_the_physical_part_only(self):
        [row] = plan(changed(SEVENTY, prompt_tokens=1000.0), KNOWN).workloads
        assert row.source is Source.RESCALED
        assert row.band is not None
        assert row.band.rows > 100
        assert row.band.low < -0.1
        assert row.limits[0].kind.value == "ITL" or row.limits[0].concurrency > 85.5
        seen = plan(SEVENTY, KNOWN).workloads[0]
        assert row.itl_s < seen.itl_s


class TestTargets:
    def test_users_think_between_answers(self):
        plain, thinking = (
            ask(target=2000, target_kind="users", think_s=think).workloads[0] for think in (0.0, 30.0)
        )  # fmt: skip
        assert plain.concurrency == pytest.approx(2000, rel=1e-6)
        response_s = thinking.e2e_s
        assert thinking.concurrency == pytest.approx(2000 * response_s / (response_s + 30), rel=1e-3)
        assert thinking.instances < plain.instances

    def test_a_rate_is_in_flight_by_littles_law(self):
        row = ask(target=40.0, target_kind="requests_per_s").workloads[0]
        assert row.concurrency == pytest.approx(40 * row.e2e_s, rel=1e-6)
        assert row.requests_per_s == pytest.approx(40, rel=1e-6)
        assert row.running <= row.capacity_per_instance

    def test_a_typed_capacity_is_planned_with_as_it_is(self):
        row = ask(capacity_per_instance=100.0, target=400).workloads[0]
        assert (row.capacity_per_instance, row.instances, row.limit) == (100, 4, "typed")
        assert row.source is Source.TYPED

    def test_a_typed_capacity_above_the_formulas_is_remarked(self):
        row = ask(capacity_per_instance=5000.0).workloads[0]
        assert any("above what ITL allows" in note for note in row.notes)


class TestNoAnswer:
    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"target": 0}, "must be above 0"),
            ({"target": -5}, "must be above 0"),
            ({"target": math.nan}, "must be above 0"),
            ({"target": math.inf}, "must be above 0"),
            ({"target": 1e30}, "instances: check the target"),
            ({"itl_p95_ms": 0.1}, "more instances would not"),
            ({"ttft_p95_ms": 0.1, "prefill_tokens_per_s": 5000.0}, "more instances would not"),
            ({"e2e_p95_ms": 1.0}, "more instances would not"),
            ({"capacity_per_instance": 0.5}, "it must be from 1 to"),
            ({"weight_precision": "fp3"}, "unknown precision"),
            ({"profile": "nothing"}, "no profile 'nothing'"),
            ({"model": "nobody/knows-it"}, "dimensions"),
            ({"prompt_tokens": None}, "it needs prompt_tokens, or a typed capacity"),
            ({"memory_gb": 500.0}, "usable"),
            ({"kv_pool_tokens": 100.0}, "not even one request"),
            ({"model": "meta-llama/Llama-3.1-405B", "tp": 1}, "not even one request"),
        ],
    )
    def test_the_reason_is_named(self, fields: dict[str, object], said: str):
        answer = ask(**fields)
        assert said in answer.problem
        assert isinstance(answer.totals.instances, Missing)
        assert answer.totals.instances.reason is Reason.INFEASIBLE
        assert isinstance(answer.workloads[0].instances, Missing)

    def test_an_unknown_gpu_lists_near_names(self):
        answer = plan(Scenario(server=(Server("H1000"),), workload=(EIGHT_B,)), KNOWN)
        assert "near names" in answer.problem

    def test_nothing_asked_is_nothing_answered(self):
        answer = plan(Scenario(), KNOWN)
        assert answer.problem == NO_WORKLOAD
        assert isinstance(answer.totals.gpus, Missing)

    def test_one_workload_without_an_answer_leaves_the_others_theirs(self):
        scenario = Scenario(itl_p95_ms=40, server=(Server("H100 SXM5 80GB"),), workload=(EIGHT_B, EIGHT_B))
        answer = plan(changed(scenario, 1, target=0), KNOWN)
        assert answer.workloads[0].instances == ask().workloads[0].instances
        assert isinstance(answer.totals.instances, Missing)

    def test_no_room_is_said_with_the_number_left_over(self):
        scenario = Scenario(itl_p95_ms=40, server=(Server("H100 SXM5 80GB", gpus=1, count=1),), workload=(EIGHT_B,))
        answer = plan(changed(scenario, target=5000), KNOWN)
        assert "instances have no place: " in answer.problem
        assert answer.workloads[0].problem in answer.problem

    def test_a_tp_that_cannot_be_is_named(self):
        [row] = ask(tp=10**6).workloads
        assert (row.problem, row.tp, row.pp) == ("TP is 1,000,000: it must be from 1 to 1,024", 10**6, 1)
        assert isinstance(row.gpus, Missing)

    @pytest.mark.parametrize(("tp", "heads"), [(3, "32 heads"), (5, "32 heads"), (4, "")])
    def test_a_tp_that_engines_refuse_has_no_plan(self, tp: int, heads: str):
        said = ask(tp=tp).workloads[0].problem
        assert said == (f"TP {tp} does not divide the {heads}: engines refuse it" if heads else "")

    def test_without_a_goal_it_says_what_alone_bounds_it(self):
        free = Scenario(server=(Server("H100 SXM5 80GB"),), workload=(EIGHT_B,))
        said = "no latency goal: only KV limits it"
        assert said in plan(free, KNOWN).workloads[0].notes
        assert said not in ask().workloads[0].notes
        assert not any("latency goal" in note for note in plan(GUIDE, KNOWN).workloads[0].notes)

    def test_without_a_server_the_gpus_that_were_seen_are_assumed(self):
        answer = plan(replace(SEVENTY, server=()), KNOWN)
        assert answer.totals.servers == 2
        assert plan(Scenario(workload=(EIGHT_B,)), KNOWN).problem.endswith("([[server]] gpu, gpus)")


NUMBERS = st.one_of(
    st.none(),
    st.sampled_from([0.0, -1.0, 1e-9, 0.5, 1.0, 7.0, 1e9, 1e300, math.inf, math.nan]),
    st.floats(0.1, 1e6),
)


@given(
    target=NUMBERS.filter(lambda value: value is not None),
    kind=st.sampled_from(["concurrency", "users", "requests_per_s"]),
    fields=st.dictionaries(
        st.sampled_from(
            ["capacity_per_instance", "memory_gb", "busy_ratio", "prompt_tokens", "answer_tokens", "prefix_hit_ratio",
             "itl_p95_ms", "ttft_p95_ms", "e2e_p95_ms", "itl_tail_ratio", "kv_pool_tokens", "prefill_tokens_per_s"]
        ),
        NUMBERS,
    ),
    tp=st.sampled_from([None, 0, -1, 1, 2, 3, 16, 1024]),
    gpus=st.sampled_from([0, -1, 1, 2, 8, 72]),
    seen=st.booleans(),
)  # fmt: skip
def test_whatever_is_typed_there_is_an_answer_or_a_reason(target, kind, fields, tp, gpus, seen):
    workload = replace(EIGHT_B, target=target, target_kind=kind, tp=tp, seen=NIM_70B if seen else None, **fields)
    scenario = Scenario(itl_p95_ms=40, server=(Server("H100 SXM5 80GB", gpus=gpus),), workload=(workload,))
    answer = plan(scenario, KNOWN, {"H100 SXM5 80GB": 8})
    figures = [value for value in msgspec.structs.astuple(answer.totals) if not isinstance(value, Missing)]
    assert all(math.isfinite(value) and value >= 0 for value in figures)
    if answer.problem:
        assert isinstance(answer.totals.instances, Missing)
    else:
        assert answer.totals.instances >= 1
        assert answer.totals.gpus >= 1
        assert answer.totals.servers >= 1


class TestProfiles:
    PROFILE = replace(NIM_70B, origin=Origin.SWEEP, concurrency=50.0)

    def test_a_scenario_keeps_its_profile(self):
        asked = changed(SEVENTY, seen=None, profile="nim")
        here = KNOWN._replace(profiles={"nim": self.PROFILE})
        assert plan(here.self_contained(asked), KNOWN).workloads == plan(asked, here).workloads
        assert "no profile 'nim'" in plan(asked, KNOWN).problem

    def test_what_ran_together_fits_whatever_precision_nobody_recorded(self):
        unsaid = replace(NIM_70B, kv_precision="", kv_pool_tokens=None)
        [row] = plan(changed(SEVENTY, seen=unsaid, model="meta-llama/Llama-3.3-70B-Instruct"), KNOWN).workloads
        assert not row.problem
        assert row.capacity_per_instance == 68
        assert row.memory_bytes <= 2 * 85.53e9

    def test_spare_servers_are_of_a_shape_that_can_be_bought(self):
        shapes = (Server("L40S", count=1, price_per_gpu_hour=1.0), Server("L40S", price_per_gpu_hour=0.5))
        scenario = Scenario(itl_p95_ms=40, server=shapes, workload=(EIGHT_B,))
        one, two = (plan(replace(scenario, spare_servers=number), KNOWN).totals for number in (1, 2))
        assert two.price_per_hour - one.price_per_hour == pytest.approx(8 * 0.5)


@each_row("tp", [None, 1])
def test_a_gpu_whose_memory_is_not_known_is_no_answer_and_the_config_tells_it(tp: int | None) -> None:
    workload = Workload("Llama-3.1-8B-FP8", 50, prompt_tokens=1000.0, answer_tokens=200.0, tp=tp)
    scenario = Scenario(server=(Server("H20 NVL16"),), workload=(workload,))
    assert "the memory of H20 NVL16 is not known: memory_gb in a [[gpu]] table" in plan(scenario, KNOWN).problem
    own = Gpu("NVIDIA H20 NVL16", bf16_tflops=148.0, fp8_tflops=296.0, bandwidth_gbs=4000.0, memory_gb=95.6)
    told = plan(scenario, KNOWN._replace(gpus=gpu_catalogue((own,))))
    assert not told.problem
    assert told.workloads[0].instances == 1


def test_users_without_a_think_time_are_told_so() -> None:
    def notes(**fields: Any) -> list[str]:
        return [note for each in plan(changed(GUIDE, **fields), KNOWN).workloads for note in each.notes]

    said = "think time 0 s: each user asks anew as soon as an answer ends"
    assert said in notes(target_kind="users")
    assert said not in notes(target_kind="users", think_s=5.0)
    assert said not in notes(target_kind="concurrency")
