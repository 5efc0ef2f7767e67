"""Replays a capture of a real engine over real HTTP on loopback: `python -m tests.fakes.engine vllm-basic`."""

from __future__ import annotations

import argparse
import asyncio
import bisect
import gzip
import json
import re
import shlex
import threading
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tests.fakes.http_server import LoopbackServer, Reply, Request, bound

CAPTURES = Path(__file__).parent.parent / "data" / "captures"
MOVING = ("/metrics", "/slots", "/load", "/v1/loads")
"""Paths whose one recorded answer in endpoints/ is not that of another moment."""


class Scrape(NamedTuple):
    """One recorded scrape. Status 0 is no HTTP answer: refused, or no answer in time."""

    t: float
    latency_s: float
    status: int
    refused: bool
    content_type: str
    body: bytes


class Capture:
    """A recording: a folder name in tests/data/captures, or a path."""

    def __init__(self, name: str | Path) -> None:
        self.folder = CAPTURES / name if (CAPTURES / name).is_dir() else Path(name)
        self._read: dict[str, tuple[Scrape, ...]] = {}

    @cached_property
    def scrapes(self) -> tuple[Scrape, ...]:
        """All scrapes of the metrics page, in order."""
        return self._answers("metrics")

    @cached_property
    def truth(self) -> tuple[Mapping[str, Any], ...]:
        """The client's own account of every request."""
        return tuple(self._lines("truth"))

    @cached_property
    def meta(self) -> Mapping[str, Any]:
        """Load pattern, phases and events."""
        found: Mapping[str, Any] = json.loads((self.folder / "meta.json").read_text())
        return found

    @cached_property
    def api_key(self) -> str:
        """The key that the server was started with, or empty."""
        words = shlex.split((self.folder / "cmdline.txt").read_text())
        return words[words.index("--api-key") + 1] if "--api-key" in words else ""

    @cached_property
    def engine(self) -> str:
        """The engine that was recorded, as its files in endpoints/ are called."""
        word = self.folder.name.partition("-")[0]
        return word if (CAPTURES / "endpoints" / f"{word}-endpoints.txt").exists() else "vllm"

    @cached_property
    def others(self) -> Mapping[str, str]:
        """Path -> the name under which the answers of that path were recorded beside the metrics."""
        paths: Mapping[str, str] = self.meta.get("scrape_paths") or {}
        return {
            path: name
            for name, path in paths.items()
            if name != "metrics" and path != paths["metrics"] and (self.folder / f"{name}.jsonl.gz").exists()
        }

    def at(self, t: float) -> Scrape:
        """What a scrape at `t` would have met: the newest one recorded by then."""
        return self.answer("metrics", t)

    def answer(self, name: str, t: float) -> Scrape:
        """The same of the answers recorded under `name` (`slots`, `props`, `health`, ...)."""
        answers = self._answers(name)
        return answers[max(0, bisect.bisect_right(answers, t, key=lambda answer: answer.t) - 1)]

    def _answers(self, name: str) -> tuple[Scrape, ...]:
        if name not in self._read:
            self._read[name] = tuple(
                Scrape(
                    line["t"],
                    line["lat_s"],
                    line["status"],
                    "Refused" in (line.get("error") or ""),
                    (line.get("headers") or {}).get("content-type", ""),
                    line.get("body", "").encode(),
                )
                for line in self._lines(name)
            )
        return self._read[name]

    def _lines(self, name: str) -> list[dict[str, Any]]:
        with gzip.open(self.folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]


class Recorded:
    """What the recorded server answers at a moment of its capture.

    `root` replaces the model path that /v1/models names; `change` makes of a path's answer what another version of
    the server would have answered.
    """

    def __init__(
        self, capture: str | Path, root: str = "", change: Callable[[str, Reply], Reply] | None = None
    ) -> None:
        self.capture = Capture(capture)
        self._pages = other_pages(self.capture.engine, root)
        self._change = change

    def refused(self, t: float) -> bool:
        """Whether it takes no connections at that second."""
        return self.capture.at(t).refused

    def answer(self, request: Request, t: float) -> Reply | None:
        """Its answer at that second; None while it hangs."""
        now = self.capture.at(t)
        if now.status == 0:
            return None
        reply = self._recorded(request, now, t)
        return reply if self._change is None else self._change(request.path, reply)

    def _recorded(self, request: Request, now: Scrape, t: float) -> Reply:
        if request.path in ("/metrics", "/metrics/"):
            return Reply(now.status, now.body, now.content_type)
        key = self.capture.api_key
        if key and request.path.startswith("/v1/") and request.headers.get("authorization") != f"Bearer {key}":
            return Reply(401, b'{"error":"Unauthorized"}', "application/json")
        if (name := self.capture.others.get(request.path)) is not None:
            other = self.capture.answer(name, t)
            return Reply(other.status or 503, other.body, other.content_type)
        page = self._pages.get(request.path)
        return Reply(404, b'{"detail":"Not Found"}', "application/json") if page is None else page


