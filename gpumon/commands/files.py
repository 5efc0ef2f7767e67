"""Files that the screen reads and writes: themes, settings, bundles. All of it in threads that hold nothing up."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpumon.config.errors import ConfigError, dotted
from gpumon.config.load import Loaded
from gpumon.config.themes import Theme, known_themes, load_theme, themes_folder
from gpumon.config.validate import with_settings
from gpumon.readings.text import clean
from gpumon.sources.offload import in_daemon_thread
from gpumon.sources.own_files import state_folder

if TYPE_CHECKING:
    from gpumon.config.schema import Config
    from gpumon.sizing.peaks import PeakLoad
    from gpumon.sizing.scenario import Scenario
    from gpumon.tui.control import BundleFacts

_MOST_BUNDLES: Final = 99
"""Bundles of one host and second that get names of their own."""


class ScreenFiles:
    """The screen's `Files` (`tui.control`)."""

    def __init__(self, loaded: Loaded, environ: Mapping[str, str]) -> None:
        self.settings = loaded.config
        self.origins: Mapping[str, str] = loaded.origins
        self._place = loaded.place
        self._home = environ.get("HOME", "")
        self._bundles = bundle_folder(environ)
        self._folder = themes_folder(loaded.place)

    def first_theme(self) -> Theme:
        """The theme of the settings. Blocks; raises ConfigError in one line."""
        return load_theme(self.settings.general.theme, self._folder)

    async def themes(self) -> tuple[str, ...]:
        """Names of the themes that come with gpumon and of the user's own."""
        return await in_daemon_thread(known_themes, self._folder)

    async def theme(self, name: str) -> Theme:
        """A theme. Raises ConfigError in one line."""
        return await in_daemon_thread(load_theme, name, self._folder)

    async def save_settings(self, changes: Mapping[tuple[str, str], object]) -> tuple[bool, str]:
        """Write settings into the config file; see `config.save`."""
        from gpumon.config.save import NotSavedError, save, snippet

        paste = f"lines to put there by hand:\n{snippet(changes)}"
        if not self._place:
            return False, f"not saved: no home folder is known; {paste}"
        place = clean(self._place, 200)
        try:
            await in_daemon_thread(save, self._place, changes)
        except NotSavedError as why:
            return False, f"not saved: {why}; {paste}"
        self.settings = with_settings(self.settings, changes)
        overridden = []
        for (section, key), value in changes.items():
            origin = self.origins.get(dotted((section, key)), "file")
            if origin != "file":
                overridden.append(f"{origin} stands above it while it is given")
                continue
            new_origin = "" if value is None else "file"  # the setting is taken out of the file
            self.origins = {**self.origins, dotted((section, key)): new_origin}
        return True, "; ".join([f"saved to {place}", *dict.fromkeys(overridden)])

    async def prometheus_loads(self, config: Config) -> Mapping[str, PeakLoad]:
        """The p95 of the last 7 days of a Prometheus; see `commands.size`. Raises ConfigError in one line."""
        from gpumon.commands.past_load import prometheus_loads

        return await in_daemon_thread(lambda: asyncio.run(prometheus_loads(config)))

    async def save_scenario(self, scenario: Scenario, name: str) -> tuple[bool, str]:
        """Write a scenario into the folder of scenarios beside the config, or at a path; never over a file."""
        from gpumon.config.save import NotSavedError
        from gpumon.config.scenario_file import save_scenario

        try:
            path = self._scenario_path(name)
            await in_daemon_thread(partial(save_scenario, replace=False), path, scenario)
        except (ConfigError, NotSavedError) as why:
            return False, str(why)
        return True, f"saved to {clean(str(path), 200)}"

    async def load_scenario(self, name: str) -> Scenario:
        """A scenario by its name, or by the path of its file. Raises ConfigError in one line."""
        from gpumon.config.scenario_file import read_scenario

        return await in_daemon_thread(read_scenario, self._scenario_path(name))

    async def scenarios(self) -> tuple[str, ...]:
        """Names of the scenarios that were saved."""
        return await in_daemon_thread(_scenario_names, self._scenario_folder())

    def _scenario_folder(self) -> Path | None:
        """Folder of the saved scenarios, beside the config; None where there is no config."""
        if self._place:
            return Path(self._place).parent / "scenarios"
        return None

    def _scenario_path(self, name: str) -> Path:
        """The file of a scenario: a name with a slash or the ending .toml is a path of its own. Raises ConfigError."""
        if "/" in name or name.endswith(".toml"):
            home = self._home if self._home.startswith("/") else ""
            if home and name.startswith("~/"):
                return Path(home, name[2:])
            return Path(name)
        folder = self._scenario_folder()
        if folder is None:
            raise ConfigError("no home folder is known: give the path of a file, such as ./my.toml")
        if not name.isprintable() or name.startswith("."):
            raise ConfigError(f"{clean(name, 60)} is no name for a scenario")
        return folder / f"{name}.toml"

    async def save_bundle(self, incident: BundleFacts) -> str:
        """Write a new folder `gpumon-HOST-TIME`: the recording that is kept, the snapshot, verdicts, screen, versions.
        Of a fleet it is `gpumon-fleet-TIME`, without a recording: its past is in the Prometheus.

        Into the user's state folder, else the home folder, else the one for temporary files; for the user alone, as
        names of processes stand there. Nothing is ever written over. A folder that cannot hold all texts is removed
        again; a recording that cannot be written is named as missing, as the rest is worth having.
        """
        span = incident.timeline.span() if incident.timeline is not None else None
        from gpumon.fleet.snapshot import FleetSnapshot
        from gpumon.history.file import RECORDING

        folder = await in_daemon_thread(self._write_texts, incident, span)
        if isinstance(folder, str):
            return f"nothing was written: {folder}"
        report = f"wrote {clean(folder.name, 200)}/ in {clean(str(folder.parent.absolute()), 200)}"
        if isinstance(incident.snapshot, FleetSnapshot):
            return report
        if incident.timeline is None or span is None:
            return f"{report}, without a recording: no past is kept"
        part = folder / f"{RECORDING}.part"  # what is left of it, should gpumon be killed meanwhile
        try:
            await incident.timeline.write(str(part))
            await in_daemon_thread(os.chmod, part, 0o600)
            await in_daemon_thread(os.rename, part, folder / RECORDING)
        except Exception as failure:  # also one of the past, which may be a file: the rest is worth having
            await in_daemon_thread(_remove_files, folder, f"{RECORDING}*")
            return f"WITHOUT {RECORDING} ({_why(failure)}): {report}"
        try:
            await in_daemon_thread(_write_incident, folder)
        except ConfigError:  # a past that is damaged has no card
            return report
        except OSError as failure:
            return f"{report}, without the card of its incident ({_why(failure)})"
        return report

    def _write_texts(self, incident: BundleFacts, span: tuple[float, float] | None) -> Path | str:
        """The folder that was made; or why none could be."""
        from gpumon.fleet.snapshot import FleetSnapshot
        from gpumon.history.incidents import incidents
        from gpumon.outputs.bundle import fleet_texts, texts

        snapshot = incident.snapshot
        screen = incident.screen
        picture = incident.picture()
        if isinstance(snapshot, FleetSnapshot):
            host = "fleet"
            files = fleet_texts(snapshot, incident.prices, screen, picture)
        else:
            host = snapshot.host.name
            end_s = snapshot.wall_s
            if span is not None:
                end_s = max(end_s, span[1])
            worst_incidents, _ = incidents(incident.events, end_s)
            card = incident.card() if incident.card is not None else ""
            files = texts(snapshot, screen, picture, incident.events, span, worst_incidents, card)
        failures = []
        for folder in self._folders():
            failure = self._make_folder(folder)
            if not failure:
                folder_or_failure = _write_folder(folder, _bundle_name(host, snapshot.wall_s), files)
                if isinstance(folder_or_failure, Path):
                    return folder_or_failure
                failure = folder_or_failure
            failures.append(f"{clean(str(folder), 100)}: {failure}")
        return "; ".join(failures)

    def _make_folder(self, folder: Path) -> str:
        """Make the folder of bundles where it is not there, for the user alone; returns what went wrong."""
        if folder != self._bundles:  # the home folder and that of temporary files are the system's
            return ""
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
        except OSError as failure:
            return failure.strerror or "cannot be made"
        return ""

    def _folders(self) -> Iterator[Path]:
        """Folders for bundles, the preferred one first."""
        if self._bundles is not None:
            yield self._bundles
        if self._home.startswith("/"):
            yield Path(self._home)
        import tempfile

        yield Path(tempfile.gettempdir())


