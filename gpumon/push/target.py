"""The receiver of a webhook: its URL and key, read anew for each message, and struck from all that is said."""

from __future__ import annotations

import base64
import html
import re
import unicodedata
from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from gpumon.config.schema import Endpoint, Webhook
from gpumon.push.bodies import PAGERDUTY_URL
from gpumon.readings.address import USUAL_PORT
from gpumon.sources.api_key import read_key
from gpumon.sources.endpoint_url import EndpointUrl

ALERTS_PATH: Final = "/api/v2/alerts"
"""Path of an Alertmanager that takes alerts."""
_STRUCK: Final = "***"
"""Stands for a secret in texts."""
_SHARED_BY_OFFSET: Final = (0, 2, 3)
"""Bytes before a text in its group of three -> first characters of its base64 that hold them, too."""
_REPEATED: Final = "an answer that repeats parts of a secret"
"""Stands for such an answer."""
_LEAST_PART: Final = 8
"""Letters in a row that a text shares with a secret no more by chance."""
_LEAST_SECRET_LETTERS: Final = 4
"""Letters of the shortest secret that is looked for without what stands between them."""
_MOST_ESCAPINGS: Final = 4
"""Escapings of one text that are undone, one inside of the other."""
_CODE_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U00((?:0[0-9A-Fa-f]|10)[0-9A-Fa-f]{4}))"  # Unicode ends at 10FFFF
)
"""A character by its number, as in JSON and in code."""
_RUN: Final = re.compile(r"[^\W_]+")
"""Letters and digits without anything between them."""
_PLAIN_WORD: Final = re.compile(r"[A-Z]?[a-z]{1,15}|[A-Z]{1,12}|[^\W\d_A-Za-z]{1,40}")
"""A word of an answer; in other scripts nothing stands between words."""
_SHORT_RUN: Final = re.compile(r"\d{1,4}|[A-Za-z0-9]{1,2}", re.ASCII)
_MOST_SHORT_RUNS: Final = 3
"""Numbers and short names of an answer that are shown: more may be the bytes of a secret."""
_LEAST_SECRET_CHARACTERS: Final = 6
"""Characters of a part of a secret URL that is struck from texts: shorter ones are words."""


class UnreadableSecretError(Exception):
    """The URL or the key cannot be read; the text says why and what to do, without it."""


class WebhookTarget(NamedTuple):
    """A receiver."""

    url: str
    """The URL that is posted to."""
    key: str
    """PagerDuty's routing key; empty for all others."""
    headers: dict[str, str]
    is_secret: bool
    """Whether the URL is a secret."""
    secrets: tuple[str, ...]
    """Texts that are struck from whatever is said about it, the longest first."""
    server: Endpoint
    """The server as the check of its owner takes it."""
    address: EndpointUrl

    def without_secrets(self, text: str) -> str:
        """A text of the receiver or of the system, without the secrets."""
        if self.is_secret:
            text = text.replace(f"{self.address.host}:{self.address.port}", "its server")
        for secret in self.secrets:
            for form in _forms_of(secret):
                text = re.sub(re.escape(form), _STRUCK, text, flags=re.IGNORECASE)
        return text

    def answer_without_secrets(self, text: str) -> str:
        """A text of the receiver without the secrets; one that still has parts of them in some form is left out.

        Of what remains words and a few numbers are shown, as a secret may stand there in an encoding that nobody
        knows.
        """
        if not self.secrets:
            return text
        text = unicodedata.normalize("NFKC", self.without_secrets(text))
        letters = _bare_letters(text)
        for secret in self.secrets:
            if secret not in self.keys and not _is_random(secret):
                continue
            for form in _forms_of(secret):
                if _shares_part(letters, _bare_letters(form)):
                    return _REPEATED
        return _plain_words(text)

    @property
    def keys(self) -> tuple[str, str]:
        """Secrets that may be words: the key as it is sent in a message, and in a header."""
        return self.key, self.headers.get("Authorization", "").removeprefix("Bearer ")

    @property
    def shown_url(self) -> str:
        """The URL, if it is no secret; else where it stands."""
        if self.is_secret:
            return f"its URL of {self.server.api_key_env or self.server.api_key_file}"
        return self.url


def _forms_of(secret: str) -> Iterator[str]:
    """The forms in which a receiver may give a secret back: as it is, quoted as in a URL, hexadecimal, in base64."""
    content = secret.encode()
    yield secret
    yield quote(secret, safe="")
    yield content.hex()
    for before in range(3):
        # Text before it shifts the groups of three bytes: characters that hold other bytes, too, are left out.
        encoded = base64.b64encode(bytes(before) + content).decode().rstrip("=")
        shared_at_end = 1 if (before + len(content)) % 3 else 0
        own = encoded[_SHARED_BY_OFFSET[before] : len(encoded) - shared_at_end]
        yield own
        yield own.replace("+", "-").replace("/", "_")


def _is_random(secret: str) -> bool:
    """Whether a part of a secret is no word: an answer with words of a URL repeats nothing."""
    return any(letter.isdigit() for letter in secret) or secret.lower() != secret


