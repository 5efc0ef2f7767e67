"""Do the answers look as answers do: all as long as they may be, or all of one token, is seldom what was meant."""

from __future__ import annotations

from typing import Final

from gpumon.efficiency.tracks import MINUTES_S
from gpumon.readings.quantities import CUT, OUTPUT_LENGTH
from gpumon.readings.snapshot import Engine
from gpumon.readings.verdict import Confidence, Evidence, Level, Limit
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params, yes_if
from gpumon.triage.kv_transfer import exchanges_kv
from gpumon.triage.signals import Case, finite

LEAST_ANSWERS: Final = 20.0
"""Answers of two minutes that tell how they look: of fewer some are alike by chance."""
_ALL: Final = 0.95
"""Share of answers that end at their longest from which on it is all of them: where texts are long by nature, some end
by themselves."""
_STILL_ALL: Final = 0.9
"""The same while the verdict stands."""
_NO_TOKEN: Final = 0.5
"""Mean tokens up to which requests are answered with vectors or scores, which have none."""
_ONE_TOKEN: Final = 1.2
"""Mean tokens of answers that have one each, but for a few."""


ANSWERS_CUT_FIGURE: Final = Quantity("answers_cut", "{value:percent} of the answers ended at their longest")
ANSWER_TOKENS: Final = Quantity("answer_tokens", "answers of {value:tokens} tokens on average")
CHECK_LONG_ANSWERS: Final = Remedy(
    "check_long_answers",
    (
        "read some of them: text that repeats itself or goes on for ever wants its end token (chat "
        "template, eos_token_id, ignore_eos); text that breaks off wants a higher max_tokens"
    ),
)
CHECK_SHORT_ANSWERS: Final = Remedy(
    "check_short_answers",
    (
        "send it one request by hand: nothing but an end token is a wrong chat template, stop token "
        "or model; a label is what was asked for"
    ),
)

ANSWERS_CUT: Final = Cause(
    "answers_cut",
    Limit.ODD_ANSWERS,
    (
        "{share:percent} of its answers are cut at their longest[ ({tokens:tokens} tokens on "
        "average)]: generation that finds no end, max_tokens too low, or a length that is asked for"
    ),
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)


def cut_answers(case: Case) -> Finding | None:
    """Rule: every answer ends at its longest: generation runs away, or the limit is too low."""
    engine = case.serving_engine()
    if engine is None or Limit.FAILING in case.found_limits:
        return None
    share = _cut_share(engine)
    tokens = finite(engine.served.answer_tokens.mean)
    least = _STILL_ALL if Limit.ODD_ANSWERS in case.limits_before else _ALL
    if share is None or share < least or (tokens is not None and tokens <= _ONE_TOKEN):
        return None
    evidence = [ANSWERS_CUT_FIGURE.evidence(share, _ALL, source=case.counter_source(CUT, MINUTES_S))]
    if tokens is not None:
        evidence.append(_length_evidence(case, tokens))
    return ANSWERS_CUT.finding(
        parameters=params(share=share, tokens=tokens, seconds=MINUTES_S),
        evidence=tuple(evidence),
        actions=(CHECK_LONG_ANSWERS.action(),),
    )


ONE_TOKEN_ANSWERS: Final = Cause(
    "one_token_answers",
    Limit.ODD_ANSWERS,
    (
        "one-token answers [{asked=yes}by their own limit|that end by themselves] "
        "({answers:requests} in {seconds:lasting}): [{asked=yes}labels or scores, or a limit set by "
        "mistake|labels, or a chat template or stop token that ends them at once], which of them is "
        "not known"
    ),
    level=Level.NOTE,
    confidence=Confidence.LOW,
)


def one_token_answers(case: Case) -> Finding | None:
    """Rule: every answer has one token. The prefill half of a server gives one to each request, and is none."""
    engine = case.serving_engine()
    if engine is None or Limit.FAILING in case.found_limits:
        return None
    tokens = finite(engine.served.answer_tokens.mean)
    ended = finite(engine.served.outcomes.ended) or 0.0
    if tokens is None or not _NO_TOKEN < tokens <= _ONE_TOKEN or ended < LEAST_ANSWERS or exchanges_kv(case):
        return None
    share = _cut_share(engine)
    evidence = [_length_evidence(case, tokens)]
    asked = ""
    if share is not None:
        evidence.append(ANSWERS_CUT_FIGURE.evidence(share, source=case.counter_source(CUT, MINUTES_S)))
        asked = yes_if(share >= _ALL)
    return ONE_TOKEN_ANSWERS.finding(
        parameters=params(answers=ended, seconds=MINUTES_S, asked=asked),
        evidence=tuple(evidence),
        actions=(CHECK_SHORT_ANSWERS.action(),),
    )


def _cut_share(engine: Engine) -> float | None:
    """Share of the answers of the last minutes that ended at their longest; None where too few tell."""
    stopped = finite(engine.served.outcomes.stopped)
    cut = finite(engine.served.outcomes.cut)
    if stopped is None or cut is None or stopped + cut < LEAST_ANSWERS:
        return None
    return cut / (stopped + cut)


def _length_evidence(case: Case, tokens: float) -> Evidence:
    """Evidence of the mean length of the answers."""
    return ANSWER_TOKENS.evidence(tokens, source=case.counter_source(OUTPUT_LENGTH, MINUTES_S))
