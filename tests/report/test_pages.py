"""The page and its plots: nothing is more than text, and nothing leaves the page."""

import base64
import hashlib
import json
import re
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metronome_cli.report.conditions import RANDOM_WEIGHTS, VIRTUAL_CLOCK, conditions
from metronome_cli.report.html import page as page_module
from metronome_cli.report.html.capacity_plots import best_points, failed_fast
from metronome_cli.report.html.deadline import deadline_of
from metronome_cli.report.html.plots import plots
from metronome_cli.report.html.plotting import tick_s
from metronome_cli.report.html.svg import ROLES
from metronome_cli.report.html.tiles import tiles_of
from metronome_cli.results.audio_files import AudioFile, AudioFiles, RefusedAudioFile
from metronome_cli.results.policy_runs import PolicyRun
from metronome_cli.results.timeline import downsample
from tests.report.builders import (
    PROFILE,
    capacity_report,
    collapse_report,
    every_report,
    point,
    window,
)

HOSTILE = (
    "</svg></style><script>alert('x')</script><img src=https://a.example/ onerror=y> $x^2$ \x1b[31m\u202e\x00"
)


def hostile_report():
    """Every text that a run can bring in is an attack."""
    windows = [window(float(t), 4, 20.0) for t in range(5)]
    given_report = capacity_report(
        profile={**PROFILE, "name": HOSTILE, "title": HOSTILE, HOSTILE: [HOSTILE]},
        summary=HOSTILE,
        argv=["metronome", HOSTILE],
        settings={HOSTILE: {"value": HOSTILE, "from": HOSTILE}},
        environment={"cpu": HOSTILE, "devices": [{"name": HOSTILE}]},
        weights=HOSTILE,
        error=HOSTILE,
        policy_runs=[PolicyRun(name=HOSTILE, policy=HOSTILE, collapsed=False, windows=windows)],
        audio=AudioFiles(
            files_used=[AudioFile(file=HOSTILE, notes=[HOSTILE])],
            files_refused=[RefusedAudioFile(file=HOSTILE, reason=HOSTILE)],
        ),
    )
    for each in given_report.capacity.trials:
        each.stages_ms = {HOSTILE: 5.0, "_" + HOSTILE: 3.0}
        each.reason = each.purpose = each.policy = HOSTILE
    return given_report


class Page(HTMLParser):
    """What a browser would act on."""

    VOID = ("meta", "br", "img", "link", "input", "path", "use", "rect")

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.ids, self.handlers, self.open, self.unbalanced = set(), [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        self._look(attrs)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self._look(attrs)

    def _look(self, attrs):
        for name, value in attrs:
            if name in ("href", "src", "xlink:href", "action", "data"):
                self.links.append(value)
            if name == "id":
                self.ids.append(value)
            if name.startswith("on"):
                self.handlers.append(name)

    def handle_endtag(self, tag):
        if tag in self.VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)


# -- HTML -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages():
    return {
        name: page_module.render_html(each)
        for name, each in {**every_report(), "hostile": hostile_report()}.items()
    }


