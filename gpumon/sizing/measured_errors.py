"""Efficiencies and error bands of measured servers; written by `python -m tests.accuracy.silicon --write`.

`accuracy` says what each number is, tests/data/README-silicon.md where the rows are from.
"""

from __future__ import annotations

from typing import Final

EFFICIENCY: Final = (0.7913, 0.6388, 0.4438, 0.8868, 3.161e-05, 1.208e-05, 4.289e-05)
"""Fields of `accuracy.EngineEfficiency`, in their order."""
MEASURED_ARCHITECTURES: Final = frozenset({"Blackwell Ultra", "Blackwell", "Hopper"})
"""Generations of GPUs that rows are of."""
TTFT_FITS: Final[dict[str, tuple[float, float, float, float]]] = {
    "": (14.35, 0.1296, 2.277, 0.1086),
    "sglang": (29.14, 0.9759, 3.028, 0.256),
    "trtllm": (18.2, 0.08292, 2.237, 0.1027),
    "vllm": (10.4, 1.258, 1.937, 0.07481),
}
"""Engine -> fields of `accuracy.FirstTokenCost`, in their order; an empty name: those of all engines."""
BANDS: Final[dict[str, dict[tuple[int, bool], tuple[float, float, int]]]] = {
    "itl": {
        (1, False): (-0.21, 0.406, 485),
        (1, True): (-0.27, 0.65, 400),
        (2, False): (-0.238, 0.361, 666),
        (2, True): (-0.259, 0.479, 1080),
        (4, False): (-0.242, 0.317, 723),
        (4, True): (-0.228, 0.497, 1268),
        (8, False): (-0.258, 0.284, 453),
        (8, True): (-0.241, 0.415, 1018),
    },
    "ttft": {
        (1, False): (-0.789, 2.217, 485),
        (1, True): (-0.749, 0.911, 400),
        (2, False): (-0.699, 1.954, 666),
        (2, True): (-0.576, 1.224, 1080),
        (4, False): (-0.606, 1.892, 723),
        (4, True): (-0.506, 1.349, 1268),
        (8, False): (-0.612, 1.513, 453),
        (8, True): (-0.475, 1.449, 1018),
    },
    "ttft any": {
        (1, False): (-0.798, 3.746, 485),
        (1, True): (-0.746, 1.011, 400),
        (2, False): (-0.724, 3.156, 666),
        (2, True): (-0.591, 4.22, 1080),
        (4, False): (-0.62, 3.166, 723),
        (4, True): (-0.556, 3.861, 1268),
        (8, False): (-0.632, 3.051, 453),
        (8, True): (-0.529, 4.168, 1018),
    },
    "itl dp": {
        (1, True): (-0.31, 0.433, 62),
    },
    "ttft one load": {
        (1, False): (-0.214, 0.384, 974),
        (1, True): (-0.254, 0.33, 2064),
    },
    "one load": {
        (1, False): (-0.14, 0.163, 3098),
        (1, True): (-0.155, 0.181, 4244),
    },
    "measured": {
        (1, False): (-0.023, 0.056, 425),
        (1, True): (-0.039, 0.071, 559),
    },
    "extrapolated": {
        (1, False): (-0.095, 0.051, 141),
        (1, True): (-0.147, 0.091, 178),
    },
    "mix": {
        (1, False): (-0.159, 0.208, 3957),
        (1, True): (-0.184, 0.232, 4557),
    },
    "precision": {
        (1, False): (-0.164, 0.205, 248),
        (1, True): (-0.233, 0.267, 793),
    },
    "gpu": {
        (1, False): (-0.119, 0.152, 233),
        (1, True): (-0.25, 0.434, 1486),
    },
    "tp": {
        (1, False): (-0.135, 0.173, 1934),
        (1, True): (-0.18, 0.285, 1635),
    },
}
"""Kind of figure -> (tensor-parallel size, whether a MoE) -> fields of `accuracy.Band`, in their order."""
