"""The first engine of a scenario of the demo, played in real time by a process of its own."""

from __future__ import annotations

import http.server
import threading
import time
from typing import Any

from gpumon.demo.gpus import GpuPace
from gpumon.demo.scenarios import scenario
from gpumon.demo.serving import SimulatedEngine
from tests.records import replace

SEED = 1


class PlayedEngine:
    """Serves the pages of an engine, whose simulated time goes with the clock from a given moment on."""

    def __init__(self, play: dict[str, Any], port: int) -> None:
        """`play`: `scenario`, `from_s` (its simulated time at the start), and `model` (the name that it serves)."""
        self._play = scenario(play["scenario"])
        self._from_s: float = play["from_s"]
        actor = replace(self._play.cast[0], model=play["model"])
        start_s = self._from_s - self._play.warm_s
        self._engine = SimulatedEngine(
            actor,
            SEED,
            start_s,
            time.time() - self._play.warm_s,
            self._play.engine_effects,
            self._play.engine_conditions,
        )
        self._lock = threading.Lock()
        self._advance(self._from_s)
        self._begun_s = time.monotonic()
        self._port = port

    def start(self) -> int:
        """Serve in the background; the port."""
        server = http.server.ThreadingHTTPServer(("127.0.0.1", self._port), self._handler())
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Thread(target=self._go_on, daemon=True).start()
        return int(server.server_address[1])

    def _go_on(self) -> None:
        """Play also while nobody asks."""
        while True:
            time.sleep(1.0)
            with self._lock:
                self._advance(self._now_s())

    def _now_s(self) -> float:
        return self._from_s + time.monotonic() - self._begun_s

    def _advance(self, to_s: float) -> None:
        """Work until a moment, at the pace that the programs beside it leave."""
        self._engine.advance(to_s)
        others = [left.work.busy_ratio for left in self._play.leftovers if left.from_s <= to_s < left.to_s]
        self._engine.works(lambda _: GpuPace(1.0, max(others, default=0.0)))

    def _answer(self, path: str) -> tuple[int, bytes]:
        with self._lock:
            self._advance(self._now_s())
            answer = self._engine.answer(path)
        return answer.status, answer.body

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        ask = self._answer

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = ask(self.path)
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; version=1.0.0; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name in http.server
                """Nothing is logged."""

        return Handler
