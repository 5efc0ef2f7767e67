"""What replicas could give back: whole GPUs that nothing else uses, once, at a price that is theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Family, Kind, Limit, TokensTotal, Verdict
from gpumon.specs.llm import LlmSpec
from gpumon.triage.render import actions_text, verdict_text
from tests.each_row import each_row
from tests.triage.engines import BUSY, IDLE, PEAK, WORKS, Alike
from tests.triage.stage import Of, Stage, engine, gpu, verdict

FEW: Mapping[str, Any] = {
    **WORKS,
    "running": 2.0,
    "kv_usage_ratio": 0.03,
    "mfu_ratio": 0.02,
    "mfu_prefill_ratio": 0.01,
    "mbu_ratio": 0.05,
    "kv_pool_tokens": 200_000.0,
}
REST: Mapping[str, Any] = {
    **FEW,
    **dict.fromkeys(("running", "kv_usage_ratio", "mfu_ratio", "mfu_prefill_ratio", "mbu_ratio"), 0.0),
}
LOW = {**BUSY, "tensor_active_ratio": 0.02, "bandwidth_bytes_per_s": 0.05 * PEAK, "processes": ()}
PRICES = {"H100 SXM 80GB": 2.5, "L4": 0.4}


def played(
    gpus: Sequence[Mapping[str, Any]],
    engines: Mapping[str, tuple[tuple[int, ...], Mapping[str, Any]]],
    replicas: tuple[str, ...] = (),
    seconds: int = 160,
) -> dict[str, Verdict]:
    """Engine -> its use, after so long; engines by name, with their GPUs."""
    stage = Stage()
    stage.triage = Alike(replicas, prices=PRICES)
    cards = [gpu(at, **fields) for at, fields in enumerate(gpus)]

    def at(tick: int) -> tuple[Of, ...]:
        things = list(cards)
        for port, (name, (on, fields)) in enumerate(engines.items(), 8000):
            moved = {} if fields is REST else {"tokens_total": TokensTotal(10.0 * tick, 0.0, 10.0 * tick)}
            count = {"gpu_count": float(len(on))}
            things.append(engine(name=name, url=f"http://127.0.0.1:{port}", gpus=on, **{**fields, **count, **moved}))
        return tuple(things)

    last = stage.play(seconds, at)
    found = {one.key: one.name for one in last.engines}
    uses = {name: verdict(last, Family.USE, Kind.ENGINE, key) for key, name in found.items()}
    return {name: use for name, use in uses.items() if use is not None}


def test_replicas_with_gpus_of_their_own_give_them_back_and_one_of_them_says_so() -> None:
    found = played([LOW, LOW, LOW], {name: ((at,), FEW) for at, name in enumerate("abc")}, ("a", "b", "c"))
    assert {use.code for use in found.values()} == {Limit.LOW_EFFICIENCY}
    assert verdict_text(found["a"]).endswith("this traffic fits on 1 of 3 GPUs, 5.0 $/h idle")
    for other in "bc":
        assert "$" not in verdict_text(found[other])
        assert "see a:" in actions_text(found[other])


@each_row("loads", [(6.0, 1.0, 11.0), (6.0, 1.0, 14.0), (5.5, 2.0, 9.0), (11.0, 6.0, 1.0)])
def test_the_one_that_says_so_is_one_that_does_little(loads: tuple[float, ...]) -> None:
    each = {name: {**FEW, "running": load, "kv_pool_tokens": 20_000.0} for name, load in zip("abc", loads, strict=True)}
    found = played([LOW] * 3, {name: ((at,), fields) for at, (name, fields) in enumerate(each.items())}, tuple("abc"))
    (few,) = (name for name, use in found.items() if use.code is Limit.LOW_EFFICIENCY)
    assert verdict_text(found[few]).endswith("this traffic fits on 2 of 3 GPUs, 2.5 $/h idle")


def test_replicas_that_share_a_gpu_give_none_back() -> None:
    found = played([LOW], {"a": ((0,), FEW), "b": ((0,), FEW)}, ("a", "b"))
    assert {use.code for use in found.values()} == {Limit.LOW_EFFICIENCY}
    assert not any("fits on" in verdict_text(use) or "$" in verdict_text(use) for use in found.values())


def test_replicas_on_gpus_of_different_types_or_numbers_are_not_counted_together() -> None:
    for gpus, second in (([LOW, {**LOW, "gpu_type": "L4"}], (1,)), ([LOW, LOW, LOW], (1, 2))):
        found = played(gpus, {"a": ((0,), FEW), "b": (second, FEW)}, ("a", "b"))
        assert not any("fits on" in verdict_text(use) or "$" in verdict_text(use) for use in found.values())


def test_a_gpu_that_another_model_runs_on_is_not_given_back() -> None:
    others = {"n": ((1,), WORKS)}
    found = played([LOW, LOW], {"a": ((0,), FEW), "b": ((1,), FEW), **others}, ("a", "b"))
    assert "fits on" not in verdict_text(found["a"])


def test_an_engine_on_a_slice_has_no_price() -> None:
    part = {**IDLE, "mig_profile": "1g.10gb", "parent_uuid": "GPU-p", "busy_ratio": Missing(Reason.UNDER_MIG)}
    found = played([part], {"a": ((0,), REST)}, seconds=360)["a"]
    assert verdict_text(found) == "no request at any poll for 6 min"


def saved(found: Verdict) -> tuple[object, object]:
    (parameters,) = [one.parameters for one in found.actions if "saves_per_hour" in one.parameters]
    return parameters["saves_gpu_hours"], parameters["saves_per_hour"]


def test_an_action_tells_the_gpu_hours_and_the_money_that_it_saves() -> None:
    three = played([LOW, LOW, LOW], {name: ((at,), FEW) for at, name in enumerate("abc")}, ("a", "b", "c"))
    assert saved(three["a"]) == (2.0, 5.0)
    assert "(saves 2 GPUs, 5.0 $/h)" in actions_text(three["a"])
    assert not any("saves" in actions_text(three[other]) for other in "bc")
    idle = played([{**IDLE, "processes": ()}] * 2, {"a": ((0, 1), REST)}, seconds=400)["a"]
    assert saved(idle) == (2.0, 5.0)


def test_nothing_is_promised_without_a_price() -> None:
    unpriced = {**LOW, "gpu_type": "A100 SXM 80GB"}
    found = played([unpriced] * 3, {name: ((at,), FEW) for at, name in enumerate("abc")}, ("a", "b", "c"))
    assert "stop 2 of 3 instances" in actions_text(found["a"])
    assert not any("saves_per_hour" in one.parameters for one in found["a"].actions)


@each_row(("precision", "stored_bytes", "fits"), [("bf16", 100e9, True), ("fp8", 100e9, False), ("bf16", 190e9, False)])
def test_weights_that_would_fit_on_fewer_gpus_in_8_bit(precision: str, stored_bytes: float, fits: bool) -> None:
    """100 GB of 16-bit weights need two GPUs of 80 GiB, and half of them one."""
    llm = LlmSpec("m", "test", 50e9, 50e9, 1e9, 1000, 4096, 32, 32, 8, 128, stored_bytes=stored_bytes)
    wide = {
        **FEW,
        "llm": llm,
        "weight_precision": precision,
        "kv_bytes_per_token": 1e5,
        "tp": 2,
        "weight_bytes_per_s": 9e10,
        "bytes_per_s": 1e11,
    }
    found = played([LOW, LOW], {"a": ((0, 1), wide)})["a"]
    text = actions_text(found)
    if fits:
        assert "--quantization fp8 halves the weights (saves 1 GPU, 2.5 $/h), which then fit on 1 GPU: lower " in text
        assert "lower --tensor-parallel-size to 1" in text
        assert saved(found) == (1.0, 2.5)
    else:
        assert "halves the weights" not in text
