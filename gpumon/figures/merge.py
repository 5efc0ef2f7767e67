"""How the figures of several things become that of all of them together."""

from __future__ import annotations

from enum import Enum


class Merge(Enum):
    """The rule of a figure, over ranks, replicas, GPUs, hosts and spans of time."""

    OWN = "own"
    """It is worked out for all of them by itself, such as a price per token."""
    SUM = "sum"
    MEAN = "mean"
    """Each is weighted with the figure that `Figure.weight` names, and over a span with its seconds."""
    MOST = "most"
    QUOTIENT = "quotient"
    """Sum of one figure over the sum of another: `Figure.quotient_of` has both."""
    OBSERVATIONS = "observations"
    """Over all observations of all things: their histograms are added up."""
