"""The files of an incident bundle that are text: no environment, no setting, no secret stands in any of them."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version

from gpumon import __version__
from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.outputs.fleet import encode as encode_fleet
from gpumon.outputs.json import encode
from gpumon.outputs.verdicts import fleet_markdown, markdown
from gpumon.readings.period import Incident
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import Event


def texts(
    snapshot: Snapshot,
    screen: str,
    picture: str,
    events: Sequence[Event],
    span: tuple[float, float] | None,
    incidents: Sequence[Incident] = (),
    card: str = "",
) -> dict[str, bytes]:
    """Name of each file of a machine's bundle -> its content. `span`: Unix times between which there is a recording.

    `incidents`: made of the events. `card`: a verdict as a picture; empty: there is none.
    """
    verdicts = markdown(snapshot, events, span, incidents)
    host = snapshot.host
    drivers = (f"driver {clean(host.driver) or '-'}", f"cuda {clean(host.cuda) or '-'}")
    files = _bundle_files(encode(snapshot), verdicts, screen, picture, (*drivers, *_engine_versions(snapshot)))
    if card:
        files["card.svg"] = f"{card}\n".encode()
    return files


def fleet_texts(snapshot: FleetSnapshot, prices: Mapping[str, float], screen: str, picture: str) -> dict[str, bytes]:
    """Name of each file of a fleet's bundle -> its content.

    `prices`: catalogue name of a GPU -> price of one hour, "" for all others.
    """
    versions = []
    for host in snapshot.hosts:
        drivers = f"driver {clean(host.snapshot.host.driver) or '-'} cuda {clean(host.snapshot.host.cuda) or '-'}"
        for part in (drivers, *_engine_versions(host.snapshot)):
            versions.append(f"{clean(host.name)} {part}")
    return _bundle_files(encode_fleet(snapshot, prices), fleet_markdown(snapshot), screen, picture, versions)


def _bundle_files(json: bytes, verdicts: str, screen: str, picture: str, versions: Sequence[str]) -> dict[str, bytes]:
    """Name -> content of the files of a bundle."""
    return {
        "snapshot.json": json + b"\n",
        "verdicts.md": verdicts.encode(),
        "screen.txt": f"{screen}\n".encode(),
        "screen.svg": f"{picture}\n".encode(),
        "versions.txt": ("\n".join((*_own_versions(), *versions)) + "\n").encode(),
    }


def _own_versions() -> Iterator[str]:
    """Versions of gpumon, of Python, of its library for screens and of the system."""
    yield f"gpumon {__version__}"
    yield f"python {platform.python_version()}"
    yield f"textual {version('textual')}"
    yield f"system {platform.system()} {platform.release()} {platform.machine()}"


def _engine_versions(snapshot: Snapshot) -> Iterator[str]:
    """A line per engine with its kind and version."""
    for engine in snapshot.engines:
        yield f"engine {clean(engine.name)} {engine.kind.value} {clean(engine.version) or '-'}"
