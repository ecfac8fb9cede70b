"""No secret reaches the screen or a file: every place in which one can be given is cleaned by one function."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.cli.main import run
from metronome_cli.core.secrets import HIDDEN, scrub, scrub_all

SECRET = "s3cr3t-t0ken"
GIVEN = [
    f"http://h:8000/metrics?token={SECRET}",
    f"h:8000/metrics?token={SECRET}",
    f"wss://user:{SECRET}@h/api#{SECRET}",
    f"user:{SECRET}@h:8000",
    f"--url=ws://h/?auth={SECRET}",
    f"hf_token={SECRET}",
    f"--vllm-arg=hf-token={SECRET}",
    f"'http://h/?a={SECRET}' is not an address",
    f"Got unexpected extra argument (http://h/m?key={SECRET})",
]


@pytest.mark.parametrize("text", GIVEN)
def test_a_secret_is_left_out_wherever_it_stands(text: str) -> None:
    assert SECRET not in scrub(text, {})
    assert SECRET not in json.dumps(scrub_all({"a": [text, {"b": (text,)}]}))


@pytest.mark.parametrize("name", ["METRONOME_API_KEY", "HF_TOKEN", "OPENAI_API_KEY", "DB_PASSWORD"])
def test_values_of_secret_variables_are_left_out(name: str) -> None:
    assert scrub(f"refused: {SECRET}!", {name: SECRET}) == f"refused: {HIDDEN}!"
    assert SECRET not in scrub(f"sent {SECRET}", {"METRONOME_HEADERS": f"X-Auth: {SECRET}\nX-Other: 1"})


@given(st.sampled_from(["p99<80ms", "--sessions", "window(1024, 16)", "ws://127.0.0.1:8998", "http://h/metrics", "a=b",
                        "key:value", "what?", "run/", "--slo=p99<80ms", "12:30"]))  # fmt: skip
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert scrub(text, {}) == text
    assert scrub(text, {"SOME_KEY": "80ms", "PATH": "/run:/bin"}) == text


def test_a_token_in_an_address_that_is_watched_reaches_neither_screen_nor_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"http://127.0.0.1:9/metrics?token={SECRET}"
    code = run(
        [
            "predict",
            "watch",
            address,
            "--watch-time",
            "20ms",
            "--fail-within",
            "1s",
            "--output",
            str(tmp_path / "run"),
            "--json",
        ]
    )
    captured = capsys.readouterr()
    assert code == 1  # the server refused the connection
    assert SECRET not in captured.out + captured.err
    assert "http://127.0.0.1:9/metrics" in captured.err
    assert all(SECRET not in file.read_text(errors="replace") for file in tmp_path.rglob("*.*"))
    assert run(["predict", "watch", address, f"http://h/?t={SECRET}"]) == 2
    assert SECRET not in "".join(capsys.readouterr())
