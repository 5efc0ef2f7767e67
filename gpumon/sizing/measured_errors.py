"""Efficiencies and error bands of measured servers; written by `python -m tests.accuracy.silicon --write`.

`bands` says what each number is, tests/data/README-silicon.md where the rows are from.
"""

from __future__ import annotations

from typing import Final

EFFICIENCY: Final = (0.7967, 0.6318, 0.4457, 0.8863, 3.235e-05, 1.182e-05, 4.348e-05)
ARCHITECTURES: Final = frozenset({"Blackwell Ultra", "Blackwell", "Hopper"})
"""Generations of GPUs that rows are of."""
TTFT: Final[dict[str, tuple[float, float, float, float]]] = {
    "": (14.23, 0.1297, 2.263, 0.1081),
    "sglang": (29.01, 0.9841, 3.005, 0.2505),
    "trtllm": (18.01, 0.08453, 2.255, 0.1025),
    "vllm": (10.38, 0.1569, 2.464, 0.07597),
}
BANDS: Final[dict[str, dict[tuple[int, bool], tuple[float, float, int]]]] = {
    "itl": {
        (1, False): (-0.141, 0.39, 215),
        (1, True): (-0.3, 0.232, 150),
        (2, False): (-0.181, 0.328, 270),
        (2, True): (-0.21, 0.598, 252),
        (4, False): (-0.248, 0.173, 181),
        (4, True): (-0.209, 0.388, 680),
        (8, False): (-0.216, 0.209, 272),
        (8, True): (-0.172, 0.404, 338),
    },
    "ttft": {
        (1, False): (-0.829, 1.463, 215),
        (1, True): (-0.461, 0.963, 150),
        (2, False): (-0.505, 1.521, 270),
        (2, True): (-0.721, 0.74, 252),
        (4, False): (-0.475, 0.853, 181),
        (4, True): (-0.423, 0.949, 680),
        (8, False): (-0.599, 0.811, 272),
        (8, True): (-0.411, 0.947, 338),
    },
    "ttft any": {
        (1, False): (-0.83, 1.426, 215),
        (1, True): (-0.456, 0.759, 150),
        (2, False): (-0.465, 2.695, 270),
        (2, True): (-0.726, 0.559, 252),
        (4, False): (-0.462, 2.6, 181),
        (4, True): (-0.529, 3.676, 680),
        (8, False): (-0.624, 2.212, 272),
        (8, True): (-0.371, 2.486, 338),
    },
    "itl dp": {
        (1, True): (-0.263, 0.361, 62),
    },
    "ttft one load": {
        (1, False): (-0.248, 0.329, 956),
        (1, True): (-0.216, 0.276, 2016),
    },
    "one load": {
        (1, False): (-0.141, 0.164, 3056),
        (1, True): (-0.154, 0.181, 4170),
    },
    "measured": {
        (1, False): (-0.023, 0.057, 415),
        (1, True): (-0.04, 0.071, 541),
    },
    "extrapolated": {
        (1, False): (-0.095, 0.048, 136),
        (1, True): (-0.139, 0.091, 170),
    },
    "mix": {
        (1, False): (-0.16, 0.208, 3890),
        (1, True): (-0.184, 0.232, 4485),
    },
    "precision": {
        (1, False): (-0.162, 0.2, 244),
        (1, True): (-0.235, 0.267, 792),
    },
    "gpu": {
        (1, False): (-0.12, 0.148, 229),
        (1, True): (-0.25, 0.435, 1471),
    },
    "tp": {
        (1, False): (-0.136, 0.175, 1896),
        (1, True): (-0.187, 0.279, 1601),
    },
}
