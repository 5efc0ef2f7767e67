"""`gpumon profiles`: imports load tests into the user's profiles, lists, shows and removes them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gpumon.commands.options import UsageError, add_action, number_option
from gpumon.commands.settings import settings
from gpumon.commands.streams import EXIT_FAILED, EXIT_OK, EXIT_USAGE, complain, note, width, write
from gpumon.config.errors import ConfigError, why_of_file
from gpumon.config.load import file_name, wait_for_writer
from gpumon.config.opener import open_checked
from gpumon.config.profile_store import (
    absence_reason,
    builtin_profiles,
    checked_name,
    remove_profile,
    safe_name,
    store_profiles,
    stored_profiles,
)
from gpumon.config.save import NotSavedError
from gpumon.outputs.profiles import encode, import_result, list_profiles, profile_as_json, show_profile
from gpumon.readings.text import clean
from gpumon.sizing.imports.files import MOST_FILES, MOST_IMPORT_BYTES, ImportRefused
from gpumon.sizing.imports.profiles import Given, import_files
from gpumon.sizing.imports.runs import precision
from gpumon.sources.packaged import gpu_catalogue


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the action, and the files or profiles."""
    nested = parser.add_subparsers(title="actions", metavar="ACTION")
    listing = add_action(nested, "list", "all profiles (the default)", _list)
    adding = add_action(nested, "add", "import the results of a load test", _add)
    adding.add_argument(
        "files", metavar="FILE", nargs="+", help=f"at most {MOST_FILES} files of one load test; - reads standard input"
    )
    for option, metavar, meaning in (
        ("--name", "NAME", "name of the profile (default: the model's)"),
        ("--model", "MODEL", "the model, as its engine or Hugging Face names it"),
        ("--gpu", "GPU", 'type of its GPUs, e.g. "H100 SXM 80GB"'),
        ("--precision", "P", "precision of the weights, e.g. bf16, fp8, int4"),
        ("--kv-precision", "P", "precision of the KV cache"),
        ("--concurrency", "N[,N...]", "concurrency per file, if the files lack it"),
    ):
        adding.add_argument(option, metavar=metavar, help=meaning)
    for option, metavar, kind, meaning in (
        ("--gpus", "N", number_option(1, 1024, int), "GPUs of the instance"),
        ("--tp", "N", number_option(1, 1024, int), "tensor parallel size"),
        ("--pp", "N", number_option(1, 1024, int), "pipeline parallel size"),
        ("--prompt-tokens", "N", number_option(1, 1e7), "mean prompt, if the files lack it"),
        ("--answer-tokens", "N", number_option(1, 1e7), "mean answer, if the files lack it"),
        ("--memory-gb", "GB", number_option(0.001, 1e6), "GPU memory of the instance, in 1e9 bytes"),
        ("--busy", "SHARE", number_option(0, 1), "busy share of its GPUs, 0 to 1"),
    ):
        adding.add_argument(option, metavar=metavar, type=kind, help=meaning)
    adding.add_argument("--replace", action="store_true", help="replace profiles of the same name")
    showing = add_action(nested, "show", "one profile with its points", _show)
    removing = add_action(nested, "remove", "delete a profile", _remove)
    for action in (showing, removing):
        action.add_argument("name", metavar="NAME", help="the profile's name")
    for action in (listing, adding, showing, removing):
        action.add_argument("--json", action="store_true", help="one JSON object")


def run(chosen: argparse.Namespace) -> int:
    """Run the chosen action; the exit code is 2 for files and names that cannot be taken, 1 where the disk refuses."""
    settings(chosen)
    try:
        chosen.action(chosen)
    except ImportRefused as refused:
        for line in (*str(refused).splitlines(), "nothing was imported"):
            complain(line, EXIT_USAGE)
        return EXIT_USAGE
    except NotSavedError as failure:
        return complain(str(failure), EXIT_FAILED)
    return EXIT_OK


def _add(chosen: argparse.Namespace) -> None:
    """Import the files of a load test, and say what was added."""
    name = checked_name(chosen.name) if chosen.name else ""
    memory_bytes = chosen.memory_gb * 1e9 if chosen.memory_gb is not None else None
    import_options = Given(
        name=name,
        model=clean(chosen.model or ""),
        gpu=_gpu_name(chosen.gpu),
        gpus=int(chosen.gpus or 0),
        tp=int(chosen.tp or 0),
        pp=int(chosen.pp or 0),
        weight_precision=_precision_name("--precision", chosen.precision),
        kv_precision=_precision_name("--kv-precision", chosen.kv_precision),
        prompt_tokens=chosen.prompt_tokens,
        answer_tokens=chosen.answer_tokens,
        concurrency=_parse_concurrencies(chosen.concurrency),
        memory_bytes=memory_bytes,
        busy_ratio=chosen.busy,
    )
    files = import_files(_read_files(chosen.files), import_options, gpu_catalogue())
    profiles = [msgspec.structs.replace(profile, name=safe_name(profile.name)) for profile in files.profiles]
    paths = store_profiles(profiles, os.environ, notes=files.notes, replace=chosen.replace)
    if chosen.json:
        objects = [profile_as_json(profile) for profile in profiles]
        write(encode({"added": objects, "notes": list(files.notes)}))
    else:
        write(import_result(profiles, files.notes, str(paths[0].parent), width()))


