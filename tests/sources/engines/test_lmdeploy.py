"""LMDeploy: what its counts mean, and a computed prefill that never falls though cached tokens come late."""

from __future__ import annotations

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind
from gpumon.sources.engines.registry import BY_KIND
from tests.sources.engines.contract import PAGES, Reader

ROW = BY_KIND[EngineKind.LMDEPLOY]
LABELS = 'engine="0",model_name="m"'


def body(name: str) -> bytes:
    return (PAGES / "lmdeploy" / f"{name}.prom").read_bytes()


def tokens(prompt: int, cached: int) -> bytes:
    return (
        f"lmdeploy:prompt_tokens_total{{{LABELS}}} {prompt}\nlmdeploy:cached_tokens_total{{{LABELS}}} {cached}\n"
    ).encode()


def test_cached_tokens_come_when_a_request_ends_and_do_not_make_the_prefill_fall():
    reader = Reader(ROW)
    computed = []
    # A prompt of 1000 counts at its first token, the 600 of it that were cached at its end.
    for prompt, cached in ((1000, 0), (1000, 600), (2000, 600), (2000, 1200), (4000, 1200)):
        (page,) = reader.read({"/metrics": tokens(prompt, cached)})
        computed.append(page.ranks[0].counters[q.PREFILL_COMPUTED])
    assert computed == [1000.0, 1000.0, 1400.0, 1400.0, 2800.0]
    assert page.advance[q.PREFILL_CACHED] is Advance.END


def test_computed_prefill_is_no_rate_of_now_once_anything_was_cached():
    """A burst of prompts of which 90 % were cached would be ten times too much until they end."""
    reader = Reader(ROW)
    moves = [
        reader.read({"/metrics": tokens(prompt, cached)})[0].advance[q.PREFILL_COMPUTED]
        for prompt, cached in ((1000, 0), (2000, 0), (2000, 900), (9000, 900))
    ]
    assert moves == [Advance.PROMPT, Advance.PROMPT, Advance.END, Advance.END]


def test_without_a_word_on_the_cache_computed_prefill_is_unknown():
    lines = body("0.16").splitlines(keepends=True)
    untold = b"".join(line for line in lines if b"cached_tokens_total" not in line and b"config_info" not in line)
    (page,) = Reader(ROW).read({"/metrics": untold})
    assert page.ranks[0].counters[q.PROMPT_TOKENS] == 8000.0
    assert q.PREFILL_COMPUTED not in page.live


def test_outputs_are_no_steps():
    assert b"lmdeploy:iteration_tokens_total_count" in body("0.16")
    (page,) = Reader(ROW).read({"/metrics": body("0.16")})
    assert q.STEPS not in page.live
    assert not page.exact_steps


def test_a_rank_of_its_own_port_keeps_its_number():
    (page,) = Reader(ROW).read({"/metrics": body("0.16").replace(b'engine="0"', b'engine="3"')})
    assert [rank.rank for rank in page.ranks] == ["3"]
    assert page.model == "internlm3-8b-instruct"


def test_settings_that_make_no_sense_are_left_out():
    odd = body("0.16").replace(b'tp="2"', b'tp="-2"').replace(b'max_batch_size="256"', b'max_batch_size="None"')
    odd = odd.replace(b'session_len="32768"', b'session_len="None"').replace(b'quant_policy="8"', b'quant_policy="0"')
    (page,) = Reader(ROW).read({"/metrics": odd})
    assert (page.tp, page.dp, dict(page.info)) == (0, 1, {})
    assert q.MOST_RUNNING not in page.ranks[0].gauges


def test_how_its_weights_are_stored_where_the_settings_say_it():
    awq = body("0.16").replace(b'model_format="None"', b'model_format="awq"')
    (page,) = Reader(ROW).read({"/metrics": awq})
    assert page.info["weight_precision"] == "awq"
    (page,) = Reader(ROW).read({"/metrics": awq.replace(b'"awq"', b'"hf"')})
    assert "weight_precision" not in page.info
