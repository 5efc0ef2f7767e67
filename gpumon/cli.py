"""The command line: picks a command, imports what it needs and no more, and turns every outcome into an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from gpumon import __version__

if TYPE_CHECKING:
    from gpumon.config.load import Loaded
    from gpumon.config.options import Options

OK, FAILED, USAGE, NOTHING = 0, 1, 2, 3
"""Exit codes: done; failed at run time; bad usage or config; nothing to monitor."""
INTERRUPTED = 130
_MOST_TEXT: Final = 200
"""Characters of an exception's text that are printed."""

COMMANDS: Final = {
    "": "the screen",
    "demo": "the screen, on a simulated server with eight GPUs and three engines",
    "snapshot": "print one snapshot and exit",
    "watch": "print a snapshot per tick",
    "doctor": "what works here, what does not, why, and the fix",
    "config": "print the settings in effect, or the example file",
}
_SCREEN = ("", "demo")


class _Usage(Exception):  # noqa: N818 - no failure of gpumon
    """The command line can not be understood; the text says why, in one line."""


class _Failed(Exception):  # noqa: N818
    """The command could not do its work; the text says why, in one line."""


class _Run(NamedTuple):
    loaded: Loaded
    options: Options
    chosen: argparse.Namespace


def _number(low: float, high: float, kind: type[float] | type[int] = float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = high + 1
        if not low <= value <= high:
            word = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"must be {word} from {low:g} to {high:.10g}, not {_struck(text)!a}")
        return value

    return read


