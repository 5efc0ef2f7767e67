"""An engine whose model is of an unknown architecture, told by its files: MBU is right, MFU says what it lacks."""

from __future__ import annotations

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.missing import Missing, Reason
from gpumon.specs.llm_config import llm_from_config
from tests.efficiency.polls import only, served, there
from tests.specs import checkpoint_files as files
from tests.specs.test_llm_config import LLAMA


def test_mbu_is_the_models_and_mfu_says_what_it_lacks() -> None:
    stored = files.stored(files.llama(LLAMA))
    new = {**LLAMA, "model_type": "llama_next"}
    unknown = llm_from_config(new, "model", "test", stored.bytes_by_type(), None, stored)
    rates = {q.DECODE_TOKENS: 100.0, q.STEPS: 100.0}
    engine = only(served(rates, llm=unknown))
    known = only(served(rates, llm=llm_from_config(LLAMA, "model", "test")))
    assert there(engine.efficiency.mbu_ratio) == pytest.approx(there(known.efficiency.mbu_ratio), rel=0.001)
    assert there(known.efficiency.mfu_ratio) > 0.0
    mfu = engine.efficiency.mfu_ratio
    assert isinstance(mfu, Missing)
    assert mfu.reason is Reason.NOT_MODELLED
    assert mfu.detail.startswith("model_type 'llama_next' is not a known architecture: what its layers compute")
