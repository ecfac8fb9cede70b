"""Codecs without a socket: what one side says the other understands, and no bytes break either."""

import asyncio
import base64
import contextlib
import socket

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.backends.websocket.backend import WebsocketSetup
from metronome_cli.backends.websocket.endpoint import (
    SessionTimeouts,
    address,
    detect,
    endpoint,
    headers,
    realtime_kind,
)
from metronome_cli.core.errors import EngineError, MetronomeError, UsageError, exit_code_of
from metronome_cli.core.http import shown
from metronome_cli.protocols import pcm
from metronome_cli.protocols.messages import (
    AudioOutput,
    AudioReceived,
    BacklogReported,
    MarkReached,
    MarkReceived,
    ProtocolError,
    Ready,
    ResponseActive,
    ServerError,
    ServerMessage,
    SessionRejected,
)
from metronome_cli.protocols.moshi_server import MARK_EVERY
from metronome_cli.protocols.moshi_server import pack as msgpacked
from metronome_cli.protocols.pcm import pack as json_of
from metronome_cli.protocols.registry import HOSTED, PROTOCOLS, client_codec, host_codec

CONTINUOUS = ["moshi", "moshi-server"]
AT_ONCE = [name for name in HOSTED if name != "minicpm"]  # ready without a word of the client


def both(protocol):
    return client_codec(protocol)(), host_codec(protocol)()


def events(client, messages):
    return [event for message in messages for event in client.read(message)]


def wishes(host, messages):
    return [wish for message in messages for wish in host.read(message)]


def sound(count, rate):
    return (0.3 * np.sin(2 * np.pi * 440 * np.arange(count) / rate)).astype(np.float32)


@pytest.mark.parametrize("protocol", AT_ONCE)
def test_a_greeting_starts_a_session_and_a_refusal_rejects_it(protocol):
    client, host = both(protocol)
    assert events(client, host.greeting()) == [Ready()]
    assert [type(event) for event in events(client, host.refusal("all slots are taken"))] == [SessionRejected]


@pytest.mark.parametrize("protocol", AT_ONCE)
def test_the_server_hears_what_the_client_says(protocol):
    client, host = both(protocol)
    rate = client.traits.sample_rate
    said = sound(rate, rate)
    messages = [m for piece in np.split(said, 12 if rate % 12 == 0 else 10) for m in client.audio(piece)]
    heard = np.concatenate([w.samples for w in wishes(host, messages) if isinstance(w, AudioReceived)])
    assert len(said) - 0.1 * rate <= len(heard) <= len(said)
    level = np.sqrt(np.mean(heard[len(heard) // 2 :] ** 2))
    assert level == pytest.approx(0.3 / np.sqrt(2), rel=0.05)


@pytest.mark.parametrize("protocol", CONTINUOUS)
def test_output_is_counted_in_seconds_of_audio(protocol):
    client, host = both(protocol)
    rate = client.traits.sample_rate
    piece = sound(round(0.08 * rate), rate)
    answers = [event for _ in range(25) for event in events(client, host.answer(piece, "hey", 0))]
    seconds = sum(event.seconds for event in answers if isinstance(event, AudioOutput))
    assert seconds == pytest.approx(2.0, abs=0.09)
    assert any(isinstance(event, AudioOutput) and "hey" in event.text for event in answers)


def test_unmute_speaks_opus_inside_the_json_and_asks_for_a_session_first():
    client = client_codec("unmute")()
    assert "session.update" in client.opening()[0]
    said = [m for _ in range(5) for m in client.audio(sound(1920, 24000))]
    assert all('"audio":"T2dnUw' in message for message in said)  # "OggS"
    assert events(client, [json_of("session.updated")]) == [Ready()]


@pytest.mark.parametrize("name", ["response.output_audio.delta", "response.audio.delta"])
def test_both_names_of_the_audio_event_are_taken(name):
    client = client_codec("realtime")()
    assert client.read(json_of(name, delta="AAEB" * 8)) == [AudioOutput(12 / 24000)]


def test_a_response_is_a_turn():
    client = client_codec("realtime")()
    assert events(client, [json_of("response.created"), json_of("response.done")]) == [
        ResponseActive(True),
        ResponseActive(False),
    ]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": "resource_exhausted", "message": "no"}, SessionRejected),
        ({"type": "server_error", "message": "out of memory"}, ServerError),
        ("a string", ServerError),
        (None, ServerError),
    ],
)
def test_a_full_server_is_told_from_a_broken_one(error, kind):
    (event,) = client_codec("realtime")().read(json_of("error", error=error))
    assert type(event) is kind


def test_moshi_server_says_its_backlog_and_echoes_marks():
    client, host = both("moshi-server")
    assert events(client, host.answer(sound(1920, 24000), "", 4800)) == [
        AudioOutput(0.08),
        BacklogReported(0.2),
    ]
    said = [m for _ in range(MARK_EVERY) for m in client.audio(sound(1920, 24000))]
    assert wishes(host, said)[-1] == MarkReceived(MARK_EVERY)
    assert events(client, host.echo(MARK_EVERY)) == [MarkReached(MARK_EVERY)]
    assert events(client, [msgpacked(type="Error", message="no free channels")]) == [
        SessionRejected("no free channels")
    ]


def test_moshi_passes_over_kinds_that_it_does_not_know():
    client = client_codec("moshi")()
    assert events(client, [b"", b"\x03\x01", b"\x04{}", b"\x06", b"\xff\xff"]) == []


WORDS = st.text(max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
TYPES = [
    "Step", "Marker", "Word", "Ready", "Error", "Audio", "session.created", "response.audio.delta", "error",
    "response.output_audio_transcript.delta", "transcription.delta", "transcription.done",
    "input_audio_buffer.append", "input_audio_buffer.commit",
]  # fmt: skip
KEYS = ["step_idx", "prs", "buffered_pcm", "id", "text", "message", "pcm", "delta", "error", "audio", "final"]
SHAPED = st.tuples(st.sampled_from(TYPES), st.dictionaries(st.sampled_from(KEYS), JSON, max_size=5))


def as_messages(shaped):
    kind, fields = shaped
    yield json_of(kind, **fields)
    with contextlib.suppress(OverflowError, ValueError):  # integers that msgpack has no room for
        yield msgpacked(type=kind, **fields)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(data=st.data())
def test_no_message_breaks_a_codec(protocol, data):
    kind = st.sampled_from([bytes([k]) for k in range(8)])
    raw = st.binary(max_size=200) | st.builds(bytes.__add__, kind, st.binary(max_size=200)) | WORDS
    messages = [*data.draw(st.lists(raw, max_size=4)), *as_messages(data.draw(SHAPED))]
    client = client_codec(protocol)()
    assert all(isinstance(event, ServerMessage) for event in events(client, messages))
    if protocol in HOSTED:
        host = host_codec(protocol)()
        assert all(
            isinstance(wish, AudioReceived | MarkReceived | ProtocolError) or wish
            for wish in wishes(host, messages)
        )


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ("host", "ws://host/api/chat"),
        ("host:8998", "ws://host:8998/api/chat"),
        ("https://host/", "wss://host/api/chat"),
        ("wss://host/own?x=1", "wss://host/own?x=1"),
    ],
)
def test_an_address_gets_scheme_and_path(target, url):
    assert address(target, "/api/chat") == url


