"""Time on the screen: frozen, back and forth in what is kept, and a recording's playback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from textual.worker import WorkType

from gpumon.readings.format import period
from gpumon.readings.text import clean
from gpumon.readings.verdict import Event
from gpumon.readings.when import OutsideError, moment_of
from gpumon.tui.control import SPEEDS
from gpumon.tui.screens.context import S
from gpumon.tui.screens.monitor import MonitorScreen
from gpumon.tui.screens.past import ABSOLUTE, SAME_MOMENT_S, Arrival, AskedMoment, AskKind, NoPastError
from gpumon.tui.table import clock
from gpumon.tui.triage_rows import event_words
from gpumon.tui.triage_words import most_urgent

_MOST_SCOPE: Final = 40
"""Characters of the name of what a notice is about."""
_MOST_TEXT: Final = 200
"""Characters of a text in a notice."""
_SAME_SPEED: Final = 1e-9
"""Difference up to which two playing speeds are the same."""
_WORK_GROUP: Final = "travel"
"""Group of the worker that looks for moments."""
_WHOLE_LIST: Final = 100_000
"""Rows by which the cursor moves to an end of a list: more than any list has."""


def step_frames(screen: MonitorScreen[S], frames: int) -> None:
    """Go so many frames back (below 0) or forth."""
    frame_s = screen.travel.past.frame_s
    if frame_s is None:
        ask_for(screen, AskedMoment(AskKind.FRAMES, frames))
    else:
        ask_for(screen, AskedMoment(AskKind.SECONDS, frames * frame_s))


def go_to_change(screen: MonitorScreen[S], step: int) -> None:
    """Go to the next (1) or the previous (-1) moment at which something happened."""
    host = screen.travel.past.searched_host()
    if host.why_none:
        screen.say(host.why_none)
    else:
        ask_for(screen, AskedMoment(AskKind.CHANGES, step, host.name))


def go_to_end(screen: MonitorScreen[S], step: int) -> None:
    """Go to one end: of the past where the keys move in time, else of the list.

    Of the past, -1 is the oldest moment and 1 what is live, or the last moment of a recording; of the list, -1 is
    the begin and 1 the end.
    """
    if not screen.keys_move_in_time:
        if screen.current is not None:
            screen.current.move(step * _WHOLE_LIST)
    elif step < 0:
        ask_for(screen, AskedMoment(AskKind.OLDEST, -1.0))
    elif screen.playback is not None:
        ask_for(screen, AskedMoment(AskKind.NEWEST, 1.0))
    else:
        go_on(screen)


def go_to_time(screen: MonitorScreen[S], text: str) -> None:
    """Go to a time as a person writes it: `03:10`, `-2h`."""
    span = screen.travel.past.span()
    why = screen.travel.past.why_not()
    if span is None or why:
        screen.say(why or "nothing is kept yet")
        return
    first_s, last_s = span
    try:
        ask_for(screen, AskedMoment(AskKind.TIME, moment_of(text, span)))
    except ValueError as wrong:
        screen.say(str(wrong))
    except OutsideError:
        notice = f"{text} is not kept here: {clock(first_s)} to {clock(last_s)} is"
        if not screen.travel.past.slow:
            notice += f"; a recording may have it: gpumon replay --at {text}"
        screen.say(notice)


def change_speed(screen: MonitorScreen[S], step: int) -> bool:
    """Play the recording faster (1) or slower (-1); returns whether this is one."""
    playback = screen.playback
    if playback is None:
        return False
    next_speeds = [speed for speed in SPEEDS if (speed - playback.speed) * step > _SAME_SPEED]
    if next_speeds:
        playback.set_speed(min(next_speeds, key=lambda speed: abs(speed - playback.speed)))
    screen.show_title()
    screen.show_keys()
    return True


def freeze(screen: MonitorScreen[S]) -> None:
    """Freeze what is shown."""
    _set_paused(screen, paused=True)
    screen.travel.aim_s = None
    if screen.playback is not None:
        screen.playback.pause()
    _show_paused(screen)


def go_on(screen: MonitorScreen[S]) -> None:
    """Go on with the newest snapshot, or in a recording from what is shown."""
    _set_paused(screen, paused=False)
    screen.travel.returns += 1
    screen.travel.waiting.clear()
    screen.travel.asked_s = None
    screen.travel.seeking = False
    screen.workers.cancel_group(screen, _WORK_GROUP)
    if screen.playback is not None and screen.shown is not None:
        screen.playback.go_on(screen.shown.wall_s)
    else:
        screen.travel.past.leave()
        if screen.latest is not None:
            screen.show_live(screen.latest)
    _show_paused(screen)


def _set_paused(screen: MonitorScreen[S], *, paused: bool) -> None:
    """Note, for all panes, whether the display is frozen; at first as if the user had asked for it."""
    screen.travel.paused = paused
    for pane in screen.panes.values():
        pane.paused = paused
    screen.travel.frozen_to_travel = False


def _show_paused(screen: MonitorScreen[S]) -> None:
    """Paint all that says whether the display is frozen."""
    for pane in screen.panes.values():
        pane.update()  # its rule names other keys now
    screen.show_status()
    screen.show_title()
    screen.show_keys()


def leave_past(screen: MonitorScreen[S]) -> bool:
    """Show what is live again, after a moment that the user went to; returns whether one was shown. A recording is
    never live."""
    if not screen.gone_back or screen.playback is not None:
        return False
    go_on(screen)
    return True


def ask_for(screen: MonitorScreen[S], ask: AskedMoment) -> None:
    """Go to another moment as soon as the one asked for before is there; what was asked for meanwhile adds up."""
    why = screen.travel.past.why_not()
    if screen.shown is None or why:
        screen.say(why or "nothing is known yet")
        return
    if not screen.travel.paused:
        goes_forth = ask.amount > 0.0 and ask.kind is not AskKind.TIME
        if goes_forth and screen.playback is None:  # there is nothing after what is live
            screen.say(f"this is live: {screen.view.keymap.first('time.back')} goes back")
            return
        freeze(screen)
        screen.travel.frozen_to_travel = True
    _add(screen, ask)
    if screen.travel.waiting and not screen.travel.seeking:
        screen.travel.seeking = True
        work: WorkType[None] = partial(_seek, screen)
        screen.run_worker(work, group=_WORK_GROUP)


def _add(screen: MonitorScreen[S], ask: AskedMoment) -> None:
    """Add a step to those that wait: steps of one way are summed up; a moment of its own, and a step on another
    host, replace them all."""
    last = screen.travel.waiting[-1] if screen.travel.waiting else None
    if ask.kind in ABSOLUTE or (last is not None and last.host != ask.host):
        screen.travel.waiting.clear()
    elif last is not None and last.kind is ask.kind:
        screen.travel.waiting.pop()
        ask = ask._replace(amount=last.amount + ask.amount)
    if ask.amount:  # steps back and forth may add up to nothing
        screen.travel.waiting.append(ask)


def begin_at(wall_s: float, screen: MonitorScreen[S]) -> None:
    """Go to a Unix time, where the screen before this one was."""
    shown = screen.shown
    if shown is not None and wall_s < shown.wall_s:
        ask_for(screen, AskedMoment(AskKind.SECONDS, wall_s - shown.wall_s))
    else:
        freeze(screen)


async def _seek(screen: MonitorScreen[S]) -> None:
    """Go to the moments that were asked for, one after the other, until none is left."""
    returns_at_begin = screen.travel.returns
    arrived = False
    while screen.travel.waiting:
        ask = screen.travel.waiting.pop(0)
        try:
            moment = await _moment_for(screen, ask)
        except NoPastError as why:
            screen.say(str(why))
        except Exception as error:  # a past that cannot be read costs this step, not the screen
            reason = clean(f"{type(error).__name__}: {error}", _MOST_TEXT)
            screen.say(f"this moment cannot be read: {reason}")
        else:
            if returns_at_begin == screen.travel.returns and _show_arrival(screen, ask, moment):
                arrived = True
    if returns_at_begin == screen.travel.returns:  # else the user went back to what is live meanwhile
        screen.travel.asked_s = None
        screen.travel.seeking = False
        if not arrived and screen.travel.frozen_to_travel and screen.playback is None:
            go_on(screen)
        screen.travel.frozen_to_travel = False
        screen.show_title()


async def _moment_for(screen: MonitorScreen[S], ask: AskedMoment) -> Arrival[S] | None:
    """The moment that was asked for; None where there is none."""
    span = screen.travel.past.span()
    shown = screen.shown
    if span is None or shown is None:
        raise NoPastError("nothing is kept yet")
    if ask.kind is AskKind.SECONDS:
        from_s = shown.wall_s if screen.travel.aim_s is None else screen.travel.aim_s
        aim_s = min(max(from_s + ask.amount, span[0]), span[1])
        screen.travel.aim_s = aim_s
        return await _ask_for_time(screen, aim_s)
    screen.travel.aim_s = None
    if ask.kind is AskKind.TIME:
        _show_asked(screen, ask.amount)
        return await screen.travel.past.nearest(ask.amount)
    if ask.kind is AskKind.FRAMES:
        return await screen.travel.past.step(shown.wall_s, int(ask.amount))
    if ask.kind is AskKind.CHANGES:
        if screen.travel.past.slow:
            screen.say(f"looking for what happened{_where_text(ask)} …")
        return await screen.travel.past.change(shown.wall_s, int(ask.amount), ask.host)
    if ask.kind is AskKind.OLDEST:
        return await _ask_for_time(screen, span[0])
    return await _ask_for_time(screen, span[1])


async def _ask_for_time(screen: MonitorScreen[S], wall_s: float) -> Arrival[S] | None:
    """The moment at a time; while it is looked for, the title says so where that takes a while."""
    _show_asked(screen, wall_s)
    return await screen.travel.past.at(wall_s)


def _show_asked(screen: MonitorScreen[S], wall_s: float) -> None:
    """Have the title say what is asked for, where that takes a while."""
    if screen.travel.past.slow:
        screen.travel.asked_s = wall_s
        screen.show_title()


def _where_text(ask: AskedMoment) -> str:
    """` on` the host whose changes are looked for; empty where there is one host."""
    return f" on {clean(ask.host, _MOST_SCOPE)}" if ask.host else ""


def _show_arrival(screen: MonitorScreen[S], ask: AskedMoment, moment: Arrival[S] | None) -> bool:
    """Show a moment and say what there is to say about it; returns whether there was one."""
    span = screen.travel.past.span()
    if moment is None or span is None:
        screen.say(_nothing_there_notice(screen, ask))
        return False
    screen.travel.frozen_to_travel = False
    screen.show_past(moment)
    screen.show_keys()
    if moment.note:
        screen.travel.aim_s = None
        screen.say(moment.note)
    elif ask.kind is AskKind.CHANGES:
        screen.body.point_at(moment.events, moment.snapshot)
        notice = what_happened(moment.events, clock)
        if ask.host:
            notice = f"{clean(ask.host, _MOST_SCOPE)}: {notice}"
        screen.say(notice)
    else:
        _say_where_it_ends(screen, ask, moment.snapshot.wall_s, span)
    return True


def _nothing_there_notice(screen: MonitorScreen[S], ask: AskedMoment) -> str:
    """The notice that there is no moment as asked for."""
    if ask.kind is not AskKind.CHANGES:
        return "nothing is kept of that time"
    searched = "as far as is looked" if screen.travel.past.slow else "in what is kept"
    order = "after" if ask.amount > 0.0 else "before"
    where = _where_text(ask)
    if where:
        return f"nothing happened {order} this{where}, {searched}"
    return f"nothing happened {order} this {searched}"


def _say_where_it_ends(screen: MonitorScreen[S], ask: AskedMoment, shown_s: float, span: tuple[float, float]) -> None:
    """Say that the oldest, or the newest, moment is reached."""
    if ask.amount < 0.0 and shown_s <= span[0] + SAME_MOMENT_S:
        screen.say(_oldest_notice(screen, shown_s, span[1] - span[0]))
    elif ask.amount > 0.0 and shown_s >= span[1] - SAME_MOMENT_S:
        if screen.playback is not None:
            screen.say(f"the recording ends: {clock(shown_s)}")
        else:
            live = screen.view.keymap.first("time.live")
            screen.say(f"the newest moment; {live}: live again")


def _oldest_notice(screen: MonitorScreen[S], oldest_s: float, kept_s: float) -> str:
    """The notice at the oldest moment: the begin of what can be asked for, of the recording, or of what is kept."""
    if screen.travel.past.slow:
        return f"the oldest moment that can be asked for: {clock(oldest_s)}, {period(kept_s)} back"
    if screen.playback is not None:
        return f"the recording begins: {clock(oldest_s)}"
    return f"the oldest moment kept: {clock(oldest_s)}; [recorder] minutes"


def what_happened(events: Sequence[Event], time_text: Callable[[float], str]) -> str:
    """The events of a moment in a line: the most urgent of its events, and how many more there are. `time_text` gives a
    Unix time as the screen has it."""
    if not events:
        return "other verdicts from here on"
    event = most_urgent(events)
    more = f" +{len(events) - 1}" if len(events) > 1 else ""
    scope = clean(event.scope, _MOST_SCOPE)
    return f"{time_text(event.wall_s)} {scope}: {clean(event_words(event, time_text), _MOST_TEXT)}{more}"
