"""The screen's session sends as the headless commands do, shows what fails, and ends although a receiver hangs."""

from __future__ import annotations

import asyncio
import json

from gpumon.config.options import Options
from gpumon.config.schema import Alert, Config, Discovery, General, Recorder, Webhook
from gpumon.push.delivery import NOT_RUNNING
from gpumon.readings.snapshot import Snapshot
from gpumon.session.host import HostSession, ThisHost
from tests.fakes.http_server import LoopbackServer, Reply, Request

DEADLINE_S = 60.0


async def _seen(server: LoopbackServer, shown: list[Snapshot]) -> None:
    """Wait until both receivers that listen were sent to, and a fault is shown."""
    while not (len(server.requests) == 2 and any(snapshot.faults for snapshot in shown)):
        await asyncio.sleep(0.02)


async def test_a_session_sends_shows_a_dead_receiver_and_ends() -> None:
    def answer(request: Request) -> Reply:
        return Reply(delay_s=DEADLINE_S) if request.path == "/hangs" else Reply()

    with LoopbackServer(answer) as server, LoopbackServer(answer) as dead:
        config = Config(
            general=General(interval_s=0.25),
            discovery=Discovery(enabled=False),
            recorder=Recorder(minutes=0.0),
            alert=(Alert(when="host.memory_total_bytes > 1", name="memory", for_s=0.0),),
            webhook=(
                Webhook(url=server.url, group_s=0.0),
                Webhook(name="hangs", url=f"{server.url}/hangs", group_s=0.0, timeout_s=60.0),
                Webhook(name="dead", url=dead.url, group_s=0.0, retry_s=0.1),
            ),
        )
        dead.refuse()
        shown: list[Snapshot] = []
        session = HostSession(config, ThisHost(config, Options(nvml=False)))
        await session.start(shown.append)
        try:
            await asyncio.wait_for(_seen(server, shown), DEADLINE_S)
        finally:
            await session.stop()
        sent = {request.path: json.loads(request.body)["changes"][0]["title"] for request in server.requests}
    assert sent == {"/": "memory", "/hangs": "memory"}
    (fault,) = {(fault.source, fault.text.partition(";")[0]) for snapshot in shown for fault in snapshot.faults}
    assert fault == ("webhook dead", f"nothing listens on 127.0.0.1:{dead.port}: {NOT_RUNNING}")
