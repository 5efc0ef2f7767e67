"""Imported profiles on disk: one JSON file each, in the user's data folder; and those that come with gpumon."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from gpumon.config.errors import ConfigError, Refused, dotted, error_of_value
from gpumon.config.load import file_name
from gpumon.config.ownership import owner_fault
from gpumon.config.save import NotSavedError
from gpumon.config.scenario_file import save_text
from gpumon.config.scenario_rules import checked_observed
from gpumon.readings.text import MOST_FAULT, clean
from gpumon.sizing.design_guide import guide_profiles
from gpumon.sizing.profile import Observed

_SCHEMA: Final = 1
"""Newest version of the files: a higher one was written by a newer gpumon."""
_MOST_PROFILE_BYTES: Final = 4 << 20
"""Largest file that is read."""
_MOST_FILES: Final = 2000
"""Files that are read: each list of profiles reads all of them."""
_LONGEST_NAME: Final = 80
"""Characters of the name of a profile."""
_MOST_NAMED: Final = 8
"""Most names in one error."""
_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._+-]{{0,{_LONGEST_NAME - 1}}}")
"""All names that a profile may have."""
_INNER_CHARACTERS: Final = "-._+"
"""Characters that stand inside a name that is made of a text, at neither end."""
_ALLOWED: Final = f"letters, digits, . _ + -, beginning with a letter or digit, at most {_LONGEST_NAME}"
"""Names of a profile (`_NAME`) in words."""


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of one file."""

    schema: int
    """Version of the file."""
    profile: Observed
    notes: tuple[str, ...] = ()
    """Notes of its import."""


class _Schema(msgspec.Struct, frozen=True):
    """The version of a file alone."""

    schema: int


class ProfileFolder(NamedTuple):
    """Content of the folder."""

    profiles: Mapping[str, Profile]
    """The profiles that can be read, by name."""
    broken: Mapping[Path, str]
    """File that cannot be read, or the folder -> the line that says so."""

    def observed(self) -> dict[str, Observed]:
        """The measurements of each profile, by its name."""
        return {name: stored.profile for name, stored in self.profiles.items()}


def profile_folder(environ: Mapping[str, str]) -> Path | None:
    """`GPUMON_PROFILES`, else `gpumon/profiles` in the user's XDG data folder; None where no home is known."""
    place = environ.get("GPUMON_PROFILES", "")
    if place:
        return Path(place)
    base = environ.get("XDG_DATA_HOME", "")
    home = environ.get("HOME", "")
    if not base.startswith("/"):
        base = f"{home}/.local/share" if home.startswith("/") else ""
    if base:
        return Path(base, "gpumon", "profiles")
    return None


def builtin_profiles() -> dict[str, Observed]:
    """The profiles that come with gpumon, by name. An import cannot take these names."""
    return {profile.name: profile for profile in guide_profiles()}


def all_profiles(environ: Mapping[str, str]) -> dict[str, Observed]:
    """All profiles by name, without files that cannot be read. Blocks.

    A file of the user comes before a profile of its name that comes with gpumon: it may be older than that.
    """
    return builtin_profiles() | stored_profiles(environ).observed()


def stored_profiles(environ: Mapping[str, str]) -> ProfileFolder:
    """The user's own profiles. Blocks; never raises: what is wrong stands in `broken`."""
    place = profile_folder(environ)
    if place is None:
        return ProfileFolder({}, {})
    try:
        paths = sorted(path for path in place.iterdir() if path.suffix == ".json" and not path.name.startswith("."))
    except FileNotFoundError:
        return ProfileFolder({}, {})
    except OSError as failure:
        return ProfileFolder({}, {place: f"{file_name(place)}: cannot be read: {failure.strerror}"})
    stored: dict[str, Profile] = {}
    broken = {}
    for path in paths[:_MOST_FILES]:
        profile_or_fault = _read_profile(path)
        if isinstance(profile_or_fault, Profile):
            stored[path.stem] = profile_or_fault
        else:
            broken[path] = f"{file_name(path)}: {profile_or_fault}"
    if len(paths) > _MOST_FILES:
        broken[place] = f"{file_name(place)}: {len(paths) - _MOST_FILES} of its files are left out"
    return ProfileFolder(stored, broken)


