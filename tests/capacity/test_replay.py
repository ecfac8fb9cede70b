"""A recorded load given again is the same load: to the sample, the token and the block of the pool."""

import errno
import hashlib
import os
from collections import defaultdict

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metronome_cli.capacity.capacity_run import build_in_process, run_capacity
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.commands.plan_capacity import capacity_plan
from metronome_cli.config.profile_files import load_profile
from metronome_cli.config.settings import resolve
from metronome_cli.core.errors import EngineError, UsageError
from metronome_cli.load.trace_file import read_load
from metronome_cli.report.conditions import notes
from tests.capacity.builders import ObserverLog, builder_of, small_profile


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
    folder = tmp_path_factory.mktemp("speech")
    rng = np.random.default_rng(0)
    for name in ("one", "two", "three"):
        soundfile.write(folder / f"{name}.wav", 0.1 * rng.standard_normal(40_000), 16_000)
    return folder


class Heard:
    """A target that keeps what each session brought, by order of opening, and the pool after each step."""

    def __init__(self, target):
        self._target = target
        self._who = {}
        self.ages = []
        self.frames = defaultdict(list)  # of each session: (digest of the audio, tokens)
        self.pool_after = []

    def __getattr__(self, name):
        return getattr(self._target, name)

    def open(self, age_s=0.0):
        self.ages.append(age_s)
        slot = self._target.open(age_s)
        self._who[slot] = len(self.ages) - 1
        return slot

    def step(self, frames):
        for frame in frames:
            digest = hashlib.sha256(frame.audio.tobytes()).hexdigest()[:12]
            self.frames[self._who[frame.slot]].append((digest, frame.tokens_out))
        result = self._target.step(frames)
        self.pool_after.append(result.pool.used_blocks)
        return result


def run(speech, step_s=lambda n: 0.002 + 0.0012 * n, *, build=None, before_step=lambda count: None, **plan):
    """The report, what each engine heard, and who watched."""
    heard = []

    def build_heard(plan, observer):
        backend = (build or builder_of(step_s, before_step))(plan, observer)
        make = backend._make_engine

        def fresh(profile, slots):
            heard.append(Heard(make(profile, slots)))
            return heard[-1]

        backend._make_engine = fresh
        return backend

    plan = {
        "profile": small_profile(),
        "audio": (speech,),
        "clock": "virtual",
        "session_length_s": 20.0,
        **plan,
    }
    watcher = ObserverLog()
    report = run_capacity(CapacityPlan(**plan), watcher, None, build_heard)
    return report, [one for one in heard if one.pool_after], watcher


def body(path):
    """Everything but the first line, which names the program's version."""
    return path.read_bytes().split(b"\n", 1)[1]


def same_load(first, second):
    """What the engines heard; how the last frames fell into the end of a run may differ by a step."""
    assert len(first) == len(second)
    for one, two in zip(first, second, strict=True):
        assert one.ages == two.ages
        for who, frames in one.frames.items():
            common = min(len(frames), len(two.frames[who]))
            assert abs(len(frames) - len(two.frames[who])) <= 1
            assert frames[:common] == two.frames[who][:common]


@given(
    sessions=st.integers(1, 12),
    batching=st.sampled_from(["continuous", "periodic"]),
    policy=st.sampled_from(["window(64, 16)", "unbounded"]),
    soak=st.booleans(),
    seed=st.integers(0, 2**31),
)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=12,
    deadline=None,
)
def test_the_load_is_the_same_and_records_itself_the_same(
    speech, tmp_path, sessions, batching, policy, soak, seed
):
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    profile = small_profile(policy=policy)
    given_, heard, _ = run(
        speech, sessions=sessions, batching=batching, soak=soak, seed=seed, profile=profile, record=first
    )
    again, heard_again, _ = run(speech, seed=seed + 1, profile=profile, replay=first, record=second)
    assert body(first) == body(second)
    same_load(heard, heard_again)
    assert [p.sessions for p in again.capacity.trials] == [p.sessions for p in given_.capacity.trials]
    assert again.verdict == given_.verdict
    assert again.capacity.method == "single"


def test_the_pool_takes_the_same_course_step_by_step(speech, tmp_path):
    kept = tmp_path / "load.jsonl"
    plan = {"sessions": 6, "batching": "periodic", "profile": small_profile(policy="unbounded", blocks=150)}
    _, heard, _ = run(speech, record=kept, **plan)
    _, again, _ = run(speech, replay=kept, profile=plan["profile"])
    assert heard[0].pool_after == again[0].pool_after
    assert max(heard[0].pool_after) == 150  # it filled


