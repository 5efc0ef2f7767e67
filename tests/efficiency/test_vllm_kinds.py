"""Servers that are no plain generation: polled over HTTP while their counters grow, to the figures shown."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.efficiency.service import DENOISES, NO_DECODE, NO_TOKENS, Service
from gpumon.readings.frame import EngineReading
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine
from gpumon.sources.packaged import gpu_catalogue
from gpumon.tui.services import service_shown
from tests.efficiency.polls import frame, only, there, why
from tests.efficiency.small_llm import SMALL
from tests.fakes.http_server import Reply
from tests.records import replace
from tests.sources.engines.contract import PAGES
from tests.sources.polling import always, first

INTERVAL_S = 2.0


def later(page: str, grown: Mapping[str, float]) -> str:
    """The page with these much more on the series that begin so."""
    for begin, more in grown.items():
        pattern = re.compile(rf"^({re.escape(begin)}\S* )(\S+)$", re.MULTILINE)
        assert pattern.search(page), begin
        page = pattern.sub(lambda found, more=more: f"{found[1]}{float(found[2]) + more}", page)  # type: ignore[misc]
    return page


async def polled(body: str) -> EngineReading:
    """What an endpoint reads of it."""
    (reading,) = (await first(always(Reply(200, body.encode())))).readings
    return reading


async def shown(name: str, per_s: Mapping[str, float], seconds: float = 20.0) -> Engine:
    """The engine after so many seconds in which the page's series grew evenly."""
    page = (PAGES / "vllm" / f"{name}.prom").read_text()
    deriver, at_s = Deriver(gpu_catalogue()), 0.0
    while at_s <= seconds:
        reading = await polled(later(page, {series: at_s * rate for series, rate in per_s.items()}))
        facts = {"llm": SMALL, "gpu_type": "H100 SXM 80GB", "gpu_count": 1}
        reading = replace(reading, monotonic_s=at_s, interval_s=INTERVAL_S, url="http://e:1", **facts)
        last = deriver.derive(frame(int(at_s), (), (reading,)))
        at_s += INTERVAL_S
    return only(last.snapshot)


PROMPTS = {
    "vllm:prompt_tokens_total": 512.0,
    'vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="local_compute"}': 512.0,
}


async def test_a_pooling_server_has_no_decode_and_no_mbu_and_its_prefill_all_the_same() -> None:
    engine = await shown("pooling", {**PROMPTS, "vllm:request_success_total": 4.0})
    assert service_shown(engine) is Service.ENCODING
    assert (
        engine.rates.decode_tokens_per_s
        == engine.efficiency.mfu_decode_ratio
        == engine.load.context_tokens
        == NO_DECODE
    )
    assert engine.tokens_total.decode == NO_DECODE
    assert isinstance(engine.efficiency.mbu_ratio, Missing), "how often it reads its weights is not told"
    assert why(engine.efficiency.mbu_ratio) is Reason.NOT_MODELLED
    assert there(engine.rates.prefill_tokens_per_s) == pytest.approx(512.0)
    assert there(engine.efficiency.mfu_ratio) > 0.0


async def test_steps_of_a_diffusion_model_are_no_tokens() -> None:
    grown = {**PROMPTS, "vllm:generation_tokens_total": 256.0, "vllm:iteration_tokens_total_count": 60.0}
    engine = await shown("diffusion", {**grown, "vllm:diffusion_num_denoising_steps_total": 60.0})
    refused = (
        engine.efficiency.mbu_ratio,
        engine.efficiency.mfu_ratio,
        engine.efficiency.mfu_decode_ratio,
        engine.efficiency.bytes_per_s,
        engine.rates.batch,
    )
    assert {why(reading) for reading in refused} == {Reason.NOT_MODELLED}
    assert isinstance(engine.efficiency.mbu_ratio, Missing)
    assert "its steps denoise a canvas and are no tokens" in engine.efficiency.mbu_ratio.detail
    assert there(engine.rates.decode_tokens_per_s) == pytest.approx(256.0), "committed tokens are tokens"


