"""Efficiencies and error bands of measured servers; written by `python -m tests.accuracy.silicon --write`.

`bands` says what each number is, tests/data/README-silicon.md where the rows are from.
"""

from __future__ import annotations

from typing import Final

EFFICIENCY: Final = (0.7891, 0.6351, 0.4529, 0.8752, 3.226e-05, 1.173e-05, 4.362e-05, 7.454, 1.771, 0.9791)
ARCHITECTURES: Final = frozenset({"Blackwell Ultra", "Blackwell", "Hopper"})
"""Generations of GPUs that rows are of."""
ENGINES: Final = {"": 1.36, "sglang": 3.29, "trtllm": 1.35, "vllm": 1.06}
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
    "ttft": {
        (1, False): (-0.832, 0.947, 215),
        (1, True): (-0.408, 3.747, 150),
        (2, False): (-0.466, 0.963, 270),
        (2, True): (-0.727, 0.712, 252),
        (4, False): (-0.5, 0.511, 181),
        (4, True): (-0.49, 0.925, 680),
        (8, False): (-0.618, 0.481, 272),
        (8, True): (-0.495, 0.672, 338),
    },
    "ttft any": {
        (1, False): (-0.833, 1.201, 215),
        (1, True): (-0.414, 3.805, 150),
        (2, False): (-0.502, 2.023, 270),
        (2, True): (-0.74, 0.371, 252),
        (4, False): (-0.513, 2.195, 181),
        (4, True): (-0.575, 2.88, 680),
        (8, False): (-0.674, 1.826, 272),
        (8, True): (-0.385, 1.974, 338),
    },
    "ttft one load": {
        (1, False): (-0.192, 0.238, 956),
        (1, True): (-0.294, 0.415, 2016),
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
