"""What a worker answers is what happened, and a worker that is gone is told of."""

import math

from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.backends.websocket.worker import WorkerReply
from metronome_cli.backends.websocket.worker_client import WorkerClient, WorkerLostError
from metronome_cli.core.session import (
    BacklogReported,
    FrameResult,
    FrameSent,
    SessionEnded,
    SessionSpec,
    SessionStarted,
)

seconds = st.floats(-1e6, 1e6)
whole = st.integers(0, 2**40)
EVENTS = st.one_of(
    st.builds(FrameResult, whole, seconds, seconds, whole, whole),
    st.builds(FrameSent, seconds, seconds),
    st.builds(BacklogReported, seconds),
    st.builds(SessionStarted, whole, seconds),
    st.builds(SessionEnded, whole, st.just("connection_closed"), st.text(), seconds, seconds, seconds),
)


@given(st.lists(EVENTS, max_size=40))
def test_nothing_is_lost_or_changed_on_the_way(sent):
    answer = WorkerReply()
    for one in sent:
        answer.add(one)
    assert sorted(map(repr, answer.events())) == sorted(map(repr, sent))


class Paper:
    """A post whose worker answers what the test puts there, or is gone."""

    name = "worker 1 of 1"

    def __init__(self):
        self.asked, self.reply, self.gone, self.ended = [], None, None, 0

    def ask(self, commands):
        if self.gone:
            raise WorkerLostError(self.gone)
        self.asked.append(list(commands))

    def answer(self):
        if self.gone:
            raise WorkerLostError(self.gone)
        reply, self.reply = self.reply, None
        return reply

    def end(self, timeout_s):
        self.ended += 1


def polled(share):
    box = []
    share.poll(box.append)
    return box


def test_commands_go_once_and_in_order():
    post = Paper()
    share = WorkerClient(post)
    share.open(SessionSpec(0.0, lifetime_s=9.0, index=4))
    share.begin(2.5)
    assert polled(share) == []
    assert post.asked == [[("open", 4, 9.0), ("begin", 0, 2.5)]]
    share.close_session(4)
    polled(share)
    assert len(post.asked) == 1  # the first question is not answered yet
    post.reply = WorkerReply()
    polled(share)
    assert post.asked[1:] == [[("close_session", 4, 0.0)]]


def test_no_frame_is_settled_before_the_worker_says_so():
    post = Paper()
    share = WorkerClient(post)
    polled(share)
    assert share.horizon_s() == 0.0
    answer = WorkerReply(horizon_s=3.5)
    answer.add(SessionStarted(1, 0.1))
    post.reply = answer
    assert polled(share) == [SessionStarted(1, 0.1)]
    assert share.horizon_s() == 3.5


def test_a_worker_that_is_gone_takes_its_sessions_with_it():
    post = Paper()
    share = WorkerClient(post)
    share.open(SessionSpec(0.0, index=0))
    share.open(SessionSpec(0.0, index=2))
    polled(share)
    answer = WorkerReply()
    answer.add(SessionEnded(0, "connection_closed", "", 1.0, 1.0))
    post.reply = answer
    polled(share)
    post.gone = "was killed by SIGKILL"
    share.close_session(2)
    (ended,) = polled(share)
    assert (ended.session, ended.reason) == (2, "shed")
    assert share.lost == "worker 1 of 1 was killed by SIGKILL"
    assert share.horizon_s() == math.inf
    share.start_closing()
    share.close()
    share.close()
    assert post.ended == 1
    assert polled(share) == []
