"""A page of any engine, broken in any way, never crashes, lies about a zero, or shows the impossible without a mark."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from gpumon.readings.frame import EndpointState
from gpumon.sources.engines.registry import ENGINE_ROWS
from tests.accuracy.hostile import Recording, harmless, hostile, recordings
from tests.accuracy.hostile_beside import Beside
from tests.accuracy.hostile_chain import RIGS, Chain
from tests.accuracy.hostile_rules import Seen, Totals, flagged, sound

RECORDINGS = recordings()
ALIKE = frozenset(
    {
        *("llamacpp-basic", "llamacpp-long-prompts", "llamacpp-two-scrapers", "sglang-two-scrapers", "triton-basic"),
        *("prometheus-api", "vllm-apikey", "vllm-poisson", "vllm-staircase", "vllm-starved-host", "vllm-tp2"),
        *("vllm-family-gpt-oss", "vllm-family-granite-hybrid", "vllm-family-nemotron-h"),
    }
)
"""Recordings whose pages have the metrics of another one: broken in `make properties`."""
UNLIKE = [recording.name for recording in RECORDINGS if recording.name not in ALIKE]
EXAMPLES = int(os.environ.get("GPUMON_HOSTILE_EXAMPLES", "0"))
"""Of each recording; 0: one, and always the same."""
ANY = st.integers(0, 1 << 16)
"""Drawn first, and not 0: the first example of hypothesis has every choice at its least, so that it would be the same
fault for each recording, an unreachable server.
"""


def broken(chosen: Sequence[str]) -> pytest.MarkDecorator:
    """All recordings; those that are not chosen are wide cases. `make check` breaks each of `UNLIKE` in one test."""
    params = []
    for recording in RECORDINGS:
        marks = () if recording.name in chosen else pytest.mark.wide
        params.append(pytest.param(recording, id=recording.name, marks=marks))
    return pytest.mark.parametrize("recording", params)


def few(count: int) -> settings:
    return settings(
        max_examples=EXAMPLES or count,
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
    )


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    one = asyncio.new_event_loop()
    yield one
    one.run_until_complete(one.shutdown_default_executor())
    one.close()


def test_whole_pages_become_engines_with_figures(loop: asyncio.AbstractEventLoop):
    """What the other tests break is shown when it is whole."""
    last = [
        [*Chain(loop, RIGS[0], each.wall_s).run(each.polls(each.length_s // 3, 3))][-1].snapshot for each in RECORDINGS
    ]
    engines = [engine for snapshot in last for engine in snapshot.engines if engine.state is EndpointState.OK]
    assert {engine.kind for engine in engines} == {row.kind for row in ENGINE_ROWS}
    assert sum(isinstance(engine.rates.decode_tokens_per_s, float) for engine in engines) > len(RECORDINGS) / 2
    assert sum(isinstance(engine.efficiency.mbu_ratio, float) for engine in engines) > len(RECORDINGS) / 4


@broken(UNLIKE[::2])
@few(1)
@given(data=st.data())
def test_a_hostile_page_is_shown_as_what_it_is(
    loop: asyncio.AbstractEventLoop, recording: Recording, data: st.DataObject
):
    """Any line dropped, doubled, moved, cut or replaced; values swapped, multiplied, absurd; other engines' pages."""
    assume(data.draw(ANY))
    polls = data.draw(hostile(recording, RECORDINGS)).broken
    rig = data.draw(st.sampled_from(RIGS))
    seen, totals = Seen(polls), Totals()
    for shot in Chain(loop, rig, recording.wall_s).run(polls):
        sound(shot)
        flagged(shot)
        seen.based(shot)
        totals.rise(shot)


@broken(UNLIKE[1::2])
@few(1)
@given(data=st.data())
def test_what_is_left_out_or_repeated_adds_nothing_and_zeroes_nothing(
    loop: asyncio.AbstractEventLoop, recording: Recording, data: st.DataObject
):
    """Against the same polls whole: no figure becomes 0, and no total comes out higher."""
    assume(data.draw(ANY))
    drawn = data.draw(harmless(recording))
    whole, broken = (Chain(loop, RIGS[0], recording.wall_s).run(polls) for polls in drawn[:2])
    beside = Beside(late=drawn.late)
    for one, other in zip(whole, broken, strict=True):
        beside.check(one, other)
