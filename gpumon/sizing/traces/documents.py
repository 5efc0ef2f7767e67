"""Traces that are JSON: lines of Mooncake, Alibaba, vLLM and GuideLLM, and the documents that load tests write."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

from gpumon.sizing.imports.files import FilePlace, refusal
from gpumon.sizing.traces.fields import Names, has_lengths, names_of
from gpumon.sizing.traces.trace import Trace, TracedRequest, TraceReader, seconds_of, tokens_of

BYTES_PER_TOKEN: Final = 4.0
"""Bytes of UTF-8 that a token is taken for where a file has texts and no lengths: English takes 4 to 4.5 of them with
the vocabularies of Llama 3 and Qwen, source code about 3.5."""
_PEEKED: Final = 1_000
"""Lines by which the unit of times is found out."""
_UNTIMED: Final = float("nan")
_KNOWN: Final = (
    "lines with timestamp, input_length, output_length and hash_ids (Mooncake), ShareGPT's list of conversations, "
    "vllm bench serve --save-detailed, guidellm's benchmarks.json, or a CSV with time, prompt and answer"
)


def is_lines(first: str) -> bool:
    """Whether the first line of a file is a request of JSON lines, and not the begin of a document."""
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and has_lengths(value)


def read_lines(lines: Iterator[str], place: FilePlace, reader: TraceReader, unit_s: float | None) -> Trace:
    """The trace of JSON lines; `unit_s`: seconds of a unit of its times, None where the file tells.

    Raises ImportRefused for a line that is no request.
    """
    rows = _objects(lines, place)
    return _read_rows(rows, place, reader, unit_s)


def read_document(text: str, place: FilePlace, reader: TraceReader, part: int | None, unit_s: float | None) -> Trace:
    """The trace of one JSON document, or of several behind each other; `part` chooses one of these.

    Raises ImportRefused for what is none.
    """
    values = list(_values(text, place))
    if len(values) == 1 and isinstance(values[0], list):
        return _read_list(values[0], place, reader, unit_s)
    runs: list[tuple[str, list[Mapping[str, Any]]]] = []
    for value in values:
        if isinstance(value, Mapping):
            runs += _runs(value)
    if not runs:
        raise refusal(place, "", "is no trace of requests that gpumon knows", _KNOWN)
    if part is None and len(runs) > 1:
        raise refusal(place, "", f"holds {len(runs)} runs", f"--trace-part from 1 to {len(runs)}")
    if part is not None and part > len(runs):
        raise refusal(place, "", f"has no run {part}", f"--trace-part from 1 to {len(runs)}")
    kind, rows = runs[(part or 1) - 1]
    numbered = ((place.inside(f"request {number}"), row) for number, row in enumerate(rows, start=1))
    return _read_rows(numbered, place, reader, unit_s or 1.0)._replace(kind=kind)


def _read_list(entries: Sequence[Any], place: FilePlace, reader: TraceReader, unit_s: float | None) -> Trace:
    """The trace of a JSON list: ShareGPT's conversations, or requests. Raises ImportRefused."""
    first = entries[0] if entries else None
    if isinstance(first, Mapping) and ("conversations" in first or "conversation" in first):
        for request in _conversations(entries):
            reader.take(request)
        trace = reader.trace("ShareGPT")
        note = f"lengths of ShareGPT are its texts at {BYTES_PER_TOKEN:g} bytes a token: it has no tokens"
        return trace._replace(notes=(*trace.notes, note))
    if isinstance(first, Mapping) and has_lengths(first):
        numbered = ((place.inside(f"[{number}]"), entry) for number, entry in enumerate(entries))
        return _read_rows(numbered, place, reader, unit_s)
    raise refusal(place, "", "is no trace of requests that gpumon knows", _KNOWN)


def _read_rows(
    rows: Iterable[tuple[FilePlace, Any]], place: FilePlace, reader: TraceReader, unit_s: float | None
) -> Trace:
    """The trace of requests that are JSON objects. Raises ImportRefused."""
    rows = iter(rows)
    peeked = list(islice(rows, _PEEKED))
    if not peeked or not isinstance(peeked[0][1], Mapping):
        raise refusal(place, "", "has no request")
    names = names_of(peeked[0][1], peeked[0][0])
    notes: tuple[str, ...] = ()
    unit_s = unit_s or names.time_unit_s
    if not unit_s:
        unit_s, notes = _unit_of([row for _, row in peeked], names)
    hash_numbers: dict[Any, int] = {}
    for row_place, row in chain(peeked, rows):
        if not isinstance(row, Mapping):
            raise refusal(row_place, "", "is no JSON object", "an object")
        reader.take(_request(row, names, unit_s, hash_numbers, row_place))
        if reader.is_past_cut:
            break
    kind = "Mooncake's trace" if names.hashes else "a list of requests"
    trace = reader.trace(kind)
    return trace._replace(notes=(*trace.notes, *notes))


