"""The command line: picks a command, imports what it needs and no more, and turns every outcome into an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from gpumon.arguments import Usage, understood
from gpumon.command_tables import SETTINGS

if TYPE_CHECKING:
    from gpumon.config.load import Loaded
    from gpumon.config.options import Options
    from gpumon.config.schema import Config

OK, FAILED, USAGE, NOTHING, INFEASIBLE = 0, 1, 2, 3, 4
"""Exit codes: done; failed at run time; bad usage or config; nothing to monitor; no plan meets what was asked."""
INTERRUPTED = 130
_MOST_TEXT: Final = 200
"""Characters of an exception's text that are printed."""


class _Failed(Exception):  # noqa: N818
    """The command could not do its work; the text says why, in one line."""


class _Run(NamedTuple):
    loaded: Loaded
    options: Options
    chosen: argparse.Namespace


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
    except Usage as refused:
        return _complain(str(refused), USAGE)
    except ConfigError as refused:
        for line in refused.lines:
            _complain(line, USAGE)
        return USAGE
    except _Failed as failure:
        return _complain(str(failure), FAILED)
    return code


def _run(arguments: list[str]) -> int:
    try:
        chosen, command = understood(arguments)
    except SystemExit:  # argparse has printed --help or --version
        return OK
    if command == "config" and chosen.example:
        from gpumon.config.resources import resource

        _write(resource("config.example.toml").read_bytes())
        return OK
    run = _settings(chosen, command)
    if run.options.scenario:
        from gpumon.demos import LIST, listing

        if run.options.scenario == LIST:
            _write(listing(_width()))
            return OK
    return _RUN[command](run)


