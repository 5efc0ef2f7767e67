"""Savings of an action that frees GPUs: the GPU-hours of an hour, and their price."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.readings.verdict import Action, Parameters
from gpumon.triage.finding import params


def savings(gpus: float, per_gpu_hour: float | None) -> Parameters:
    """Parameters of an action that frees so many GPUs; none where there is no price, so that nothing is promised that
    nobody can compare."""
    if per_gpu_hour is None or gpus * per_gpu_hour <= 0.0:
        return {}
    return params(saves_gpu_hours=float(gpus), saves_per_hour=gpus * per_gpu_hour)


def with_savings(actions: Sequence[Action], gpus: float, per_gpu_hour: float | None) -> tuple[Action, ...]:
    """The actions, of which any one frees so many GPUs."""
    saved = savings(gpus, per_gpu_hour)
    return tuple(Action(action.code, action.parameters | saved) for action in actions)
