"""How long prompts take where nothing decodes beside them: the constants of prefill pools, from measured servers."""

from __future__ import annotations

import pytest

from gpumon.sizing.disaggregated import PROMPTS_ALONE
from gpumon.sizing.roofline import layers_s, prompt_s
from tests.accuracy.silicon_bands import quantile
from tests.accuracy.silicon_rows import DATA, Row, read

LONG_TOKENS = 4000.0
FEW = 4.0


def alone(row: Row) -> float:
    """TTFT without a step, in computations of the prompt."""
    return (row.ttft_s - layers_s(row.setting)) / prompt_s(row.setting)


@pytest.mark.parametrize(("moe", "rows"), [(False, 25), (True, 64)])
def test_prompts_alone_take_what_a_quarter_of_measured_servers_stays_below(moe: bool, rows: int) -> None:
    """Of those with long prompts and few requests; SGLang's wait for a schedule that their scripts set."""
    found = []
    for row in read(DATA)[0]:
        long = row.setting.mix.prompt_tokens >= LONG_TOKENS and row.offered <= FEW
        if long and row.moe is moe and row.engine != "sglang":
            found.append((alone(row), 1.0))
    assert len(found) == rows
    assert quantile(found, 0.25) == pytest.approx(PROMPTS_ALONE[moe], rel=0.05)
