"""What two spans say of each other in words: no more than was judged."""

from __future__ import annotations

from gpumon.readings.before_after import FigureChange, Judgement, SeenOn, ThingChange
from gpumon.readings.change_words import effect_text
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.verdict import Kind
from tests.each_row import each_row

UNKNOWN = Missing(Reason.FEW)


def change(code: str, judgement: Judgement, better: str = "lower") -> FigureChange:
    return FigureChange(
        code=code, unit="s", better=better, before=1.0, after=2.0, noise=UNKNOWN, judgement=judgement, goal_s=UNKNOWN
    )


WITHIN = change("ttft_p95_s", Judgement.WITHIN_NOISE)
NOT_JUDGED = change("itl_p95_s", Judgement.NOT_JUDGED)
NEITHER = change("running", Judgement.WITHIN_NOISE, better="")


@each_row(
    ("figures", "expected"),
    [
        ((WITHIN, NEITHER), "nothing became better or worse by more than its noise"),
        ((WITHIN, NOT_JUDGED), "nothing that could be judged became better or worse by more than its noise"),
        ((NOT_JUDGED, NEITHER), ""),
        ((WITHIN, change("itl_p95_s", Judgement.CHANGED)), "worse: ITL p95 x2.00"),
    ],
)
def test_what_was_not_judged_is_not_said_to_be_the_same(figures: tuple[FigureChange, ...], expected: str) -> None:
    thing = ThingChange(
        kind=Kind.ENGINE,
        key="vllm",
        name="vllm",
        seen=SeenOn.BOTH,
        load_ratio=1.0,
        load="requests_per_s",
        is_comparable=True,
        figures=figures,
        changes=(),
    )
    assert effect_text(thing) == expected
