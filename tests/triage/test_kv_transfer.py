"""KV cache that a prefill engine keeps for others, and that none of them fetches in time."""

from __future__ import annotations

from gpumon.readings.frame import GpuProcess
from gpumon.readings.quantities import KV_EXPIRED
from gpumon.readings.snapshot import Level, Limit, Quantiles, Snapshot, Verdict
from gpumon.triage.render import actions_text, evidence_text, verdict_text
from tests.each_row import each_row
from tests.records import replace
from tests.triage.engines import BUSY, limits, scene
from tests.triage.stage import Of, Stage


def expiring(per_s: float, seconds: int = 100) -> Snapshot:
    """A prefill engine at work of which so many requests a second expire."""
    return Stage().play(seconds, scene({"kv_expired_per_s": per_s}, {**BUSY, "busy_ratio": 0.9}))


def verdict_of(snapshot: Snapshot) -> Verdict:
    """The verdict on KV transfers."""
    (verdict,) = (verdict for verdict in snapshot.verdicts if verdict.code is Limit.KV_TRANSFER)
    return verdict


def test_kv_cache_that_nobody_fetches_is_a_warning_and_the_decode_side_is_looked_at() -> None:
    verdict = verdict_of(expiring(0.25))
    assert (verdict.cause, verdict.level) == ("kv_expires", Level.WARN)
    assert [action.code for action in verdict.actions] == ["check_decode_side"]
    assert verdict_text(verdict).endswith("the KV cache of 15 requests expired in 60 s: no engine fetched it in time")
    assert [*map(evidence_text, verdict.evidence)] == ["about 15 requests a minute whose KV cache expired"]


def test_the_source_of_the_expired_has_the_window_of_their_mean() -> None:
    of = scene({"kv_expired_per_s": 0.25, "sources": {"kv_expired_per_s": "expired_total over 10 s"}})

    def counted(tick: int) -> tuple[Of, ...]:
        card, prefills = of(tick)
        return card, Of(replace(prefills.read, live={KV_EXPIRED: "expired_total"}), prefills.shown)

    assert verdict_of(Stage().play(100, counted)).evidence[0].source == "expired_total over 60 s"


def test_reads_after_it_was_given_up_are_said_to_make_wrong_answers() -> None:
    changes = {"kv_expired_per_s": 0.25, "kv_late_reads_per_s": 0.05}
    last = Stage().play(100, scene(changes, {**BUSY, "busy_ratio": 0.9}))
    proof = [*map(evidence_text, verdict_of(last).evidence)]
    assert "about 3 reads of KV cache a minute ended after it was given up: their answers may be wrong" in proof


def test_the_only_decode_engine_is_named() -> None:
    stage = Stage()
    for _ in range(100):
        *cards, prefills = scene({"kv_expired_per_s": 0.25}, {**BUSY, "busy_ratio": 0.9})(stage.at)
        key = "http://d:8000"
        read = replace(prefills.read, name="vllm:d", url=key, info={"role": "decode"})
        decodes = Of(read, replace(prefills.shown, name="vllm:d", url=key, kv_expired_per_s=0.0))
        last = stage.tick(*cards, prefills, decodes)
    assert "(vllm:d)" in actions_text(verdict_of(last))


@each_row("per_s", [0.0, 0.03])
def test_one_or_two_are_clients_that_hung_up(per_s: float) -> None:
    assert Limit.KV_TRANSFER not in limits(expiring(per_s))


@each_row(
    ("info", "where"),
    [
        ({}, "KV cache from another engine or a store"),
        ({"role": "decode"}, "KV cache of the prefill side"),
        ({"role": "prefill"}, "the decode side to take their KV cache"),
    ],
)
def test_the_other_side_is_named_where_its_role_tells_it(info: dict[str, str], where: str) -> None:
    """An offload connector loads KV cache from a store: there is no prefill side."""
    command = 'vllm serve m --kv-transfer-config {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}'
    holder = GpuProcess(4711, "vllm", vram_bytes=7e10, engine="vllm:8000", command=command)
    waits = {"waiting": 6.0, "waiting_deferred": 6.0, "ttft_s": Quantiles(mean=6.0, p95=8.0)}
    last = Stage().play(100, scene(waits, {**BUSY, "processes": (holder,)}, info=info))
    assert verdict_text(verdict_of(last)) == f"6 requests wait for {where}"
