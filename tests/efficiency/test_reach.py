"""Entries that a token looks at and a sequence keeps: by hand, and against sums over every position."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.efficiency.reach import entries_kept, entries_read, mean_entries_read
from gpumon.specs.llm import Attention, Reach
from tests.each_row import each_row


def look(reach: Reach, limit: int = 0, stride: int = 1) -> Attention:
    return Attention(reach, 1, 4.0, 4.0, 2.0, 1, limit, stride)


FULL, WINDOW, CHUNK, TOP = (
    look(Reach.FULL), look(Reach.WINDOW, 100), look(Reach.CHUNK, 100), look(Reach.TOP, 25, 4),
)  # fmt: skip
INDEX, ENCODER, COMPRESSED = look(Reach.INDEX, 0, 4), look(Reach.ENCODER), look(Reach.FULL, 0, 128)
LOCAL = look(Reach.ENCODER, 64)
CAUSAL = (FULL, WINDOW, CHUNK, TOP, INDEX, COMPRESSED)


@each_row(
    ("attention", "context", "entries"),
    [
        (FULL, 0, 0), (FULL, 1000, 1000),
        (WINDOW, 40, 40), (WINDOW, 100, 100), (WINDOW, 1000, 100),
        # In the first chunk as far as it goes; of a later one half on average.
        (CHUNK, 40, 40), (CHUNK, 100, 100), (CHUNK, 101, 50), (CHUNK, 1000, 50),
        # 25 entries of 4 tokens each: all there are up to 100 tokens.
        (TOP, 40, 10), (TOP, 100, 25), (TOP, 1000, 25),
        (INDEX, 1000, 250), (COMPRESSED, 1280, 10),
    ],
)  # fmt: skip
def test_a_token_sees(attention: Attention, context: float, entries: float) -> None:
    assert entries_read(attention, context) == entries


@each_row(
    ("attention", "new", "cached", "entries"),
    [
        (FULL, 200, 0, 100), (FULL, 200, 300, 400),
        # (50 x 100 + 100 x 100) / 200
        (WINDOW, 200, 0, 75), (WINDOW, 200, 50, 93.75), (WINDOW, 200, 100, 100), (WINDOW, 80, 0, 40),
        # 100 tokens see 50 on average, the next 100 of their own chunk, too, and the last 50 see 25.
        (CHUNK, 200, 0, 50), (CHUNK, 250, 0, 45), (CHUNK, 50, 200, 25), (CHUNK, 50, 50, 75), (CHUNK, 80, 0, 40),
        (TOP, 200, 0, 75 / 4), (TOP, 200, 400, 25),
        (INDEX, 200, 0, 25), (COMPRESSED, 1280, 1280, 15),
        # All of the text, whatever the position; on both sides no more than its width.
        (ENCODER, 200, 0, 200), (LOCAL, 200, 0, 64), (LOCAL, 40, 0, 40),
    ],
)  # fmt: skip
def test_the_tokens_of_a_prompt_see_on_average(attention: Attention, new: float, cached: float, entries: float) -> None:
    assert mean_entries_read(attention, new, cached) == pytest.approx(entries)


@each_row(
    ("attention", "context", "entries"),
    [
        (FULL, 1000, 1000), (WINDOW, 40, 40), (WINDOW, 1000, 100), (CHUNK, 1000, 100),
        # What may be chosen later has to stay.
        (TOP, 1000, 250), (INDEX, 1000, 250), (COMPRESSED, 1280, 10), (look(Reach.WINDOW, 0), 1000, 1000),
    ],
)  # fmt: skip
def test_a_sequence_keeps(attention: Attention, context: float, entries: float) -> None:
    assert entries_kept(attention, context) == entries


def at(attention: Attention, position: float) -> float:
    """Entries that the token at this very position sees; a chunk's tokens only their own chunk."""
    if attention.reach is Reach.CHUNK:
        return position % attention.limit
    whole = float(attention.limit * attention.stride) if attention.limit else position
    return min(position, whole) / attention.stride


@given(
    st.sampled_from([Reach.FULL, Reach.WINDOW, Reach.CHUNK, Reach.TOP, Reach.INDEX]),
    st.integers(1, 300),
    st.integers(1, 8),
    st.integers(1, 1500),
    st.integers(0, 1500),
)
def test_the_mean_is_that_over_every_position(reach: Reach, limit: int, stride: int, new: int, cached: int) -> None:
    """In the middle of each token's step, where a straight line has its mean."""
    limited = reach in (Reach.WINDOW, Reach.CHUNK, Reach.TOP)
    attention = look(reach, limit if limited else 0, 1 if reach is Reach.CHUNK else stride)
    mean = sum(at(attention, cached + step + 0.5) for step in range(new)) / new
    assert mean_entries_read(attention, new, cached) == pytest.approx(mean, rel=1e-9)


@given(st.sampled_from(CAUSAL), st.floats(1, 1e6), st.floats(1, 1e6), st.floats(0, 1e6))
def test_a_prompt_in_two_parts_sees_what_it_sees_at_once(
    attention: Attention, first: float, second: float, cached: float
) -> None:
    parts = first * mean_entries_read(attention, first, cached) + second * mean_entries_read(
        attention, second, cached + first
    )
    assert parts == pytest.approx((first + second) * mean_entries_read(attention, first + second, cached), rel=1e-6)


@given(st.sampled_from((*CAUSAL, ENCODER, LOCAL)), st.floats(0, 1e7), st.floats(0, 1e7))
def test_nobody_sees_more_than_there_is(attention: Attention, new: float, cached: float) -> None:
    assert 0.0 <= mean_entries_read(attention, new, cached) <= (new + cached) * (1 + 1e-9)
    assert entries_read(attention, new) <= new
    assert entries_kept(attention, new) <= new