def bundle_folder(environ: Mapping[str, str]) -> Path | None:
    """`gpumon/bundles` in the user's XDG state folder; None where no such folder is known."""
    state = state_folder(environ)
    if state is None:
        return None
    return state / "bundles"


def _why(failure: Exception) -> str:
    """A failure in few words."""
    strerror = failure.strerror if isinstance(failure, OSError) else None
    return clean(strerror or str(failure) or "cannot be written", 100)


def _write_incident(folder: Path) -> None:
    """Write the card of the worst incident in the recording of a bundle beside it; nothing where there is none."""
    from gpumon.history.file import RECORDING
    from gpumon.history.incident_card import incident_card
    from gpumon.history.reader import Recording
    from gpumon.outputs.incident_card import files

    recording = Recording(folder / RECORDING)
    try:
        span = recording.span()
        card = None if span is None else incident_card(recording, *span)
    finally:
        recording.close()
    for name, text in files(card, "incident").items() if card is not None else ():
        with open(folder / name, "x", encoding="utf-8", opener=_open_for_user) as stream:
            stream.write(text)


def _scenario_names(folder: Path | None) -> tuple[str, ...]:
    """Names of the scenario files in a folder, by the alphabet; none where it cannot be read."""
    if folder is None:
        return ()
    try:
        return tuple(sorted(path.stem for path in folder.iterdir() if path.suffix == ".toml" and path.stem))
    except OSError:
        return ()


