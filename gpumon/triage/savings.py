"""Savings of an action that frees GPUs: the GPU-hours of an hour, and their price."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.readings.verdict import Action, Parameters
from gpumon.triage.finding import params


def with_savings(actions: Sequence[Action], gpus: float, per_gpu_hour: float | None) -> tuple[Action, ...]:
    """The actions, of which any one frees so many GPUs, with what that saves; nothing where there is no price, so that
    nothing is promised that nobody can compare."""
    saved: Parameters = {}
    if per_gpu_hour is not None and gpus * per_gpu_hour > 0.0:
        saved = params(saves_gpu_hours=float(gpus), saves_per_hour=gpus * per_gpu_hour)
    return tuple(Action(action.code, action.parameters | saved) for action in actions)
