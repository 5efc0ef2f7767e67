"""inference-perf: `stage_N_lifecycle_metrics.json`, a file per stage of the load. Latencies in seconds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from gpumon.sizing.imports.files import Document, Record
from gpumon.sizing.imports.runs import BenchmarkRun, LeftOut, check_completed

TOOL: Final = "inference-perf"
_AGREEMENT: Final = 0.15
"""Share by which the two ways to the time per output token may differ."""
_NOT_STREAMED: Final = "not streamed: the file has no TTFT and no time per token"
# Sections and a key of the `config.yaml`: a YAML reader would be a dependency for these three lines.
_LOAD: Final = re.compile(rb"^load:[ \t]*\r?$", re.MULTILINE)
_SERVER: Final = re.compile(rb"^server:[ \t]*\r?\n((?:[ \t]+\S.*(?:\n|$))+)", re.MULTILINE)
_MODEL: Final = re.compile(rb"^[ \t]+model_name:[ \t]*[\"']?([^\s\"'#]+)", re.MULTILINE)


class _TokenTime(NamedTuple):
    """Time per output token after the first."""

    mean_s: float | None
    p95_s: float | None
    notes: tuple[str, ...] = ()
    """Notes on where they are from."""


def is_report(document: Document) -> bool:
    """Whether this is a report on requests: of one stage, of all, or of the server's own metrics."""
    return isinstance(document.fields.get("load_summary"), Mapping) and "successes" in document.fields


def is_inference_request(document: Document) -> bool:
    """Whether this is one request of `per_request_lifecycle_metrics.json`."""
    return all(name in document.fields for name in ("start_time", "end_time", "request", "info"))


def is_sessions(document: Document) -> bool:
    """Whether this is a report on sessions."""
    return "num_sessions" in document.fields and "num_sessions_succeeded" in document.fields


def is_config(data: bytes) -> bool:
    """Whether this is the `config.yaml` of a run."""
    return _LOAD.search(data) is not None and _SERVER.search(data) is not None


def model_of(config: bytes) -> str:
    """The model that a run's `config.yaml` names; empty where it names none."""
    server = _SERVER.search(config)
    if server is None:
        return ""
    model = _MODEL.search(server[1])
    if model is None:
        return ""
    return model[1].decode("utf-8", "replace")


def read_stage(record: Record) -> BenchmarkRun:
    """The run of one stage. Raises LeftOut for a report that is no operating point."""
    load = record.part("load_summary")
    successes = record.part("successes")
    _check_is_stage(record, load, successes)
    done = successes.number("count")
    check_completed(record.place, done, record.part("failures").number("count"))
    latency = successes.part("latency")
    e2e_s = latency.part("request_latency").number("mean")
    ttft_s = latency.part("time_to_first_token").number("mean")
    answer = _mean(successes, "output_len", "output_tokens")
    token_time = _time_per_token(latency, e2e_s, ttft_s, answer)
    throughput = successes.part("throughput")
    offered = load.number("concurrency", least=1.0)
    return BenchmarkRun(
        place=record.place,
        tool=TOOL,
        offered=offered,
        open_loop=offered is None,
        sent_per_s=load.number("requested_rate") if offered is None else None,
        completed=successes.number("count"),
        prompt_tokens=_mean(successes, "prompt_len", "prompt_tokens"),
        answer_tokens=answer,
        prefix_hit_ratio=_cached_share(successes.part("prompt_tokens")),
        itl_s=token_time.mean_s,
        tpot_p95_s=token_time.p95_s,
        ttft_s=ttft_s,
        ttft_p95_s=latency.part("time_to_first_token").number("p95"),
        e2e_s=e2e_s,
        e2e_p95_s=latency.part("request_latency").number("p95"),
        tokens_per_s=throughput.required_number("output_tokens_per_sec"),
        requests_per_s=throughput.number("requests_per_sec"),
        notes=token_time.notes,
    )


def _check_is_stage(record: Record, load: Record, successes: Record) -> None:
    """Raises LeftOut for the server's own metrics, all stages together, and the requests of one adapter."""
    if not successes.part("latency").fields:
        raise LeftOut(record.place, "", "the server's own figures of a stage: those of the client count")
    if "requested_rate" not in load and "concurrency" not in load:
        raise LeftOut(record.place, "", "all stages together, which is no load: import the stage_N files")
    if record.place.name.startswith("adapter_"):
        raise LeftOut(record.place, "", "requests of one LoRA adapter, which are not the whole load")


def _mean(successes: Record, *names: str) -> float | None:
    """The mean of the first of these distributions that is there; None if none is."""
    for name in names:
        mean = successes.part(name).number("mean")
        if mean is not None:
            return mean
    return None


def _cached_share(prompts: Record) -> float | None:
    """Share of the prompt tokens that the server took from its cache.

    None where it is not known, and for 0: the file has 0, too, where the server does not say.
    """
    total = prompts.number("total")
    cached = prompts.number("cached")
    if cached and total and cached <= total:
        return cached / total
    return None


def _time_per_token(latency: Record, e2e_s: float | None, ttft_s: float | None, answer: float | None) -> _TokenTime:
    """The time per output token after the first, as reported or as it follows from other figures.

    Versions of 2025 count two tokens for one in `time_per_output_token`. So it is compared with the time that follows
    from latency, TTFT and length of the answer, which is taken where they differ.
    """
    per_token = latency.part("time_per_output_token")
    reported_s = per_token.number("mean")
    p95_s = per_token.number("p95")
    if ttft_s is None:
        return _TokenTime(reported_s, p95_s, (_NOT_STREAMED,))
    itl_s = _derived_itl_s(e2e_s, ttft_s, answer)
    if itl_s is None or reported_s is None or reported_s <= 0.0:
        return _TokenTime(reported_s, p95_s)
    if abs(reported_s - itl_s) <= _AGREEMENT * itl_s:
        return _TokenTime(reported_s, p95_s)
    note = (
        f"not taken: time_per_output_token, which is {reported_s / itl_s:.1g} of "
        f"(request latency - TTFT) / (answer - 1); that is taken"
    )
    if p95_s is not None:
        p95_s = p95_s * itl_s / reported_s
    return _TokenTime(itl_s, p95_s, (note,))


def _derived_itl_s(e2e_s: float | None, ttft_s: float, answer: float | None) -> float | None:
    """Mean time per token after the first, by latency, TTFT and length of the answer; None where these are unknown."""
    if e2e_s is None or answer is None or answer <= 1.0:
        return None
    itl_s = (e2e_s - ttft_s) / (answer - 1.0)
    if itl_s <= 0.0:
        return None
    return itl_s
