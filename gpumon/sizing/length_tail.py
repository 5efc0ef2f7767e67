"""The KV cache that requests of unlike lengths hold together: its p95, which the mean lengths alone do not tell.

Requests differ in length, and long answers stay longer, so that there are more of them in flight than among the
requests that end. Both are taken from the histograms of prompt and answer lengths that engines export.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

Z95: Final = 1.645
"""Standard deviations by which the p95 of a sum of many is above its mean, which is a normal distribution's."""

MOST_TOKENS: Final = 1e9
"""Length beyond which none is believed."""


class LengthShare(msgspec.Struct, frozen=True):
    """One step of a cumulative histogram: this share of the requests is at most so long."""

    tokens: float
    share: float
    """0 to 1; of the last step 1."""


class Lengths(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the lengths of requests spread, as cumulative histograms by rising length; empty where it is not known."""

    prompt: tuple[LengthShare, ...] = ()
    answer: tuple[LengthShare, ...] = ()


class Moments(NamedTuple):
    """Means of a length, of its square and of its cube."""

    mean: float
    square: float
    cube: float

    @classmethod
    def fixed(cls, tokens: float) -> Moments:
        """Moments of a length that all requests have."""
        return cls(tokens, tokens**2, tokens**3)

    def scaled(self, mean: float) -> Moments:
        """The same shape with another mean."""
        if self.mean <= 0.0:
            return Moments.fixed(mean)
        factor = mean / self.mean
        return Moments(mean, self.square * factor**2, self.cube * factor**3)


def problem_of(steps: Sequence[LengthShare]) -> str:
    """Why steps are no cumulative histogram; empty where they are one."""
    tokens = 0.0
    share = 0.0
    for step in steps:
        if not step.tokens <= MOST_TOKENS:
            return f"the length {step.tokens:g} is no number of tokens"
        if step.tokens <= tokens:
            return f"lengths must rise from step to step: {step.tokens:g} is behind {tokens:g}"
        if not share <= step.share <= 1.0:
            return f"shares must rise from 0 to 1: {step.share:g} is behind {share:g}"
        tokens = step.tokens
        share = step.share
    if steps and share != 1.0:
        return f"the share of the last step is {share:g}: it must be 1"
    return ""


def moments_of(steps: Sequence[LengthShare]) -> Moments:
    """Moments of a cumulative histogram, whose requests lie evenly inside each step."""
    mean = 0.0
    square = 0.0
    cube = 0.0
    low = 0.0
    share_below = 0.0
    for step in steps:
        high = step.tokens
        share = step.share - share_below
        # Means of x, x^2 and x^3 for x even between low and high.
        mean += share * (low + high) / 2.0
        square += share * (low * low + low * high + high * high) / 3.0
        cube += share * (low + high) * (low * low + high * high) / 4.0
        low = high
        share_below = step.share
    return Moments(mean, square, cube)


class TokensInFlight(NamedTuple):
    """Tokens that one request in flight holds at a moment: their mean and variance over the requests in flight."""

    mean: float
    variance: float

    def p95(self, running: float) -> float:
        """Tokens that `running` requests hold together in all but a twentieth of the time."""
        return running * self.mean + Z95 * math.sqrt(running * self.variance)

    def running_in(self, tokens: float) -> float:
        """Most requests whose p95 is within `tokens`: the root b of mean*b + z*sqrt(variance*b) = tokens."""
        spread = Z95 * math.sqrt(self.variance)
        root = (math.sqrt(spread * spread + 4.0 * self.mean * tokens) - spread) / (2.0 * self.mean)
        return root * root


def tokens_by_moments(prompt: Moments, answer: Moments) -> TokensInFlight:
    """Tokens that a request in flight holds: its prompt, and the part of its answer that there is by now.

    A moment falls into an answer of A tokens with a weight of A, and anywhere in it: it has E[A^2] / (2 E[A]) tokens by
    then on average, the mean square being E[A^3] / (3 E[A]). Lengths of prompts and answers are taken to be
    independent.
    """
    generated = answer.square / (2.0 * answer.mean)
    generated_square = answer.cube / (3.0 * answer.mean)
    variance = prompt.square - prompt.mean**2 + generated_square - generated**2
    return TokensInFlight(prompt.mean + generated, max(0.0, variance))


def tokens_in_flight_of(lengths: Lengths, prompt_tokens: float, answer_tokens: float) -> TokensInFlight | None:
    """Tokens that a request in flight holds, by histograms whose shapes get these means; None without a histogram.

    Where only one of the two lengths has a histogram, the other is taken to be the same for all requests.
    """
    if not lengths.prompt and not lengths.answer:
        return None
    prompt = moments_of(lengths.prompt).scaled(prompt_tokens)
    answer = moments_of(lengths.answer).scaled(answer_tokens)
    return tokens_by_moments(prompt, answer)
