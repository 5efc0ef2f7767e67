"""An endpoint's API key, read where the config says; it never stands in any text that leaves this file but the key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from gpumon.config.schema import Endpoint
from gpumon.readings.text import clean
from gpumon.sources.model_files import open_regular

MOST_BYTES: Final = 8192


def read_key(endpoint: Endpoint, setting: str = "api_key") -> tuple[str, str]:
    """The key (empty for none), and what is wrong with its source in one line (empty if nothing).

    `setting` is what the config calls it, before `_env` and `_file`: `api_key` or `password`.
    """
    if endpoint.api_key_env:
        text = os.environ.get(endpoint.api_key_env)
        if text is None:
            return "", f"{setting}_env: {endpoint.api_key_env} is not set: export it before starting gpumon"
    elif endpoint.api_key_file:
        file_name = clean(endpoint.api_key_file, 80)
        try:
            with open_regular(Path(endpoint.api_key_file).expanduser()) as file:
                text = file.read(MOST_BYTES).decode("latin-1")
        except FileNotFoundError:
            return "", f"{setting}_file: no such file: {file_name}"
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: the home of a user who is not known
            why = clean(getattr(error, "strerror", None) or str(error), 80)
            return "", f"{setting}_file: file {file_name} cannot be read ({why}): check path and permission"
    else:
        return "", ""
    key, word = text.strip(), setting.removeprefix("api_")
    if not key:
        return "", f"the {word} in {_place(endpoint)} is empty: put the bare {word} there"
    if not key.isascii() or not key.isprintable() or " " in key:
        return "", f"the {word} in {_place(endpoint)} is not one word of printable ASCII: put the bare {word} there"
    return key, ""


def key_refused(endpoint: Endpoint, what: str = "the key") -> str:
    """What is said of a key (or another secret) that was sent and did not open the page."""
    return f"{what} was refused: check what {_place(endpoint)} holds"


def _place(endpoint: Endpoint) -> str:
    return endpoint.api_key_env or f"file {clean(endpoint.api_key_file, 80)}"
