"""Runs the real screen in a process: `python -m tests.tui.screen_driver [feed] [interval]`.

A feed is the name of a scene, or busy, still, slow, broken, failing, faulty, or none: the busy feed alone, without a
screen.
"""

from __future__ import annotations

import sys
from typing import Any


def main() -> int:
    """Returns the exit code."""
    scene = sys.argv[1] if len(sys.argv) > 1 else "busy"
    interval_s = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    if scene == "none":
        import asyncio

        from tests.tui.feed import Busy

        asyncio.run(_feed_only(Busy(interval_s=interval_s)))
    from gpumon.config.themes import load_theme
    from gpumon.tui.app import MonitorApp, run
    from tests.tui import scenes
    from tests.tui.feed import Broken, Busy, Failing, Faulty, Slow, Still

    if scene in ("busy", "still"):
        control: Still = Busy(interval_s=interval_s, still=scene == "still")
    elif scene in (kinds := {"slow": Slow, "broken": Broken, "failing": Failing, "faulty": Faulty}):
        control = kinds[scene](scenes.SCENES["live"]())
    else:
        snapshot = scenes.SCENES[scene]()
        control = Still(snapshot, scenes.history(snapshot))
    return run(MonitorApp(control, load_theme("default")))


async def _feed_only(control: Any) -> None:
    """What the feed costs by itself."""
    import asyncio

    await control.start(lambda _: None)
    await asyncio.sleep(3600)


if __name__ == "__main__":
    sys.exit(main())
