"""An endpoint's API key, read where the config says; it never stands in any text that leaves this file but the key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from gpumon.config.schema import Endpoint
from gpumon.readings.text import clean
from gpumon.sources.model_files import open_regular

MOST_BYTES: Final = 8192


def read_key(endpoint: Endpoint) -> tuple[str, str]:
    """The key (empty for none), and what is wrong with its source in one line (empty if nothing)."""
    if endpoint.api_key_env:
        place, text = f"environment variable {endpoint.api_key_env}", os.environ.get(endpoint.api_key_env)
        if text is None:
            return "", f"api_key_env: {place} is not set: export it before starting gpumon"
    elif endpoint.api_key_file:
        place = f"file {clean(endpoint.api_key_file, 80)}"
        try:
            with open_regular(Path(endpoint.api_key_file).expanduser()) as file:
                text = file.read(MOST_BYTES).decode("latin-1")
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: the home of a user who is not known
            why = clean(getattr(error, "strerror", None) or str(error), 80)
            return "", f"api_key_file: {place} cannot be read ({why}): check path and permission"
    else:
        return "", ""
    key = text.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        return "", f"the key in {place} is not one word of printable ASCII: put the bare key there"
    return key, ""
