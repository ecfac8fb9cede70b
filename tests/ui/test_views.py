"""The views: what fits, what a stream can show, and that no stream ends a run."""

import io
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from metronome_cli.core.errors import UsageError
from metronome_cli.core.formatting import collapse_line
from metronome_cli.results.events import ObserverGroup, progress_only
from metronome_cli.ui import live, make_observer
from metronome_cli.ui.dashboard import DashboardState, dashboard
from metronome_cli.ui.glyphs import ASCII, UNICODE, bar, glyphs_for, printable
from metronome_cli.ui.live import LiveView
from metronome_cli.ui.plain import PlainLines, window_line
from tests.ui.demo import drive, snapshot_at


class Stream(io.StringIO):
    def __init__(self, encoding="utf-8", tty=False):
        super().__init__()
        self._encoding, self._tty = encoding, tty

    @property
    def encoding(self):
        return self._encoding

    def isatty(self):
        return self._tty


class BrokenStream(Stream):
    def write(self, text):
        raise BrokenPipeError(32, "Broken pipe")


class Time:
    def __init__(self):
        self.s = 0.0

    def __call__(self):
        return self.s


def seen(share):
    view = DashboardState(phase="confirm", detail="24 sessions", snapshot=snapshot_at(share))
    view.points = [(16, "pass"), (32, "fail"), (24, "inconclusive")]
    return view


@given(width=st.integers(20, 300), share=st.floats(0.01, 1.0), height=st.integers(1, 40))
def test_no_line_is_wider_or_page_longer_than_asked(width, share, height):
    page = dashboard(seen(share), width, UNICODE, height).plain.split("\n")
    assert max(cell_len(line) for line in page) <= width
    assert len(page) <= max(height, 2)  # the headline stays, on two lines where it has to


@pytest.mark.parametrize("width", [40, 80, 300])
def test_nothing_is_lost_at_any_width(width):
    page = " ".join(dashboard(seen(0.5), width, UNICODE).plain.split())
    for words in (
        "random weights", "virtual clock", "31 offered", "24 admitted", "7 shed", "cap 26", "ms of 80 ms",
        "0 empty", "step 240 of 480", "encode 6.2", "prefill 11", "elapsed", "left", "24 open",
    ):  # fmt: skip
        assert words in page


def working(share=0.25):
    return progress_only("probe", "visit 9 of 36: unbounded", 12.0, share, random_weights=True)


@given(width=st.integers(20, 200), share=st.floats(0, 1))
def test_work_without_sessions_counts_none(width, share):
    """How far and how long yet; no zeros for sessions, frames or latencies that were not counted."""
    page = dashboard(DashboardState(snapshot=working(share), elapsed_s=12.0), width, ASCII).plain
    assert all(cell_len(line) <= width for line in page.split("\n"))
    assert not any(word in page for word in ("running", "waiting", "p99", "frames", "clock"))
    assert "random weights" in page


def test_work_without_sessions_says_how_long_yet():
    time, stream = Time(), Stream()
    view = PlainLines(stream, now=time)
    view.snapshot(working(0.25))
    view.close()
    assert stream.getvalue() == "[    0.0 s] probe visit 9 of 36: unbounded | 25 % done, about 36 s left\n"
    page = dashboard(DashboardState(snapshot=working(0.25), elapsed_s=12.0), 80, ASCII).plain
    assert "25 %" in page
    assert "about 36 s left" in page


def test_short_terminals_keep_what_matters_most():
    page = dashboard(seen(0.5), 80, UNICODE, 3).plain
    assert "p99" in page
    assert "judged" not in page


def test_kinds_of_steps_are_told_without_colour():
    page = dashboard(seen(0.5), 200, ASCII).plain
    assert "LL" in page
    assert "E" in dashboard(seen(1.0), 200, ASCII).plain


def test_ascii_page_is_ascii():
    assert dashboard(seen(0.5), 100, ASCII).plain.isascii()


