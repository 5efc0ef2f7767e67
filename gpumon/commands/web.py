"""`gpumon web`: the screen in a browser. Where it listens, under which names, and what each of its tabs runs."""

from __future__ import annotations

import argparse
import ipaddress
import os
import secrets
import socket
import sys
from typing import Final
from urllib.parse import urlsplit

from gpumon.commands import screen
from gpumon.commands.command_line import actions, parser_of
from gpumon.commands.scenarios import add_demo
from gpumon.commands.settings import settings
from gpumon.commands.streams import write
from gpumon.config.checks import address_problem
from gpumon.config.errors import ConfigError
from gpumon.config.urls import without_secrets
from gpumon.web.admission import Admission

LISTEN: Final = "127.0.0.1:8484"
"""Address and port where `--listen` names none."""
KEY_VARIABLE: Final = "GPUMON_WEB_KEY"
"""Environment variable with the key of the link; one is made up where it is not set."""
_TAB: Final = "import sys; sys.path[:] = filter(None, sys.path); from gpumon.__main__ import main; sys.exit(main())"
"""The program of a tab. With `-m` Python would look for modules in the working folder first, where another user may
have put one; with `-c` that folder is the empty entry of its path."""
LEAST_KEY: Final = 16
"""Characters of a key that is given."""
_INSTALL: Final = (
    "gpumon web needs textual-serve, which is not installed: pipx inject gpumon-llm textual-serve (docs/web.md)"
)
_WARNING: Final = (
    "warning: {0} is no loopback address, and this is plain HTTP: whoever reads the network can read the link, see the"
    " screen and use its keys, which write files as this user (docs/web.md)\n"
)


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the sources of a tab and how it draws them, and the address to serve it at."""
    screen.options(parser)
    add_demo(parser)
    parser.add_argument(
        "--listen", metavar="ADDRESS", dest="web_listen", help="address:port to serve at (default 127.0.0.1:8484)"
    )
    parser.add_argument("--allow-remote", action="store_true", help="allow an address that is not loopback")
    parser.add_argument("--public-url", metavar="URL", help="URL of the reverse proxy in front (docs/web.md)")


def run(chosen: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    loaded = settings(chosen).loaded
    from gpumon.config.themes import load_theme, themes_folder

    load_theme(loaded.config.general.theme, themes_folder(loaded.place))  # every tab would refuse it
    address = chosen.web_listen or LISTEN
    host, port = _host_and_port(address)
    is_local = is_loopback(host)
    if not is_local and not chosen.allow_remote:
        raise ConfigError(
            f"--listen: {without_secrets(address)} is no loopback address, and the screen would be open to the network"
            " without TLS: use 127.0.0.1 and ssh -L or a reverse proxy (docs/web.md), or add --allow-remote"
        )
    names: tuple[str, ...] = _host_names(host) if not is_local else ()
    admission = Admission(_take_key(), names, public_url(chosen.public_url or ""))
    try:
        from gpumon.web.server import serve
    except ModuleNotFoundError as missing:
        if str(missing.name).startswith("gpumon"):
            raise
        raise ConfigError(_INSTALL) from None
    with _listening_socket(host, port, address) as listening:
        if not is_local:
            write(_WARNING.format(without_secrets(host)))
        url = admission.public_url or f"http://{_host_in_url(host)}:{listening.getsockname()[1]}"
        write(f"gpumon is at {url}/#key={admission.key}\nCtrl+C ends it\n")
        serve(listening, screen_command(chosen), admission)
    return 0


def _host_and_port(address: str) -> tuple[str, int]:
    """Host and port. Raises ConfigError."""
    if address_problem(address):
        raise ConfigError(
            f"--listen: {without_secrets(address)[:40]!a} must be address:port, such as {LISTEN} or [::1]:8484"
        )
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def screen_command(chosen: argparse.Namespace) -> list[str]:
    """The program of a tab, and its arguments: the options chosen, for the screen."""
    words = [sys.executable, "-c", _TAB]
    command = ""
    if chosen.demo:
        command = "demo"
        words.append(command)
    for action in actions(parser_of(command)):
        value = getattr(chosen, action.dest, None)
        if value is True:
            words.append(action.option_strings[0])
        elif isinstance(value, list):
            words += [f"{action.option_strings[0]}={item}" for item in value]
        elif value:
            words.append(f"{action.option_strings[0]}={value}")
    return words


def is_loopback(host: str) -> bool:
    """Whether only this host can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def public_url(text: str) -> str:
    """Scheme, host and path of a reverse proxy's URL, without the last slash; empty where none is given.

    Raises ConfigError.
    """
    if text and not _is_proxy_url(text):
        raise ConfigError("--public-url: must be the URL of the reverse proxy, such as https://gpu.example.com/gpumon")
    return text.rstrip("/")


def _is_proxy_url(text: str) -> bool:
    """Whether a text is an HTTP URL of a host and a path, and nothing else."""
    if not text.isprintable() or any(character.isspace() for character in text):
        return False
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        return False
    has_place = url.scheme in ("http", "https") and bool(url.hostname) and port != 0
    has_more = "@" in url.netloc or bool(url.query) or bool(url.fragment)
    return has_place and not has_more


def _take_key() -> str:
    """The key of the link: that of the environment, else a new one. Raises ConfigError.

    It is taken out of the environment, which the processes of tabs get.
    """
    key = os.environ.pop(KEY_VARIABLE, "") or secrets.token_urlsafe(24)
    if len(key) < LEAST_KEY or not key.isascii() or not key.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(f"{KEY_VARIABLE}: must have at least {LEAST_KEY} of a-z, A-Z, 0-9, - and _")
    return key


def _host_names(host: str) -> tuple[str, ...]:
    """Names under which a browser elsewhere may ask for this host; addresses are always good."""
    return (host.lower(), socket.gethostname().lower(), socket.getfqdn().lower())


def _listening_socket(host: str, port: int, address: str) -> socket.socket:
    """A socket that listens at a host and port. Raises ConfigError; `address` is how the user wrote them."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as failure:
        raise ConfigError(
            f"--listen: {without_secrets(address)} cannot be listened at: {failure.strerror}; choose another port"
        ) from None


def _host_in_url(host: str) -> str:
    """A host as it stands in a URL; the address of all interfaces is none that a browser can open."""
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    if ":" in host:
        return f"[{host}]"
    return host
