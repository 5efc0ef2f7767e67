"""An endpoint's API key, read where the config says; it never stands in any text that leaves this file but the key."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from gpumon.config.schema import Endpoint
from gpumon.readings.text import clean
from gpumon.sources.family import user_name
from gpumon.sources.model_files import open_regular
from gpumon.sources.sockets import Place, listening, locate, reached

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


def withheld(endpoint: Endpoint) -> str:
    """Why the secret may not be sent to the endpoint now, and the fix; empty where it may.

    On this host a port is anybody's while its server is down. Whoever listens there must know the secret without
    gpumon: root, gpumon's own user, the owner of its file, or the user that the config names. Another host can not be
    looked into; a server with TLS that is verified shows who it is. May wait for a name server.
    """
    if endpoint.tls_verify and endpoint.url.lower().startswith("https:"):
        return ""
    place = locate(endpoint.url)
    uids = {each.uid for each in reached(place, listening())} if isinstance(place, Place) else set()
    strangers = uids - {0, os.geteuid()}
    if strangers and endpoint.api_key_file:
        with contextlib.suppress(OSError, RuntimeError):
            strangers.discard(Path(endpoint.api_key_file).expanduser().stat().st_uid)
    names = {user_name(uid) for uid in strangers} - {endpoint.api_key_user}
    if not names:
        return ""
    return (
        f"what {_place(endpoint)} holds was not sent: {' and '.join(sorted(names))} listens on this port, and it is "
        f'not given for that user; if it is, set api_key_user = "{min(names)}"'
    )


def key_refused(endpoint: Endpoint, what: str = "the key") -> str:
    """What is said of a key (or another secret) that was sent and did not open the page."""
    return f"{what} was refused: check what {_place(endpoint)} holds"


def _place(endpoint: Endpoint) -> str:
    return endpoint.api_key_env or f"file {clean(endpoint.api_key_file, 80)}"
