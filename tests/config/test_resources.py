"""The files that come with gpumon are found; the smoke run of the wheel finds them in an installation."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.config.resources import resource
from tests.each_row import each_row


@each_row("name", ["config.example.toml", "themes/default.toml"])
def test_in_a_checkout_it_lies_at_the_top(name: str) -> None:
    assert resource(name) == Path(__file__).parents[2] / name


def test_a_folder_is_found_too() -> None:
    assert (resource("themes") / "default.toml").is_file()


def test_what_is_missing_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"themes/none\.toml is missing"):
        resource("themes/none.toml")
