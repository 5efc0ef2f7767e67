"""Which endpoint URLs are allowed, when two of them are the same server, and what of one may be printed. No network."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from gpumon.readings.address import USUAL_PORT

_NOT_A_PORT = re.compile(r"(://[^/:\[]+:)(?!\d+(?:/|$))[^/]+")
"""Text behind the host of a URL that stands in the place of a port, and is none."""


def with_scheme(url: str) -> str:
    """The URL with `http://` in front where it begins with host:port: so people name a server on their own host."""
    if "://" not in url and ":" in url:
        return f"http://{url}"
    return url


def url_problem(url: str) -> str:
    """Fault of an endpoint's base URL or host:port, as the end of a sentence; empty: none.

    The text never repeats the URL: it may hold a password.
    """
    if not url or "\\" in url or any(character.isspace() or not character.isprintable() for character in url):
        return "must be a URL such as http://127.0.0.1:8000, without spaces or control characters"
    url = with_scheme(url)
    if "://" not in url:
        return "needs http:// or https:// in front (host:port alone means http://host:port)"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is no URL: its host or port is malformed (host:port, port 1 to 65535, IPv6 in brackets)"
    checks = (
        (parts.scheme.lower() not in USUAL_PORT, "must begin with http:// or https://"),
        ("@" in parts.netloc, "must hold no user or password: use api_key_env or api_key_file"),
        (not parts.hostname, "has no host name"),
        (port == 0, "has port 0; a port is 1 to 65535"),
        ("?" in url, "must have no query (?...): a key belongs in api_key_env or api_key_file"),
        ("#" in url, "must have no fragment (#...)"),
    )
    for is_wrong, text in checks:
        if is_wrong:
            return text
    return ""


def server_of_url(url: str) -> str:
    """A text that is equal for two URLs of the same server: scheme, host, port, and a gateway's path.

    `url` must have no `url_problem`. A final `/metrics` is no part of it.
    """
    url_parts = urlsplit(with_scheme(url))
    scheme = url_parts.scheme.lower()
    path = url_parts.path.rstrip("/").removesuffix("/metrics").rstrip("/")
    return f"{scheme}://{url_parts.hostname}:{url_parts.port or USUAL_PORT[scheme]}{path}"


def without_secrets(text: str) -> str:
    """Text that may be a URL, with user, password, query and fragment struck out: safe to print whatever it is.

    What stands where a port should is struck out too: it may be half of a password.
    """
    if "@" in text:
        scheme, separator, _ = text.partition("://")
        start = scheme + separator if separator else ""
        text = f"{start}***@{text.rpartition('@')[2]}"
    struck = text
    for place, character in enumerate(text):
        if character in "?#" and not _is_plain_beginning(text, place):
            struck = f"{text[: place + 1]}***"
            break
    return _NOT_A_PORT.sub(r"\1***", struck)


def _is_plain_beginning(text: str, place: int) -> bool:
    """Whether a `?` or `#` is no part of a URL: `?` is the name of a key, `#12345` a number."""
    return place == 0 and (text == "?" or text.startswith("#"))


def holds_password(text: str) -> bool:
    """Whether a URL with a user or a password stands in the text."""
    return "@" in text.partition("://")[2]