def test_the_engine_in_process_gets_the_same_load_and_fills_the_same_pool(speech, tmp_path):
    profile = load_profile("smoke").model_copy(
        update={"frame": load_profile("smoke").frame.model_copy(update={"period": 1.0, "deadline": 1.0})}
    )
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    plan = {"profile": profile, "build": build_in_process, "device": "cpu"}
    _, heard, _ = run(speech, sessions=3, batching="periodic", soak=True, record=first, **plan)
    _, again, _ = run(speech, replay=first, record=second, **plan)
    assert body(first) == body(second)
    same_load(heard, again)
    assert heard[0].pool_after == again[0].pool_after


def test_a_slower_engine_gets_the_same_sessions_for_the_same_time(speech, tmp_path):
    kept, again = tmp_path / "load.jsonl", tmp_path / "again.jsonl"
    run(speech, sessions=4, soak=True, record=kept)
    report, heard, _ = run(speech, lambda n: 0.07 + 0.004 * n, replay=kept, record=again)
    assert report.verdict == "fail"
    assert report.capacity.limited_by == "deadline"
    assert report.summary.startswith("Fail: 4 sessions for 20 s: ")
    assert body(kept) == body(again)
    fast = run(speech, replay=kept)[1]
    for who, frames in heard[0].frames.items():
        assert frames == fast[0].frames[who][: len(frames)]


def test_sessions_that_one_engine_rejected_come_to_the_next(speech, tmp_path):
    kept = tmp_path / "load.jsonl"
    small = small_profile(policy="unbounded", blocks=60)
    report, _, _ = run(speech, sessions=12, profile=small, record=kept, session_length_s=60.0)
    assert report.capacity.trials[0].ended_by in ("rejected", "pool_full")
    roomy = small_profile(policy="unbounded", blocks=50_000)
    again, heard, _ = run(speech, profile=roomy, replay=kept)
    assert len(heard[0].ages) - 1 == 12  # and the one that warms up
    assert again.capacity.trials[0].ended_by == "completed"


def test_a_search_is_replayed_run_by_run(speech, tmp_path):
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    found, _, _ = run(speech, lambda n: 0.004 + 0.006 * n, record=first)
    report, _, _ = run(speech, lambda n: 0.004 + 0.006 * n, replay=first, record=second)
    assert body(first) == body(second)
    assert report.capacity.method == "replay"
    assert [p.sessions for p in report.capacity.trials] == [p.sessions for p in found.capacity.trials]
    assert report.capacity.lowest_failing_sessions == found.capacity.lowest_failing_sessions
    slow, _, _ = run(speech, lambda n: 0.2, replay=first)
    assert (slow.verdict, slow.exit_code) == ("fail", 3)
    assert "No smaller number of sessions in the load trace" in slow.summary


def test_what_is_recorded_does_not_depend_on_the_recording(speech, tmp_path):
    _, plain, _ = run(speech, sessions=5, soak=True)
    _, recorded, _ = run(speech, sessions=5, soak=True, record=tmp_path / "load.jsonl")
    same_load(plain, recorded)


def test_other_audio_another_beat_and_another_rate_are_refused_with_what_differs(speech, tmp_path):
    kept = tmp_path / "load.jsonl"
    run(speech, sessions=2, soak=True, record=kept)
    other = tmp_path / "talk"
    other.mkdir()
    rng = np.random.default_rng(5)
    soundfile.write(other / "else.wav", 0.1 * rng.standard_normal(40_000), 16_000)
    with pytest.raises(
        UsageError, match=r"other audio: .*\.wav is not here as it was \(and 2 more\); .*else"
    ):
        run(other, replay=kept)
    for frame, said in (
        ({"period": "1s", "sample_rate": 16000}, "80 ms a frame and 16000 Hz .* has 1000 ms"),
        ({"period": "80ms", "sample_rate": 8000}, "and 8000 Hz"),
    ):
        with pytest.raises(UsageError, match=said):
            run(speech, replay=kept, profile=small_profile(frame=frame))


def test_other_tokens_are_told_and_the_turns_stay(speech, tmp_path):
    kept = tmp_path / "load.jsonl"
    _, heard, _ = run(speech, sessions=2, soak=True, record=kept)
    more = small_profile(tokens={"prefill": 2, "decode": {"listening": 3, "speaking": 7}})
    _, again, watcher = run(speech, replay=kept, profile=more)
    assert any("1 and 2 tokens a frame" in notice for notice in watcher.notices)
    spoke = [tokens == 2 for _, tokens in heard[0].frames[1]]
    assert [tokens == 7 for _, tokens in again[0].frames[1]] == spoke


