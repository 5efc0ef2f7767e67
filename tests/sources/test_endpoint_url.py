"""The forms of an endpoint's URL, and what a wrong one is told."""

from __future__ import annotations

import pytest

from gpumon.sources.endpoint import parse_url

FORMS = {
    "http://127.0.0.1:8000": ("http://127.0.0.1:8000", "/metrics"),
    "http://127.0.0.1:8000/": ("http://127.0.0.1:8000", "/metrics"),
    "http://127.0.0.1:8000/metrics": ("http://127.0.0.1:8000", "/metrics"),
    "http://127.0.0.1:8000/metrics/": ("http://127.0.0.1:8000", "/metrics"),
    "http://127.0.0.1:8000/v1": ("http://127.0.0.1:8000", "/metrics"),
    "http://127.0.0.1:8000/v1/": ("http://127.0.0.1:8000", "/metrics"),
    "http://nim:8000/v1/metrics": ("http://nim:8000", "/v1/metrics"),
    "http://trt:8000/prometheus/metrics": ("http://trt:8000", "/prometheus/metrics"),
    "http://gate/prometheus": ("http://gate:80/prometheus", "/prometheus/metrics"),
    "http://gate/llama/metrics": ("http://gate:80/llama", "/llama/metrics"),
    "https://gate": ("https://gate:443", "/metrics"),
    "gpu-07:8000": ("http://gpu-07:8000", "/metrics"),
    "http://[::1]:8000": ("http://[::1]:8000", "/metrics"),
    "[::1]:8000": ("http://[::1]:8000", "/metrics"),
    "  http://host:8000 ": ("http://host:8000", "/metrics"),
}


@pytest.mark.parametrize("text", FORMS)
def test_forms(text: str) -> None:
    url = parse_url(text)
    base, path = FORMS[text]
    origin = "/".join(base.split("/")[:3])
    assert (url.base, url.metrics) == (base, origin + path)
    assert url.secure is base.startswith("https")


def test_host_and_port() -> None:
    assert parse_url("http://[::1]:8001")[2:4] == ("::1", 8001)
    assert parse_url("gpu-07:8000")[2:4] == ("gpu-07", 8000)


WRONG = """
gpu-07|8000|:8000|http://|ftp://host|http://host:99999|http://host:0|http://host:x|http://ho st:8000|http://[::1:8000
http://host:8000?key=s3cret|http://host#s3cret|http://user:s3cret@host:8000|s3cret@host:8000|file:///etc/passwd
"""


@pytest.mark.parametrize(
    "text", ["", "  ", "http://host\n:8000", "http://host\x1b:8000", *WRONG.strip().replace("\n", "|").split("|")]
)
def test_a_wrong_url_is_a_value_error_that_does_not_repeat_it(text: str) -> None:
    with pytest.raises(ValueError, match="URL") as error:
        parse_url(text)
    assert "s3cret" not in str(error.value)
    assert str(error.value).isprintable()