async def test_a_diffusion_server_has_items_and_neither_tokens_nor_a_formula() -> None:
    page = (PAGES / "sglang_diffusion" / "serving.prom").read_text()
    served = 'sglang:diffusion_requests_total{is_warmup="false",replica="tcp://127.0.0.1:5555"'
    warm_ups = served.replace('is_warmup="false"', 'is_warmup="true"')
    deriver = Deriver(gpu_catalogue())
    for at_s in (INTERVAL_S * poll for poll in range(8)):
        body = later(page, {f'{served},role="monolithic",status="success"': at_s * 2.0, warm_ups: at_s * 5.0})
        (reading,) = (await first(always(Reply(200, body.encode())), engine="sglang")).readings
        facts = {"monotonic_s": at_s, "interval_s": INTERVAL_S, "gpu_type": "H100 SXM 80GB", "gpu_count": 1}
        last = deriver.derive(frame(int(at_s), (), (replace(reading, url="http://e:1", **facts),)))
    engine = only(last.snapshot)
    assert service_shown(engine) is Service.OTHER
    assert there(engine.rates.inferences_per_s) == pytest.approx(2.0), "warm-ups are nobody's requests"
    assert engine.rates.decode_tokens_per_s == engine.load.kv_usage_ratio == NO_TOKENS
    assert engine.efficiency.mbu_ratio == engine.efficiency.mfu_ratio == DENOISES


async def test_the_front_end_in_rust_counts_steps_exactly_and_says_why_its_pool_is_not_known() -> None:
    grown = {"vllm:generation_tokens_total": 300.0, "vllm:iteration_tokens_total_count": 100.0}
    engine = await shown("rust-0.30", grown)
    assert there(engine.rates.steps_per_s) == pytest.approx(100.0)
    assert there(engine.rates.batch) == pytest.approx(3.0)
    assert engine.sources["steps_per_s"] == "vllm:iteration_tokens_total_count over 10 s"
    assert engine.load.kv_pool_tokens == Missing(
        Reason.NOT_EXPOSED, "vLLM's front end in Rust writes no cache_config_info"
    )
    assert (there(engine.load.waiting), there(engine.load.waiting_deferred)) == (2.0, 1.0)


async def test_a_sleeping_server_is_asleep_and_not_idle() -> None:
    engine = await shown("sleeping", {})
    assert engine.asleep == "weights in the host's memory (sleep level 1)"
    assert (await shown("sleeping", {"vllm:generation_tokens_total": 5.0})).asleep == "", "an old word of it"
    page = (PAGES / "vllm" / "sleeping.prom").read_text()
    awake = page.replace('sleep_state="awake"} 0.0', 'sleep_state="awake"} 1.0')
    assert "sleeping" not in (await polled(awake)).info
    deeper = page.replace('"weights_offloaded"} 1.0', '"weights_offloaded"} 0.0').replace(
        '"discard_all"} 0.0', '"discard_all"} 1.0'
    )
    assert (await polled(deeper)).info["sleeping"] == "weights and KV cache discarded (sleep level 2)"


async def test_what_is_turned_away_and_moved_beyond_the_gpus_is_shown_as_rates() -> None:
    labels = '{engine="0",model_name="m"}'
    grown = {
        'vllm:admission_rejections_total{model_name="m",reason="max_num_queued_reqs"}': 2.0,
        f"vllm:kv_offload_store_bytes_total{labels}": 3e9,
        f"vllm:kv_offload_load_bytes_total{labels}": 1e9,
        f"vllm:nixl_bytes_transferred_sum{labels}": 5e8,
        f"vllm:nixl_num_failed_transfers_total{labels}": 0.5,
    }
    engine = await shown("kv-tiers", grown)
    assert there(engine.rates.rejections_per_s) == pytest.approx(2.0)
    moved = (
        engine.rates.kv_stored_bytes_per_s,
        engine.rates.kv_loaded_bytes_per_s,
        engine.rates.kv_transferred_bytes_per_s,
    )
    assert [there(rate) for rate in moved] == pytest.approx([3e9, 1e9, 5e8])
    assert there(engine.rates.kv_transfer_failures_per_s) == pytest.approx(0.5)
    assert engine.sources["kv_loaded_bytes_per_s"] == "vllm:kv_offload_load_bytes_total over 10 s"
    assert there(engine.load.waiting_deferred) == 3.0