def _request(
    row: Mapping[str, Any], names: Names, unit_s: float, hash_numbers: dict[Any, int], place: FilePlace
) -> TracedRequest:
    """The request of one JSON object. Raises ImportRefused."""
    arrival_s = _UNTIMED
    if names.time:
        if names.time not in row:
            raise refusal(place, names.time, "is missing")
        arrival_s = seconds_of(row[names.time], unit_s, place, names.time)
    hashes = row.get(names.hashes, ())
    if not isinstance(hashes, list | tuple) or not all(isinstance(name, int | str) for name in hashes):
        raise refusal(place, names.hashes, f"is {str(hashes)[:40]!a}", "a list of numbers or texts")
    return TracedRequest(
        arrival_s,
        tokens_of(row.get(names.prompt), place, names.prompt),
        tokens_of(row.get(names.answer), place, names.answer),
        tuple(hash_numbers.setdefault(name, len(hash_numbers)) for name in hashes),
    )


def _unit_of(rows: Sequence[Any], names: Names) -> tuple[float, tuple[str, ...]]:
    """Seconds of the unit of times: milliseconds if all are whole numbers (Mooncake, SGLang, aiperf), else seconds
    (Alibaba, GuideLLM); with a note that says so."""
    if not names.time:
        return 1.0, ()
    times = [row.get(names.time) for row in rows if isinstance(row, Mapping)]
    if any(isinstance(time, str) for time in times):
        return 1.0, ()
    if all(_is_whole(time) for time in times):
        return 1e-3, (f"{names.time} is read as milliseconds, as all are whole numbers (--trace-unit s otherwise)",)
    return 1.0, (f"{names.time} is read as seconds, as it has fractions (--trace-unit ms otherwise)",)


def _is_whole(time: object) -> bool:
    """Whether a time is a whole number."""
    return isinstance(time, int) or (isinstance(time, float) and time.is_integer())


def _runs(document: Mapping[str, Any]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """The runs of a document that holds their requests one by one, with its format."""
    lengths = (document.get("input_lens"), document.get("output_lens"))
    if all(isinstance(values, list) for values in lengths):
        yield "vllm bench serve", _requests_of_columns(document)
    benchmarks = document.get("benchmarks")
    for benchmark in benchmarks if isinstance(benchmarks, list) else ():
        requests = benchmark.get("requests") if isinstance(benchmark, Mapping) else None
        done = requests.get("successful") if isinstance(requests, Mapping) else None
        listed = done if isinstance(done, list) else ()
        rows = [row for row in listed if isinstance(row, Mapping) and has_lengths(row)]
        if rows:
            yield "guidellm", rows


def _requests_of_columns(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The requests of vLLM's detailed result, which has a list per figure; a failed one has no tokens."""
    times = document.get("start_times")
    rows: list[Mapping[str, Any]] = []
    for number, (prompt, answer) in enumerate(zip(document["input_lens"], document["output_lens"], strict=False)):
        row = {"input_tokens": prompt, "output_tokens": answer}
        if isinstance(times, list) and number < len(times):
            row = {**row, "time": times[number]}
        rows.append(row)
    return rows


def _conversations(entries: Iterable[Any]) -> Iterator[TracedRequest]:
    """The first question and answer of each conversation, as vLLM's load test takes them."""
    for entry in entries:
        turns = entry.get("conversations", entry.get("conversation")) if isinstance(entry, Mapping) else None
        if not isinstance(turns, list) or len(turns) < 2:
            continue
        texts = [turn.get("value", turn.get("content", "")) for turn in turns[:2] if isinstance(turn, Mapping)]
        if len(texts) == 2 and all(isinstance(text, str) for text in texts):
            yield TracedRequest(_UNTIMED, _tokens_of_text(texts[0]), _tokens_of_text(texts[1]))


def _tokens_of_text(text: str) -> int:
    """Tokens of a text, by its bytes."""
    return round(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN)


def _objects(lines: Iterator[str], place: FilePlace) -> Iterator[tuple[FilePlace, Any]]:
    """The value of each line that is not empty, with its place. Raises ImportRefused."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        line_place = place._replace(line=number)
        try:
            yield line_place, json.loads(line)
        except (ValueError, RecursionError):
            raise refusal(line_place, "", "is no JSON (or is cut off)") from None


def _values(text: str, place: FilePlace) -> Iterator[Any]:
    """JSON values behind each other. Raises ImportRefused."""
    decoder = json.JSONDecoder()
    end = 0
    stripped = text.strip()
    while end < len(stripped):
        try:
            value, end = decoder.raw_decode(stripped, end)
        except (ValueError, RecursionError) as failure:
            line = getattr(failure, "lineno", 0)
            raise refusal(place._replace(line=line), "", "is no JSON (or is cut off)") from None
        yield value
        while end < len(stripped) and stripped[end].isspace():
            end += 1
