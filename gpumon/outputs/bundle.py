"""The files of an incident bundle that are text: no environment, no setting, no secret stands in any of them."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import version

from gpumon import __version__
from gpumon.outputs.json import encode
from gpumon.outputs.verdicts import markdown
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import Event


def texts(
    snapshot: Snapshot, screen: str, picture: str, events: Sequence[Event], span: tuple[float, float] | None
) -> dict[str, bytes]:
    """Name of each file -> what stands in it. `span`: Unix times between which there is a recording."""
    return {
        "snapshot.json": encode(snapshot) + b"\n",
        "verdicts.md": markdown(snapshot, events, span).encode(),
        "screen.txt": f"{screen}\n".encode(),
        "screen.svg": f"{picture}\n".encode(),
        "versions.txt": ("\n".join(_versions(snapshot)) + "\n").encode(),
    }


def _versions(snapshot: Snapshot) -> Iterator[str]:
    host = snapshot.host
    yield f"gpumon {__version__}"
    yield f"python {platform.python_version()}"
    yield f"textual {version('textual')}"
    yield f"system {platform.system()} {platform.release()} {platform.machine()}"
    yield f"driver {clean(host.driver) or '-'}"
    yield f"cuda {clean(host.cuda) or '-'}"
    for engine in snapshot.engines:
        yield f"engine {clean(engine.name)} {engine.kind.value} {clean(engine.version) or '-'}"
