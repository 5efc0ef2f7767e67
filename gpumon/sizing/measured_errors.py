"""Efficiencies and error bands of measured servers; written by `python -m tests.accuracy.silicon --write`.

`bands` says what each number is. The rows and their source: tests/data/silicon.csv, tests/data/README.md.
"""

from __future__ import annotations

from typing import Final

EFFICIENCY: Final = (0.7854, 0.6359, 0.4586, 0.8447, 3.132e-05, 1.196e-05, 4.441e-05, 7.502, 1.857, 0.972)
ENGINES: Final = {"": 1.36, "sglang": 3.21, "trtllm": 1.36, "vllm": 1.06}
BANDS: Final[dict[str, dict[tuple[int, bool], tuple[float, float, int]]]] = {
    "itl": {
        (1, False): (-0.147, 0.383, 215),
        (1, True): (-0.302, 0.384, 150),
        (2, False): (-0.19, 0.305, 270),
        (2, True): (-0.191, 0.591, 252),
        (4, False): (-0.26, 0.185, 181),
        (4, True): (-0.207, 0.381, 680),
        (8, False): (-0.211, 0.225, 272),
        (8, True): (-0.176, 0.434, 338),
    },
    "ttft": {
        (1, False): (-0.832, 0.871, 215),
        (1, True): (-0.241, 3.591, 150),
        (2, False): (-0.484, 0.935, 270),
        (2, True): (-0.784, 0.638, 252),
        (4, False): (-0.515, 0.501, 181),
        (4, True): (-0.485, 0.893, 680),
        (8, False): (-0.627, 0.486, 272),
        (8, True): (-0.507, 0.65, 338),
    },
    "ttft any": {
        (1, False): (-0.833, 1.116, 215),
        (1, True): (-0.328, 3.619, 150),
        (2, False): (-0.524, 1.933, 270),
        (2, True): (-0.787, 0.319, 252),
        (4, False): (-0.527, 2.109, 181),
        (4, True): (-0.587, 2.772, 680),
        (8, False): (-0.682, 1.778, 272),
        (8, True): (-0.421, 1.909, 338),
    },
    "one load": {
        (1, False): (-0.14, 0.163, 3056),
        (1, True): (-0.159, 0.189, 4152),
    },
    "measured": {
        (1, False): (-0.023, 0.057, 415),
        (1, True): (-0.039, 0.07, 540),
    },
    "extrapolated": {
        (1, False): (-0.095, 0.048, 136),
        (1, True): (-0.185, 0.059, 170),
    },
    "mix": {
        (1, False): (-0.16, 0.213, 3890),
        (1, True): (-0.182, 0.218, 4483),
    },
    "precision": {
        (1, False): (-0.167, 0.21, 244),
        (1, True): (-0.235, 0.294, 792),
    },
    "gpu": {
        (1, False): (-0.123, 0.154, 229),
        (1, True): (-0.246, 0.408, 1470),
    },
    "tp": {
        (1, False): (-0.126, 0.172, 1896),
        (1, True): (-0.223, 0.301, 1599),
    },
}
