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