@pytest.mark.parametrize("name", [*every_report(), "hostile"])
def test_a_page_runs_nothing_and_asks_for_nothing(pages, name):
    page = Page(pages[name])
    assert not page.tags & {"img", "link", "iframe", "object", "embed", "form", "base"}
    assert not page.handlers
    assert all(link.startswith("#") for link in page.links)
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert not page.unbalanced
    assert not page.open
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", pages[name], re.DOTALL)
    assert [attributes for attributes, _ in scripts] == [' type="application/json" id="report-data"', ""]
    digest = base64.b64encode(hashlib.sha256(scripts[1][1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page_module.POLICY
    assert json.loads(scripts[0][1])["schema"].startswith("metronome.report/")
    assert not re.search(r"fetch|XMLHttp|import\(|eval|innerHTML|https?:", page_module.SCRIPT)
    assert "default-src 'none'" in page_module.POLICY
    assert page_module.escape(page_module.POLICY) in pages[name]
    assert not re.search(r"url\((?!#)|@import|https?://", re.sub(r"https://a\.example", "", pages[name]))


def test_hostile_text_stays_text(pages):
    assert pages["hostile"].count("<script") == pages["capacity"].count("<script") == 2
    assert "&lt;script&gt;" in pages["hostile"]
    assert "\x1b" not in pages["hostile"]
    assert "\u202e" not in pages["hostile"]


@given(st.text())
def test_any_text_is_escaped(value):
    shown = page_module.text(value)
    assert not set(shown) & set("<>\"'")
    shown.encode()


def test_colours_are_variables_that_the_style_has(pages):
    style = pages["capacity"].split("<style>")[1].split("</style>")[0]
    used = set(re.findall(r"var\(--([\w-]+)\)", pages["policy_runs"]))
    assert used <= set(re.findall(r"--([\w-]+):", style))
    assert set(ROLES) <= set(re.findall(r"--([\w-]+):", style))
    assert not re.search(r"#01[0-9a-f]{2}fe", pages["policy_runs"])


def test_a_page_has_the_answer_the_conditions_and_every_setting(pages):
    for words in ("Safe concurrency: 24 sessions", RANDOM_WEIGHTS, VIRTUAL_CLOCK, "flag --slo",
                  "Example Processor 9000",
                  "max_backlog", "noise.mp3", "silent throughout", "random weights"):  # fmt: skip
        assert words in pages["capacity"].replace("&#x27;", "'"), words


def test_the_same_report_makes_the_same_page(pages):
    assert page_module.render_html(capacity_report()) == pages["capacity"]


# -- plots ------------------------------------------------------------------------------------------


def test_each_report_gets_the_plots_that_it_has_data_for():
    titles = {name: [plot.title for plot in plots(each)] for name, each in every_report().items()}
    assert titles["capacity"] == [
        "Latency against sessions",
        "The controller's ramp",
        "24 sessions, confirm: pass",
        "25 sessions, exceed: fail",
        "Where a step's time goes",
    ]
    assert titles["collapse"] == ["16 sessions, single: fail", "Where a step's time goes"]
    assert titles["policy_runs"][-1] == "Policies side by side"
    assert titles["forecast"] == [
        "How the pool fills",
        "When the run ends by itself",
        "Fleet size and blocking",
    ]
    assert titles["probe"] == [
        "Cost of a step by sessions and age",
        "Step time against session age",
        "Step time against sessions",
    ]
    assert titles["quality"] == ["Prediction as a session ages", "Repetition as a session ages"]
    assert titles["nothing"] == []


def test_a_collapse_is_said_in_words_for_those_who_cannot_see_it():
    caption = plots(collapse_report())[0].caption
    assert "0 misses, 2,304 empty frames" in caption
    assert "collapse at 40 s" in caption


def test_a_caption_says_what_the_table_says_and_marks_the_warm_up():
    given_report = collapse_report()
    shown = given_report.capacity.trials[0]
    shown.windows.insert(0, window(0.96, 16, 99.0, 1.0, misses=7, empty_frames=5, warm_up=True))
    shown.windows[1:] = [each.model_copy(update={"occupancy": 0.5}) for each in shown.windows[1:]]
    caption = plots(given_report)[0].caption
    assert "Highest p99 of a window 42 ms; 0 misses, 2,304 empty frames; pool at most 100 % full." in caption
    assert "Shaded: the warm-up, 960 ms, whose frames are not counted." in caption


def test_a_failed_screening_is_never_drawn_as_a_fast_point():
    given_report = capacity_report()
    refused = point(30, "fail", "screen", steps=10, reason="no slot")
    for name in ("p50", "p90", "p99", "p999", "max"):
        setattr(refused.latency_ms, name, 5.0)
    given_report.capacity.trials.append(refused)
    assert failed_fast(refused, 80.0)
    assert not failed_fast(point(25, "fail"), 80.0)
    plot = plots(given_report)[0]
    assert "A cross marks a failure for another reason than latency (30: no slot)." in plot.caption
    assert "from 20 to 30" not in plot.caption
    hover = json.loads(unescape(re.search(r'data-hover="([^"]*)"', plot.wide)[1]))
    lines = {line["name"]: line for line in hover[0]["lines"]}
    assert 30 not in lines["p99"]["x"]


def test_values_under_a_pointer_are_the_report_s():
    given_report = capacity_report()
    hover = json.loads(unescape(re.search(r'data-hover="([^"]*)"', plots(given_report)[0].wide)[1]))
    line = next(line for line in hover[0]["lines"] if line["name"] == "p99")
    best = best_points(given_report)
    assert line["x"] == [each.sessions for each in best]
    assert line["y"] == pytest.approx([each.latency_ms.p99 for each in best], rel=1e-3)
    left, top, right, bottom = hover[0]["box"]
    assert 0 <= left < right <= 1
    assert 0 <= top < bottom <= 1


def test_four_tiles_say_what_a_manager_asks():
    tiles = {tile.name: tile for tile in tiles_of(capacity_report())}
    assert list(tiles) == ["Safe sessions", "Limited by", "p99 latency", "Breaks at"]
    assert (tiles["Safe sessions"].value, tiles["Safe sessions"].kind) == ("24", "pass")
    assert tiles["Breaks at"].value == "25"
    for made in every_report().values():
        assert len(tiles_of(made)) in (0, 4)


def test_the_modelled_gpu_is_named_and_not_the_machine_that_computed():
    facts = dict(conditions(every_report()["forecast"]))
    assert facts["modelled device"] == "H100 80 GB"
    assert "machine" not in facts
    assert "modelled device" not in dict(conditions(capacity_report()))


def test_the_curve_takes_the_best_measurement_of_each_number():
    given_report = capacity_report()
    given_report.capacity.trials.append(point(24, "pass", "screen", steps=10))
    assert [p.batches for p in best_points(given_report) if p.sessions == 24] == [1200]


@given(end_s=st.floats(1e-3, 1e6))
def test_marks_of_time_are_few_and_read_well(end_s):
    factor = 1.0 if end_s <= 180 else 60.0 if end_s <= 10_800 else 3600.0
    step = tick_s(end_s, factor) / factor
    assert 0.5 < end_s / factor / step <= 8.001
    assert len(f"{step:g}".replace(".", "").strip("0")) <= 2


def test_the_deadline_is_the_period_unless_given():
    assert deadline_of(capacity_report()) == 80.0
    frame = {**PROFILE["frame"], "deadline": 0.06}
    assert deadline_of(capacity_report(profile={**PROFILE, "frame": frame})) == 60.0
    assert deadline_of(capacity_report(profile=None)) is None


@pytest.mark.parametrize("latency", [0.0, 1e-9, 1e7])
def test_extreme_latencies_are_drawn(latency):
    given_report = capacity_report()
    for each in given_report.capacity.trials:
        each.latency_ms.p99 = each.latency_ms.max = latency
    assert plots(given_report)[0].wide.startswith("<svg")


@settings(max_examples=30)
@given(st.integers(1, 3000), st.integers(1, 400))
def test_a_thinned_timeline_keeps_peaks_and_sums(length, most):
    windows = [window(float(t), 3, 10.0 + t % 97, misses=t % 5, empty_frames=t % 3) for t in range(length)]
    short = downsample(windows, most)
    assert len(short) <= most
    for field in ("misses", "empty_frames", "frames"):
        assert sum(getattr(w, field) for w in short) == sum(getattr(w, field) for w in windows)
    assert max(w.p99_ms for w in short) == max(w.p99_ms for w in windows)
    assert short[-1].t_s == windows[-1].t_s


def test_a_server_that_tells_of_no_pool_has_its_started_sessions_drawn_and_no_empty_panel():
    given_report = collapse_report()
    told = plots(given_report)[0].wide
    shown = given_report.capacity.trials[0]
    shown.windows = [each.model_copy(update={"occupancy": None}) for each in shown.windows]
    blind = plots(given_report)[0].wide
    assert ("KV pool" in told, ">running<" in told, ">open<" in told) == (True, True, False)
    assert ("KV pool" in blind, ">running<" in blind, ">open<" in blind) == (False, False, True)
