"""Metrics of an engine that gpumon neither reads nor lists in docs/engines.md with the reason why not.

    python -m tests.sources.engines.unread                      # pages of tests/data, names of newest versions
    python -m tests.sources.engines.unread PAGE ...             # files, or URLs, of metrics pages
    python -m tests.sources.engines.unread --wheel FILE PREFIX MODULE  # metric names in the modules MODULE of a wheel

The last command makes tests/data/metric_names/KIND-VERSION.txt: `vllm: vllm` of vLLM, `sglang: srt` and
`sglang:diffusion_ multimodal_gen` of SGLang, `litellm_ integrations/prometheus` of LiteLLM.
"""

from __future__ import annotations

import argparse
import re
import urllib.request
import zipfile
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.sources.engines.adapter import METRICS_PATH, EngineRow, FirstAnswer
from gpumon.sources.engines.detect import sample_names
from gpumon.sources.engines.registry import BY_KIND, ENGINE_ROWS
from tests.sources.engines.contract import cases, metrics_path

ROOT: Final = Path(__file__).parents[3]
NAMES: Final = ROOT / "tests/data/metric_names"
_HEAD: Final = "| engine | not read | why |"
_ENDS: Final = re.compile(r"(_total|_bucket|_sum|_count|_created)$")
_OF_EVERY: Final = "all"
"""Name in the first column of what every engine may have."""


class NotRead(NamedTuple):
    """A row of the table: metrics that are not read."""

    engine: str
    patterns: tuple[str, ...]
    why: str


class Page(NamedTuple):
    """Names on one page."""

    where: str
    row: EngineRow
    names: frozenset[str]


def family(name: str) -> str:
    """The name of a metric without the endings of its samples."""
    while _ENDS.search(name):
        name = _ENDS.sub("", name)
    return name


def listed() -> list[NotRead]:
    """The rows of the table in docs/engines.md."""
    text = (ROOT / "docs/engines.md").read_text(encoding="utf-8")
    lines = text[text.index(_HEAD) :].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        engine, names, why = (cell.strip() for cell in line.strip("|").split("|"))
        rows.append(NotRead(engine, tuple(re.findall("`([^`]+)`", names)), why))
    return rows


def read_families(row: EngineRow) -> set[str]:
    """Metrics that the engine's adapter asks for."""
    adapter = row.adapter()
    wanted: set[str] = set()
    for name in adapter.wanted_names:
        wanted.update(map(family, adapter.page_names(name)))
    return wanted


def unread(row: EngineRow, names: Iterable[str], table: Collection[NotRead]) -> list[str]:
    """Metrics that the engine's adapter does not ask for and that no row of the table lists."""
    wanted = read_families(row)
    patterns = []
    for listing in table:
        if listing.engine in (_OF_EVERY, row.title):
            patterns += listing.patterns
    left = set()
    for name in map(family, names):
        if name not in wanted and not any(fnmatchcase(name, pattern) for pattern in patterns):
            left.add(name)
    return sorted(left)


def page_of(where: str, body: bytes) -> Page:
    """The page and the engine that it is of. Raises ValueError where it is no page of an engine."""
    names = frozenset(sample_names(body))
    for row in ENGINE_ROWS:
        path = next((path for path in row.paths if where.endswith(path)), METRICS_PATH)
        if row.adapter.claims(FirstAnswer(path, names, body)):
            return Page(where, row, names)
    raise ValueError(f"{where}: no page of an engine that gpumon knows")


def recorded_pages() -> Iterator[Page]:
    """The pages of all cases in tests/data/pages: those of recordings among them."""
    for case in cases():
        for poll in case.polls:
            path = metrics_path(case.row, poll)
            if path not in case.row.json_paths:
                yield Page(case.name, case.row, frozenset(sample_names(poll[path])))


def version_names() -> Iterator[Page]:
    """The metric names of newest versions, by their sources."""
    for file in sorted(NAMES.glob("*.txt")):
        kind = file.stem.partition("-")[0]
        row = next(row for of, row in BY_KIND.items() if of.value == kind)
        yield Page(file.name, row, frozenset(file.read_text(encoding="utf-8").split()))


def names_in_wheel(wheel: Path, prefix: str, module: str) -> list[str]:
    """Strings in Python sources of a wheel that begin with the prefix of its metrics; `module`: part of their path."""
    pattern = re.compile(rf"""["']({re.escape(prefix)}[a-z0-9_]+)["']""")
    names: set[str] = set()
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".py") and module in name and "/test" not in name and "/benchmark" not in name:
                names.update(pattern.findall(archive.read(name).decode("utf-8", "replace")))
    return sorted(names)


def _body(where: str) -> bytes:
    """The content of a file or of a URL."""
    if where.startswith(("http://", "https://")):
        with urllib.request.urlopen(where, timeout=10.0) as answer:
            body: bytes = answer.read()
            return body
    return Path(where).read_bytes()


def main() -> int:
    """Print what is left; returns 1 where something is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", nargs="*", help="a file or a URL")
    parser.add_argument("--wheel", nargs=3, metavar=("FILE", "PREFIX", "MODULE"))
    arguments = parser.parse_args()
    if arguments.wheel:
        wheel, prefix, module = arguments.wheel
        print("\n".join(names_in_wheel(Path(wheel), prefix, module)))
        return 0
    if arguments.page:
        pages = [page_of(where, _body(where)) for where in arguments.page]
    else:
        pages = [*recorded_pages(), *version_names()]
    table = listed()
    status = 0
    for page in pages:
        for name in unread(page.row, page.names, table):
            print(f"{page.where}: {page.row.title}: {name}")
            status = 1
    return status


if __name__ == "__main__":
    raise SystemExit(main())
