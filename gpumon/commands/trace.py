"""Options of `gpumon simulate --trace`: the file, its cut, its pace, and the workload that it makes."""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import math
import os
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from gpumon.commands.options import UsageError, number_option, seconds_up_to
from gpumon.commands.progress import ProgressBar

if TYPE_CHECKING:
    from gpumon.sizing.scenario import Workload
    from gpumon.sizing.simulate.trace_traffic import TraceTraffic
    from gpumon.sizing.traces.trace import Trace

_UNITS_S: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Value of `--trace-unit` -> its seconds."""
_GZIP_MAGIC: Final = b"\x1f\x8b"
_LONGEST_LINE: Final = 16_000_000
"""Characters after which a line goes on as another one: a file without line feeds fills no memory."""
_OPTIONS: Final = ("trace_from", "trace_to", "trace_scale", "rate_factor", "trace_part", "trace_unit")
"""Options that are for a trace alone, as the parser stores them."""
_TYPED_TRAFFIC: Final = ("concurrency", "prompt", "answer", "prompt_variation", "answer_variation", "prefix_groups")
"""Options of what a trace has itself."""


def add_trace_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a trace."""
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="play the requests of a trace: Azure's or BurstGPT's CSV, Mooncake's JSONL, ShareGPT, a detailed result "
        "of vllm bench serve or guidellm, a CSV of time, prompt, answer (docs/simulate.md)",
    )
    for option, meaning in (
        ("--trace-from", "leave out what the trace has before it, such as 10m after its first request"),
        ("--trace-to", "leave out what the trace has after it, such as 70m after its first request"),
    ):
        parser.add_argument(option, metavar="S", type=_trace_time, help=meaning)
    for option, metavar, meaning in (
        ("--trace-scale", "F", "stretch the times of the trace: 2 is half the rate (default 1)"),
        ("--rate-factor", "F", "so many times the requests in the same time (default 1)"),
    ):
        parser.add_argument(option, metavar=metavar, type=number_option(1e-3, 1e3), help=meaning)
    parser.add_argument(
        "--trace-part", metavar="N", type=number_option(1, 1e6, int), help="run of a file that holds several, from 1"
    )
    parser.add_argument(
        "--trace-unit", metavar="UNIT", choices=tuple(_UNITS_S), help="unit of the times of the trace: s, ms, us, ns"
    )