def _settings(chosen: argparse.Namespace, command: str) -> _Run:
    from gpumon.config.environment import from_text
    from gpumon.config.load import load
    from gpumon.config.options import Options

    overrides = []
    for name, option, path, switched in SETTINGS:
        value = getattr(chosen, name, None)
        if value is not None and value is not False:
            overrides.append(from_text(option, path, value if switched is None else switched))
    loaded = load(chosen.config or "", os.environ, overrides)
    demo = command == "demo" or getattr(chosen, "demo", False)
    scenario = getattr(chosen, "scenario", None)
    if scenario is not None:
        from gpumon.demos import chosen as named

        scenario = named(scenario, demo=demo)
    options = Options(
        nvml=not getattr(chosen, "no_nvml", False),
        demo=demo,
        scenario=scenario or "",
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
        raise Usage(refused)
    if run.loaded.config.prometheus.url and not run.options.demo:
        from gpumon.fleetwatch import run_fleet

        return run_fleet(_paced(run), run.options)
    from gpumon import wiring

    return wiring.run_screen(run.loaded, run.options)


def _snapshot(run: _Run) -> int:
    if run.chosen.prometheus:
        return _printed_fleet(run, once=True)
    from gpumon import wiring

    result = wiring.run_snapshot(run.loaded.config, run.options)
    if isinstance(result, int):
        return _ended(result)
    if run.chosen.json:
        from gpumon.outputs.json import encode

        _write(encode(result) + b"\n")
    else:
        from gpumon.outputs.report import report
        from gpumon.outputs.summary import too_soon

        _write(report(result))
        if hint := too_soon(result, run.options.window_s, _slowest_s(run.loaded.config)):
            _complain(hint, OK)
    return OK


def _slowest_s(config: Config) -> float:
    """Seconds between two answers of what is asked most rarely."""
    general = config.general
    return max(general.interval_s, general.engine_interval_s, *(feed.interval_s for feed in config.feed))


def _watch(run: _Run) -> int:
    if run.chosen.prometheus:
        return _printed_fleet(run, once=False)
    form = _form(run, ("json", "plain"))
    from gpumon import wiring

    if form == "json":
        from gpumon.outputs.json import encode

        return _ended(
            wiring.run_watch(run.loaded.config, run.options, lambda snapshot: _write(encode(snapshot) + b"\n"))
        )
    from gpumon.outputs.plain import lines

    return _ended(wiring.run_watch(run.loaded.config, run.options, lambda snapshot: _write(lines(snapshot))))


def _printed_fleet(run: _Run, *, once: bool) -> int:
    import msgspec

    from gpumon.fleetprint import print_fleet

    options = msgspec.structs.replace(run.options, count=1) if once else run.options
    code = print_fleet(_paced(run).config, options, "json" if run.chosen.json else "plain", _write, _width())
    if code == NOTHING:
        return _complain("nothing to monitor: the Prometheus has nothing of any host now", NOTHING)
    return code


def _paced(run: _Run) -> Loaded:
    """The settings; with `--interval` a fleet is asked so often, every second at most."""
    if getattr(run.chosen, "interval", None) is None:
        return run.loaded
    from msgspec.structs import replace

    config = run.loaded.config
    asked = replace(config.prometheus, interval_s=max(1.0, config.general.interval_s))
    return replace(run.loaded, config=replace(config, prometheus=asked))


def _serve_metrics(run: _Run) -> int:
    from gpumon.serving import serve_command

    return serve_command(run.loaded.config, run.options, os.environ, _write)


def _rules(run: _Run) -> int:
    from gpumon.ruling import rules_command
    from gpumon.sources.prometheus.api import ApiFault

    try:
        return rules_command(run.chosen, run.loaded.config, os.environ, _write)
    except ApiFault as fault:
        raise _Failed(f"rules: {fault}") from None


def _web(run: _Run) -> int:
    from gpumon.web import web_command

    return web_command(run.chosen, run.loaded, _write)


def _replay(run: _Run) -> int:
    from gpumon.replaying import opened, run_replay
    from gpumon.tui.terminal import refusal

    replay = opened(run.chosen.file or "", run.chosen.at or "", run.chosen.speed, run.loaded.config)
    isatty = bool(sys.stdin and sys.stdin.isatty() and sys.stdout.isatty())
    if refused := refusal(os.environ, isatty, recording=True):
        raise Usage(refused)
    return run_replay(run.loaded, replay)


def _record(run: _Run) -> int:
    from gpumon.record import record_command

    file = run.chosen.file or ""
    return _ended(record_command(file, run.loaded.config, run.options, os.environ, _write))


def _report_period(run: _Run) -> int:
    from gpumon.reporting import report_command

    form, (file, since, until) = _form(run, ("json", "markdown")), _stretch(run)
    return report_command(file, since, until, form, run.loaded.config, _write, _width())


def _export(run: _Run) -> int:
    from gpumon.reporting import export_command

    form, (file, since, until) = _form(run, ("csv", "jsonl")) or "csv", _stretch(run)
    return export_command(file, since, until, run.chosen.every, form, run.loaded.config, _write)


def _stretch(run: _Run) -> tuple[str, str, str]:
    return run.chosen.file or "", run.chosen.since or "", run.chosen.until or ""


def _form(run: _Run, forms: Sequence[str]) -> str:
    """The form of output that was asked for; empty where none was."""
    asked = [form for form in forms if getattr(run.chosen, form)]
    if len(asked) > 1:
        raise Usage(f"--{asked[0]} and --{asked[1]} exclude each other: choose one")
    return asked[0] if asked else ""


def _size(run: _Run) -> int:
    form = _form(run, ("json", "markdown", "csv"))
    from gpumon import wiring

    file, recording = run.chosen.file or "", run.chosen.recording or ""
    if not file and not recording:
        raise Usage("size needs a scenario file, or --from-recording FILE")
    seen = None
    if recording:
        from gpumon.reporting import recorded

        seen = partial(recorded, recording, run.chosen.since or "", run.chosen.until or "", run.loaded.config)
    scenario, answer = wiring.run_size(run.loaded.config, file, os.environ, seen)
    if form == "json":
        from gpumon.outputs.sizing_json import encode

        _write(encode(answer) + b"\n")
    elif form == "markdown":
        from gpumon.outputs.sizing_markdown import markdown

        _write(markdown(answer, scenario))
    elif form == "csv":
        from gpumon.outputs.sizing_csv import table

        _write(table(answer))
    else:
        from gpumon.outputs.sizing import report

        _write(report(answer, scenario, width=_width()))
    return INFEASIBLE if answer.problem else OK


def _models(run: _Run) -> int:
    from gpumon.models import models_command

    return models_command(run.chosen, run.loaded.config, os.environ, _write, _width())


def _profiles(run: _Run) -> int:
    from gpumon.profiles import profiles_command

    return profiles_command(run.chosen, os.environ, _write, lambda line: _complain(line, USAGE), _width())


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
    "record": _record,
    "replay": _replay,
    "report": _report_period,
    "export": _export,
    "size": _size,
    "models": _models,
    "profiles": _profiles,
    "serve-metrics": _serve_metrics,
    "rules": _rules,
    "web": _web,
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
