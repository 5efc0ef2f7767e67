"""Which endpoint URLs are allowed, and when two of them are the same server. No network."""

from __future__ import annotations

from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


def problem(url: str) -> str:
    """What is wrong with an endpoint's base URL, as the end of a sentence; empty where nothing is.

    The text never repeats the URL: it may hold a password.
    """
    if not url or "\\" in url or any(character.isspace() or not character.isprintable() for character in url):
        return "must be a URL such as http://127.0.0.1:8000, without spaces or control characters"
    if "://" not in url:
        return "needs http:// or https:// in front"
    try:
        split = urlsplit(url)
        port = split.port
    except ValueError:
        return "is no URL: its host or port is malformed (host:port, port 1 to 65535, IPv6 in brackets)"
    checks = (
        (split.scheme.lower() not in _PORTS, "must begin with http:// or https://"),
        ("@" in split.netloc, "must hold no user or password: use api_key_env or api_key_file"),
        (not split.hostname, "has no host name"),
        (port == 0, "has port 0; a port is 1 to 65535"),
        ("?" in url, "must have no query (?...): a key belongs in api_key_env or api_key_file"),
        ("#" in url, "must have no fragment (#...)"),
    )
    return next((text for wrong, text in checks if wrong), "")


def server(url: str) -> str:
    """A text that is equal for two URLs of the same server: scheme, host, port, and a gateway's path.

    `url` must have no `problem`. A final `/metrics` is no part of it.
    """
    split = urlsplit(url)
    scheme = split.scheme.lower()
    path = split.path.rstrip("/").removesuffix("/metrics").rstrip("/")
    return f"{scheme}://{split.hostname}:{split.port or _PORTS[scheme]}{path}"


def without_secrets(url: str) -> str:
    """The URL with user, password, query and fragment struck out: safe to print even where `problem` refuses it."""
    visible = url.split("?")[0].split("#")[0]
    if "@" not in url:
        return visible
    scheme, mark, _ = url.partition("://")
    return f"{scheme if mark else ''}{mark}***@{url.rpartition('@')[2].split('?')[0].split('#')[0]}"