def _list(chosen: argparse.Namespace) -> None:
    """Print all profiles: those of gpumon and the imported ones."""
    stored = stored_profiles(os.environ)
    profiles = builtin_profiles() | stored.observed()
    problems = list(stored.broken.values())
    if chosen.json:
        objects = []
        for name, profile in profiles.items():
            is_builtin = name not in stored.profiles
            objects.append(profile_as_json(profile, _notes(stored.profiles, name), is_builtin=is_builtin))
        write(encode({"profiles": objects, "problems": problems}))
    else:
        builtin_names = frozenset(profiles).difference(stored.profiles)
        write(list_profiles(profiles, builtin_names, problems, width()))


def _show(chosen: argparse.Namespace) -> None:
    """Print one profile. Raises ConfigError."""
    name = chosen.name
    stored = stored_profiles(os.environ)
    profiles = builtin_profiles() | stored.observed()
    if name not in profiles:
        raise ConfigError(absence_reason(name, stored))
    notes = _notes(stored.profiles, name)
    is_builtin = name not in stored.profiles
    if chosen.json:
        write(encode({"profile": profile_as_json(profiles[name], notes, is_builtin=is_builtin)}))
    else:
        write(show_profile(profiles[name], notes, is_builtin=is_builtin, width=width()))


def _remove(chosen: argparse.Namespace) -> None:
    """Remove an imported profile. Raises ConfigError."""
    path = remove_profile(chosen.name, os.environ)
    if chosen.json:
        write(encode({"removed": path.stem}))
    else:
        write(f"removed {path.stem} ({file_name(path)})\n")


def _notes(stored: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Notes of the import of a profile; none for one that comes with gpumon."""
    if name in stored:
        return tuple(stored[name].notes)
    return ()


def _read_files(words: Sequence[str]) -> dict[str, bytes]:
    """Name of each file -> its content.

    Reading stops beyond `MOST_IMPORT_BYTES`: what is there is refused for its size.
    """
    files: dict[str, bytes] = {}
    total = 0
    if len(words) > MOST_FILES:
        raise UsageError(f"profiles add takes 1 to {MOST_FILES} files")
    for word in dict.fromkeys(words):
        if total <= MOST_IMPORT_BYTES:
            content = _read_file(word)
            name = "standard input" if word == "-" else word
            files[name] = content
            total += len(content)
    return files


def _read_file(word: str) -> bytes:
    """Content of a file or of standard input (`-`), as far as it is read. Raises ConfigError."""
    try:
        if word == "-":
            return sys.stdin.buffer.read(MOST_IMPORT_BYTES + 1)
        with open_checked(Path(word), wait_for_writer) as stream:
            return stream.read(MOST_IMPORT_BYTES + 1)
    except (OSError, ValueError) as failure:
        raise ConfigError(f"{file_name(word)}: cannot be read: {why_of_file(failure)}") from None


def _gpu_name(text: str | None) -> str:
    """Catalogue name of a type of GPU; empty where none is given. Raises ConfigError."""
    try:
        if not text:
            return ""
        catalogue = gpu_catalogue()
        name = catalogue.find_planned(text).name
    except ValueError as unknown_gpu:
        raise ConfigError(f"--gpu: {unknown_gpu}") from None
    if not catalogue.has(text):
        note(f"--gpu: {text} is taken for {name}")
    return name


def _precision_name(option: str, text: str | None) -> str:
    """The name of a precision; empty where none is given. Raises ConfigError."""
    name = precision(text) if text else ""
    if text and not name:
        raise ConfigError(
            f"{option}: {clean(text, 40)!a} is no precision; allowed: bf16, fp16, fp8, int8, int4, mxfp4, nvfp4"
        )
    return name


def _parse_concurrencies(text: str | None) -> tuple[float, ...]:
    """Numbers of requests in flight, given with commas between; none where none is given. Raises ConfigError."""
    if not text:
        return ()
    try:
        values = tuple(float(word) for word in text.split(","))
    except ValueError:
        values = (0.0,)
    if not all(1.0 <= value <= 1e6 for value in values):
        raise ConfigError(f"--concurrency: {clean(text, 40)!a} must be numbers from 1 to 1e6 with commas between")
    return values
