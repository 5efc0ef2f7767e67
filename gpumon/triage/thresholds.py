"""Every threshold of triage, with its reason: the table `[triage]` of the config."""

from __future__ import annotations

from typing import Annotated

import msgspec

Positive = Annotated[float, msgspec.Meta(gt=0.0)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From where on triage speaks up. Shares are 0..1."""

    hold_s: Positive = 30.0
    """A verdict must hold this long to come, to change or to go: 3 windows of 10 s, so that a burst is no verdict."""
