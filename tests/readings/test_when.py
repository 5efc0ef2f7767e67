"""Times as users write them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from gpumon.readings.when import OutsideError, moment_of
from tests.each_row import each_row

BERLIN = timezone(timedelta(hours=1))
FIRST = datetime(2026, 11, 21, 14, 0, 20, tzinfo=BERLIN)
LAST = datetime(2026, 11, 22, 15, 30, 0, tzinfo=BERLIN)
SPAN = (FIRST.timestamp(), LAST.timestamp())


@each_row(
    ("text", "at"),
    [
        ("03:10", datetime(2026, 11, 22, 3, 10, tzinfo=BERLIN)),
        ("3:10", datetime(2026, 11, 22, 3, 10, tzinfo=BERLIN)),
        ("03:10:30", datetime(2026, 11, 22, 3, 10, 30, tzinfo=BERLIN)),
        ("15:00", datetime(2026, 11, 22, 15, 0, tzinfo=BERLIN)),
        ("15:31", datetime(2026, 11, 21, 15, 31, tzinfo=BERLIN)),
        ("2026-11-21T15:00", datetime(2026, 11, 21, 15, 0, tzinfo=BERLIN)),
        ("2026-11-21T14:00", FIRST),
        ("2026-11-22T03:10:05", datetime(2026, 11, 22, 3, 10, 5, tzinfo=BERLIN)),
        ("2026-11-22T03:10Z", datetime(2026, 11, 22, 4, 10, tzinfo=BERLIN)),
        ("2026-11-22T03:10:00+05:00", datetime(2026, 11, 21, 23, 10, tzinfo=BERLIN)),
        ("-10m", LAST - timedelta(minutes=10)),
        ("-90s", LAST - timedelta(seconds=90)),
        ("-1.5h", LAST - timedelta(minutes=90)),
        ("-1d", LAST - timedelta(days=1)),
    ],
)
def test_a_time_is_found_in_the_recording(text: str, at: datetime):
    assert moment_of(text, SPAN, BERLIN) == at.timestamp()


@each_row("text", ["", "now", "25:00", "03:60", "03", "2026-13-01T00:00", "-10", "-10x", "10m", "03:10Z"])
def test_what_is_no_time_is_refused_with_what_is(text: str):
    with pytest.raises(ValueError, match=r"is no time.*03:10"):
        moment_of(text, SPAN, BERLIN)


@each_row("text", ["2026-11-20T03:10", "2026-11-22T15:31", "-2d", "-99999d"])
def test_what_is_outside_is_refused_with_the_span(text: str):
    with pytest.raises(OutsideError, match="goes from 2026-11-21 14:00:20 to 2026-11-22 15:30:00"):
        moment_of(text, SPAN, BERLIN)


def test_a_time_that_a_short_recording_lacks_is_outside():
    with pytest.raises(OutsideError):
        moment_of("03:10", (SPAN[1] - 60.0, SPAN[1]), BERLIN)


def test_times_without_a_zone_are_local_ones(monkeypatch: pytest.MonkeyPatch):
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        at = moment_of("2026-11-22T03:10", SPAN)
        assert datetime.fromtimestamp(at, timezone.utc) == datetime(2026, 11, 21, 18, 10, tzinfo=timezone.utc)
        assert moment_of("03:10", SPAN) == at
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_minute_in_which_a_recording_begins_is_its_begin():
    """A recording from 14:00:20 to 14:30: `14:00` is its first frame, and so is `14:00:20`; `13:59` is before it."""
    span = (FIRST.timestamp(), FIRST.timestamp() + 1800.0)
    assert moment_of("14:00", span, BERLIN) == moment_of("14:00:20", span, BERLIN) == span[0]
    for outside in ("13:59", "14:00:19", "14:31"):
        with pytest.raises(OutsideError):
            moment_of(outside, span, BERLIN)