def _bare_letters(text: str) -> str:
    """Letters and digits of a text in lower case, whatever stands between them and however they are escaped."""
    for _ in range(_MOST_ESCAPINGS):
        before = text
        text = _CODE_ESCAPE.sub(_escaped_character, html.unescape(unquote(text)))
        if text == before:
            break
    return "".join(letter for letter in text.casefold() if letter.isalnum())


def _escaped_character(escape: re.Match[str]) -> str:
    """The character that an escape stands for."""
    return chr(int(escape[escape.lastindex or 0], 16))


def _plain_words(text: str) -> str:
    """The text with `…` in the place of runs of letters and digits that are no word, but for a few short ones."""
    pieces: list[str] = []
    copied_to = 0
    short_runs = 0
    for run in _RUN.finditer(text):
        if _PLAIN_WORD.fullmatch(run[0]):
            continue
        short_runs += 1
        if short_runs <= _MOST_SHORT_RUNS and _SHORT_RUN.fullmatch(run[0]):
            continue
        pieces.append(text[copied_to : run.start()])
        pieces.append("…")
        copied_to = run.end()
    pieces.append(text[copied_to:])
    return "".join(pieces)


def _shares_part(letters: str, secret: str) -> bool:
    """Whether a run of a secret stands in the letters of a text, forwards or backwards."""
    length = min(_LEAST_PART, len(secret))
    if length < _LEAST_SECRET_LETTERS:
        return False
    backwards = letters[::-1]
    for begin in range(len(secret) - length + 1):
        part = secret[begin : begin + length]
        if part in letters or part in backwards:
            return True
    return False


def target_of(webhook: Webhook) -> WebhookTarget:
    """The receiver of a webhook. Raises UnreadableSecretError. It reads a file, which may block."""
    url = _read_secret(webhook.url_env, webhook.url_file, "url") or webhook.url or PAGERDUTY_URL
    key = _read_secret(webhook.api_key_env, webhook.api_key_file, "api_key")
    is_secret = bool(webhook.url_env or webhook.url_file)
    address = _parse_address(url, is_secret=is_secret)
    post_url = url
    if webhook.kind == "alertmanager" and not urlsplit(url).path.rstrip("/").endswith(ALERTS_PATH):
        post_url = url.rstrip("/") + ALERTS_PATH
    headers = {"Content-Type": "application/json", "Accept": "*/*"}
    routing_key = ""
    if webhook.kind == "pagerduty":
        routing_key = key
    elif key:
        headers["Authorization"] = f"Bearer {key}"
    secrets = []
    if key:
        secrets.append(key)
    if is_secret:
        secrets += _secret_parts(url)
    server = Endpoint(
        url=url,
        api_key_env=webhook.url_env or webhook.api_key_env,
        api_key_file=webhook.url_file or webhook.api_key_file,
        api_key_user=webhook.api_key_user,
        tls_ca=webhook.tls_ca,
        tls_verify=webhook.tls_verify,
        trust_other_namespace=webhook.trust_other_namespace,
    )
    return WebhookTarget(
        url=post_url,
        key=routing_key,
        headers=headers,
        is_secret=is_secret,
        secrets=tuple(sorted(secrets, key=len, reverse=True)),
        server=server,
        address=address,
    )


def _read_secret(variable: str, file: str, setting: str) -> str:
    """A secret of an environment variable or a file; empty where none is named. Raises UnreadableSecretError."""
    text, fault = read_key(Endpoint(url="http://localhost", api_key_env=variable, api_key_file=file), setting)
    if fault:
        raise UnreadableSecretError(fault)
    return text


def _parse_address(url: str, *, is_secret: bool) -> EndpointUrl:
    """Host and port of a URL. Raises UnreadableSecretError, whose text does not repeat it."""
    where = "the URL that url_file or url_env holds" if is_secret else "url"
    try:
        url_parts = urlsplit(url)
        port = url_parts.port
    except ValueError:
        raise UnreadableSecretError(f"{where} is malformed: its host or port is none") from None
    if url_parts.scheme not in USUAL_PORT or not url_parts.hostname:
        raise UnreadableSecretError(f"{where} must begin with http:// or https:// and a host name")
    if "@" in url_parts.netloc:
        raise UnreadableSecretError(f"{where} must hold no user or password: use api_key_env or api_key_file")
    base = f"{url_parts.scheme}://{url_parts.netloc}"
    return EndpointUrl(base, url, url_parts.hostname, port or USUAL_PORT[url_parts.scheme])


def _secret_parts(url: str) -> list[str]:
    """The parts of a secret URL that may not be shown: the whole, its host, and the long parts of path and query."""
    url_parts = urlsplit(url)
    parts = [url]
    if url_parts.hostname:
        parts += [url_parts.netloc, url_parts.hostname]
    for part in (url_parts.path, url_parts.query, *url_parts.path.split("/"), *url_parts.query.split("&")):
        if len(part) >= _LEAST_SECRET_CHARACTERS:
            parts.append(part)
    return parts
