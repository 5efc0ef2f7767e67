"""A past for a real Prometheus: pages at made-up times, written into its storage without waiting for the scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.readings.exported import SAMPLE_NAMES
from gpumon.sources.dcgm_page import WANTED
from gpumon.sources.prometheus.queries import ENGINE_NAMES
from tests.fakes.prometheus import promtool

STORED: Final = ENGINE_NAMES | WANTED | SAMPLE_NAMES | {"process_start_time_seconds"}
"""Names that a fleet is read from; all others of a page are left out, for the sake of the test's time."""


class Scraped(NamedTuple):
    """One target over a stretch of time."""

    labels: Mapping[str, str]
    """Labels that the Prometheus adds, `job` and `instance` among them."""
    page: Callable[[float], bytes]
    """The page at a Unix time; empty: it does not answer."""
    begin_s: float
    end_s: float


class Lines(NamedTuple):
    """Series that no page has, such as alerts: labels, and the times at which they are 1."""

    series: str
    times: tuple[float, ...]


def store(folder: Path, targets: Iterable[Scraped], every_s: float, lines: Iterable[Lines] = ()) -> None:
    """Write the past into `folder/data`, where a Prometheus that starts there finds it."""
    text = folder / "past.openmetrics"
    with text.open("w") as stream:
        for target in targets:
            stream.writelines(_samples(target, every_s))
        for line in lines:
            stream.writelines(f"{line.series} 1 {at_s:.3f}\n" for at_s in line.times)
        stream.write("# EOF\n")
    words = ("--quiet", "--max-block-duration=96h", "create-blocks-from", "openmetrics")
    done = promtool("tsdb", words[2], words[3], words[1], words[0], str(text), str(folder / "data"))
    assert done.returncode == 0, done.stdout + done.stderr
    text.unlink()


def _samples(target: Scraped, every_s: float) -> Iterator[str]:
    added = ",".join(f'{name}="{value}"' for name, value in target.labels.items())
    heads: dict[str, str] = {}
    at_s = target.begin_s
    while at_s <= target.end_s:
        page = target.page(at_s)
        yield f"up{{{added}}} {1 if page else 0} {at_s:.3f}\n"
        for line in page.decode().splitlines():
            head, _, value = line.rpartition(" ")
            if head not in heads:
                heads[head] = _with_labels(head, added)
            if heads[head]:
                yield f"{heads[head]} {value} {at_s:.3f}\n"
        at_s += every_s


def _with_labels(head: str, added: str) -> str:
    """A series with its target's labels; empty for one that is not stored."""
    name, brace, rest = head.partition("{")
    if head.startswith("#") or name not in STORED:
        return ""
    if not brace:
        return f"{name}{{{added}}}"
    return f"{name}{{{added},{rest}"
