"""`gpumon report --card`: the picture and the page of an incident, from a recording, as the installed command."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpumon.demo.scenarios import scenario
from gpumon.history.incident_card import incident_card
from gpumon.history.reader import Recording
from gpumon.history.recorder import Recorder
from gpumon.outputs.incident_card import files
from tests.accuracy.triage import frames
from tests.history.pasts import lived, paced
from tests.program import run_gpumon
from tests.records import replace

SECONDS = 240.0
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPU falls off the bus: its engine hangs, and requests wait."""
    path: Path = tmp_path_factory.mktemp("card") / "a.gpumon"
    recorder = Recorder(path, {"host": "box"})
    played = [frame for _, frame in frames(scenario("gpu-off-the-bus"), SECONDS)]
    lived(paced(played, recorder), recorder)
    recorder.close()
    return path


def test_the_card_has_cause_chain_charts_and_advice(recording: Path, tmp_path: Path) -> None:
    done = run_gpumon("report", str(recording), "--card", str(tmp_path / "lost"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(tmp_path / "lost.svg"), str(tmp_path / "lost.md")]
    page = (tmp_path / "lost.md").read_text()
    assert re.search(r"^# gpu 2: ", page)
    assert "SIMULATED" in page
    assert re.search(r"^  - \+\d+s llama", page, re.MULTILINE)
    chain = r"gpu 2 lost \d\d:\d\d:\d\d → llama-70b hung \+\d+s → \d+ queued"
    assert re.search(rf"^\*\*{chain}\*\*$", page, re.MULTILINE)
    picture = ElementTree.parse(tmp_path / "lost.svg").getroot()
    texts = [text.text or "" for text in picture.iter(f"{SVG}text")]
    assert any(text.startswith("gpu 2: ") for text in texts)
    assert any(re.fullmatch(chain, text) for text in texts)
    curves = [path for path in picture.iter(f"{SVG}path") if path.get("stroke") == "#1565c0"]
    assert len(curves) == 3


def test_files_that_are_there_stay_as_they_are(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "lost.svg").write_text("mine")
    done = run_gpumon("report", str(recording), "--card", str(tmp_path / "lost"))
    assert done.returncode != 0
    assert "is there already" in done.stderr
    assert (tmp_path / "lost.svg").read_text() == "mine"


def test_a_recording_in_place_of_the_name_is_told_where_it_belongs(recording: Path) -> None:
    done = run_gpumon("report", "--card", str(recording))
    assert done.returncode == 2
    assert f"gpumon report '{recording}' --card NAME" in done.stderr


def test_the_curve_goes_through_the_thinner_past_of_a_bundle_and_breaks_at_a_gap(
    recording: Path, tmp_path: Path
) -> None:
    card = incident_card(Recording(recording), *Recording(recording).span())
    assert card is not None
    thin = [(card.from_s + 30.0 * number, 1.0) for number in range(4)]
    dense = [(card.from_s + 90.0 + 10.0 * number, 2.0) for number in range(1, 4)]
    behind_a_gap = [(card.from_s + 600.0 + 10.0 * number, 3.0) for number in range(3)]
    chart = replace(card.charts[0], points=(*thin, *dense, *behind_a_gap))
    picture = files(replace(card, charts=(chart,)), "a")["a.svg"]
    curve = next(path for path in ElementTree.fromstring(picture).iter(f"{SVG}path") if path.get("stroke") == "#1565c0")
    pens = re.sub(r"[^ML]", "", curve.get("d", ""))
    assert pens == "MLLL" + "LLL" + "MLL"


@pytest.mark.parametrize("name", [".", "..", "/"])
def test_a_folder_is_no_name_of_a_card(recording: Path, tmp_path: Path, name: str) -> None:
    done = run_gpumon("report", str(recording), "--card", name)
    assert done.returncode == 2
    assert "gpumon: --card" in done.stderr


def test_a_time_without_an_incident_has_no_card(recording: Path, tmp_path: Path) -> None:
    done = run_gpumon("report", str(recording), "--to=-235s", "--card", str(tmp_path / "none"))
    assert done.returncode != 0
    assert "no incident" in done.stderr
    assert not list(tmp_path.iterdir())
