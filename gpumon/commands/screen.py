"""`gpumon`: the screen, of this host or of a fleet."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from typing import TYPE_CHECKING

from gpumon.commands.options import UsageError, add_fleet, add_monitor, add_screen
from gpumon.commands.settings import settings

if TYPE_CHECKING:
    from gpumon.config.load import Loaded
    from gpumon.tui.control import Control, FleetControl


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the sources, and how to draw."""
    add_monitor(parser)
    add_fleet(parser)
    add_screen(parser)


def run(chosen: argparse.Namespace) -> int:
    """Show the screen until it is left."""
    gc.disable()  # it finds nothing in what is imported, and takes a twentieth of the time; the screen enables it
    loaded, run_options = settings(chosen)
    refuse_terminal(demo=run_options.demo)
    if (loaded.config.prometheus.url or loaded.config.host) and not run_options.demo:
        from gpumon.session.fleet import FleetSession

        return show_fleet(FleetSession(loaded.config), loaded)
    from gpumon.session.hardware import start_worker

    worker = start_worker(run_options)  # it gets ready while the rest is imported
    from gpumon.session.host import HostSession, ThisHost

    host = ThisHost(loaded.config, run_options, worker)
    return show(HostSession(loaded.config, host), loaded)


def refuse_terminal(*, demo: bool = False, recording: bool = False) -> None:
    """Raises UsageError where there is no terminal that can show the screen."""
    from gpumon.tui.terminal import refusal

    isatty = bool(sys.stdin and sys.stdin.isatty() and sys.stdout.isatty())
    refused = refusal(os.environ, isatty, demo=demo, recording=recording)
    if refused:
        raise UsageError(refused)


def show(control: Control, loaded: Loaded) -> int:
    """The screen of one machine over what brings its snapshots; returns the exit code. Raises ConfigError."""
    gc.disable()
    from gpumon.commands.files import ScreenFiles
    from gpumon.tui.app import MonitorApp
    from gpumon.tui.app import run as show_app

    files = ScreenFiles(loaded, os.environ)
    app = MonitorApp(control, files.first_theme(), loaded.config, files)
    return show_app(app, mouse=loaded.config.general.mouse)


def show_fleet(control: FleetControl, loaded: Loaded) -> int:
    """The screen of a fleet; returns the exit code. Raises ConfigError."""
    from gpumon.commands.files import ScreenFiles
    from gpumon.tui.app import run as show_app
    from gpumon.tui.fleet.app import FleetApp

    files = ScreenFiles(loaded, os.environ)
    app = FleetApp(control, files.first_theme(), loaded.config, files)
    return show_app(app, mouse=loaded.config.general.mouse)
