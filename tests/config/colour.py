"""Arithmetic of colour for the tests of themes: WCAG contrast, and what colour-blind eyes see."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

Matrix = tuple[tuple[float, float, float], ...]
Triple = tuple[float, float, float]

EYES: Final[dict[str, Matrix]] = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
"""Machado, Oliveira, Fernandes 2009, severity 1.0: linear RGB as seen with each colour vision deficiency."""
_TO_XYZ: Final[Matrix] = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
"""Linear sRGB to CIE XYZ (IEC 61966-2-1)."""
_WHITE: Final = (0.95047, 1.0, 1.08883)
"""D65."""


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio of two `#rrggbb` colours: 1 to 21."""
    dark, light = sorted(_luminance(colour) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def lightness(colour: str) -> float:
    """CIE L* of a colour: 0 to 100."""
    return seen(colour, "normal")[0]


def distance(one: str, other: str, eyes: str) -> float:
    """CIE76 distance (Lab) of two colours as seen by `eyes`, a key of EYES. Below 20 they are hard to tell apart."""
    return math.dist(seen(one, eyes), seen(other, eyes))


def nearest(colours: Iterable[str], eyes: Iterable[str] = EYES) -> float:
    """The smallest distance between any two of some colours, to the eyes that tell them apart worst."""
    pairs = list(itertools.combinations(colours, 2))
    return min(distance(one, other, eye) for eye in eyes for one, other in pairs)


@lru_cache(maxsize=4096)
def seen(colour: str, eyes: str) -> Triple:
    """CIE Lab (D65) of a colour as seen by `eyes`."""
    red, green, blue = (min(1.0, max(0.0, part)) for part in _times(EYES[eyes], _linear(colour)))
    shares = (part / white for part, white in zip(_times(_TO_XYZ, (red, green, blue)), _WHITE, strict=True))
    x, y, z = (share ** (1 / 3) if share > 0.008856 else 7.787 * share + 16 / 116 for share in shares)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _linear(colour: str) -> Triple:
    """sRGB to linear light (IEC 61966-2-1)."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return _light(red), _light(green), _light(blue)


def _light(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else float(((part + 0.055) / 1.055) ** 2.4)


def _luminance(colour: str) -> float:
    return _times(_TO_XYZ, _linear(colour))[1]


def _times(matrix: Matrix, by: Triple) -> Triple:
    red, green, blue = (math.fsum(a * b for a, b in zip(row, by, strict=True)) for row in matrix)
    return red, green, blue
