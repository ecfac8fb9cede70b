"""Events of realtime servers and what each means to a session."""

import base64

import numpy as np
import pytest

from metronome_cli.protocols import messages as m
from metronome_cli.protocols.minicpm import floats_to_text
from metronome_cli.protocols.pcm import pack
from metronome_cli.protocols.registry import client_codec, host_codec


def read(kind, protocol="realtime", **fields):
    return list(client_codec(protocol)().read(pack(kind, **fields)))


def test_no_sound_is_no_answer():
    assert read("response.output_audio.delta", delta="") == []


@pytest.mark.parametrize(
    ("session", "seconds"),
    [
        ({"output_audio_format": "g711_ulaw"}, 480 / 8000),
        ({"audio": {"output": {"format": {"type": "audio/pcmu"}}}}, 480 / 8000),
        ({"audio": {"output": {"format": {"type": "audio/pcm", "rate": 16000}}}}, 240 / 16000),
        ({}, 240 / 24000),
    ],
)
def test_the_length_of_sound_follows_the_format_of_the_session(session, seconds):
    codec = client_codec("realtime")()
    codec.read(pack("session.created", session=session))
    (out,) = codec.read(pack("response.output_audio.delta", delta=base64.b64encode(bytes(480)).decode()))
    assert out.seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    "code", ["queue_full", "worker_busy", "service_unavailable", "worker_connect_failed", "admission_rejected",
             "resource_exhausted", "rate_limit_exceeded", "too_many_sessions", "beta_api_shape_disabled"]
)  # fmt: skip
def test_a_rejection_by_code(code):
    (event,) = read("error", error={"code": code, "message": "no"})
    assert isinstance(event, m.SessionRejected)


@pytest.mark.parametrize(
    "code", ["input_backpressure", "buffer_overflow", "inference_error", "invalid_value"]
)
def test_most_errors_leave_the_session_usable(code):
    (event,) = read("error", error={"code": code, "message": "no"})
    assert (event.code, event.fatal) == (code, False)


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        ("session.expired", {}, "expired"),
        ("session.closed", {"reason": "timeout"}, "expired"),
        ("session.closed", {"reason": "context_full"}, "context_limit"),
        ("session.closed", {"reason": "stopped"}, "completed"),
        ("session.closed", {"reason": "server_shutdown"}, "connection_closed"),
        ("session.replaced", {}, "connection_closed"),
        ("error", {"error": {"code": "session_expired"}}, "expired"),
    ],
)
def test_ends_by_reason(kind, fields, reason):
    (event,) = read(kind, **fields)
    assert event.reason == reason


@pytest.mark.parametrize(
    "told",
    [
        {"response": {"metadata": {"model_listen": False}}},
        {"reason": "silence_or_noise"},
        {"buffering": True},
    ],
)
def test_listening_that_only_the_front_decided_answers_nothing(told):
    assert read("response.listen", **told) == [m.Named("response.listen (front)")]
    (unit,) = read("response.listen", kv_cache_length=71)
    assert unit == m.UnitAnswered(True, None, 71)


def test_a_unit_is_answered_by_its_number():
    assert read("sglang.unit.done", unit_id=7) == [m.UnitAnswered(False, 7, None)]


def test_types_that_are_not_known_are_named():
    assert read("response.telepathy") == [m.Named("response.telepathy")]
    assert read("response.output_item.added") == []


@pytest.mark.parametrize("protocol", ["realtime", "transcription"])
def test_the_user_s_words(protocol):
    name = "conversation.item.input_audio_transcription"
    assert read(f"{name}.delta", protocol, delta="the ") == [m.TranscriptText("the ")]
    assert read(f"{name}.completed", protocol, transcript="the bus") == [m.TranscriptText("the bus", True)]
    (failed,) = read(f"{name}.failed", protocol, error={"code": "x"})
    assert failed.status == "failed"
    assert read("transcription.segment", "transcription", text="a", is_final=False) == [m.TranscriptText("a")]


def test_minicpm_is_ready_only_after_its_queue_and_takes_whole_units():
    client, host = client_codec("minicpm")(), host_codec("minicpm")()
    assert [e for told in host.greeting() for e in client.read(told)] == [
        m.Reply((pack("session.update", session={"instructions": "You are a helpful assistant."}),))
    ]
    (answered,) = host.read(pack("session.update", session={}))
    assert [e for told in answered.messages for e in client.read(told)] == [m.Ready()]
    sound = np.linspace(-0.5, 0.5, 16000, dtype=np.float32)
    sent = [message for piece in np.split(sound, 10) for message in client.audio(piece)]
    assert len(sent) == 1
    (heard,) = host.read(sent[0])
    assert np.array_equal(heard.samples, sound)
    listens = [e for told in host.answer(sound, "", 0, speaking=False) for e in client.read(told)]
    assert [type(e) for e in listens] == [m.UnitAnswered]
    speaks = [e for told in host.answer(sound, "hello", 0, speaking=True) for e in client.read(told)]
    assert speaks[0] == m.ResponseActive(True)
    assert [(e.seconds, e.text) for e in speaks if isinstance(e, m.AudioOutput)] == [(1.0, "hello")]


def test_minicpm_version_3_is_tried_where_2_is_refused_and_units_count_by_number():
    client = client_codec("minicpm")()
    (again,) = client.read(pack("error", error={"code": "unknown_event", "message": "session.update"}))
    assert '"session.init"' in again.messages[0]
    client.read(pack("session.created"))
    (listens,) = client.read(pack("response.output.delta", kind="listen", input_id="u1"))
    assert listens == m.UnitAnswered(True, "u1", None)
    began, unit, out = client.read(
        pack("response.output.delta", kind="audio", audio=floats_to_text(np.zeros(480, "f4")), input_id="u2")
    )
    assert (began.speaking, unit.unit, out.seconds) == (True, "u2", 0.02)
    assert client.read(pack("response.spoken.end", reason="turn_eos")) == [m.ResponseActive(False)]


def test_sound_that_is_not_finite_is_an_error_of_the_client_and_of_no_one_else():
    host = host_codec("minicpm")()
    host.read(pack("session.update", session={}))
    (answered,) = host.read(
        pack("input_audio_buffer.append", audio=floats_to_text(np.full(16000, np.nan, "f4")))
    )
    assert "invalid_audio" in answered.messages[0]


@pytest.mark.parametrize("protocol", ["moshi", "realtime", "minicpm"])
@pytest.mark.parametrize("silent", [True, False])
def test_digital_silence_is_told_from_sound(protocol, silent):
    client, host = client_codec(protocol)(), host_codec(protocol)()
    if protocol == "minicpm":
        client.read(pack("session.created"))
    if protocol == "realtime":
        host.read(pack("response.create"))
    size = round((1.0 if protocol == "minicpm" else 0.08) * client.traits.sample_rate)
    rng = np.random.default_rng(0)
    told = []
    for _ in range(12):
        audio = np.zeros(size, "f4") if silent else (0.001 * rng.standard_normal(size)).astype("f4")
        told += [event for message in host.answer(audio, "", 0) for event in client.read(message)]
    out = [event for event in told if isinstance(event, m.AudioOutput)]
    assert len(out) >= 10
    assert {event.silent for event in out[6:]} == {silent}
