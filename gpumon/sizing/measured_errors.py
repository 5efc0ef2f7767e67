"""Efficiencies and error bands of measured servers; written by `python -m tests.accuracy.silicon --write`.

`bands` says what each number is, tests/data/README-silicon.md where the rows are from.
"""

from __future__ import annotations

from typing import Final

EFFICIENCY: Final = (0.7892, 0.6344, 0.4607, 0.8464, 3.198e-05, 1.177e-05, 4.403e-05, 7.499, 1.86, 0.9738)
ENGINES: Final = {"": 1.36, "sglang": 3.21, "trtllm": 1.36, "vllm": 1.06}
BANDS: Final[dict[str, dict[tuple[int, bool], tuple[float, float, int]]]] = {
    "itl": {
        (1, False): (-0.146, 0.375, 215),
        (1, True): (-0.301, 0.35, 150),
        (2, False): (-0.19, 0.298, 270),
        (2, True): (-0.19, 0.589, 252),
        (4, False): (-0.258, 0.182, 181),
        (4, True): (-0.209, 0.383, 680),
        (8, False): (-0.209, 0.225, 272),
        (8, True): (-0.173, 0.402, 338),
    },
    "ttft": {
        (1, False): (-0.832, 0.848, 215),
        (1, True): (-0.216, 3.559, 150),
        (2, False): (-0.486, 0.925, 270),
        (2, True): (-0.729, 0.646, 252),
        (4, False): (-0.516, 0.498, 181),
        (4, True): (-0.484, 0.894, 680),
        (8, False): (-0.627, 0.486, 272),
        (8, True): (-0.506, 0.651, 338),
    },
    "ttft any": {
        (1, False): (-0.834, 1.091, 215),
        (1, True): (-0.299, 3.597, 150),
        (2, False): (-0.525, 1.927, 270),
        (2, True): (-0.741, 0.379, 252),
        (4, False): (-0.527, 2.1, 181),
        (4, True): (-0.586, 2.768, 680),
        (8, False): (-0.682, 1.775, 272),
        (8, True): (-0.423, 1.904, 338),
    },
    "one load": {
        (1, False): (-0.14, 0.163, 3056),
        (1, True): (-0.157, 0.183, 4170),
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
        (1, False): (-0.159, 0.212, 3890),
        (1, True): (-0.185, 0.235, 4485),
    },
    "precision": {
        (1, False): (-0.165, 0.206, 244),
        (1, True): (-0.235, 0.265, 792),
    },
    "gpu": {
        (1, False): (-0.121, 0.15, 229),
        (1, True): (-0.246, 0.435, 1471),
    },
    "tp": {
        (1, False): (-0.125, 0.172, 1896),
        (1, True): (-0.186, 0.28, 1601),
    },
}
