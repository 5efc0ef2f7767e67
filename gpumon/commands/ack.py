"""`gpumon ack`: acknowledges verdicts of this host, lists what is acknowledged, and takes it back."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from gpumon.commands.options import UsageError, add_forms, add_monitor, number_option, redacted
from gpumon.commands.served import served_snapshot
from gpumon.commands.settings import settings
from gpumon.commands.streams import EXIT_FAILED, EXIT_OK, Failed, complain, width, write
from gpumon.outputs.acknowledged import encode, list_acknowledged, standing_text
from gpumon.outputs.units import as_line
from gpumon.readings.text import clean
from gpumon.readings.verdict import Family, Kind, Level, Limit, Verdict
from gpumon.readings.when import length_of
from gpumon.specs.units import HOUR_S
from gpumon.triage.acknowledgement import MOST_HOURS, USUAL_HOURS, acknowledge

if TYPE_CHECKING:
    from gpumon.config.options import Options
    from gpumon.config.schema import Config
    from gpumon.sources.acknowledged import AcknowledgementStore
    from gpumon.triage.acknowledgement import Acknowledgement

_USUAL_WINDOW_S: Final = 40.0
"""Longest wait for the verdict, where no `serve-metrics` runs: verdicts come after 30 s."""
_MOST_NAMED: Final = 8
"""Hosts that an error names."""
_MOST_REASON: Final = 200
"""Characters of a reason."""


class _ServedVerdict(msgspec.Struct):
    """A verdict in a served snapshot."""

    scope: str
    kind: Kind
    family: Family
    code: Limit
    level: Level
    cause: str = ""
    key: str = ""
    caused_by: str = ""


class _ServedVerdicts(msgspec.Struct):
    """The part of a snapshot's JSON (docs/json.md) that tells what stands."""

    time: str
    gpus: list[dict[str, object]]
    engines: list[dict[str, object]]
    verdicts: list[_ServedVerdict]


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the verdict, for how long, why, and by whom."""
    parser.add_argument(
        "verdict",
        metavar="ID",
        nargs="?",
        default="",
        help="id of the verdict (to take one back on a host of a fleet: HOST/ID), or name of its thing",
    )
    parser.add_argument("code", metavar="CODE", nargs="?", default="", help="with a name: code of the verdict")
    parser.add_argument("--for", dest="length", metavar="TIME", type=_length_option, help="such as 30m, 4h, 3d (8h)")
    parser.add_argument("--reason", metavar="TEXT", default="", help="shown with it")
    parser.add_argument("--who", metavar="NAME", default="", help="who knows of it (default: you)")
    parser.add_argument("--remove", action="store_true", help="take the acknowledgement back")
    add_monitor(parser)
    add_forms(parser, json="one JSON object (docs/json.md)")
    parser.add_argument(
        "--window",
        metavar="S",
        type=number_option(0, 3600),
        default=_USUAL_WINDOW_S,
        help="longest wait for the verdict, where no serve-metrics runs here (default 40)",
    )


def run(chosen: argparse.Namespace) -> int:
    """Acknowledge, list or take back; exit code 1: there is no such verdict, or the file cannot be written."""
    loaded, run_options = settings(chosen)
    store = _open_store()
    of_fleet = _open_store(of_fleet=True)
    if not chosen.verdict:
        if chosen.remove:
            raise UsageError("--remove needs the verdict that is not acknowledged any more")
        kept = [record for record in (*store.read(), *of_fleet.read()) if record.until_s > time.time()]
        write(encode(kept) if chosen.form == "json" else list_acknowledged(kept, width()))
        return EXIT_OK
    if chosen.remove:
        return _remove((store, of_fleet), chosen)
    return _acknowledge(store, chosen, loaded.config, run_options)


def _acknowledge(store: AcknowledgementStore, chosen: argparse.Namespace, config: Config, run_options: Options) -> int:
    """Acknowledge the verdicts that are meant; returns the exit code."""
    from gpumon.sources.acknowledged import MOST_WHO, added, this_user

    standing = _served_verdicts(config, run_options, chosen)
    if standing is None:
        standing = _own_verdicts(config, run_options, chosen)
    meant = [verdict for verdict in standing if _is_meant(chosen, verdict.id, verdict.scope, verdict.code)]
    if not meant:
        return complain(f"no such verdict stands: {standing_text(standing)}", EXIT_FAILED)
    who = clean(chosen.who, MOST_WHO) or this_user()
    reason = clean(chosen.reason, _MOST_REASON)
    seconds = chosen.length or USUAL_HOURS * HOUR_S
    records = [acknowledge(verdict, standing, who, reason, time.time(), seconds) for verdict in meant]
    try:
        store.change(added(records))
    except OSError as error:
        raise Failed(f"{store.path}: {error.strerror or type(error).__name__}") from None
    write(encode(records) if chosen.form == "json" else list_acknowledged(records, width()))
    return EXIT_OK


def _remove(stores: Sequence[AcknowledgementStore], chosen: argparse.Namespace) -> int:
    """Take back the acknowledgements that are meant, of this host or of one of a fleet's; returns the exit code."""
    from gpumon.sources.acknowledged import without

    kept = [record for store in stores for record in store.read() if record.until_s > time.time()]
    meant = _meant_records(chosen, kept)
    for store in stores:
        records = [record for record in store.read() if record in meant]
        if not records:
            continue
        try:
            store.change(without(records))
        except OSError as error:
            raise Failed(f"{store.path}: {error.strerror or type(error).__name__}") from None
    if not meant:
        return complain("that is not acknowledged: gpumon ack lists what is", EXIT_FAILED)
    if chosen.form == "json":
        write(encode(meant))
    else:
        write("".join(f"not acknowledged any more: {record.listed_id}\n" for record in meant))
    return EXIT_OK