async def test_traffic_of_the_lower_tiers_and_what_nobody_fetched_are_shown_as_rates() -> None:
    labels = '{engine="0",model_name="m"}'
    grown = {
        f"vllm:nixl_num_kv_expired_reqs_total{labels}": 0.25,
        f"vllm:nixl_num_notifications_after_expiry_total{labels}": 0.125,
        'vllm:kv_offload_tiering_write_bytes_total{engine="0",model_name="m",tier="fs"}': 4e8,
        'vllm:kv_offload_tiering_write_bytes_total{engine="0",model_name="m",tier="obj"}': 1e8,
        'vllm:kv_offload_tiering_read_bytes_total{engine="0",model_name="m",tier="fs"}': 2e8,
        f"vllm:kv_offload_allocation_failure_total{labels}": 0.5,
        'vllm:kv_offload_tiering_promotion_job_failures_total{engine="0",model_name="m",tier="fs"}': 0.5,
    }
    rates = (await shown("tiered-0.33", grown)).rates
    moved = (rates.kv_tier_written_bytes_per_s, rates.kv_tier_read_bytes_per_s)
    assert [there(rate) for rate in moved] == pytest.approx([5e8, 2e8])
    failed = (rates.kv_expired_per_s, rates.kv_late_reads_per_s, rates.kv_copy_failures_per_s)
    assert [there(rate) for rate in failed] == pytest.approx([0.25, 0.125, 1.0])
    simple = (await shown("simple-offload-0.33", {})).rates
    assert why(simple.kv_stored_bytes_per_s) is Reason.NOT_EXPOSED, "blocks of an unknown size are no bytes"


async def test_acceptance_failures_and_aborts_are_shown_of_now() -> None:
    labels = '{engine="0",model_name="m"}'
    page = (PAGES / "vllm" / "kv-tiers.prom").read_text() + "".join(
        f"vllm:spec_decode_num_{name}_total{labels} 100\n" for name in ("drafts", "draft_tokens", "accepted_tokens")
    )
    deriver, ended = Deriver(gpu_catalogue()), 'vllm:request_success_total{engine="0",finished_reason='
    grown = {
        f"vllm:spec_decode_num_drafts_total{labels}": 100.0,
        f"vllm:spec_decode_num_draft_tokens_total{labels}": 300.0,
        f"vllm:spec_decode_num_accepted_tokens_total{labels}": 216.0,
        f'{ended}"error"': 0.5,
        f'{ended}"abort"': 1.5,
    }
    for at_s in range(0, 22, 2):
        reading = await polled(later(page, {series: at_s * rate for series, rate in grown.items()}))
        reading = replace(reading, monotonic_s=float(at_s), interval_s=INTERVAL_S, url="http://e:1")
        engine = only(deriver.derive(frame(at_s, (), (reading,))).snapshot)
    assert there(engine.rates.acceptance_ratio) == pytest.approx(0.72)
    assert engine.sources["acceptance_ratio"] == (
        "vllm:spec_decode_num_accepted_tokens_total / vllm:spec_decode_num_draft_tokens_total"
    )
    assert (there(engine.rates.failures_per_s), there(engine.rates.aborts_per_s)) == pytest.approx((0.5, 1.5))
    assert there(engine.rates.requests_per_s) == pytest.approx(2.0)