def _bundle_name(host: str, wall_s: float) -> str:
    """`gpumon-HOST-TIME`, in local time."""
    safe_host = re.sub(r"[^A-Za-z0-9._-]+", "-", host).strip("-.")[:64] or "host"
    when = datetime.fromtimestamp(wall_s, timezone.utc).astimezone()
    return f"gpumon-{safe_host}-{when:%Y%m%d-%H%M%S}"


def _write_folder(parent: Path, name: str, texts: Mapping[str, bytes]) -> Path | str:
    """Write all texts into a new folder, which has the first free name; the folder, or what went wrong."""
    for number in range(1, _MOST_BUNDLES + 1):
        folder = parent / f"{name}-{number}" if number > 1 else parent / name
        try:
            folder.mkdir(0o700)
        except FileExistsError:
            continue
        except OSError as failure:
            return failure.strerror or "cannot be written"
        try:
            for file, text in texts.items():
                with open(folder / file, "xb", opener=_open_for_user) as stream:
                    stream.write(text)
        except OSError as failure:
            _remove_files(folder, "*")
            folder.rmdir()
            return failure.strerror or "cannot be written"
        return folder
    return f"{_MOST_BUNDLES} folders of this name are there"


def _remove_files(folder: Path, pattern: str) -> None:
    """Remove the files of a folder whose names match a pattern."""
    for path in folder.glob(pattern):
        path.unlink(missing_ok=True)


def _open_for_user(path: str, flags: int) -> int:
    """An opener of files that only the user can read."""
    return os.open(path, flags, 0o600)