def check_trace_options(chosen: argparse.Namespace) -> None:
    """Refuse options of a trace without one, and options of what a trace has itself. Raises UsageError."""
    if not chosen.trace:
        for name in _OPTIONS:
            if getattr(chosen, name) is not None:
                raise UsageError(f"--{name.replace('_', '-')} is of a --trace FILE")
        return
    if chosen.recording or chosen.scraped:
        raise UsageError("--trace, --from-recording and --from-prometheus: one of them at a time")
    for name in _TYPED_TRAFFIC:
        if getattr(chosen, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')}: the requests of the trace are played")
    if chosen.trace_to is not None and chosen.trace_to <= (chosen.trace_from or 0.0):
        raise UsageError("--trace-to must be after --trace-from")


def traffic_of_options(chosen: argparse.Namespace, bar: ProgressBar) -> TraceTraffic:
    """The traffic of `--trace`. Raises UsageError for a rate where it has times, or none where it has not; ConfigError
    for a file that cannot be read or is no trace."""
    from gpumon.config.errors import ConfigError
    from gpumon.config.load import file_name
    from gpumon.sizing.simulate.conditions import DEFAULT_SECONDS
    from gpumon.sizing.simulate.trace_traffic import traffic_at_rate, traffic_of_trace

    trace = _read(chosen, bar)
    name = file_name(chosen.trace)
    seed = 1 if chosen.seed is None else chosen.seed
    _check_pace(chosen, trace, name)
    try:
        if trace.timed:
            scale = chosen.trace_scale or 1.0
            traffic = traffic_of_trace(trace, name, time_scale=scale, rate_factor=chosen.rate_factor or 1.0, seed=seed)
        else:
            seconds = chosen.duration or DEFAULT_SECONDS
            traffic = traffic_at_rate(
                trace, name, rate=chosen.rate, seconds=seconds, burstiness=chosen.burstiness or 1.0, seed=seed
            )
    except ValueError as why:
        raise ConfigError(str(why)) from None
    if chosen.hits is not None:
        return traffic._replace(hit_ratio=chosen.hits)
    if traffic.has_prefixes:
        unlimited = (
            f"one prefix cache without limit would have {traffic.most_hits:.0%} of the prompt tokens of the trace"
        )
        return traffic._replace(notes=(*traffic.notes, f"the formulas count no prefix hits; {unlimited}"))
    return traffic


def _check_pace(chosen: argparse.Namespace, trace: Trace, name: str) -> None:
    """Refuse a rate where a trace has times, and none where it has not. Raises UsageError."""
    if not trace.timed and chosen.rate is None:
        raise UsageError(f"{name} has no times: give --rate R, requests per second")
    if trace.timed and chosen.rate is not None:
        raise UsageError("--rate: the trace has its own times; --rate-factor and --trace-scale change its rate")
    if trace.timed and chosen.burstiness is not None:
        raise UsageError("--burstiness: the trace has its own times")


def workload_of_trace(workload: Workload, traffic: TraceTraffic) -> Workload:
    """The workload with the rate and the mean lengths of a trace, for the plan by formula."""
    from msgspec.structs import replace

    return replace(
        workload,
        target=traffic.peak_rate,
        target_kind="requests_per_s",
        prompt_tokens=traffic.mean_prompt,
        answer_tokens=traffic.mean_answer,
        prefix_hit_ratio=traffic.hit_ratio or 0.0,
    )


def _read(chosen: argparse.Namespace, bar: ProgressBar) -> Trace:
    """The trace of the file. Raises ConfigError."""
    from gpumon.config.errors import ConfigError
    from gpumon.config.load import file_name
    from gpumon.sizing.imports.files import ImportRefused
    from gpumon.sizing.traces.files import read_trace
    from gpumon.sizing.traces.trace import Cut

    name = file_name(chosen.trace)
    end_s = math.inf if chosen.trace_to is None else chosen.trace_to
    cut = Cut(chosen.trace_from or 0.0, end_s)
    unit_s = _UNITS_S[chosen.trace_unit] if chosen.trace_unit else None
    try:
        path = Path(chosen.trace)
        with _opened(path) as (lines, size):
            pieces = iter(partial(lines.readline, _LONGEST_LINE), "")
            told_lines = bar.lines(pieces, f"reading {path.name[:40]}", size)
            return read_trace(told_lines, name, cut, part=chosen.trace_part, unit_s=unit_s)
    except ImportRefused as refused:
        raise ConfigError(str(refused)) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: is no text in UTF-8") from None
    except (OSError, EOFError, zlib.error) as failure:
        raise ConfigError(f"{name}: {getattr(failure, 'strerror', None) or failure}") from None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[str], int]]:
    """The lines of a file or a pipe, and its bytes; 0 of a pipe, and of one that is packed by gzip. Raises OSError."""
    from gpumon.config.load import wait_for_writer
    from gpumon.config.opener import open_checked

    with open_checked(path, wait_for_writer) as file:
        if file.peek(2)[:2] == _GZIP_MAGIC:
            with gzip.open(file, "rt", encoding="utf-8-sig", newline="") as packed:
                yield packed, 0
        else:
            yield io.TextIOWrapper(file, encoding="utf-8-sig", newline=""), os.fstat(file.fileno()).st_size


def _trace_time(text: str) -> float:
    """A converter for argparse: a text to seconds of a trace."""
    from gpumon.sizing.traces.trace import MOST_TRACE_S

    return seconds_up_to(MOST_TRACE_S, text, "90s, 10m, 2h, 1d")
