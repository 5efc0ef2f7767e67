"""The picture of a simulation in the sizing panel."""

from __future__ import annotations

import functools

from gpumon.readings.format import cells
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.sizing.search import demand_of
from gpumon.sizing.simulate.experiment import Simulation, sketch
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing.simulated import simulation_rows
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.questions import KNOWN

CHAT = Workload("Qwen/Qwen3-32B", 20, "requests_per_s", prompt_tokens=1000, answer_tokens=200, ttft_p95_ms=500)


@functools.cache
def simulated(workload: Workload) -> Simulation:
    scenario = Scenario(server=(Server("H100 SXM5 80GB"),), workload=(workload,))
    return sketch(demand_of(workload, scenario, KNOWN), scenario, KNOWN)


def text(simulation: Simulation | None, width: int = 120, height: int = 14, glyphs: Glyphs = "braille") -> list[str]:
    return ["".join(piece for piece, _ in row) for row in simulation_rows(width, height, simulation, glyphs)]


@each_row("glyphs", ["braille", "blocks", "ascii"])
@each_row("size", [(140, 20), (80, 10), (40, 6), (12, 2)])
def test_it_fits(size: tuple[int, int], glyphs: Glyphs) -> None:
    found = text(simulated(CHAT), *size, glyphs)
    assert len(found) <= size[1]
    assert all(cells(line) <= size[0] for line in found)
    assert glyphs != "ascii" or "".join(found).replace("…", "").isascii()  # the screen itself replaces an ellipsis


def test_percentiles_stand_beside_the_formula_and_the_goal() -> None:
    shown = "\n".join(text(simulated(CHAT)))
    assert "TTFT p50 " in shown
    assert "formula" in shown
    assert "goal 500ms" in shown
    assert "goodput" in shown


def test_a_picture_of_nine_lines_has_the_percentiles_of_all_three_latencies() -> None:
    """That is the room at 80x24 with three models."""
    found = text(simulated(CHAT), 80, 9)
    for name in ("TTFT p50", "ITL p50", "E2E p50"):
        assert any(line.startswith(name) for line in found), found


def test_the_time_per_token_with_a_goal_has_its_line_at_80x24() -> None:
    held = simulated(replace(CHAT, tpot_p95_ms=27.0))
    for simulation, tone in ((held, "ok"), (replace(held, missed=("TPOT",)), "critical")):
        pieces = [piece for row in simulation_rows(80, 9, simulation, "braille") for piece in row]
        assert [its_tone for text, its_tone in pieces if "TPOT p50 " in text and " goal 27ms" in text] == [tone]
        assert not any("ITL p50" in text for text, _ in pieces)


def test_a_missed_goal_for_the_mean_time_between_tokens_is_seen() -> None:
    held = simulated(replace(CHAT, itl_mean_ms=27.0))
    missed = replace(held, missed=("ITL mean",))
    for simulation, is_seen in ((held, False), (missed, True)):
        pieces = [piece for row in simulation_rows(140, 20, simulation, "braille") for piece in row]
        assert any("ITL mean" in text and tone == "critical" for text, tone in pieces) is is_seen


def test_the_load_is_that_of_one_instance() -> None:
    """Few requests, however large the target is."""
    large = simulated(replace(CHAT, target=20_000.0))
    assert large.replicas == 1
    assert 500 < large.figures[0].requests < 6_000


def test_why_there_is_none() -> None:
    assert "no answer yet" in "\n".join(text(None))
    unknown = simulated(Workload("no/such", 4, prompt_tokens=10, answer_tokens=10))
    assert "no/such" in " ".join(" ".join(text(unknown)).split())


def test_it_says_so_where_every_request_was_refused() -> None:
    answer = simulated(CHAT)
    refused = replace(answer, figures=(replace(answer.figures[0], queue=()),))
    assert "all were refused" in "\n".join(text(refused))