def test_glyphs_follow_the_streams_encoding():
    assert glyphs_for(Stream("ascii")) is ASCII
    assert glyphs_for(Stream("latin-1")) is ASCII
    assert glyphs_for(Stream("utf-8")) is UNICODE


@given(st.floats(0, 1), st.integers(2, 80))
def test_bars_have_their_width_and_never_lie_at_the_ends(share, width):
    drawn = bar(share, width, ASCII)
    assert len(drawn) == width
    assert ("#" in drawn) == (share > 0)
    assert ("." in drawn) == (share < 1)


@given(st.text(max_size=200), st.sampled_from(["ascii", "utf-8", "latin-1", "no-such-codec"]))
def test_printable_text_has_no_control_codes_and_fits_the_stream(text, encoding):
    shown = printable(text, Stream(encoding))
    assert shown.isprintable()
    if encoding != "no-such-codec":
        shown.encode(encoding)


# -- which view -------------------------------------------------------------------------------------


def test_a_pipe_gets_plain_lines_without_control_codes():
    stream = Stream()
    observer = make_observer("auto", stream)
    assert isinstance(observer, PlainLines)
    drive(observer, 0.0)
    observer.close()
    assert "\x1b" not in stream.getvalue()
    assert "\r" not in stream.getvalue()


def test_live_without_a_terminal_is_plain_and_says_so():
    stream = Stream()
    assert isinstance(make_observer("live", stream), PlainLines)
    assert "plain lines" in stream.getvalue()


def test_a_terminal_gets_the_live_view_unless_it_is_dumb(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_observer("auto", Stream(tty=True)), PlainLines)
    monkeypatch.setenv("TERM", "xterm-256color")
    view = make_observer("auto", Stream(tty=True))
    assert isinstance(view, LiveView)
    view.close()


def test_none_shows_nothing():
    assert isinstance(make_observer("none", BrokenStream()), ObserverGroup)


def test_an_unknown_mode_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="fancy") as caught:
        make_observer("fancy")
    assert "auto, live, plain, none" in str(caught.value.hint)


# -- plain lines ------------------------------------------------------------------------------------


def test_plain_lines_come_at_most_one_a_second_and_end_with_the_last_window():
    stream, now = Stream(), Time()
    view = PlainLines(stream, now=now)
    for tenth in range(30):
        now.s = tenth / 10
        view.snapshot(snapshot_at((tenth + 1) / 100))
    view.close()
    lines = [line for line in stream.getvalue().splitlines() if "p99" in line]
    assert len(lines) == 4
    assert "30 % done" in lines[-1]


def test_plain_lines_say_random_weights_clock_and_collapse():
    stream = Stream("ascii")
    view = PlainLines(stream, every_s=0.0)
    drive(view, 0.0)
    view.close()
    text = stream.getvalue()
    for words in ("random weights, virtual clock", "16 sessions: pass", "collapse at 9 min", "noise.mp3"):
        assert words in text


@pytest.mark.parametrize("make", [PlainLines, lambda stream: LiveView(stream, width=80)])
@pytest.mark.parametrize("broken", ["pipe", "closed"])
def test_a_stream_that_went_away_never_ends_the_run(make, broken):
    stream = BrokenStream() if broken == "pipe" else Stream()
    view = make(stream)
    if broken == "closed":
        stream.close()
    drive(view, 0.0)
    view.close()
    view.close()


# -- the live view ----------------------------------------------------------------------------------


def test_live_view_shows_what_happened_and_brings_the_terminal_back():
    stream = Stream(tty=True)
    view = LiveView(stream, width=100)
    drive(view, 0.0)
    view.close()
    text = stream.getvalue()
    assert "\x1b[?25l" not in text
    assert "24 waiting" in text
    assert "noise.mp3" in text
    assert "collapse at 9 min" in text
    assert text.count("\x1b[?1049h") == 1
    assert text.endswith("\x1b[?1049l")


