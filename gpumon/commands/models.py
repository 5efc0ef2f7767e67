"""`gpumon models`: lists and searches the catalogue, shows a model's facts and where they come from."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from gpumon.commands.options import add_action, number_option
from gpumon.commands.settings import settings
from gpumon.commands.streams import EXIT_FAILED, EXIT_OK, width, write

CONTEXT_TOKENS: Final = 4096.0
"""Context of the derived figures where none is asked for."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the action, and the models."""
    nested = parser.add_subparsers(title="actions", metavar="ACTION")
    listing = add_action(nested, "list", "all models of the catalogue (the default)", _list)
    searching = add_action(nested, "search", "models whose names have all these parts", _search)
    searching.add_argument("words", metavar="WORD", nargs="+", help="part of a name")
    showing = add_action(nested, "show", "facts of one model and their sources", _show)
    showing.add_argument("name", metavar="NAME", help="a model's name, its folder, or its .gguf file")
    showing.add_argument(
        "--context",
        metavar="N",
        type=number_option(1, 1e8),
        default=CONTEXT_TOKENS,
        help="context length for the figures",
    )
    for action in (listing, searching, showing):
        action.add_argument("--json", action="store_true", help="one JSON object (docs/models.md)")


def run(chosen: argparse.Namespace) -> int:
    """Run the chosen action; the exit code is 1 where no such model is known."""
    return int(chosen.action(chosen))


def _list(chosen: argparse.Namespace) -> int:
    """Print all models."""
    config = settings(chosen).loaded.config
    from gpumon.outputs.models import encode, list_models, model_as_json
    from gpumon.sources.packaged import llm_catalogue

    rows = llm_catalogue().rows
    configured = [entry.match for entry in config.model]
    if chosen.json:
        write(encode({"models": [model_as_json(row) for row in rows], "configured": configured}))
    else:
        write(list_models(rows, configured, width()))
    return EXIT_OK


def _search(chosen: argparse.Namespace) -> int:
    """Print the models that words find; the exit code is 1 where none is found."""
    settings(chosen)
    from gpumon.outputs.models import encode, list_models, model_as_json, not_found
    from gpumon.sources.packaged import llm_catalogue

    llms = llm_catalogue()
    words = chosen.words
    rows = llms.search(words)
    nearest = []
    if not rows:
        nearest = [row.name for row in llms.nearest(" ".join(words))]
    if chosen.json:
        write(encode({"models": [model_as_json(row) for row in rows], "nearest": nearest}))
    elif rows:
        write(list_models(rows, (), width()))
    else:
        write(not_found(words, nearest, width()))
    if rows:
        return EXIT_OK
    return EXIT_FAILED


def _show(chosen: argparse.Namespace) -> int:
    """Print the dimensions of one model; the exit code is 1 where they are not known."""
    config = settings(chosen).loaded.config
    from gpumon.outputs.models import ShownModel, encode, show_model, shown_json
    from gpumon.sources.file_views import view
    from gpumon.sources.model_facts import POINTER, look_up
    from gpumon.sources.packaged import llm_catalogue

    name = chosen.name
    llms = llm_catalogue()
    facts = look_up(_path_of_model(name) or name, "", config.model, llms, (view(os.environ),))
    catalogue_row = llms.row(name)
    nearest: tuple[str, ...] = ()
    if facts.spec is None and catalogue_row is None:
        nearest = tuple(row.name for row in llms.nearest(name))
    if _is_missing_path(name):
        why = "no such file or folder on this host"
    else:
        why = facts.why.removesuffix(f"\n{POINTER}")
    model = ShownModel(
        name=name,
        spec=facts.spec,
        row=catalogue_row,
        why=why,
        looked=facts.looked,
        nearest=nearest,
        context_tokens=chosen.context,
    )
    if chosen.json:
        write(encode(shown_json(model)))
    else:
        write(show_model(model, width()))
    if facts.spec is None:
        return EXIT_FAILED
    return EXIT_OK


def _path_of_model(name: str) -> str:
    """The absolute path of a folder or .gguf file of this host; empty where it is none.

    A `config.json` stands for its folder; a bare word is a folder where that has a `config.json`.
    """
    try:
        path = Path(name).expanduser()
        if path.name == "config.json" and path.is_file():
            path = path.parent
        is_named = "/" in name or name.endswith((".gguf", ".json")) or (path / "config.json").is_file()
        if is_named and path.exists():
            return str(path.resolve())
        return ""
    except (OSError, ValueError, RuntimeError):
        return ""


def _is_missing_path(name: str) -> bool:
    """Whether this can be nothing but a path, and there is none on this host."""
    is_path = name.startswith(("/", "./", "../", "~")) or name.endswith((".json", ".gguf"))
    return is_path and not _path_of_model(name)
