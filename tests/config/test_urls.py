"""Which endpoint URLs are taken, and which are the same server."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.urls import server_of_url, url_problem, without_secrets
from tests.each_row import each_row


@each_row(
    "url",
    [
        "http://127.0.0.1:8000",
        "http://127.0.0.1:8000/metrics",
        "https://gateway.example/models/llama-70b/",
        "HTTP://Host",
        "http://[::1]:30000",
        "http://müller.example:8000",
        "http://host:65535",
        "localhost:8000",
        "10.0.0.7:8000/metrics",
        "[::1]:8000",
    ],
)
def test_taken(url: str) -> None:
    assert url_problem(url) == ""


@each_row(
    ("url", "text"),
    [
        ("", "must be a URL"),
        ("http://a b", "without spaces"),
        ("http://a\n", "without spaces"),
        ("http://a\u202e", "without spaces or control characters"),
        ("http://a\\@b", "must be a URL"),
        ("localhost", "needs http://"),
        ("user:pw@localhost:8000", "no user or password"),
        ("mailto:someone", "malformed"),
        ("://host", "must begin with http://"),
        ("unix:///run/vllm.sock", "must begin with http://"),
        ("http://", "has no host"),
        ("http://:8000", "has no host"),
        ("http://host:0", "has port 0"),
        ("http://host:65536", "malformed"),
        ("http://host:x", "malformed"),
        ("http://[::1", "malformed"),
        ("http://user@host", "no user or password"),
        ("http://user:pa/ss@host", "malformed"),
        ("http://host/?", "no query"),
        ("http://host/#top", "no fragment"),
    ],
)
def test_refused(url: str, text: str) -> None:
    assert text in url_problem(url)


@each_row(
    ("one", "other"),
    [
        ("http://host", "HTTP://HOST:80/"),
        ("http://host:8000", "host:8000"),
        ("http://host:8000/metrics", "http://host:8000"),
        ("https://host/a/metrics/", "https://host:443/a"),
    ],
)
def test_the_same_server(one: str, other: str) -> None:
    assert server_of_url(one) == server_of_url(other)


@each_row(
    ("one", "other"),
    [("http://host", "https://host"), ("http://host:1", "http://host:2"), ("http://host/a", "http://host/b")],
)
def test_different_servers(one: str, other: str) -> None:
    assert server_of_url(one) != server_of_url(other)


@given(st.text(alphabet="abc:/@?#.", max_size=12), st.text(alphabet="abc:/@?#.", max_size=12))
def test_no_form_of_a_password_is_printed(before: str, after: str) -> None:
    secret = "hunter2"
    for url in (f"http://{before}{secret}@{after}", f"http://host/{before}?{secret}{after}", f"http://h#{secret}"):
        assert secret not in without_secrets(url)
        assert secret not in url_problem(url)


@each_row(
    ("text", "shown"),
    [
        ("http://h:8000/metrics", "http://h:8000/metrics"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("http://h:99999", "http://h:99999"),
        ("http://u:pw", "http://u:***"),
        ("http://u:pw@h:1/a?b#c", "http://***@h:1/a?***"),
        ("acme/llama-?b", "acme/llama-?***"),
        ("#12345", "#12345"),
        ("?", "?"),
        ("?key=secret", "?***"),
        ("two words: 3 s", "two words: 3 s"),
    ],
)
def test_what_is_printed_of_a_text(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