def safe_name(text: str) -> str:
    """A name for a file and a command line, made of any text."""
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip(_INNER_CHARACTERS)
    cut_name = name[:_LONGEST_NAME].rstrip(_INNER_CHARACTERS)
    return cut_name or "profile"


def checked_name(text: str) -> str:
    """The name, as the user typed it. Raises ConfigError for one that no profile may have."""
    if not _NAME.fullmatch(text):
        raise ConfigError(f"{clean(text, _LONGEST_NAME)!a} is no name for a profile; allowed: {_ALLOWED}")
    return text


def store_profiles(
    new: Sequence[Observed], environ: Mapping[str, str], *, notes: Sequence[str] = (), replace: bool = False
) -> tuple[Path, ...]:
    """Write each profile under its name; returns their files. Blocks.

    Where one cannot be written, none is left; with `replace` those that were written before it stay. A name that is
    taken is refused unless `replace`; one that comes with gpumon, and one that is there in other letter case, always.
    Raises ConfigError for a name and for a figure that no profile may have, NotSavedError where the disk refuses.
    """
    place = _required_folder(environ)
    for profile in new:
        _check_figures(profile)
    paths = [place / f"{checked_name(profile.name)}.json" for profile in new]
    _check_free(paths, place, replace=replace)
    written: list[Path] = []
    try:
        for profile, path in zip(new, paths, strict=True):
            text = msgspec.json.format(msgspec.json.encode(Profile(_SCHEMA, profile, tuple(notes))), indent=1)
            save_text(path, text.decode() + "\n", replace=replace)
            written.append(path)
    except NotSavedError:
        if not replace:  # what was replaced cannot be brought back
            for path in written:
                with contextlib.suppress(OSError):
                    path.unlink()
        raise
    return tuple(paths)


def remove_profile(name: str, environ: Mapping[str, str]) -> Path:
    """Take a profile away; returns its file.

    Raises ConfigError for a name that has no file, NotSavedError where the file cannot be removed.
    """
    path = _required_folder(environ) / f"{checked_name(name)}.json"
    try:
        path.unlink()
    except FileNotFoundError:
        if name in builtin_profiles():
            raise ConfigError(f"{name} comes with gpumon and cannot be removed") from None
        raise ConfigError(unknown_profile_text(name, all_profiles(environ))) from None
    except OSError as failure:
        raise NotSavedError(f"{file_name(path)} cannot be removed: {failure.strerror}") from None
    return path


def absence_reason(name: str, stored: ProfileFolder) -> str:
    """Why there is no profile of this name: the fault of its file, or that there is none, with similar names."""
    for path, line in stored.broken.items():
        if path.name == f"{name}.json":
            return line
    return unknown_profile_text(name, {**builtin_profiles(), **stored.profiles})


def unknown_profile_text(name: str, known: Mapping[str, object]) -> str:
    """The error for a profile that is not among the known ones, with up to three similar names."""
    import difflib

    nearest = difflib.get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(nearest)}?" if nearest else "`gpumon profiles list` names them"
    return f"there is no profile {clean(name, _LONGEST_NAME)!a}; {hint}"


def _required_folder(environ: Mapping[str, str]) -> Path:
    """The folder of profiles. Raises ConfigError where none is known."""
    place = profile_folder(environ)
    if place is None:
        raise ConfigError("no folder for profiles: set GPUMON_PROFILES, XDG_DATA_HOME or HOME")
    return place


