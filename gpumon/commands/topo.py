"""`gpumon topo`: how the GPUs of this host are connected, and what each is set to."""

from __future__ import annotations

import argparse

from gpumon.commands.streams import EXIT_OK, Failed, width, write


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the form."""
    parser.add_argument("--json", action="store_true", help="one JSON object (docs/gpus.md)")


def run(chosen: argparse.Namespace) -> int:
    """Print the topology."""
    from gpumon.sources.topology import UnreadableTopologyError, topology

    try:
        connections = topology()
    except UnreadableTopologyError as unreadable:
        raise Failed(str(unreadable)) from None
    if chosen.json:
        import msgspec

        from gpumon.outputs.json import as_object

        write(msgspec.json.encode(as_object(connections)) + b"\n")
    else:
        from gpumon.outputs.topology import report

        write(report(connections, width()))
    return EXIT_OK
