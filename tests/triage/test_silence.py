"""Silences: what is covered, by code, name and hours, and how a mistake is told."""

from __future__ import annotations

import re

import pytest

from gpumon.triage.silence import parse_silence
from tests.each_row import each_row

NOON = 12 * 60
NIGHT = 23 * 60


@each_row(
    ("text", "code", "scope", "minute", "covered"),
    [
        ("*", "hung", "vllm:8000", NOON, True),
        ("hung", "hung", "vllm:8000", NOON, True),
        ("hung", "down", "vllm:8000", NOON, False),
        ("alert", "alert", "gpu 3", NOON, True),
        ("*[gpu 3]", "throttled", "gpu 3", NOON, True),
        ("*[gpu 3]", "throttled", "gpu 4", NOON, False),
        ("low_efficiency[vllm*] 22:00-06:00", "low_efficiency", "vllm:8000", NIGHT, True),
        ("low_efficiency[vllm*] 22:00-06:00", "low_efficiency", "vllm:8000", 0, True),
        ("low_efficiency[vllm*] 22:00-06:00", "low_efficiency", "vllm:8000", 6 * 60, False),
        ("low_efficiency[vllm*] 22:00-06:00", "low_efficiency", "sglang:30000", NIGHT, False),
        ("* 8:00 - 18:00", "hung", "x", NOON, True),
        ("* 8:00-18:00", "hung", "x", NIGHT, False),
        ("* 18:00-24:00", "hung", "x", NIGHT, True),
        ("* 18:00-24:00", "hung", "x", 0, False),
    ],
)
def test_a_silence_covers(text: str, code: str, scope: str, minute: int, covered: bool) -> None:
    assert parse_silence(text).covers(code, scope, minute) is covered


@each_row(
    ("text", "said"),
    [
        ("", "must be CODE"),
        ("kv_full", "has a code that no verdict has; known: *, alert, asleep"),
        ("hung 22:00", "must be CODE"),
        ("hung 22:00-22:00", "begin and end at the same minute"),
        ("hung 22:70-23:00", "00:00 to 24:00"),
        ("hung 22:00-25:00", "00:00 to 24:00"),
    ],
)
def test_a_mistake_is_told(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_silence(text)