def test_a_disk_that_fills_does_not_cost_the_answer(speech, tmp_path, monkeypatch):
    def full(fd, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    report, _, watcher = run(speech, sessions=3, soak=True, record=tmp_path / "load.jsonl")
    assert report.verdict == "pass"
    assert sum("No space left" in notice for notice in watcher.notices) == 1


def test_an_engine_that_fails_leaves_the_load_until_then(speech, tmp_path):
    def fail(count):
        if count == 60:
            raise EngineError("out of device memory")

    kept = tmp_path / "load.jsonl"
    report, _, _ = run(speech, sessions=3, soak=True, record=kept, before_step=fail)
    assert report.status == "failed"
    assert read_load(kept).runs[0].end_s < 20.0
    assert run(speech, replay=kept)[0].status == "complete"


def test_the_last_run_of_a_killed_one_is_left_out_and_that_is_said(speech, tmp_path):
    kept = tmp_path / "load.jsonl"
    run(speech, sessions=3, record=kept)
    lines = kept.read_bytes().splitlines(keepends=True)
    kept.write_bytes(b"".join(lines[:-1]))
    report, _, watcher = run(speech, replay=kept)
    assert any("its last run was cut short" in notice for notice in watcher.notices)
    assert len(report.capacity.trials) == 1


@pytest.mark.parametrize(
    "flag", [{"sessions": 3}, {"session_length": "1m"}, {"batching": "periodic"}, {"soak": True}]
)
def test_what_the_file_decides_cannot_be_given_beside_it(flag):
    (key,) = flag
    with pytest.raises(UsageError, match=f"--{key.replace('_', '-')}: the replayed file"):
        capacity_plan(resolve({"replay": "load.jsonl", **flag}, {}))


def test_one_file_cannot_be_read_and_written(speech, tmp_path):
    kept = tmp_path / "load.jsonl"
    run(speech, sessions=2, soak=True, record=kept)
    with pytest.raises(UsageError, match="the same file"):
        run(speech, replay=kept, record=kept)


@pytest.mark.parametrize("which", [{"compare": True}, {"guard": True}])
def test_policy_runs_are_offered_the_recorded_sessions_and_admit_for_themselves(speech, tmp_path, which):
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    plan = {
        "profile": small_profile(blocks=300),
        "batching": "periodic",
        "offered": 40,
        "arrival_rate_per_s": 4.0,
    }
    given_, heard, _ = run(speech, record=first, **plan, **which)
    again, heard_again, _ = run(speech, replay=first, record=second, profile=plan["profile"], **which)
    assert body(first) == body(second)
    same_load(heard, heard_again)
    assert [each.windows[-1].shed for each in again.policy_runs] == [
        each.windows[-1].shed for each in given_.policy_runs
    ]
    policy_runs = read_load(first).runs
    assert {one.head.purpose for one in policy_runs} == {each.name for each in given_.policy_runs}
    assert all(len(one.sessions) == 40 for one in policy_runs)  # also rejected sessions
    assert sum(each.windows[-1].shed for each in given_.policy_runs) > 0
    slow = tmp_path / "slow.jsonl"
    run(speech, lambda n: 0.01 + 0.02 * n, replay=first, record=slow, profile=plan["profile"], **which)
    assert [one.sessions for one in read_load(slow).runs] == [one.sessions for one in policy_runs]


def test_policy_runs_and_points_are_not_taken_for_each_other(speech, tmp_path):
    points, admissions = tmp_path / "points.jsonl", tmp_path / "admissions.jsonl"
    run(speech, sessions=2, record=points)
    run(speech, guard=True, offered=3, record=admissions)
    with pytest.raises(UsageError, match="the file has no admission run"):
        run(speech, guard=True, replay=points)
    with pytest.raises(UsageError, match="the file has only admission runs"):
        run(speech, replay=admissions)


def test_a_report_says_that_its_load_was_a_recorded_one(speech, tmp_path):
    kept = tmp_path / "load.jsonl"
    given_, _, _ = run(speech, sessions=2, soak=True, record=kept)
    resolved = resolve({"replay": str(kept)}, {})
    report, _, _ = run(speech, replay=kept, settings=resolved.as_dict())
    assert f"The load was replayed from {kept}." in notes(report)
    assert not any("recorded one" in note for note in notes(given_))


def test_a_number_that_was_not_seen_with_every_session_old_is_not_called_safe(speech, tmp_path):
    kept = tmp_path / "load.jsonl"
    run(speech, sessions=3, session_length_s=600.0, record=kept)
    whole = run(speech, replay=kept)[0]
    assert whole.verdict == "pass"
    assert whole.summary.startswith("Pass: 3 sessions")
    lines = kept.read_bytes().splitlines(keepends=True)
    kept.write_bytes(b"".join(lines[: next(i for i, line in enumerate(lines) if b'"end"' in line) + 1]))
    half = run(speech, replay=kept)[0]
    assert len(half.capacity.trials) == 1
    assert half.capacity.trials[0].verdict == "pass"
    assert half.verdict == "inconclusive"
    assert half.summary == "Inconclusive: 3 sessions for 10 min: passed, but without a memory trial."
