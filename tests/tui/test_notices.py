"""Notices: they stand where the keys are named, and not for long."""

from __future__ import annotations

import pytest

from gpumon.tui.screens import notices
from tests.tui.running import running, text_of, until
from tests.tui.test_keys import type_keys


@pytest.mark.parametrize("key", ["j", "3", "x", "f2", ":"])
async def test_the_next_key_brings_the_keys_back(key: str) -> None:
    async with running("live", 80, 24) as (app, pilot):
        app.monitor.say("wrote something")
        await pilot.pause()
        assert text_of(app)[-1] == " wrote something"
        await type_keys(app, pilot, key)
        assert "wrote something" not in "\n".join(text_of(app))
        assert "quit" in text_of(app)[-1]


async def test_the_drawer_keeps_its_keys_and_the_newest_notice_waits() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await type_keys(app, pilot, "/", "a")
        app.monitor.say("first")
        app.monitor.say("second")
        await pilot.pause()
        assert text_of(app)[-1].startswith(" Enter take it")
        await type_keys(app, pilot, "b", "enter")
        assert text_of(app)[-1] == " second"
        await type_keys(app, pilot, "j")
        assert "second" not in text_of(app)[-1]


async def test_a_notice_goes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    assert notices._NOTICE_S <= 4.0
    monkeypatch.setattr(notices, "_NOTICE_S", 0.1)
    async with running("live", 80, 24) as (app, pilot):
        app.monitor.say("wrote something")
        await until(lambda: "help" in text_of(app)[-1], pilot)
