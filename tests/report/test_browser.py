"""The page in a real browser: it draws, fits a phone, and nothing is requested. Skipped where there is none."""

import json
import shutil
import subprocess

import pytest

from metronome_cli.report.html.page import write_html
from tests.report.builders import policy_report
from tests.report.test_pages import hostile_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]


def browse(tmp_path, page, *flags):
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}", *flags, page.as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, check=True, timeout=120).stdout.decode()


def requests_of(tmp_path, page):
    """What the page asked the network for; the browser's own calls home have no page behind them."""
    log = tmp_path / "net.json"
    browse(tmp_path, page, f"--log-net-log={log}", f"--screenshot={tmp_path / 'shot.png'}")
    asked = [event["params"] for event in json.loads(log.read_text())["events"] if "params" in event]
    return [p["url"] for p in asked if "url" in p and p.get("initiator", "not an origin") != "not an origin"]


@pytest.mark.parametrize("make", [policy_report, hostile_report])
def test_no_request_leaves_the_page(tmp_path, make):
    assert requests_of(tmp_path, write_html(make(), tmp_path / "page.html")) == []
    assert (tmp_path / "shot.png").stat().st_size > 10_000


def test_a_page_that_does_ask_would_be_seen(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><img src='http://localhost:9/picture.png'>")
    assert "http://localhost:9/picture.png" in requests_of(tmp_path, page)


def test_the_one_script_runs_under_the_page_s_own_policy(tmp_path):
    page = write_html(policy_report(), tmp_path / "page.html")
    assert 'tabindex="0"' not in page.read_text()
    shown = browse(tmp_path, page, "--virtual-time-budget=4000", "--dump-dom")
    assert '<th scope="col" tabindex="0" title="sort"' in shown
    assert '<button id="download" type="button">' in shown


def test_print_unfolds_everything(tmp_path):
    page = write_html(policy_report(), tmp_path / "page.html")
    whole = page.read_text()
    folded = tmp_path / "folded.html"
    folded.write_text(whole.replace("details::details-content", "x::y").replace("beforeprint", "never"))
    sizes = []
    for each in (page, folded):
        browse(tmp_path, each, f"--print-to-pdf={tmp_path / 'page.pdf'}")
        sizes.append((tmp_path / "page.pdf").stat().st_size)
    assert sizes[0] > 1.02 * sizes[1]


def test_the_page_fits_a_phone(tmp_path):
    """Nothing is wider than the window: wide tables scroll in boxes of their own."""
    page = write_html(policy_report(), tmp_path / "page.html")
    frame = tmp_path / "frame.html"
    frame.write_text(
        f'<iframe src="{page.name}" style="width:360px;height:600px" onload="document.title='
        'this.contentDocument.documentElement.scrollWidth"></iframe>'
    )
    shown = browse(
        tmp_path, frame, "--allow-file-access-from-files", "--virtual-time-budget=4000", "--dump-dom"
    )
    assert "<title>360</title>" in shown or "<title>345</title>" in shown, shown[:300]
