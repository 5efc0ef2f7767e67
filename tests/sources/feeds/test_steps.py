"""A line of a training loop: keys inside of keys, numbers that are none, and moments in every spelling."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from gpumon.config.schema import Feed
from gpumon.sources.feeds.file import moment, step

FEED = Feed(
    file="/x",
    phase="training",
    quantities={"trained_tokens": "metrics.tokens", "samples_per_s": "rate"},
    time="at",
)
AT_S = datetime(2026, 3, 1, 12, 0, 0, tzinfo=timezone.utc).timestamp()


def test_keys_inside_of_keys():
    found = step(b'{"metrics": {"tokens": 7}, "rate": 2.5, "at": 12}', FEED)
    assert found is not None
    assert found == ({"trained_tokens": 7.0, "samples_per_s": 2.5}, 12.0)


def test_a_loss_of_nan_does_not_cost_the_line():
    found = step(b'{"loss": NaN, "grad": -Infinity, "metrics": {"tokens": 7}}', FEED)
    assert found is not None
    assert found.values == {"trained_tokens": 7.0}


@pytest.mark.parametrize("value", ["NaN", "-1", "Infinity", '"7"', "true", "null", "[7]", "{}", "1e400", "9" * 400])
def test_what_is_no_count_is_left_out_and_no_zero(value: str):
    line = f'{{"metrics": {{"tokens": {value}}}, "rate": 1}}'.encode()
    found = step(line, FEED)
    assert found is not None
    assert found.values == {"samples_per_s": 1.0}


@pytest.mark.parametrize("line", [b"", b"[1]", b"7", b"Traceback", b'{"metrics": {"tokens": 7}', b"\xff\xfe", b"{}"])
def test_a_line_that_is_no_step(line: bytes):
    assert step(line, FEED) is None


@pytest.mark.parametrize(
    ("value", "unix_s"),
    [
        (AT_S, AT_S),
        (AT_S * 1000, AT_S),
        (int(AT_S), AT_S),
        (int(AT_S) * 10**6, AT_S),
        (int(AT_S) * 10**9, AT_S),
        (1e30, None),
        ("2026-03-01T12:00:00Z", AT_S),
        ("2026-03-01T12:00:00+00:00", AT_S),
        ("2026-03-01 14:00:00+02:00", AT_S),
        ("2026-03-01T12:00:00.500000+00:00", AT_S + 0.5),
        ("2026-03-01T12:00:00", datetime(2026, 3, 1, 12).timestamp()),  # noqa: DTZ001 - local time is meant
        ("noon", None),
        ("", None),
        (None, None),
        (True, None),
        ([], None),
        (-5, None),
        (float("nan"), None),
    ],
)
def test_a_moment(value: object, unix_s: float | None):
    found = moment(value)
    assert found == (None if unix_s is None else pytest.approx(unix_s))
