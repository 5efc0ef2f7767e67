"""The commands, and the options and words that each takes, as tables."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from typing import Any, Final

COMMANDS: Final = {
    "": "the screen",
    "demo": "the screen, on a simulated server with eight GPUs and three engines",
    "snapshot": "print one snapshot and exit",
    "watch": "print a snapshot per tick",
    "record": "keep every reading in a file, to replay and to report on (docs/recording.md)",
    "replay": "a recording on the screen, from any of its times (docs/recording.md)",
    "size": "how many instances, GPUs and servers a scenario file takes",
    "models": "facts of models and where they are from: list, search WORD..., show NAME",
    "profiles": "load tests to size from: add FILE..., list, show NAME, remove NAME",
    "report": "sum up a recording: use, tokens, energy, cost, incidents",
    "export": "the moments of a recording as CSV or JSON lines",
    "serve-metrics": "everything as OpenMetrics, for a Prometheus to scrape (docs/serve-metrics.md)",
    "rules": "recording rules, alerts and a dashboard for a Prometheus: MFU and MBU of a whole fleet (docs/rules.md)",
    "web": "the screen in a browser (docs/web.md)",
    "doctor": "what works here, what does not, why, and the fix",
    "config": "print the settings in effect, or the example file",
}
_SCREEN = ("", "demo", "replay", "web")
_MONITORS = ("", "demo", "snapshot", "watch", "record", "serve-metrics", "web", "doctor", "config")
"""The commands that read this host or its settings of what to read."""
_ALL = tuple(COMMANDS)


def struck(word: str) -> str:
    """A word of the command line, cut, and without what may be a password."""
    from gpumon.config.urls import without_secrets

    return without_secrets(word)[:40]


def _number(low: float, high: float, kind: type[float] | type[int] = float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = high + 1
        if not low <= value <= high:
            word = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"must be {word} from {low:g} to {high:.10g}, not {struck(text)!a}")
        return value

    return read


def _length(text: str) -> float:
    """Seconds, with a unit as in `--at -10m` or without one."""
    from gpumon.recording.when import length_of

    seconds = length_of(text)
    if seconds is None:
        with contextlib.suppress(ValueError):
            seconds = float(text)
    if seconds is None or not 0.0 <= seconds <= 86400.0:
        raise argparse.ArgumentTypeError(f"must be seconds, or such as 90s, 5m, 1h, up to 24h, not {struck(text)!a}")
    return seconds


OPTIONS: Final[tuple[tuple[str, tuple[str, ...], dict[str, Any]], ...]] = (
    (
        "--endpoint",
        _MONITORS,
        {
            "metavar": "URL",
            "action": "append",
            "help": "an engine to poll, by URL or host:port (repeatable); instead of the config's list",
        },
    ),
    ("--interval", _MONITORS, {"metavar": "S", "help": "seconds between two readings (default 1)"}),
    ("--config", _ALL, {"metavar": "FILE", "help": "config file (default ~/.config/gpumon/config.toml)"}),
    (
        "--dcgm",
        _MONITORS,
        {"metavar": "URL", "help": "a dcgm-exporter, by URL or host:port: bandwidth where NVML has none"},
    ),
    (
        "--prometheus",
        ("", "snapshot", "watch", "web", "config"),
        {"metavar": "URL", "help": "a fleet instead of this host, from a Prometheus (docs/fleet.md)"},
    ),
    (
        "--prometheus",
        ("rules",),
        {"metavar": "URL", "help": "the Prometheus that is to have the rules: what it scrapes is looked up there"},
    ),
    ("-o", ("rules",), {"metavar": "FILE", "dest": "output", "help": "write a new file, whole or not at all"}),
    (
        "--listen",
        ("serve-metrics",),
        {"metavar": "ADDRESS", "help": "address:port to serve at (default 127.0.0.1:9454)"},
    ),
    ("--dashboard", ("rules",), {"action": "store_true", "help": "print a Grafana dashboard over the rules instead"}),
    (
        "--model",
        ("rules",),
        {
            "metavar": "NAME",
            "action": "append",
            "help": "a model, as its engines' label model_name has it (repeatable)",
        },
    ),
    (
        "--gpu",
        ("rules",),
        {"metavar": "[MODEL=]TYPE", "action": "append", "help": 'type of its GPUs, e.g. "H100 SXM 80GB" (repeatable)'},
    ),
    (
        "--gpus-per-engine",
        ("rules",),
        {
            "metavar": "[MODEL=]N[/RANKS]",
            "action": "append",
            "help": "GPUs of one engine (default: as labels tell, else 1), and ranks that its page lacks (repeatable)",
        },
    ),
    ("--price", ("rules",), {"metavar": "P", "type": _number(1e-6, 1e9), "help": "price of one GPU for an hour"}),
    (
        "--interval",
        ("rules",),
        {
            "metavar": "S",
            "dest": "scrape_s",
            "type": _number(0.25, 3600),
            "default": 15.0,
            "help": "seconds between two scrapes (default 15): windows of rates hold 4 of them",
        },
    ),
    (
        "--context",
        ("rules",),
        {"metavar": "N", "type": _number(1, 1e8), "help": "mean tokens in context where no series tells them"},
    ),
    (
        "--join",
        ("rules",),
        {"metavar": "LABEL", "help": "label that an engine and its GPUs share, e.g. pod (default: their host)"},
    ),
    (
        "--listen",
        ("web",),
        {"metavar": "ADDRESS", "dest": "web_listen", "help": "address:port to serve at (default 127.0.0.1:8484)"},
    ),
    ("--allow-remote", ("web",), {"action": "store_true", "help": "serve at another address than loopback's, too"}),
    ("--public-url", ("web",), {"metavar": "URL", "help": "of a reverse proxy in front (docs/web.md)"}),
    ("--no-nvml", _MONITORS, {"action": "store_true", "help": "leave this host's GPUs alone"}),
    ("--no-discovery", _MONITORS, {"action": "store_true", "help": "look for nothing by itself"}),
    ("--ascii", _SCREEN, {"action": "store_true", "help": "draw with ASCII only"}),
    ("--no-mouse", _SCREEN, {"action": "store_true", "help": "leave the mouse to the terminal"}),
    ("--theme", _SCREEN, {"metavar": "NAME", "help": "colours: a file in themes/, without .toml"}),
    ("--json", ("snapshot", "watch"), {"action": "store_true", "help": "JSON (one object per line; docs/json.md)"}),
    (
        "--from-recording",
        ("size",),
        {"metavar": "FILE", "dest": "recording", "help": "the p95 of what a recording saw, and how fast it was served"},
    ),
    ("--json", ("size",), {"action": "store_true", "help": "one JSON object (docs/sizing.schema.json)"}),
    ("--markdown", ("size",), {"action": "store_true", "help": "tables to paste into a ticket"}),
    ("--csv", ("size",), {"action": "store_true", "help": "a line per workload, and one of totals"}),
    ("--json", ("models",), {"action": "store_true", "help": "one JSON object (docs/models.md)"}),
    (
        "--context",
        ("models",),
        {"metavar": "N", "type": _number(1, 1e8), "help": "show: tokens in context of the figures (default 4096)"},
    ),
    ("--json", ("profiles",), {"action": "store_true", "help": "one JSON object"}),
    ("--name", ("profiles",), {"metavar": "NAME", "help": "add: name of the profile (default: the model's)"}),
    ("--replace", ("profiles",), {"action": "store_true", "help": "add: write over profiles of the same name"}),
    ("--model", ("profiles",), {"metavar": "MODEL", "help": "add: the model, as its engine or Hugging Face names it"}),
    ("--gpu", ("profiles",), {"metavar": "GPU", "help": 'add: type of its GPUs, e.g. "H100 SXM 80GB"'}),
    ("--gpus", ("profiles",), {"metavar": "N", "type": _number(1, 1024, int), "help": "add: GPUs of the instance"}),
    ("--tp", ("profiles",), {"metavar": "N", "type": _number(1, 1024, int), "help": "add: tensor parallel size"}),
    ("--pp", ("profiles",), {"metavar": "N", "type": _number(1, 1024, int), "help": "add: pipeline parallel size"}),
    ("--precision", ("profiles",), {"metavar": "P", "help": "add: of the weights, e.g. bf16, fp8, int4"}),
    ("--kv-precision", ("profiles",), {"metavar": "P", "help": "add: of the KV cache"}),
    (
        "--prompt-tokens",
        ("profiles",),
        {"metavar": "N", "type": _number(1, 1e7), "help": "add: mean prompt, where the files lack it"},
    ),
    (
        "--answer-tokens",
        ("profiles",),
        {"metavar": "N", "type": _number(1, 1e7), "help": "add: mean answer, where the files lack it"},
    ),
    (
        "--concurrency",
        ("profiles",),
        {"metavar": "N[,N...]", "help": "add: of the runs that do not tell theirs, in the order of the files"},
    ),
    (
        "--memory-gb",
        ("profiles",),
        {"metavar": "GB", "type": _number(0.001, 1e6), "help": "add: GPU memory of the instance, in 1e9 bytes"},
    ),
    (
        "--busy",
        ("profiles",),
        {"metavar": "SHARE", "type": _number(0, 1), "help": "add: busy share of its GPUs, 0 to 1"},
    ),
    ("--plain", ("watch",), {"action": "store_true", "help": "a line per GPU and engine (the default)"}),
    (
        "--demo",
        ("snapshot", "watch", "record", "serve-metrics", "web"),
        {"action": "store_true", "help": "watch the simulated server"},
    ),
    (
        "--scenario",
        ("demo", "snapshot", "watch", "record", "serve-metrics", "web"),
        {"metavar": "NAME", "help": "what happens on the simulated server; `list` names all scenarios"},
    ),
    (
        "--at",
        ("replay",),
        {"metavar": "TIME", "help": "begin there: 03:10, 2026-11-22T03:10Z, or -10m (default: its start)"},
    ),
    (
        "--speed",
        ("replay",),
        {"metavar": "N", "type": _number(0.1, 100), "default": 1.0, "help": "seconds of it per second (0.1 to 100)"},
    ),
    ("--json", ("report",), {"action": "store_true", "help": "one JSON object (docs/recording.md)"}),
    ("--markdown", ("report",), {"action": "store_true", "help": "tables to paste into a ticket"}),
    ("--csv", ("export",), {"action": "store_true", "help": "a line per moment and GPU, engine or host (the default)"}),
    (
        "--jsonl",
        ("export",),
        {"action": "store_true", "help": "a line of JSON per moment, as `watch --json` prints it"},
    ),
    (
        "--from",
        ("report", "export", "size"),
        {"metavar": "TIME", "dest": "since", "help": "03:10, 2026-11-22T03:10Z, or -10m (default: its start)"},
    ),
    ("--to", ("report", "export", "size"), {"metavar": "TIME", "dest": "until", "help": "likewise (default: its end)"}),
    (
        "--every",
        ("export",),
        {
            "metavar": "S",
            "type": _length,
            "default": 0.0,
            "help": "a moment every S seconds, or 5m, 1h (default 0: all)",
        },
    ),
    ("--keep-days", ("record",), {"metavar": "D", "help": "days that the file goes back (default 7)"}),
    ("--keep-gb", ("record",), {"metavar": "GB", "help": "size that the file may reach, in 1e9 bytes (default 2)"}),
    (
        "--window",
        ("snapshot",),
        {
            "metavar": "S",
            "type": _number(0, 3600),
            "default": 2.0,
            "help": "seconds between the two readings that rates need (default 2); 0: one reading, no rates",
        },
    ),
    (
        "--count",
        ("watch",),
        {"metavar": "N", "type": _number(1, 1e9, int), "default": 0, "help": "stop after N snapshots"},
    ),
    (
        "--duration",
        ("watch",),
        {"metavar": "S", "type": _number(0.25, 1e9), "default": 0.0, "help": "stop after S seconds"},
    ),
    (
        "--example",
        ("config",),
        {"action": "store_true", "help": "print an example with every key, default and meaning"},
    ),
)
"""Option, the commands that take it, and how it is read. All may stand before or after the command."""

WORDS: Final[tuple[tuple[str, tuple[str, ...], dict[str, Any]], ...]] = (
    (
        "file",
        ("replay", "report", "export"),
        {"metavar": "[FILE]", "nargs": "?", "help": "recording, or folder of a bundle (default: this host's own)"},
    ),
    (
        "file",
        ("record",),
        {"metavar": "[FILE]", "nargs": "?", "help": "recording to go on with, or to make (default: this host's own)"},
    ),
    (
        "file",
        ("size",),
        {"metavar": "FILE", "nargs": "?", "help": "scenario file (docs/sizing-file.md); - reads standard input"},
    ),
    (
        "action",
        ("models",),
        {"metavar": "[ACTION]", "nargs": "?", "default": "list", "help": "list (the default), search or show"},
    ),
    (
        "words",
        ("models",),
        {
            "metavar": "[WORD|NAME ...]",
            "nargs": "*",
            "help": "parts of a name to search, or the name, folder or .gguf file to show",
        },
    ),
    (
        "action",
        ("profiles",),
        {"metavar": "[ACTION]", "nargs": "?", "default": "list", "help": "add, list (the default), show or remove"},
    ),
    (
        "words",
        ("profiles",),
        {
            "metavar": "[FILE|NAME ...]",
            "nargs": "*",
            "help": "files to add (- reads standard input), or a profile's name",
        },
    ),
)
"""Words that follow a command, in their order: name, the commands that take it, and how it is read."""

SETTINGS: Final = (
    ("endpoint", "--endpoint", ("endpoint",), None),
    ("interval", "--interval", ("general", "interval_s"), None),
    ("dcgm", "--dcgm", ("dcgm", "url"), None),
    ("prometheus", "--prometheus", ("prometheus", "url"), None),
    ("no_discovery", "--no-discovery", ("discovery", "enabled"), False),
    ("ascii", "--ascii", ("general", "ascii"), True),
    ("no_mouse", "--no-mouse", ("general", "mouse"), False),
    ("theme", "--theme", ("general", "theme"), None),
    ("listen", "--listen", ("exporter", "listen"), None),
    ("keep_days", "--keep-days", ("recorder", "keep_days"), None),
    ("keep_gb", "--keep-gb", ("recorder", "keep_gb"), None),
)
"""Options that override a setting: name, option, key path, and the value that a switch stands for."""
