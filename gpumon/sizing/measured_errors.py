"""Efficiencies and error bands of measured servers; written by `python -m tests.accuracy.silicon --write`.

`accuracy` says what each number is, tests/data/README-silicon.md where the rows are from.
"""

from __future__ import annotations

from typing import Final

EFFICIENCY: Final = (0.8498, 0.7295, 0.4797, 0.7987, 1.817e-05, 4.447e-06, 5.653e-06, 7.346e-06, 1.195e-05)
"""Fields of `accuracy.EngineEfficiency`, in their order."""
MEASURED_ARCHITECTURES: Final = frozenset({"Blackwell Ultra", "Blackwell", "Hopper"})
"""Generations of GPUs that rows are of."""
TTFT_FITS: Final[dict[str, tuple[float, float, float, float]]] = {
    "": (14.77, 0.1344, 2.079, 0.108),
    "sglang": (27.99, 0.9269, 2.956, 0.2645),
    "trtllm": (18.6, 0.1002, 1.992, 0.1043),
    "vllm": (10.58, 1.315, 1.798, 0.06991),
}
"""Engine -> fields of `accuracy.FirstTokenCost`, in their order; an empty name: those of all engines."""
BANDS: Final[dict[str, dict[tuple[int, bool], tuple[float, float, int]]]] = {
    "itl": {
        (1, False): (-0.19, 0.351, 485),
        (1, True): (-0.244, 0.697, 400),
        (2, False): (-0.224, 0.275, 666),
        (2, True): (-0.242, 0.44, 1075),
        (4, False): (-0.246, 0.226, 723),
        (4, True): (-0.228, 0.45, 1263),
        (8, False): (-0.285, 0.207, 453),
        (8, True): (-0.228, 0.367, 1013),
    },
    "ttft": {
        (1, False): (-0.786, 1.944, 485),
        (1, True): (-0.74, 1.23, 400),
        (2, False): (-0.706, 1.733, 666),
        (2, True): (-0.544, 1.206, 1075),
        (4, False): (-0.582, 1.941, 723),
        (4, True): (-0.501, 1.201, 1263),
        (8, False): (-0.583, 1.659, 453),
        (8, True): (-0.455, 1.287, 1013),
    },
    "ttft any": {
        (1, False): (-0.81, 2.806, 485),
        (1, True): (-0.736, 1.187, 400),
        (2, False): (-0.732, 2.847, 666),
        (2, True): (-0.547, 3.907, 1075),
        (4, False): (-0.601, 3.178, 723),
        (4, True): (-0.538, 3.517, 1263),
        (8, False): (-0.607, 2.961, 453),
        (8, True): (-0.507, 3.794, 1013),
    },
    "itl dp": {
        (1, True): (-0.327, 0.284, 62),
    },
    "itl nvfp4": {
        (1, False): (-0.306, 0.159, 133),
        (1, True): (-0.169, 0.309, 397),
    },
    "itl 4 bit": {
        (1, True): (-0.378, 0.37, 334),
    },
    "ttft one load": {
        (1, False): (-0.208, 0.345, 974),
        (1, True): (-0.234, 0.366, 2064),
    },
    "one load": {
        (1, False): (-0.123, 0.14, 3098),
        (1, True): (-0.139, 0.16, 4244),
    },
    "two loads": {
        (1, False): (-0.027, 0.075, 459),
        (1, True): (-0.207, 0.071, 606),
    },
    "measured": {
        (1, False): (-0.023, 0.041, 425),
        (1, True): (-0.045, 0.053, 559),
    },
    "extrapolated": {
        (1, False): (-0.09, 0.038, 141),
        (1, True): (-0.155, 0.091, 178),
    },
    "mix": {
        (1, False): (-0.148, 0.199, 3957),
        (1, True): (-0.192, 0.237, 4557),
    },
    "precision": {
        (1, False): (-0.074, 0.084, 248),
        (1, True): (-0.233, 0.274, 793),
    },
    "gpu": {
        (1, False): (-0.104, 0.124, 233),
        (1, True): (-0.243, 0.39, 1486),
    },
    "tp": {
        (1, False): (-0.114, 0.159, 1934),
        (1, True): (-0.175, 0.279, 1635),
    },
}
"""Kind of figure -> (tensor-parallel size, whether a MoE) -> fields of `accuracy.Band`, in their order."""