class FakeEngine:
    """Serves a capture from the moment of `start` on, `speed` times as fast as recorded, from its second `start_s` on.

    It refuses connections while the recorded server did, and leaves requests unanswered while that hung.
    `root` and `change`: see `Recorded`.
    """

    def __init__(
        self,
        capture: str | Path,
        *,
        port: int = 0,
        speed: float = 1.0,
        start_s: float = 0.0,
        root: str = "",
        change: Callable[[str, Reply], Reply] | None = None,
    ) -> None:
        self._recorded = Recorded(capture, root, change)
        self.capture = self._recorded.capture
        self._speed = speed
        self._start_s = start_s
        self._began_s = time.monotonic()
        self.server = LoopbackServer(self._answer, port)

    @property
    def url(self) -> str:
        """Base URL."""
        return self.server.url

    @property
    def t(self) -> float:
        """Seconds on the capture's clock."""
        return (time.monotonic() - self._began_s) * self._speed + self._start_s

    def start(self) -> FakeEngine:
        """Begin the replay."""
        _ = self.capture.scrapes
        self._began_s = time.monotonic()
        self._follow()
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def close(self) -> None:
        """End it."""
        self.server.close()

    def __enter__(self) -> FakeEngine:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self.server.closed.wait(min(0.02, 0.2 / self._speed)):
            self._follow()

    def _follow(self) -> None:
        refused = self._recorded.refused(self.t)
        if refused and self.server.listening:
            self.server.refuse()
        elif not refused and not self.server.listening and not self.server.closed.is_set():
            self.server.listen()

    def _answer(self, request: Request) -> Reply:
        while (reply := self._recorded.answer(request, self.t)) is None:
            if self.server.closed.wait(0.01):
                return Reply(raw=b"")
        return reply


class LoopEngine:
    """The same in the running event loop, for time that the loop itself sets forward (`tests.virtual_time`)."""

    FOLLOWED_S = 0.25

    def __init__(self, recorded: Recorded, start_s: float) -> None:
        self.recorded = recorded
        self._start_s = start_s
        self._place = bound(0)
        self.url = f"http://127.0.0.1:{self._place.getsockname()[1]}"
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def t(self) -> float:
        """Seconds on the capture's clock."""
        return time.monotonic() - self._began_s + self._start_s

    async def __aenter__(self) -> LoopEngine:
        _ = self.recorded.capture.scrapes
        self._began_s = time.monotonic()
        await self._follow()
        self._following = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._following.cancel()
        await asyncio.wait({self._following})
        self._refuse()
        self._place.close()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self.FOLLOWED_S)
            await self._follow()

    async def _follow(self) -> None:
        refused = self.recorded.refused(self.t)
        if refused:
            self._refuse()
        elif self._server is None:
            self._server = await asyncio.start_server(self._serve, sock=bound(self._place.getsockname()[1]))

    def _refuse(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for writer in self._open:
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while True:
                request, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
                method, path, _ = request.split()
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                while (reply := self.recorded.answer(Request(method, path, headers), self.t)) is None:
                    await asyncio.sleep(self.FOLLOWED_S)
                assert isinstance(reply.body, bytes)
                head = f"HTTP/1.1 {reply.status} -\r\nContent-Type: {reply.content_type}\r\n"
                writer.write(f"{head}Content-Length: {len(reply.body)}\r\n\r\n".encode("latin-1") + reply.body)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()


def other_pages(engine: str, root: str = "") -> dict[str, Reply]:
    """The recorded answers of the paths beside /metrics of an engine's server."""
    text = (CAPTURES / "endpoints" / f"{engine}-endpoints.txt").read_text()
    pages: dict[str, Reply] = {}
    for part in re.split("^== ", text, flags=re.MULTILINE)[1:]:
        path, _, answer = part.partition("\n")
        if path.split("?")[0] in MOVING and engine != "vllm":
            continue
        head, _, body = answer.partition("\n\n")
        if root and path == "/v1/models":
            cards = json.loads(body)
            for card in cards["data"]:
                card["root"] = root
            body = json.dumps(cards)
        pages[path] = Reply(int(head.split()[1]), body.strip().encode(), "application/json")
    return pages


def main() -> None:
    """Serve one capture until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("capture")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--start", type=float, default=0.0, help="second of the capture to begin at")
    parser.add_argument("--root", default="", help="model path that /v1/models names")
    options = parser.parse_args()
    engine = FakeEngine(
        options.capture, port=options.port, speed=options.speed, start_s=options.start, root=options.root
    )
    with engine:
        print(engine.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
