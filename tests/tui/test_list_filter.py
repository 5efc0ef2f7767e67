"""The filter and the order of a list without its pane: which rows pass, and what sorting again does."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.config.schema import Config
from gpumon.readings.snapshot import Gpu, Snapshot
from gpumon.tui.engine_table import ENGINE_LISTING
from gpumon.tui.gpu_table import GPU_LISTING
from gpumon.tui.list_filter import ListFilter
from gpumon.tui.rows import Listing, ListScene
from gpumon.tui.view import View
from tests.records import replace
from tests.tui import scenes

PLAIN_LISTING = Listing[str](thing="word", title="words", key=str, words=lambda word, _: word)


def scene_of(snapshot: Snapshot | None, view: View) -> ListScene:
    return ListScene(view=view, snapshot=snapshot, urgent={}, states={}, filter_text="", shift=0)


def indices(gpus: Sequence[Gpu]) -> list[int]:
    return [gpu.reading.index for gpu in gpus]


def test_every_word_of_the_text_and_no_excluded_one_is_in_a_row_that_passes() -> None:
    view = View(Config())
    chosen = ListFilter(PLAIN_LISTING, view)
    chosen.set_text("  an -ban  ")
    assert chosen.text == "an -ban"
    assert chosen.choose(["an", "banana", "pan", "x"], scene_of(None, view)) == ["an", "pan"]
    chosen.set_text("")
    assert not chosen.narrows
    assert chosen.choose(["b", "a"], scene_of(None, view)) == ["b", "a"]


def test_the_filter_of_all_panes_lets_gpus_through_by_their_words_or_with_their_engine() -> None:
    view = View(Config())
    snapshot = scenes.snapshot(8, 3)
    engine = snapshot.engines[-1]
    with_engine = [gpu.reading.index for gpu in snapshot.gpus if engine.name in gpu.engines]
    gpus = (*snapshot.gpus[:-1], replace(snapshot.gpus[-1], name="odd one"))
    chosen = ListFilter(GPU_LISTING, view)
    view.everywhere = engine.url
    assert (chosen.everywhere, chosen.narrows) == (engine.url, True)
    assert with_engine
    assert indices(chosen.choose(gpus, scene_of(snapshot, view))) == with_engine
    view.everywhere = "odd one"
    assert indices(chosen.choose(gpus, scene_of(snapshot, view))) == [7]


def test_a_list_of_things_without_engines_has_no_part_in_the_filter_of_all_panes() -> None:
    view = View(Config())
    view.everywhere = "a"
    chosen = ListFilter(PLAIN_LISTING, view)
    assert (chosen.everywhere, chosen.narrows) == ("", False)
    assert chosen.choose(["a", "b"], scene_of(scenes.snapshot(), view)) == ["a", "b"]


def test_a_row_passes_both_filters() -> None:
    view = View(Config())
    snapshot = scenes.snapshot(8, 3)
    chosen = ListFilter(ENGINE_LISTING, view)
    view.everywhere = "vllm"
    passing = [engine.name for engine in chosen.choose(snapshot.engines, scene_of(snapshot, view))]
    assert len(passing) > 1
    chosen.set_text(f"-{passing[0]}")
    assert [engine.name for engine in chosen.choose(snapshot.engines, scene_of(snapshot, view))] == passing[1:]


def test_the_same_order_again_is_turned_round_and_another_one_is_not() -> None:
    view = View(Config())
    gpus = scenes.snapshot(3, 1).gpus
    by_index, by_other = GPU_LISTING.orders[:2]
    chosen = ListFilter(GPU_LISTING, view)
    chosen.sort(by_index)
    assert indices(chosen.in_order(gpus)) == [0, 1, 2]
    chosen.sort(by_index)
    assert indices(chosen.in_order(gpus)) == [2, 1, 0]
    chosen.sort(by_index)
    assert indices(chosen.in_order(gpus)) == [0, 1, 2]
    chosen.sort(by_index)
    chosen.sort(by_other)
    assert (chosen.order, chosen.turned) == (by_other, False)
    chosen.sort(None)
    chosen.sort(None)
    assert (chosen.order, chosen.turned) == (None, False)


def test_whatever_the_user_sets_is_in_the_state() -> None:
    view = View(Config())
    chosen = ListFilter(GPU_LISTING, view)
    states = [chosen.state]
    chosen.set_text("a")
    states.append(chosen.state)
    view.everywhere = "b"
    states.append(chosen.state)
    chosen.sort(GPU_LISTING.orders[0])
    states.append(chosen.state)
    chosen.sort(GPU_LISTING.orders[0])
    states.append(chosen.state)
    assert len(set(map(repr, states))) == len(states)
