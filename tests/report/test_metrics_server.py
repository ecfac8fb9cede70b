"""The run's own series: what a scraper sees while a run lasts, and what the dashboard asks for."""

import dataclasses
import json
import re
import socket
import threading
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.config.readers import address
from metronome_cli.core.errors import UsageError
from metronome_cli.measure.histogram import LatencyHistogram
from metronome_cli.protocols.prometheus_text import parse
from metronome_cli.report.metrics_server import MetricsServer
from metronome_cli.report.prometheus import ALL
from tests.capacity.builders import always, context_on

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"


@pytest.fixture
def server():
    server = MetricsServer(("127.0.0.1", 0))
    yield server
    server.close()


def scrape(server):
    with urllib.request.urlopen(server.url, timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return parse(answer.read().decode())


def one(samples, name, **labels):
    (value,) = [s.value for s in samples if s.name == name and labels.items() <= dict(s.labels).items()]
    return value


def test_a_scrape_during_a_run_counts_what_the_run_counts(server):
    seen = []

    class Scraper:
        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def snapshot(self, snapshot):
            self.inner.snapshot(snapshot)
            seen.append((snapshot, scrape(server)))

    context = context_on(lambda batch: 0.02 + 0.031 * batch, observer=Scraper(server), length_s=30.0)
    point = Trial(context, TrialPlan(3, "single", max_batches=300, until="end")).run(into=[]).result
    assert len(seen) > 2
    snapshot, last = seen[-1]
    assert one(last, "metronome_frames_total") == point.frames > 0
    assert one(last, "metronome_deadline_misses_total") == point.misses > 0
    assert one(last, "metronome_batches_total") == point.batches
    assert one(last, "metronome_frame_latency_seconds_count") == point.frames
    late = point.frames - one(last, "metronome_frame_latency_seconds_bucket", le="0.08")
    assert late == point.misses
    assert one(last, "metronome_kv_pool_occupancy_ratio") == snapshot.occupancy
    assert one(last, "metronome_sessions", state="running") == snapshot.running
    assert one(last, "metronome_run_info", clock="virtual", phase="single") == 1
    assert one(scrape(server), "metronome_trials_total", verdict=point.verdict) == 1


def test_buckets_rise_and_counters_never_fall(server):
    pages = []
    context = context_on(always(0.02), observer=server)
    for sessions in (2, 5):
        Trial(context, TrialPlan(sessions, "look", max_batches=40)).run(into=[])
        pages.append(scrape(server))
    for page in pages:
        buckets = [s.value for s in page if s.name == "metronome_frame_latency_seconds_bucket"]
        assert buckets == sorted(buckets)
    for sample in pages[0]:
        if sample.name.endswith(("_total", "_bucket", "_count", "_sum")):
            assert one(pages[1], sample.name, **sample.labels) >= sample.value


@given(st.lists(st.floats(0.002, 20_000), max_size=60), st.floats(0.01, 15_000))
def test_a_bucket_holds_what_does_not_exceed_its_bound_to_a_quarter_of_a_percent(values, bound):
    histogram = LatencyHistogram()
    for value in values:
        histogram.add(value)
    (count,) = histogram.cumulative([bound])
    assert sum(v <= bound / 1.0026 for v in values) <= count <= sum(v <= bound * 1.0026 for v in values)
    assert histogram.sum_ms == pytest.approx(sum(values))


def test_every_series_that_the_dashboard_names_is_exposed_and_every_one_exposed_is_shown(server):
    context = context_on(always(0.01), observer=server)
    Trial(context, TrialPlan(2, "single", max_batches=30)).run(into=[])
    named = set(re.findall(r"\bmetronome_[a-z_]+", DASHBOARD.read_text()))
    cap = {"metronome_admission_limit_sessions"}  # only where a controller runs
    assert named - cap <= {sample.name for sample in scrape(server)}
    assert cap <= {series.name for series in ALL}
    assert {s.name for s in ALL} <= {re.sub("_(bucket|sum|count)$", "", name) for name in named}
    assert len({p["id"] for p in json.loads(DASHBOARD.read_text())["panels"]}) == 10


def test_names_follow_the_conventions():
    for series in ALL:
        assert re.fullmatch("metronome_[a-z][a-z_]*[a-z]", series.name)
        assert series.name.endswith("_total") == (series.kind == "counter")
        assert series.kind != "histogram" or series.name.endswith("_seconds")


def test_what_is_not_known_has_no_row(server):
    context = context_on(always(0.01))
    Trial(context, TrialPlan(2, "single", max_batches=30)).run(into=[])
    server.snapshot(dataclasses.replace(context.observer.snapshots[-1], occupancy=None, cap=None))
    names = {sample.name for sample in scrape(server)}
    assert not names & {"metronome_kv_pool_occupancy_ratio", "metronome_admission_limit_sessions"}


def test_a_label_may_hold_anything(server):
    context = context_on(always(0.01))
    Trial(context, TrialPlan(2, "single", max_batches=30)).run(into=[])
    odd = 'a "quoted" back\\slash'
    server.snapshot(dataclasses.replace(context.observer.snapshots[-1], phase=odd))
    assert one(scrape(server), "metronome_run_info", phase=odd) == 1


def test_a_port_in_use_is_a_usage_error(server):
    port = int(server.url.rpartition(":")[2].partition("/")[0])
    with pytest.raises(UsageError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
        MetricsServer(("127.0.0.1", port))


def test_it_ends_with_the_run_even_while_a_scraper_dawdles():
    server = MetricsServer(("127.0.0.1", 0))
    port = int(server.url.rpartition(":")[2].partition("/")[0])
    with socket.create_connection(("127.0.0.1", port)):
        assert scrape(server)  # another one is served meanwhile
        ended = threading.Thread(target=server.close)
        ended.start()
        ended.join(timeout=3)
        assert not ended.is_alive()
    with pytest.raises(urllib.error.URLError):
        scrape(server)


def test_any_other_path_is_not_found(server):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(server.url.replace("/metrics", "/etc/passwd"), timeout=10)
    assert caught.value.code == 404
    caught.value.close()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (":9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("[::1]:80", ("::1", 80)),
        ("box:0", ("box", 0)),
    ],
)
def test_addresses(text, meant):
    assert address(text) == meant


@pytest.mark.parametrize("text", ["9464", "", ":", ":x", ":65536", "host", ":-1", ":\u0661"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(UsageError, match="is not an address"):
        address(text)


def test_numpy_counts_are_plain_numbers(server):
    context = context_on(always(0.01))
    Trial(context, TrialPlan(2, "single", max_batches=30)).run(into=[])
    server.snapshot(dataclasses.replace(context.observer.snapshots[-1], running=np.int64(7)))
    assert one(scrape(server), "metronome_sessions", state="running") == 7
