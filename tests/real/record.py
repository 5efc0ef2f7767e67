"""Records a real engine under load, in the layout of tests/data/captures: its pages each second, and the truth.

    python -m tests.real.record NAME ENGINE PATTERN [--into tests/data/captures] [--note TEXT] [--without REGEX]

ENGINE is one of tests.real.engines, PATTERN a load as tests.real.load describes it; each model of the engine gets it.
--without leaves out the metrics whose names begin like this: below 32 kB a page takes a tenth of the room compressed.
The truth is the client's account. The tree of its processes goes to tests/data/process_trees/ENGINE.txt.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import http.client
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tests.real.engines import ENGINES, Feed, NotStarted, Running, running
from tests.real.install import folder
from tests.real.load import Load, Phase, Stalls, first_in_line, phases, written

DATA: Final = Path(__file__).resolve().parents[1] / "data"
INTERVAL_S: Final = 1.0
ANSWER_S: Final = 5.0
DISTORTED_S: Final = 0.3
"""A capture whose client was held up for longer under load has no truth."""


class Scraper(threading.Thread):
    """Reads the pages of an engine once a second, in a thread of its own, and keeps the answers as they came."""

    def __init__(self, pages: dict[str, str], t0: float) -> None:
        super().__init__(daemon=True)
        self.lines: dict[str, list[dict[str, Any]]] = {name: [] for name in pages}
        self._pages, self._t0, self._over = pages, t0, threading.Event()

    def run(self) -> None:
        """Until `close`; a slot that has passed is left out."""
        at = 0
        busy = _HostCpu()
        while not self._over.wait(max(0.0, self._t0 + at * INTERVAL_S - time.monotonic())):
            host = busy.since_last()
            for name, url in self._pages.items():
                self.lines[name].append({**self._get(url), "host_cpu": host})
            at = max(at + 1, int((time.monotonic() - self._t0) / INTERVAL_S) + 1)

    def close(self) -> None:
        """End it."""
        self._over.set()
        self.join()

    def _get(self, url: str) -> dict[str, Any]:
        where = urlsplit(url)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=ANSWER_S)
        began_s = time.monotonic()
        line: dict[str, Any] = {"t": round(began_s - self._t0, 4), "lat_s": 0.0, "status": 0}
        try:
            connection.request("GET", url.partition(where.netloc)[2])
            answer = connection.getresponse()
            body = answer.read().decode(errors="replace")
            headers = {name.lower(): value for name, value in answer.getheaders()}
            line.update(status=answer.status, headers=headers, body=body)
        except (OSError, http.client.HTTPException) as wrong:
            line["error"] = f"{type(wrong).__name__}: {wrong}"
        finally:
            connection.close()
        line["lat_s"] = round(time.monotonic() - began_s, 5)
        return line


class _HostCpu:
    """Shares of the host's time since the last look."""

    def __init__(self) -> None:
        self._before = self._jiffies()

    def since_last(self) -> dict[str, float]:
        """Busy and stolen."""
        now = self._jiffies()
        spent = [after - before for after, before in zip(now, self._before, strict=True)]
        self._before, whole = now, max(1, sum(spent))
        return {"busy": round(1 - (spent[3] + spent[4]) / whole, 3), "steal": round(spent[7] / whole, 3)}

    @staticmethod
    def _jiffies() -> list[int]:
        with open("/proc/stat") as file:  # noqa: PTH123
            return [int(word) for word in file.readline().split()[1:9]]


def parts(plan: list[Phase], feeds: tuple[Feed, ...]) -> list[list[Phase]]:
    """The plan of each feed. Triton's pattern has rows a request instead of tokens; its prompt is the model's width."""
    return [[phase._replace(prompt=feed.prompt) if len(feeds) > 1 else phase for phase in plan] for feed in feeds]


async def record(engine: Running, plan: list[Phase], tail_s: float) -> tuple[Scraper, list[Load], Stalls, float]:
    """Load it by the plan and scrape it meanwhile, and for `tail_s` after; with the Unix time of its start."""
    t0, wall = time.monotonic(), time.time()
    pages = {"metrics": engine.metrics_url, **{name: engine.page(path) for name, path in engine.engine.pages.items()}}
    scraper, stalls = Scraper(pages, t0), Stalls(t0)
    feeds, api = engine.engine.feeds, engine.engine.api
    loads = [
        Load(engine.url, api, feed.model, t0, seed=at + 1, fresh=api == "llamacpp") for at, feed in enumerate(feeds)
    ]
    watch = asyncio.create_task(stalls.watch())
    scraper.start()
    await asyncio.gather(*(load.run(part) for load, part in zip(loads, parts(plan, feeds), strict=True)))
    await asyncio.sleep(max(0.0, plan[-1].t0 + plan[-1].dur + tail_s - loads[0].now()))
    watch.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watch
    scraper.close()
    return scraper, loads, stalls, wall