_OPTIONS: Final[tuple[tuple[str, tuple[str, ...], dict[str, Any]], ...]] = (
    (
        "--endpoint",
        tuple(COMMANDS),
        {
            "metavar": "URL",
            "action": "append",
            "help": "an engine to poll, by URL or host:port (repeatable); instead of the config's list",
        },
    ),
    ("--interval", tuple(COMMANDS), {"metavar": "S", "help": "seconds between two readings (default 1)"}),
    ("--config", tuple(COMMANDS), {"metavar": "FILE", "help": "config file (default ~/.config/gpumon/config.toml)"}),
    ("--no-nvml", tuple(COMMANDS), {"action": "store_true", "help": "leave this host's GPUs alone"}),
    ("--no-discovery", tuple(COMMANDS), {"action": "store_true", "help": "look for nothing by itself"}),
    ("--ascii", _SCREEN, {"action": "store_true", "help": "draw with ASCII only"}),
    ("--no-mouse", _SCREEN, {"action": "store_true", "help": "leave the mouse to the terminal"}),
    ("--theme", _SCREEN, {"metavar": "NAME", "help": "colours: a file in themes/, without .toml"}),
    ("--json", ("snapshot", "watch"), {"action": "store_true", "help": "JSON (one object per line; docs/json.md)"}),
    ("--plain", ("watch",), {"action": "store_true", "help": "a line per GPU and engine (the default)"}),
    ("--demo", ("snapshot", "watch"), {"action": "store_true", "help": "watch the simulated server"}),
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

_SETTINGS: Final = (
    ("endpoint", "--endpoint", ("endpoint",), None),
    ("interval", "--interval", ("general", "interval_s"), None),
    ("no_discovery", "--no-discovery", ("discovery", "enabled"), False),
    ("ascii", "--ascii", ("general", "ascii"), True),
    ("no_mouse", "--no-mouse", ("general", "mouse"), False),
    ("theme", "--theme", ("general", "theme"), None),
)
"""Options that override a setting: name, option, key path, and the value that a switch stands for."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # argparse repeats the value of a switch, which may be a secret.
        before, found, _ = message.partition("ignored explicit argument")
        raise _Usage(f"{before}{'takes no value' if found else ''} (see {self.prog} --help)")

    def format_help(self) -> str:
        if self.prog != "gpumon":
            return super().format_help()
        from gpumon.config.environment import VARIABLES

        lines = [f"  {name:<24}{meaning}" for name, (_, meaning) in VARIABLES.items()]
        commands = [f"  {name or '(none)':<24}{meaning}" for name, meaning in COMMANDS.items()]
        return "\n".join(
            (
                super().format_help(),
                "commands:",
                *commands,
                "\nenvironment (above the file, below options):",
                f"  {'GPUMON_CONFIG':<24}config file",
                *lines,
                "\nexit codes: 0 ok, 1 failed, 2 usage or config, 3 nothing to monitor\n",
            )
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Errors are one line on stderr."""
    if sys.stdout is None or sys.stderr is None:
        sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
        sys.stderr = sys.stderr or sys.stdout
    try:
        return _guarded(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return OK
    except Exception as bug:  # whatever it is, the user has to see it, and no more of it than can be reported
        return _report(bug)


def _guarded(arguments: list[str]) -> int:
    from gpumon.config.errors import ConfigError

    try:
        code = _run(arguments)
        _write(b"")
    except (_Usage, ConfigError) as refused:
        return _complain(str(refused), USAGE)
    except _Failed as failure:
        return _complain(str(failure), FAILED)
    return code


def _understood(arguments: list[str]) -> tuple[argparse.Namespace, str]:
    """The options, and the command: the first word that is no option and no option's value."""
    command, rest = "", list(arguments)
    known = {option: "metavar" in how for option, _, how in _OPTIONS}
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "--":
        if arguments[at].startswith("--") and arguments[at].partition("=")[0] not in {*known, "--help", "--version"}:
            raise _Usage(f"{_unrecognized(arguments[at:][:1])} (see gpumon --help)")
        at += 2 if known.get(arguments[at]) else 1
    if at < len(arguments) and arguments[at] != "--":
        command = rest.pop(at)
    if command not in COMMANDS or (not command and len(rest) < len(arguments)):
        raise _Usage(_no_such_command(command))
    parser = _parser(command)
    chosen, unknown = parser.parse_known_args(rest)
    if unknown:
        parser.error(_unrecognized(unknown))
    return chosen, command


def _unrecognized(words: Sequence[str]) -> str:
    """Names the options and stray words, but no option's value: it may be a secret."""
    named = [
        _struck(word.partition("=")[0]) if word.startswith("-") else f"{_struck(word)!a}"
        for word, before in zip(words, ("", *words), strict=False)
        if word.startswith("-") or not before.startswith("-")
    ]
    return f"unrecognized arguments: {' '.join(named)}"


def _struck(word: str) -> str:
    """A word of the command line, cut, and without what may be a password."""
    from gpumon.config.urls import without_secrets

    return without_secrets(word)[:40]


def _no_such_command(command: str) -> str:
    import difflib

    names = [name for name in COMMANDS if name]
    nearest = difflib.get_close_matches(command, names, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(names)}"
    return f"no such command: {_struck(command)!a}; {hint}"


def _parser(command: str) -> _Parser:
    prog = f"gpumon {command}".rstrip()
    usage = "%(prog)s [options]" if command else "%(prog)s [command] [options]"
    parser = _Parser(prog=prog, usage=usage, description=COMMANDS[command], allow_abbrev=False, add_help=False)
    parser.add_argument("-h", "--help", action="help", help="show this and exit")
    parser.add_argument(
        "--version", action="version", version=f"gpumon {__version__}", help="show the version and exit"
    )
    for option, commands, how in _OPTIONS:
        if command in commands:
            parser.add_argument(option, **how)
    return parser


def _run(arguments: list[str]) -> int:
    try:
        chosen, command = _understood(arguments)
    except SystemExit:  # argparse has printed --help or --version
        return OK
    if command == "config" and chosen.example:
        from gpumon.config.resources import resource

        _write(resource("config.example.toml").read_bytes())
        return OK
    return _RUN[command](_settings(chosen, command))


def _settings(chosen: argparse.Namespace, command: str) -> _Run:
    from gpumon.config.environment import from_text
    from gpumon.config.load import load
    from gpumon.config.options import Options

    overrides = []
    for name, option, path, switched in _SETTINGS:
        value = getattr(chosen, name, None)
        if value is not None and value is not False:
            overrides.append(from_text(option, path, value if switched is None else switched))
    loaded = load(chosen.config or "", os.environ, overrides)
    options = Options(
        nvml=not chosen.no_nvml,
        demo=command == "demo" or getattr(chosen, "demo", False),
        window_s=getattr(chosen, "window", 2.0),
        count=getattr(chosen, "count", 0),
        duration_s=getattr(chosen, "duration", 0.0),
        config_file=loaded.file,
    )
    return _Run(loaded, options, chosen)


def _screen(run: _Run) -> int:
    from gpumon.tui.terminal import refusal

    isatty = bool(sys.stdin and sys.stdin.isatty() and sys.stdout.isatty())
    if refused := refusal(os.environ, isatty, demo=run.options.demo):
        raise _Usage(refused)
    from gpumon import wiring

    return wiring.run_screen(run.loaded, run.options)


def _snapshot(run: _Run) -> int:
    from gpumon import wiring

    result = wiring.run_snapshot(run.loaded.config, run.options)
    if isinstance(result, int):
        return _ended(result)
    if run.chosen.json:
        from gpumon.outputs.json import encode

        _write(encode(result) + b"\n")
    else:
        from gpumon.outputs.report import report

        _write(report(result))
    return OK


def _watch(run: _Run) -> int:
    if run.chosen.json and run.chosen.plain:
        raise _Usage("--json and --plain exclude each other: choose one")
    from gpumon import wiring

    if run.chosen.json:
        from gpumon.outputs.json import encode

        return _ended(
            wiring.run_watch(run.loaded.config, run.options, lambda snapshot: _write(encode(snapshot) + b"\n"))
        )
    from gpumon.outputs.plain import lines

    return _ended(wiring.run_watch(run.loaded.config, run.options, lambda snapshot: _write(lines(snapshot))))


def _doctor(run: _Run) -> int:
    from gpumon import wiring
    from gpumon.outputs.doctor import failed, report

    checks = wiring.run_doctor(run.loaded.config, run.options)
    _write(report(checks, colour=_colour(), width=_width()))
    return FAILED if failed(checks) else OK


def _config(run: _Run) -> int:
    from gpumon.config.effective import effective
    from gpumon.config.themes import load_theme, themes_folder

    load_theme(run.loaded.config.general.theme, themes_folder(run.loaded.place))  # the screen refuses it, too
    _write(effective(run.loaded))
    return OK


_RUN: Final[dict[str, Callable[[_Run], int]]] = {
    "": _screen,
    "demo": _screen,
    "snapshot": _snapshot,
    "watch": _watch,
    "doctor": _doctor,
    "config": _config,
}


def _ended(code: int) -> int:
    if code == NOTHING:
        text = "nothing to monitor: no GPU was found and no endpoint is given (`gpumon doctor` says why; try --demo)"
        return _complain(text, NOTHING)
    return code


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def _width() -> int:
    """Columns of the terminal; a pipe gets wide lines rather than wrapped ones."""
    import shutil

    return max(60, shutil.get_terminal_size((100, 24)).columns) if sys.stdout.isatty() else 160


def _write(output: str | bytes) -> None:
    """Print and flush. Raises BrokenPipeError where the reader has gone, _Failed where nothing can be written."""
    data = output if isinstance(output, bytes) else output.encode(sys.stdout.encoding or "utf-8", "backslashreplace")
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as failure:
        _forget_stdout()
        raise _Failed(f"cannot write the output: {failure.strerror}") from None


def _forget_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's own last flush finds no reader to miss."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _complain(text: str, code: int, name: str = "gpumon: ") -> int:
    line = "".join(character if character.isprintable() else "?" for character in text)
    sys.stderr.write(f"{name}{line}\n")
    return code


def _report(bug: Exception) -> int:
    """Say what failed and where gpumon last was, in one line."""
    place, at, package = "", bug.__traceback__, os.path.dirname(__file__)  # noqa: PTH120
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        place = f" ({file[len(package) + 1 :]}:{at.tb_lineno})" if file.startswith(package) else place
        at = at.tb_next
    text = " ".join(str(bug).split())[:_MOST_TEXT]
    return _complain(f"gpumon failed, please report: {type(bug).__name__}: {text}{place}", FAILED, "")
