"""Acknowledged verdicts as text and as JSON: what `gpumon ack` prints."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Final

import msgspec

from gpumon.outputs.tables import ColumnSpec, columns_of, table
from gpumon.outputs.units import NONE, as_line, as_word
from gpumon.readings.format import rfc3339
from gpumon.readings.verdict import Verdict
from gpumon.triage.acknowledgement import Acknowledgement
from gpumon.triage.render import LEVEL_WORDS, LIMIT_NAMES

_SCHEMA: Final = 1
"""Version of `gpumon ack --json`."""
_MOST_NAMED: Final = 8
"""Verdicts that an error names."""


def list_acknowledged(acknowledged: Sequence[Acknowledgement], width: int) -> str:
    """A line per acknowledged verdict."""
    if not acknowledged:
        return "nothing is acknowledged: gpumon ack ID --for 4h --reason TEXT (ids: gpumon snapshot --json)\n"
    return "\n".join(table(columns_of(acknowledged, _COLUMNS), width)) + "\n"


def encode(acknowledged: Sequence[Acknowledgement]) -> bytes:
    """The same as one JSON object."""
    objects = [
        {
            "id": record.id,
            "scope": record.scope,
            "code": record.code.value,
            "cause": record.cause,
            "level": record.level.value,
            "who": record.who,
            "reason": record.reason,
            "since": rfc3339(record.since_s),
            "until": rfc3339(record.until_s),
            "host": record.host,
        }
        for record in acknowledged
    ]
    return msgspec.json.encode({"schema": _SCHEMA, "acknowledged": objects}) + b"\n"


def standing_text(verdicts: Sequence[Verdict]) -> str:
    """The verdicts that can be acknowledged, by their ids."""
    if not verdicts:
        return "nothing asks for anything"
    names = [f"{as_line(verdict.id)} ({as_line(verdict.scope)} {verdict.code.value})" for verdict in verdicts]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _until_text(record: Acknowledgement) -> str:
    """Local time of its end."""
    return datetime.fromtimestamp(record.until_s, timezone.utc).astimezone().strftime("%Y-%m-%d %H:%M")


_COLUMNS: Final[tuple[ColumnSpec[Acknowledgement], ...]] = (
    ColumnSpec("VERDICT", lambda record: as_line(f"{record.scope} {LIMIT_NAMES[record.code]}")),
    ColumnSpec("LEVEL", lambda record: LEVEL_WORDS[record.level], keep=4),
    ColumnSpec("WHO", lambda record: as_word(record.who) or NONE),
    ColumnSpec("UNTIL", _until_text),
    ColumnSpec("REASON", lambda record: as_line(record.reason) or NONE, keep=3),
    ColumnSpec("ID", lambda record: as_word(record.listed_id), keep=5),
)
