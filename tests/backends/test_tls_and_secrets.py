"""Certificates are checked, keys go to the server and nowhere else, and waiting has the limits that were set."""

import json
import ssl
import subprocess

import pytest

from metronome_cli.backends.websocket.backend import WebsocketSetup
from metronome_cli.backends.websocket.endpoint import SessionTimeouts, endpoint
from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.cli.main import run as command_line
from metronome_cli.core.errors import EngineError, UsageError
from metronome_cli.core.tls import tls_context
from tests.capacity.servers import QUICK, answer_all, bounded, raw_server, server_context, web_server

SUBJECT = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
KEY, HEADER, TOKEN = "sesame-key-7431", "sesame-header-9127", "sesame-token-5512"


def certificate(folder, name="server"):
    """A self-signed certificate and its key, as files."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *SUBJECT]
    made = subprocess.run([*command, "-keyout", key, "-out", cert], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"openssl made no certificate: {made.stderr[-200:]!r}")
    return cert, key


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    try:
        return certificate(tmp_path_factory.mktemp("tls"))
    except FileNotFoundError:
        pytest.skip("no openssl here")


@pytest.fixture
def secure(files):
    """The address of an answering server behind TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    with web_server(answer_all, ssl=context) as url:
        yield url.replace("ws:", "wss:")


def test_a_self_signed_server_is_driven_when_its_certificate_is_named(secure, files):
    context = server_context(secure, length_s=1.5)
    context.backend.endpoint = endpoint(secure, "moshi-server", SessionTimeouts(), {}, ca_file=files[0])
    run = Trial(context, TrialPlan(2, "single", length_s=1.5, until="end"))
    point = bounded(lambda: run.run(into=[]).result)
    assert point.sessions_ended_early == {}
    assert point.network.sessions_started == 2


@pytest.mark.parametrize("protocol", ["moshi-server", "auto"])
def test_an_untrusted_certificate_is_told_with_what_to_do(secure, protocol):
    with pytest.raises(UsageError, match="certificate is not trusted") as refused:
        WebsocketSetup(secure, protocol, limits=QUICK, environ={}).find()
    assert "--ca-file" in refused.value.hint


def test_another_authority_does_not_help(secure, tmp_path):
    other, _ = certificate(tmp_path, "other")
    with pytest.raises(UsageError, match="not trusted"):
        WebsocketSetup(secure, "moshi-server", limits=QUICK, environ={}, ca_file=other).find()


def test_a_file_without_certificates_is_the_users_mistake(tmp_path):
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    for file in (empty, tmp_path / "missing.pem"):
        with pytest.raises(UsageError, match="--ca-file"):
            tls_context(file)


def test_a_plain_server_behind_wss_cannot_be_reached(files):
    with web_server(answer_all) as url, pytest.raises((EngineError, UsageError)):
        WebsocketSetup(
            url.replace("ws:", "wss:"), "moshi-server", limits=QUICK, environ={}, ca_file=files[0]
        ).find()


def test_a_redirect_is_not_followed_with_the_key():
    """Headers are for the address that was given."""
    seen = []

    async def elsewhere(socket):
        seen.append(dict(socket.request.headers.raw_items()))
        await answer_all(socket)

    def redirect(to):
        def process(connection, request):
            response = connection.respond(302, "elsewhere\n")
            response.headers["Location"] = to
            return response

        return process

    environ = {"METRONOME_API_KEY": KEY}
    with (
        web_server(elsewhere) as other,
        web_server(answer_all, process_request=redirect(other)) as url,
        pytest.raises(EngineError, match="302"),
    ):
        WebsocketSetup(url, "moshi-server", limits=QUICK, environ=environ).find()
    assert seen == []


def test_keys_reach_the_server_and_appear_nowhere_else(tmp_path, monkeypatch, capfd):
    """In no output, no report, no page, no event, whatever the run came to."""
    heard = []

    async def keep(socket):
        heard.append((socket.request.path, dict(socket.request.headers.raw_items())))
        await answer_all(socket)

    monkeypatch.setenv("METRONOME_API_KEY", KEY)
    monkeypatch.setenv("METRONOME_HEADERS", f"X-Team: {HEADER}")
    out, html, junit = tmp_path / "out", tmp_path / "page.html", tmp_path / "junit.xml"
    with web_server(keep) as url:
        arguments = [
            "capacity",
            "--url",
            f"{url}/api/asr-streaming?token={TOKEN}",
            "--protocol",
            "moshi-server",
        ]
        arguments += ["--sessions", "1", "--session-length", "1.5s", "--ui", "plain"]
        arguments += ["--output", str(out), "--html", str(html), "--junit", str(junit)]
        monkeypatch.setattr("sys.argv", ["metronome", *arguments])
        code = bounded(lambda: command_line(arguments))
    assert code in (0, 3, 4)
    path, headers = heard[-1]
    assert TOKEN in path
    assert headers["kyutai-api-key"] == KEY
    assert headers["X-Team"] == HEADER
    printed = "".join(capfd.readouterr())
    stored = "".join(file.read_text() for file in [html, junit, *out.iterdir()])
    assert "api/asr-streaming" in stored
    for secret in (KEY, HEADER, TOKEN):
        assert secret not in printed
        assert secret not in stored
    assert json.loads((out / "report.json").read_text())["settings"]["url"]["value"].endswith(
        "/api/asr-streaming"
    )


def test_the_limits_are_those_that_were_set():
    async def hang(reader, writer):
        await reader.read(10_000)
        await reader.read(10_000)

    patient = SessionTimeouts(connect_s=0.3)
    with raw_server(hang) as url, pytest.raises(EngineError, match=r"in 0\.3 s"):
        WebsocketSetup(url, "moshi-server", limits=patient, environ={}).find()
