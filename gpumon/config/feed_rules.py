"""Rules for a [[feed]]: the quantities by name and kind, and which settings of a feed go together."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from gpumon.config import urls
from gpumon.config.schema import Config, Feed
from gpumon.config.selector import parse_selector
from gpumon.readings import quantities as q


class MetricType(str, Enum):
    """Type of the metric that a quantity is read from."""

    COUNTER = "counters"
    GAUGE = "gauges"
    HISTOGRAM = "histograms"


_COUNTERS: Final = (
    *(q.DECODE_TOKENS, q.PREFILL_COMPUTED, q.PREFILL_CACHED, q.PROMPT_TOKENS, q.STEPS, q.REQUESTS, q.FAILURES),
    *(q.PREEMPTIONS, q.INFERENCES, q.TRAINED_TOKENS, q.SAMPLES),
)
"""Quantities that are read from counters."""
_GAUGES: Final = (
    *(q.RUNNING, q.WAITING, q.KV_USAGE, q.POOL_TOKENS, q.USED_TOKENS, q.MOST_RUNNING, q.DECODE_RATE, q.PREFILL_RATE),
    *(q.TRAINED_RATE, q.SAMPLE_RATE),
)
"""Quantities that are read from gauges."""
_HISTOGRAMS: Final = (q.TTFT, q.ITL, q.E2E, q.QUEUE, q.PROMPT_LENGTH, q.OUTPUT_LENGTH)
"""Quantities that are read from histograms."""
_QUANTITIES_BY_TYPE: Final = {
    MetricType.COUNTER: _COUNTERS,
    MetricType.GAUGE: _GAUGES,
    MetricType.HISTOGRAM: _HISTOGRAMS,
}
"""Type of a metric -> quantities that may be read from it."""
FEED_QUANTITIES: Final[Mapping[str, MetricType]] = {
    **dict.fromkeys(_COUNTERS, MetricType.COUNTER),
    **dict.fromkeys(_GAUGES, MetricType.GAUGE),
    **dict.fromkeys(_HISTOGRAMS, MetricType.HISTOGRAM),
}
"""Quantity -> type of the metric that it is read from."""
TRAINING: Final = frozenset({q.TRAINED_TOKENS, q.TRAINED_RATE, q.SAMPLES, q.SAMPLE_RATE})
"""Quantities of a training run; all others are of serving."""
TOKEN_COUNTERS: Final = frozenset({q.DECODE_TOKENS, q.PREFILL_COMPUTED, q.PREFILL_CACHED, q.PROMPT_TOKENS})
"""Counters for which it matters whether they move before a request ends."""
HIGHEST: Final = frozenset({q.KV_USAGE})
"""Gauges that are the highest of several series; other gauges, and counters, are the sum of the series."""
ALLOWED: Final = "; ".join(f"{kind.value}: {', '.join(names)}" for kind, names in _QUANTITIES_BY_TYPE.items())
"""The quantities by type, as errors list them."""
_KEY_PATH: Final = re.compile(r"[^.{}\s\"]+(\.[^.{}\s\"]+)*")
"""Key of a line of JSON: `tokens`, or `a.b` of a table in it."""


def quantity_problem(name: str) -> str:
    """Fault of a quantity's name; empty for a known one."""
    if name in FEED_QUANTITIES:
        return ""
    near = difflib.get_close_matches(name.lower(), FEED_QUANTITIES, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"is no quantity{hint} ({ALLOWED})"


def source_problem(_: str, value: str) -> str:
    """Fault of the text that a quantity is read from: the key of a file's JSON, or a metric; empty: none.

    `_`: the quantity, which any source may stand for.
    """
    if _KEY_PATH.fullmatch(value):
        return ""
    try:
        parse_selector(value)
    except ValueError as wrong:
        return str(wrong)
    return ""


def _is_selector(text: str) -> bool:
    """Whether a text names a metric, with or without labels."""
    try:
        parse_selector(text)
    except ValueError:
        return False
    return True


def feed_server(feed: Feed) -> str:
    """The server or the file of a feed, as a text that two feeds of the same one share."""
    if feed.url:
        return urls.server_of_url(feed.url)
    return f"file:{feed.file}"


def shared_sources(config: Config) -> frozenset[str]:
    """The servers and files that more than one [[feed]] or [[endpoint]] reads."""
    places = [*map(feed_server, config.feed), *(urls.server_of_url(endpoint.url) for endpoint in config.endpoint)]
    shared = {place for place in places if places.count(place) > 1}
    return frozenset(shared)


def faults_of_feed(feed: Feed) -> Iterator[tuple[str, str]]:
    """Faults of settings of one feed together: the key to blame, and the text."""
    if bool(feed.url) == bool(feed.file):
        yield "url", "give one: url or file"
    if not feed.quantities:
        example = "as in [feed.quantities] decode_tokens = 'total'"
        yield "quantities", f"needs at least one quantity, {example} ({ALLOWED})"
    if feed.url:
        yield from _url_faults(feed)
    if feed.file:
        yield from _file_faults(feed)
    if feed.phase == "training":
        yield from _training_faults(feed)
    else:
        yield from _serving_faults(feed)
    if feed.params_b is not None and feed.flops_per_token is not None:
        yield "flops_per_token", "says what params_b says: give one"
    if set(feed.at_end) - (TOKEN_COUNTERS & set(feed.quantities)):
        yield "at_end", f"may name those of {', '.join(sorted(TOKEN_COUNTERS))} that stand in quantities"


def _url_faults(feed: Feed) -> Iterator[tuple[str, str]]:
    """Faults of a feed that reads a page of metrics."""
    if not all(_is_selector(text) for text in feed.quantities.values()):
        yield "quantities", 'of a url are read from metrics, as in my_total{job="x"}; keys such as a.b are of a file'
    if feed.time and not feed.file:
        yield "time", "is a key of a file: a url is dated by its answer"


def _file_faults(feed: Feed) -> Iterator[tuple[str, str]]:
    """Faults of a feed that reads lines of a file."""
    if not all(_KEY_PATH.fullmatch(text) for text in feed.quantities.values()):
        yield "quantities", "of a file are read from keys, such as tokens or a.b: only a url has labels"
    if any(FEED_QUANTITIES[name] is MetricType.HISTOGRAM for name in feed.quantities):
        yield "quantities", "of a file are single numbers: a histogram needs a url"
    if feed.api_key_env or feed.api_key_file or feed.tls_ca or not feed.tls_verify:
        yield "file", "needs no key and no TLS: leave api_key_env, api_key_file, tls_ca and tls_verify out"


def _training_faults(feed: Feed) -> Iterator[tuple[str, str]]:
    """Faults of a feed of a training run."""
    names = ", ".join(sorted(TRAINING))
    if not TRAINING & set(feed.quantities):
        yield "quantities", f"of a training run need one of {names}"
    if set(feed.quantities) - TRAINING:
        yield "quantities", f"of a training run are {names}: serving is a feed of its own"


def _serving_faults(feed: Feed) -> Iterator[tuple[str, str]]:
    """Faults of a feed of a server."""
    if TRAINING & set(feed.quantities):
        yield "phase", f'must be "training" for {", ".join(sorted(TRAINING))}'
    if feed.params_b is not None or feed.flops_per_token is not None:
        text = "for params_b and flops_per_token: serving takes them from model or [[model]]"
        yield "phase", f'must be "training" {text}'


def faults_of_sources(config: Config) -> Iterator[tuple[str, str]]:
    """Faults of feeds and endpoints together: the key to blame, and the text."""
    shared = shared_sources(config)
    if any(not feed.name and feed_server(feed) in shared for feed in config.feed):
        yield "feed", "of a server that another [[feed]] or [[endpoint]] reads too needs a name"