def _check_free(paths: Sequence[Path], place: Path, *, replace: bool) -> None:
    """Refuse names that are taken: by gpumon, on disk, or by another profile of the same import. Raises ConfigError.

    Names that differ in upper and lower case alone are the same, as they are on some file systems.
    """
    stems = [path.stem for path in paths]
    _check_reserved(stems)
    _check_distinct(stems)
    stored = _names_on_disk(place)
    taken_names = [stored[stem.casefold()] for stem in stems if stem.casefold() in stored]
    other_case = [name for name in taken_names if name not in stems]
    if other_case:  # --replace, too, would leave both files on a file system that tells letter cases apart
        raise ConfigError(
            f"{', '.join(other_case[:_MOST_NAMED])}: there is a profile of this name in other letter case"
        )
    if taken_names and not replace:
        which = "a profile of this name is there" if len(taken_names) == 1 else "profiles of these names are there"
        raise ConfigError(
            f"{', '.join(taken_names[:_MOST_NAMED])}: {which}; --replace overwrites, --name NAME keeps both"
        )


def _check_reserved(stems: Sequence[str]) -> None:
    """Refuse names of profiles that come with gpumon. Raises ConfigError."""
    builtin_names = {name.casefold() for name in builtin_profiles()}
    reserved = [stem for stem in stems if stem.casefold() in builtin_names]
    if reserved:
        raise ConfigError(
            f"{', '.join(reserved[:_MOST_NAMED])}: the name belongs to a profile that comes with gpumon; use --name"
        )


def _check_distinct(stems: Sequence[str]) -> None:
    """Refuse two profiles of one name in the same import. Raises ConfigError."""
    counts = Counter(stem.casefold() for stem in stems)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise ConfigError(f"{', '.join(twice[:_MOST_NAMED])}: two profiles of this name")


def _names_on_disk(place: Path) -> Mapping[str, str]:
    """Lower-case form of each name that is taken on disk -> the name."""
    with contextlib.suppress(OSError):
        return {path.stem.casefold(): path.stem for path in place.iterdir() if path.suffix == ".json"}
    return {}


def _check_figures(profile: Observed) -> None:
    """Refuse a profile with a figure that none may have. Raises ConfigError."""
    try:
        checked_observed(profile)
    except Refused as refused:
        raise error_of_value(f"profile {clean(profile.name, _LONGEST_NAME)}", refused, dotted(refused.path)) from None


def _read_profile(path: Path) -> Profile | str:
    """A file's profile under the file's name, or what is wrong with it."""
    try:
        if not path.is_file() and not path.is_dir():
            return "is no file"  # a pipe would be waited for; opening a folder fails with a better text
        with path.open("rb") as stream:
            fault = owner_fault(os.fstat(stream.fileno()), str(path), "choose what {} plans with")
            if fault:
                return clean(fault, MOST_FAULT)
            content = stream.read(_MOST_PROFILE_BYTES + 1)
        if len(content) > _MOST_PROFILE_BYTES:
            return f"is no profile: larger than {_MOST_PROFILE_BYTES >> 20} MiB"
        # Read before the rest: a newer file may have other fields.
        schema = msgspec.json.decode(content, type=_Schema).schema
        if schema > _SCHEMA:
            return f"was written by a newer gpumon (schema {schema}; this one reads {_SCHEMA})"
        stored = msgspec.json.decode(content, type=Profile)
    except OSError as failure:
        return f"cannot be read: {failure.strerror}"
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as failure:
        return f"is no profile: {clean(str(failure), 200)}"
    if not _NAME.fullmatch(path.stem):
        return "has a name that no profile may have"
    try:
        checked_observed(stored.profile)
    except Refused as refused:
        return str(error_of_value("is no profile", refused, dotted(refused.path)))
    notes = tuple(clean(note, MOST_FAULT) for note in stored.notes)
    return msgspec.structs.replace(stored, profile=_with_clean_texts(stored.profile, path.stem), notes=notes)


def _with_clean_texts(profile: Observed, name: str) -> Observed:
    """The profile under this name, with every text made safe to print."""
    texts = {
        field.name: clean(getattr(profile, field.name))
        for field in msgspec.structs.fields(Observed)
        if field.type is str
    }
    texts["name"] = name
    return msgspec.structs.replace(profile, **texts)
