"""Names on the screen: one for each engine, whatever servers and models call themselves."""

from __future__ import annotations

from gpumon.readings.frame import EndpointState, EngineReading, Fault, part_of_name
from gpumon.readings.merge import disambiguate_engines, with_unique_names
from tests.each_row import each_row


def one(name: str, url: str, part: str = "") -> EngineReading:
    return EngineReading(name + part_of_name(part), url, EndpointState.OK, 0.0, part=part)


A, B = "http://a:8000", "http://b:8000"
LONG = "acme/a-model-whose-name-is-longer-than-what-stands-in-a-name"


@each_row(
    ("readings", "names"),
    [
        ([one("vllm:8000", A), one("vllm:8000", B), one("x", "http://c:1")], ["vllm:a:8000", "vllm:b:8000", "x"]),
        (
            [one("triton:8002", A, "m"), one("triton:8002", A, "n"), one("triton:8002", B, "m")],
            ["triton:a:8000/m", "triton:8002/n", "triton:b:8000/m"],
        ),
        (
            [one("engine:80", "http://gate:80/chat"), one("engine:80", "http://gate:80/code")],
            ["engine:gate:80/chat", "engine:gate:80/code"],
        ),
        (
            [one("log.jsonl", "file:/a/log.jsonl"), one("log.jsonl", "file:/b/log.jsonl")],
            ["log.jsonl:/a/log.jsonl", "log.jsonl:/b/log.jsonl"],
        ),
        ([one("m", "http://[::1]:1"), one("m", "http://[::1]:1")], ["m:[::1]:1", "m:[::1]:1 (2)"]),
    ],
    named=["hosts", "models", "paths", "files", "the same"],
)
def test_no_two_engines_have_one_name(readings: list[EngineReading], names: list[str]) -> None:
    assert [reading.name for reading in with_unique_names(readings)] == names


def test_models_whose_names_differ_at_the_end_are_told_apart() -> None:
    readings = [one("ray:8080", A, LONG + "1"), one("ray:8080", A, LONG + "2")]
    names = [reading.name for reading in with_unique_names(readings)]
    assert len(set(names)) == 2
    assert all(len(name) < 140 for name in names)


def test_what_a_server_calls_its_model_is_cleaned_in_the_name() -> None:
    reading = one("triton:8002", A, "\x1b[31m/x")
    assert reading.name == "triton:8002/\\x1b[31m/x"
    assert reading.server_name == "triton:8002"


def test_a_fault_follows_the_name_of_its_engine() -> None:
    a, b, fault = one("vllm:8000", A), one("vllm:8000", B), Fault("vllm:8000", "x", 1.0)
    driver = Fault("nvml", "x", 1.0)
    engines, faults = disambiguate_engines([((a,), (fault,)), ((b,), (fault,)), ((), (driver,))])
    assert [engine.name for engine in engines] == ["vllm:a:8000", "vllm:b:8000"]
    assert faults == (Fault("vllm:a:8000", "x", 1.0), Fault("vllm:b:8000", "x", 1.0), driver)
    assert disambiguate_engines([((a, b), (fault,))])[1] == (fault,), "it may be of either"
