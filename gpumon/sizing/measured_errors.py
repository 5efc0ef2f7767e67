"""Efficiencies and error bands of measured servers; written by `python -m tests.accuracy.silicon --write`.

`bands` says what each number is, tests/data/README-silicon.md where the rows are from.
"""

from __future__ import annotations

from typing import Final

EFFICIENCY: Final = (0.7891, 0.6351, 0.4529, 0.8752, 3.226e-05, 1.173e-05, 4.362e-05)
ARCHITECTURES: Final = frozenset({"Blackwell Ultra", "Blackwell", "Hopper"})
"""Generations of GPUs that rows are of."""
TTFT: Final[dict[str, tuple[float, float, float, float]]] = {
    "": (14.33, 0.1223, 2.081, 0.1226),
    "sglang": (29.03, 0.9889, 3.038, 0.2508),
    "trtllm": (17.97, 0.08428, 1.942, 0.1235),
    "vllm": (10.42, 0.1579, 2.467, 0.07554),
}
BANDS: Final[dict[str, dict[tuple[int, bool], tuple[float, float, int]]]] = {
    "itl": {
        (1, False): (-0.146, 0.379, 215),
        (1, True): (-0.303, 0.351, 150),
        (2, False): (-0.186, 0.324, 270),
        (2, True): (-0.213, 0.592, 252),
        (4, False): (-0.251, 0.175, 181),
        (4, True): (-0.212, 0.385, 680),
        (8, False): (-0.211, 0.216, 272),
        (8, True): (-0.172, 0.403, 338),
    },
    "itl dp": {
        (1, True): (-0.263, 0.361, 62),
    },
    "ttft": {
        (1, False): (-0.831, 1.412, 215),
        (1, True): (-0.361, 3.248, 150),
        (2, False): (-0.484, 1.427, 270),
        (2, True): (-0.722, 0.731, 252),
        (4, False): (-0.49, 0.864, 181),
        (4, True): (-0.423, 0.951, 680),
        (8, False): (-0.593, 0.791, 272),
        (8, True): (-0.406, 0.925, 338),
    },
    "ttft any": {
        (1, False): (-0.832, 1.371, 215),
        (1, True): (-0.342, 3.039, 150),
        (2, False): (-0.455, 2.543, 270),
        (2, True): (-0.728, 0.557, 252),
        (4, False): (-0.474, 2.205, 181),
        (4, True): (-0.532, 3.631, 680),
        (8, False): (-0.632, 1.965, 272),
        (8, True): (-0.38, 2.466, 338),
    },
    "ttft one load": {
        (1, False): (-0.249, 0.331, 956),
        (1, True): (-0.217, 0.277, 2016),
    },
    "one load": {
        (1, False): (-0.141, 0.164, 3056),
        (1, True): (-0.155, 0.181, 4170),
    },
    "measured": {
        (1, False): (-0.023, 0.057, 415),
        (1, True): (-0.039, 0.071, 541),
    },
    "extrapolated": {
        (1, False): (-0.095, 0.048, 136),
        (1, True): (-0.139, 0.091, 170),
    },
    "mix": {
        (1, False): (-0.159, 0.207, 3890),
        (1, True): (-0.184, 0.232, 4485),
    },
    "precision": {
        (1, False): (-0.164, 0.203, 244),
        (1, True): (-0.235, 0.265, 792),
    },
    "gpu": {
        (1, False): (-0.12, 0.148, 229),
        (1, True): (-0.25, 0.436, 1471),
    },
    "tp": {
        (1, False): (-0.13, 0.17, 1896),
        (1, True): (-0.186, 0.279, 1601),
    },
}
