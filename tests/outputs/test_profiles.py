"""Profiles as text: facts and points; nothing from outside acts on the terminal."""

from __future__ import annotations

import json

from gpumon.config.profile_store import builtin_profiles
from gpumon.outputs.profiles import encode, import_result, list_profiles, profile_as_json, show_profile
from gpumon.readings.format import cells
from gpumon.sizing.profile import Observed, Origin
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.imports.samples import one

SWEEP = one("vllm-bench.jsonl")


def test_a_sweep_is_shown_with_its_knee_plateau_and_points() -> None:
    text = show_profile(SWEEP, ("a note",))
    assert "model         nvidia/Llama-3.3-70B-Instruct-FP8" in text
    assert "GPU           2 x H100 SXM5 80GB, TP 2" in text
    assert "operates at   50 in flight, knee before 100: running stops following the load: 85.2 of 100" in text
    assert "plateau       85.5 decode together" in text
    assert "note          a note" in text
    knee_row = next(line for line in text.splitlines() if line.startswith("K"))
    assert knee_row.split()[1:4] == ["50", "48.6", "814"]
    assert "59.73ms" in knee_row


def test_text_is_ascii_and_narrow() -> None:
    text = show_profile(replace(SWEEP, model="x" * 300, tool="\x1b[31m"), ())
    assert text.replace("…", "").isascii()
    assert "\x1b" not in text


def test_a_profile_without_points_has_its_facts() -> None:
    guide = builtin_profiles()
    assert "(comes with gpumon)" in show_profile(guide["guide-nemo-5b"], (), is_builtin=True)
    assert "memory        12.41 GB" in show_profile(guide["guide-nemo-5b"], (), is_builtin=True)
    bare = Observed(origin=Origin.SWEEP, name="bare", model="m")
    assert show_profile(bare, ()) == "bare\n  model         m\n"


def test_the_list_has_the_users_own_first_and_names_broken_files() -> None:
    own = builtin_profiles() | {"zebra": replace(SWEEP, name="zebra")}
    lines = list_profiles(own, frozenset(builtin_profiles()), ["/x/cut.json: is no profile"]).splitlines()
    assert lines[0].split() == ["NAME", "MODEL", "GPU", "LENGTHS", "CONC", "TOK/S", "ITL", "HOLDS", "FROM"]
    assert lines[1].startswith("zebra")
    assert "5000/500" in lines[1]
    assert lines[-1] == "not read: /x/cut.json: is no profile"
    shipped = list_profiles(builtin_profiles(), frozenset(builtin_profiles()), ())
    assert "none is imported yet" in shipped
    assert "LENGTHS" not in shipped, "a column without any figure"


def test_a_column_without_data_is_left_out_and_each_row_says_what_it_holds() -> None:
    lines = list_profiles(builtin_profiles(), frozenset(builtin_profiles()), ()).splitlines()
    assert lines[0].split() == ["NAME", "MODEL", "GPU", "CONC", "HOLDS", "FROM"]
    row = next(line for line in lines if line.startswith("guide-nemo-5b "))
    assert "1 point, memory 12.4 GB" in row
    assert all(row.count(" -") <= 2 for row in lines)


def test_json_has_the_observed_fields_and_the_knee() -> None:
    found = json.loads(encode({"profile": profile_as_json(SWEEP, ("n",))}))
    assert found["schema"] == 1
    profile = found["profile"]
    assert profile["knee"]["concurrency"] == 50
    assert profile["knee"]["beyond"] == 100
    assert round(profile["knee"]["plateau_running"], 1) == 85.5
    assert profile["notes"] == ["n"]
    assert profile["builtin"] is False
    assert profile["points"][0]["tokens_per_s"] == 51.7


@each_row("width", [60, 80, 100])
def test_no_line_is_wider_than_it_may_be_and_names_stay_whole(width: int) -> None:
    own = {"日本語-" + "x" * 30: replace(SWEEP, model="m" * 90, tool="t" * 90), "b": replace(SWEEP, gpu="", gpus=2)}
    listing = list_profiles(
        own | builtin_profiles(), frozenset(builtin_profiles()), ["/x/cut.json: " + "why " * 60], width=width
    )
    pages = (
        listing,
        show_profile(SWEEP, ("a note " * 40,), width=width),
        import_result([SWEEP], ["a note " * 40], "/tmp", width=width),
    )
    assert all(cells(line) <= max(width, 79) for page in pages for line in page.splitlines())
    assert all(cells(line) <= width for line in listing.splitlines())
    assert all(name in listing for name in own)


def test_gpus_of_a_type_that_is_not_known_are_counted() -> None:
    assert "GPU           2 GPUs, TP 2\n" in show_profile(replace(SWEEP, gpu="", gpus=2), ())
    assert "2 GPUs" in list_profiles({"a": replace(SWEEP, gpu="", gpus=2)}, frozenset(), ())