@pytest.mark.parametrize(
    "target", ["ftp://host", "ws://", "ws://host:99999", "ws://user:secret@host", "ws://secret@host:x", ""]
)
def test_a_bad_address_is_refused_without_showing_what_is_secret(target):
    with pytest.raises(UsageError) as refused:
        address(target, "/")
    assert "secret" not in str(refused.value) + str(refused.value.hint)


@pytest.mark.parametrize(("target", "says"), [
    ("ws://[::1", "--url 'ws://[::1' is not an address: its brackets do not hold an IPv6 address"),
    ("ftp://host", "--url 'ftp://host' is not an address: its scheme is 'ftp', not one of ws, http, wss, https"),
    ("ws://", "--url 'ws://' is not an address: it names no host"),
    ("ws://host:99999", "is not an address: its port is not a number from 1 to 65535"),
    ("ws://host:x", "is not an address: its port is not a number from 1 to 65535"),
    ("ws://a b", "is not an address: there are blanks or control codes in it"),
    ("ws://secret@[::1?key=secret", "--url 'ws://[::1' is not an address: its brackets"),
    ("ws://[::1?secret@x", "--url '(not an address)' is not an address: its brackets"),
])  # fmt: skip
def test_a_bad_address_is_named_with_what_is_wrong_and_what_is_allowed(target: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        address(target, "/")
    assert says in refused.value.message
    assert "secret" not in refused.value.message
    assert refused.value.hint == "such as ws://host:8998, wss://host/path or ws://[::1]:8998"


def find(target: str) -> None:
    WebsocketSetup(target, protocol="moshi").find()


def test_a_server_that_is_down_is_named_with_the_reason() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        url = f"ws://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(EngineError) as down:
            find(url)
    assert down.value.message == f"{url}/api/chat cannot be reached: connection refused"
    assert down.value.hint == "check that a server is running there; `metronome serve` starts one for tests"
    assert exit_code_of(down.value) == 1


@pytest.mark.parametrize(("number", "code"), [(socket.EAI_NONAME, 2), (socket.EAI_AGAIN, 1)])
def test_a_host_that_does_not_exist_is_a_bad_address_and_one_that_cannot_be_looked_up_is_not(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(*_: object, **__: object) -> None:
        raise socket.gaierror(number, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(MetronomeError) as unknown:
        find("ws://no.such.host:8998")
    assert "ws://no.such.host:8998" in unknown.value.message
    assert "name or service not known" in unknown.value.message.lower()
    assert unknown.value.hint
    assert exit_code_of(unknown.value) == code


def test_keys_come_from_the_environment_and_are_shown_nowhere():
    environ = {"METRONOME_API_KEY": "sesame", "METRONOME_HEADERS": "X-Team: speech\n"}
    found = endpoint("host", "moshi-server", environ=environ)
    assert found.headers == {"X-Team": "speech", "kyutai-api-key": "sesame"}
    assert headers(client_codec("realtime")().traits, environ)["Authorization"] == "Bearer sesame"
    assert "sesame" not in repr(found) + str(found.describe()) + shown("ws://host/?key=sesame")
    with pytest.raises(UsageError):
        headers(found.traits, {"METRONOME_HEADERS": "no header"})


@pytest.mark.parametrize(("variable", "value"), [
    ("METRONOME_API_KEY", "sk-SECRET\u201c123"), ("METRONOME_HEADERS", "X-Auth: sk-SECRET\x01"),
    ("METRONOME_API_KEY", "sk-SECRET\n1"),
])  # fmt: skip
def test_a_key_that_no_header_may_hold_is_refused_and_not_shown(variable, value):
    traits = client_codec("moshi")().traits
    with pytest.raises(UsageError, match=variable) as refused:
        headers(traits, {variable: value})
    assert "SECRET" not in f"{refused.value.message}{refused.value.hint}"


@pytest.mark.parametrize(
    ("path", "protocol"), [("/api/chat", "moshi"), ("/api/asr-streaming", "moshi-server")]
)
def test_a_known_path_says_the_protocol(path, protocol):
    assert asyncio.run(detect(f"ws://127.0.0.1:9{path}", SessionTimeouts())) == protocol


def test_an_unknown_protocol_is_refused():
    with pytest.raises(UsageError, match="moshy"):
        client_codec("moshy")


@given(st.binary(max_size=60))
def test_the_size_under_base64_is_that_of_its_bytes(data):
    assert pcm.size(base64.b64encode(data).decode()) == len(data)


@given(st.text(alphabet="AZaz09+/= -_\n\u00e9", max_size=12))
def test_only_base64_has_a_size(text):
    size, found = pcm.size(text), pcm.raw(text)
    assert size is None or (found is not None and size == len(found))


@pytest.mark.parametrize("target", ["ws:/user:password@host", "ws:/password@host/path"])
def test_a_slash_too_few_shows_no_password(target):
    with pytest.raises(UsageError) as refused:
        address(target, "/x")
    assert "password" not in str(refused.value)


@pytest.mark.parametrize("target", ["ws://" + "a" * 70 + ".com", "ws://ex..com"])
def test_a_host_that_no_name_service_takes_is_refused(target):
    with pytest.raises(UsageError, match="63 characters"):
        address(target, "/x")


def test_the_query_of_a_protocol_is_kept_and_a_given_one_wins():
    assert address("host", "/v1/realtime?mode=audio") == "ws://host/v1/realtime?mode=audio"
    assert address("host/v1/realtime", "/v1/realtime?mode=audio") == "ws://host/v1/realtime?mode=audio"
    assert address("host/own?a=b", "/v1/realtime?mode=audio") == "ws://host/own?a=b"


def test_a_key_that_a_server_repeats_is_not_shown():
    found = endpoint("host", "moshi", environ={"METRONOME_API_KEY": "sk-planted-secret"})
    assert found.without_secrets("bad key: sk-planted-secret") == "bad key: ***"


@pytest.mark.parametrize(
    ("first", "protocol"),
    [
        ({"type": "session.created", "session": {"id": "s"}}, "realtime"),
        ({"type": "session.created", "session": {"type": "transcription"}}, "transcription"),
        ({"type": "session.created", "id": "sess-1"}, "vllm-realtime"),
        ({"type": "session.queued", "position": 3}, "minicpm"),
        ({"type": "session.queue_done"}, "minicpm"),
    ],
)
def test_the_first_event_tells_the_protocol(first, protocol):
    assert realtime_kind(first) == protocol


def test_a_turn_end_that_a_protocol_does_not_have_is_refused():
    with pytest.raises(UsageError, match="--turn-end model"):
        client_codec("moshi", turn_end="model")


def test_a_client_that_ends_turns_itself_commits_at_pauses():
    codec = client_codec("realtime", turn_end="commit")()
    assert '"turn_detection":null' in codec.started()[0]
    said = [m for _ in range(10) for m in codec.audio(sound(1920, 24000))]
    paused = [m for _ in range(10) for m in codec.audio(np.zeros(1920, np.float32))]
    kinds = [m.partition('"type":"')[2].partition('"')[0] for m in said + paused]
    assert kinds.count("input_audio_buffer.commit") == kinds.count("response.create") == 1
    assert kinds.index("response.create") > kinds.index("input_audio_buffer.commit") > len(said)
