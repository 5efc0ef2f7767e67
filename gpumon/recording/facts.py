"""What is noted of a recording as a whole."""

from __future__ import annotations

from datetime import datetime, timezone

from gpumon import __version__


def facts(host: str, *, simulated: bool) -> dict[str, str]:
    """For a recording that is made now."""
    made = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"host": host, "gpumon": __version__, "made": made, "simulated": "yes" if simulated else ""}
