"""The line of a watched server: what the server says of itself is text and nothing more."""

import io

from metronome_cli.ui.countdown import Countdown


def test_what_a_server_calls_itself_is_spelt_out():
    stream = io.StringIO()
    view = Countdown(stream)
    view.notice("series {engine=\x1b[31m} is gone")
    view.event("scrape", {"t_s": 1.0, "line": "pool \u202e 5 %"})
    view.close()
    assert stream.getvalue() == "series {engine=\\x1b[31m} is gone\n[    1.0 s] pool \\u202e 5 %\n"
