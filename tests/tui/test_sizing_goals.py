"""Goals in the sizing panel: a simulated p95 arrives a moment after the key, and the columns show what is judged."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from msgspec.structs import replace

from gpumon.sizing.answer import Answer, Basis, JudgedGoal
from gpumon.sizing.goals import goal_text
from gpumon.sizing.plan import plan
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.sizing.simulate.tails import SimulatedTails
from gpumon.tui.sizing.calculation import Calculation, waits
from gpumon.tui.sizing.offer import newly_measured
from tests.sizing.questions import KNOWN
from tests.tui.picture_scenes import TP as THREE_MODELS
from tests.tui.running import running, text_of, until
from tests.tui.sizing_scenes import desk_of, watched
from tests.tui.test_keys import type_keys

CHAT = Workload(
    "meta-llama/Llama-3.1-8B-Instruct", 300.0, target_kind="users", think_s=30.0, prompt_tokens=2000, answer_tokens=300
)
ASKED = Scenario(tpot_p95_ms=25.0, server=(Server("H100 SXM5 80GB"),), workload=(CHAT,))


def loads_of(calculation: Calculation) -> int:
    """Loads of instances that were simulated."""
    kept = calculation._tails.kept
    return sum(len(loads) for loads in kept.values())


def test_an_answer_waits_for_what_is_simulated_and_is_that_of_the_command_then() -> None:
    calculation = Calculation(KNOWN)
    calculation.ask(ASKED)
    first = calculation.answer
    assert first is not None
    assert first.workloads[0].goals[0].basis is Basis.PENDING
    assert waits(first)
    calculation.simulate(calculation.pending, lambda: True)
    calculation.take_simulated()
    calculation.ask(ASKED)
    assert calculation.pending == ()
    assert calculation.answer == plan(ASKED, KNOWN._replace(tails=SimulatedTails()))


def test_another_target_does_not_wait_for_the_number_of_gpus() -> None:
    """The loads of an instance are simulated already; only the figure at the new target is not."""
    calculation = Calculation(KNOWN)
    calculation.ask(ASKED)
    calculation.simulate(calculation.pending, lambda: True)
    calculation.take_simulated()
    calculation.ask(ASKED)
    more = replace(ASKED, workload=(replace(CHAT, target=900.0),))
    calculation.ask(more)
    answer = calculation.answer
    assert answer is not None
    assert answer.totals.gpus == plan(more, KNOWN._replace(tails=SimulatedTails())).totals.gpus


def test_a_simulation_that_is_no_longer_wanted_ends() -> None:
    calculation = Calculation(KNOWN)
    calculation.ask(ASKED)
    calculation.simulate(calculation.pending, lambda: False)
    calculation.take_simulated()
    calculation.ask(ASKED)
    assert calculation.answer is not None
    assert waits(calculation.answer)
    assert calculation.pending


def test_a_simulation_that_is_no_longer_wanted_ends_within_an_instance() -> None:
    """A key asks for something else: the load that is simulated just then is given up, too."""
    calculation = Calculation(KNOWN)
    calculation.ask(ASKED)
    answers = iter([True, True])
    calculation.simulate(calculation.pending, lambda: next(answers, False))
    assert loads_of(calculation) == 0
    answers = itertools.repeat(True)
    calculation.simulate(calculation.pending, lambda: next(answers))
    assert loads_of(calculation) > 0


async def test_the_column_shows_what_the_goal_judges_a_moment_after_the_key() -> None:
    async with running(watched(), 120, 50) as (app, pilot):
        await type_keys(app, pilot, "s", *"200", "enter")
        assert "TPOT p95" not in _titles(text_of(app))
        await type_keys(app, pilot, "i", *"40", "enter")
        assert "TPOT p95" in _titles(text_of(app))
        await until(lambda: not _waits(desk_of(app).calculation), pilot)
        row = desk_of(app).calculation.plan(0)
        assert row is not None
        assert [(goal.name, goal.basis) for goal in row.goals] == [("TPOT p95", Basis.SIMULATED)]
        await until(lambda: goal_text(row.goals[0]) in " ".join(text_of(app)), pilot)
        assert "simulating" not in " ".join(text_of(app))


def test_an_offer_says_that_a_goal_is_measured_by_now() -> None:
    """A p95 that is measured may take other GPUs than a simulated one: two more points alone explain no other need."""

    def answer(basis: Basis) -> Answer:
        goals = (JudgedGoal("TPOT p95", 0.04, 0.033, basis), JudgedGoal("TTFT p95", 1.0, 0.4, Basis.SIMULATED))
        return replace(THREE_MODELS, workloads=(replace(THREE_MODELS.workloads[0], goals=goals),))

    assert list(newly_measured(answer(Basis.SIMULATED), answer(Basis.MEASURED))) == ["TPOT p95 as measured"]
    assert list(newly_measured(answer(Basis.MEASURED), answer(Basis.MEASURED))) == []
    assert list(newly_measured(None, answer(Basis.MEASURED))) == []


def _waits(calculation: Calculation) -> bool:
    return calculation.answer is None or waits(calculation.answer)


def _titles(screen: Sequence[str]) -> str:
    """The line with the titles of the columns."""
    return next((line for line in screen if "target" in line and "per inst" in line), "")