def test_a_cost_surface_fills_in_as_it_is_measured():
    stream = Stream(tty=True)
    view = LiveView(stream, width=100)
    view.snapshot(working(0.5))
    for sessions, age_s, median_ms in ((1, 60.0, 5.5), (8, 60.0, 12.0), (1, 600.0, None), (1, 600.0, 6.5)):
        cell = {"policy": "window(256, 16)", "sessions": sessions, "age_s": age_s, "median_ms": median_ms}
        view.event("cell", cell)
    page = dashboard(view._view, 100, UNICODE, 30).plain
    view.close()
    assert "step time, ms, by age: window(256, 16)" in page
    rows = [line.split()[:3] for line in page.split("\n")]
    assert ["1", "5.5", "6.5"] in rows
    assert ["8", "12", "-"] in rows


def test_a_watched_server_is_drawn_with_its_forecast():
    stream = Stream(tty=True)
    view = LiveView(stream, width=100)
    for second in range(0, 100, 5):
        occupancy = 0.2 + second / 200
        data = {"t_s": float(second), "occupancy": occupancy, "remaining_s": 160.0 - second}
        view.event("scrape", {**data, "line": f"pool {occupancy:.0%}"})
    page = dashboard(view._view, 100, UNICODE, 30).plain
    view.close()
    assert "KV pool 68 %, full in 1:05" in page
    assert page.count(UNICODE.dot) > 10
    assert "pool 68%" in page


def test_live_view_draws_a_few_times_a_second():
    stream, now = Stream(tty=True), Time()
    view = LiveView(stream, width=100, now=now)
    view.snapshot(snapshot_at(0.1))
    before = len(stream.getvalue())
    view.snapshot(snapshot_at(0.2))
    assert len(stream.getvalue()) == before
    now.s += 0.3
    view.snapshot(snapshot_at(0.3))
    assert len(stream.getvalue()) > before
    view.close()


def test_no_colour_when_asked(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Stream(tty=True)
    view = LiveView(stream, width=100)
    drive(view, 0.0)
    view.close()
    for code in ("\x1b[31m", "\x1b[32m", "\x1b[1;31m", "\x1b[36m"):
        assert code not in stream.getvalue()


def test_control_codes_in_a_file_name_do_not_reach_the_terminal():
    stream = Stream(tty=True)
    view = LiveView(stream, width=100)
    view.notice("left out \x1b]0;title\x07.wav")
    view.close()
    assert "\x1b]0" not in stream.getvalue()


def test_running_and_waiting_are_left_out_if_unknown():
    blind = replace(snapshot_at(0.5), occupancy=None)
    for shown in (window_line(blind), dashboard(DashboardState(snapshot=blind), 80, ASCII).plain):
        assert "running" not in shown
        assert "shed" in shown
    assert "24 running" in window_line(snapshot_at(0.5))
    assert collapse_line({"t_s": 4.8, "occupancy": 0.0, "running": 0}) == (
        "collapse at 4.8 s: no session produced output"
    )


def test_live_view_keeps_time_where_nothing_was_told_for_seconds(monkeypatch):
    monkeypatch.setattr(live, "TICK_S", 0.01)
    stream, now = io.StringIO(), [0.0]
    view = LiveView(stream, width=80, now=lambda: now[0])
    view.phase("single", "1 session")
    now[0] = 45.0
    drawn = time.monotonic() + 20
    while "45 s" not in stream.getvalue() and time.monotonic() < drawn:
        time.sleep(0.01)
    view.close()
    assert "45 s" in stream.getvalue()


def test_counts_of_a_server_are_distinguished_from_the_sessions_of_this_run():
    ours = replace(snapshot_at(0.5), admitted=0, told_by_server=True, running=4)
    assert "confirm: 0 open | server: 4 running 0 waiting" in window_line(ours)
    rows = dashboard(DashboardState(snapshot=ours), 80, ASCII).plain.split("\n")
    assert next(row for row in rows if row.startswith("sessions")).split()[1:3] == ["31", "offered"]
    assert "server    4 running  0 waiting" in rows