def _meant_records(chosen: argparse.Namespace, kept: Sequence[Acknowledgement]) -> Sequence[Acknowledgement]:
    """The acknowledgements that the words of the command line mean: by name and code, or one by the id that the list
    has. An id without a host is this host's, else that of the only host of a fleet that has it. Raises UsageError where
    several have."""
    if chosen.code:
        return [record for record in kept if _is_meant(chosen, record.id, record.scope, record.code)]
    listed = [record for record in kept if record.listed_id == chosen.verdict]
    if listed:
        return listed
    of_hosts = [record for record in kept if record.id == chosen.verdict]
    if len(of_hosts) > 1:
        raise UsageError(
            f"{as_line(chosen.verdict)} is acknowledged on {len(of_hosts)} hosts: say on which, "
            + " or ".join(as_line(record.listed_id) for record in of_hosts[:_MOST_NAMED])
        )
    return of_hosts


def _is_meant(chosen: argparse.Namespace, verdict_id: str, scope: str, code: Limit) -> bool:
    """Whether the words of the command line mean a verdict: its id, or the name of its thing with a code."""
    if chosen.code:
        return bool(chosen.verdict == scope and chosen.code == code.value)
    return bool(chosen.verdict == verdict_id)


def _served_verdicts(config: Config, run_options: Options, chosen: argparse.Namespace) -> Sequence[Verdict] | None:
    """The verdicts in the newest snapshot of this host's `serve-metrics`; None where none runs."""
    served = served_snapshot(config, run_options, _ServedVerdicts, has_endpoints=bool(chosen.endpoint))
    if served is None:
        return None
    return _that_count(
        Verdict(
            scope=verdict.scope,
            code=verdict.code,
            cause=verdict.cause,
            since="",
            kind=verdict.kind,
            key=verdict.key,
            family=verdict.family,
            level=verdict.level,
            caused_by=verdict.caused_by,
        )
        for verdict in served.verdicts
    )


def _own_verdicts(config: Config, run_options: Options, chosen: argparse.Namespace) -> Sequence[Verdict]:
    """The verdicts of this process's own readings, taken until the one that is meant stands or the window is over."""
    import asyncio

    from gpumon.commands.snapshot import take_snapshot
    from gpumon.readings.snapshot import Snapshot

    def stands(snapshot: Snapshot) -> bool:
        return any(_is_meant(chosen, verdict.id, verdict.scope, verdict.code) for verdict in snapshot.verdicts)

    own_options = msgspec.structs.replace(run_options, window_s=chosen.window)
    snapshot = asyncio.run(take_snapshot(config, own_options, stands))
    if snapshot is None:
        return ()
    return _that_count(snapshot.verdicts)


def _that_count(verdicts: Iterable[Verdict]) -> Sequence[Verdict]:
    """Verdicts that ask for something."""
    return [verdict for verdict in verdicts if verdict.level is not Level.OK]


def _open_store(*, of_fleet: bool = False) -> AcknowledgementStore:
    """The file of this user, for this host or for hosts of a fleet. Raises Failed where there is no folder for it."""
    from gpumon.sources.acknowledged import AcknowledgementStore, acknowledged_file

    path = acknowledged_file(os.environ, of_fleet=of_fleet)
    if path is None:
        raise Failed("no state folder is known: set HOME or XDG_STATE_HOME")
    return AcknowledgementStore(path)


def _length_option(text: str) -> float:
    """A converter for argparse: `4h` to seconds."""
    seconds = length_of(text)
    if seconds is None or not 0.0 < seconds <= MOST_HOURS * HOUR_S:
        raise argparse.ArgumentTypeError(f"must be such as 30m, 4h or 3d, up to 31d, not {redacted(text)!a}")
    return seconds