def described(phase: Phase) -> dict[str, Any]:
    """A phase as meta.json has it."""
    shape = {"conc": phase.clients, "rate": phase.rate, "plen": phase.prompt, "mtok": phase.answer}
    common = {"name": phase.name, "t0": phase.t0, "dur": phase.dur, "kind": phase.kind}
    return {**common, **{key: value for key, value in shape.items() if value}, **phase.options}


def write_lines(file: Path, lines: list[dict[str, Any]]) -> None:
    """JSON lines, compressed."""
    with gzip.open(file, "wt", compresslevel=9, encoding="utf-8") as out:
        out.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def left_out(page: str, names: str) -> str:
    """A metrics page without the series, and what is said of them, whose names begin like this regular expression."""
    line = re.compile(f"(?:# (?:HELP|TYPE) )?(?:{names})")
    return "".join(each for each in page.splitlines(keepends=True) if not line.match(each))


def write_tree(name: str, engine: Running) -> None:
    """The engine's processes, without the paths of this machine."""
    (DATA / "process_trees").mkdir(exist_ok=True)
    text = _scrubbed(engine.tree())
    (DATA / "process_trees" / f"{name}.txt").write_text(f"# pid ppid title, parents first\n{text}")


def _scrubbed(text: str) -> str:
    text = re.sub(r"(access-token=)\S+", r"\1xxx", text)
    return text.replace(str(folder()), "/opt/engines").replace(str(Path(__file__).resolve().parent), "/opt/engines")


def main() -> int:
    """Record; 1 where the engine does not start, 2 where the client was held up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("pattern")
    parser.add_argument("--into", type=Path, default=DATA / "captures")
    parser.add_argument("--tail", type=float, default=3.0, help="seconds scraped after the last answer")
    parser.add_argument("--without", default="", metavar="REGEX", help="of names of metrics")
    parser.add_argument("--note", default="", help="goes into meta.json")
    arguments = parser.parse_args()
    plan = phases(arguments.pattern)
    into: Path = arguments.into / arguments.name
    load_before = os.getloadavg()
    try:
        with (
            tempfile.TemporaryDirectory() as logs,
            running([arguments.engine], Path(logs)) as (engine,),
            first_in_line(),
        ):
            scraper, loads, stalls, wall = asyncio.run(record(engine, plan, arguments.tail))
            write_tree(arguments.engine, engine)
            command = _scrubbed(engine.command)
    except NotStarted as wrong:
        print(wrong, file=sys.stderr)
        return 1
    into.mkdir(parents=True, exist_ok=True)
    for page, lines in scraper.lines.items():
        if arguments.without and page == "metrics":
            lines = [{**line, "body": left_out(line.get("body", ""), arguments.without)} for line in lines]
        write_lines(into / f"{page}.jsonl.gz", lines)
    requests = sorted((request for load in loads for request in load.requests), key=lambda request: request.t_start)
    write_lines(into / "truth.jsonl.gz", [written(request) for request in requests])
    (into / "cmdline.txt").write_text(command + "\n")
    model = ENGINES[arguments.engine].feeds[0].model
    for place in ("models", "families"):
        if (config := folder() / place / model / "config.json").exists():
            shutil.copy(config, into / "config.json")
    meta = {
        "engine": arguments.engine,
        "model": "+".join(feed.model for feed in ENGINES[arguments.engine].feeds),
        "note": arguments.note,
        "t0_unix": round(wall, 4),
        "pattern": arguments.pattern,
        "phases": [described(phase) for phase in plan],
        "scrape_paths": {"metrics": ENGINES[arguments.engine].metrics, **ENGINES[arguments.engine].pages},
        "interval": INTERVAL_S,
        "events": [],
        "client_stalls": stalls.found,
        "client_stalls_fields": "t, stall_s, runqueue_wait_s",
        "loadavg_start": load_before,
        "loadavg_end": os.getloadavg(),
        "requests": len(requests),
        "output_tokens": sum(request.output_tokens for request in requests),
    }
    (into / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")
    worst = max((stall for _, stall, _ in stalls.found), default=0.0)
    failed = sum(bool(request.error) for request in requests)
    size = sum(file.stat().st_size for file in into.iterdir())
    counts = f"{len(requests)} requests, {meta['output_tokens']} tokens, {failed} failed"
    print(f"{into}: {counts}, worst stall {worst} s, {size} bytes")
    return 2 if worst > DISTORTED_S else 0


if __name__ == "__main__":
    raise SystemExit(main())
