"""A recording that version 0.1 wrote (40 s of the simulated server, four models) is read with all its figures.

Its dimensions were flat fields; as layers they give the FLOPs and bytes that the same model's own config gives.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gpumon.efficiency.flops import decode_flops_per_token
from gpumon.efficiency.traffic import kv_read_bytes
from gpumon.history import codec
from gpumon.history.incidents import incidents
from gpumon.history.reader import Recording
from gpumon.sources.packaged import llm_catalogue
from gpumon.triage.render import event_text
from tests.each_row import each_row

FILE = Path(__file__).parents[1] / "data" / "recordings" / "first-edition.gpumon"


def test_all_frames_and_models_are_there() -> None:
    past = Recording(FILE)
    frames = list(past.frames(0.0, 4e9))
    assert [frame.seq for frame in frames] == list(range(1, 41)), "new fields stand last in `array_like` records"
    assert past.damaged == 0
    engines = frames[-1].engines
    assert [engine.llm.name for engine in engines if engine.llm] == [
        "Llama-3.3-70B",
        "DeepSeek-V3.2",
        "Qwen3.5-35B-A3B",
        "gpt-oss-120b",
    ]


@each_row("at", range(4))
def test_its_models_cost_what_they_cost_today(at: int) -> None:
    llm = list(Recording(FILE).frames(0.0, 4e9))[-1].engines[at].llm
    assert llm is not None
    today = llm_catalogue().find(llm.name)
    assert today is not None
    # Version 0.1 left out indexers and what updates a state: 6% at this length.
    assert decode_flops_per_token(llm, 4096) == pytest.approx(decode_flops_per_token(today, 4096), rel=0.06)
    assert kv_read_bytes(llm, 4096) == pytest.approx(kv_read_bytes(today, 4096), rel=0.35 if llm.states else 0.22)


def test_its_events_keep_their_sentences() -> None:
    of_old = {
        "wall_s": 1.8e9,
        "kind": "verdict",
        "scope": "vllm:8000",
        "text": "queue -> kv cache: full",
        "level": "warn",
    }
    over = {**of_old, "wall_s": 1.8e9 + 60.0, "text": "kv cache is over", "level": "ok"}
    events = codec.unpack_events(msgspec.msgpack.encode([of_old, over]))
    assert [event_text(event) for event in events] == ["queue -> kv cache: full", "kv cache is over"]
    ((incident,), left_out) = incidents(events, 1.8e9 + 600.0)
    assert (incident.text, incident.seconds, incident.ended, left_out) == ("queue -> kv cache: full", 60.0, True, 0)
