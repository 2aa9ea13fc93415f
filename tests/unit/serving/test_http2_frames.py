"""Frames of a connection of HTTP/2: what is counted, where the connection ends, and which bodies stand still."""

from __future__ import annotations

import pytest

from app.http.servers.http2_frames import BURST, RATE_PER_S, ControlBudget, Flood, Frames

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION, UNKNOWN = range(11)
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 1) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def frames() -> Frames:
    return Frames(ControlBudget(0.0))


@pytest.mark.parametrize(
    "each",
    [
        frame(PING, b"x" * 8, stream=0),
        frame(SETTINGS, stream=0),
        frame(SETTINGS, b"x" * 6, stream=0),
        frame(RST_STREAM, b"x" * 4),
        frame(WINDOW_UPDATE, b"x" * 4, stream=0),
        frame(PRIORITY, b"x" * 5),
        frame(CONTINUATION),
        frame(CONTINUATION, b"x" * 100),
        frame(DATA),
        frame(GOAWAY, b"x" * 8, stream=0),
        frame(PUSH, b"x" * 8),
        frame(UNKNOWN),
        frame(255, b"x" * 9),
    ],
)
def test_more_control_frames_at_once_than_the_burst_end_the_connection(each: bytes) -> None:
    come = frames()
    come.add(each * BURST, 0.0)
    with pytest.raises(Flood):
        come.add(each, 0.0)


def test_frames_are_counted_wherever_they_are_cut() -> None:
    come = frames()
    data = frame(PING, b"x" * 8, stream=0) * BURST + frame(PING, b"x" * 8, stream=0)[:9]
    for place in range(len(data) - 1):
        come.add(data[place : place + 1], 0.0)
    with pytest.raises(Flood):
        come.add(data[-1:], 0.0)


def test_a_frame_of_settings_counts_by_its_settings() -> None:
    with pytest.raises(Flood):
        frames().add(frame(SETTINGS, b"x" * 6 * (BURST + 1), stream=0), 0.0)


def test_time_and_answers_pay_for_control_frames() -> None:
    come = frames()
    ping = frame(PING, b"x" * 8, stream=0)
    come.add(ping * BURST, 0.0)
    come.add(ping * int(RATE_PER_S), 1.0)
    come.budget.earn(16_384)
    come.add(ping * 10, 1.0)
    with pytest.raises(Flood):
        come.add(ping, 1.0)


def test_a_request_and_its_body_cost_nothing() -> None:
    come = frames()
    for number in range(10 * BURST):
        stream = 2 * number + 1
        come.add(
            frame(HEADERS, b"x", END_HEADERS, stream) + frame(DATA, b"x", 0, stream) + frame(DATA, b"", END_STREAM, stream), 0.0
        )
    assert (come.requests, come.bodies, come.is_partial) == (10 * BURST, {}, False)


def test_a_frame_larger_than_agreed_ends_the_connection_before_it_has_come() -> None:
    with pytest.raises(Flood):
        frames().add((16_385).to_bytes(3, "big") + bytes(6), 0.0)


def test_frames_are_handed_on_whole_in_order_and_a_few_at_a_time() -> None:
    come = frames()
    ping, body = frame(PING, b"12345678", stream=0), frame(DATA, b"x" * 100)
    come.add(ping * 3 + body + body[:50], 0.0)
    assert (come.take(2, 1_000), come.has_whole) == (ping * 2, True)
    assert (come.take(9, 120), come.take(9, 120)) == (ping, body)
    assert (come.take(9, 120), come.has_whole, come.is_partial, len(come)) == (b"", False, True, 50)
    come.add(body[50:], 0.0)
    assert (come.take(9, 1), come.is_partial) == (body, False)


def test_a_head_is_partial_until_its_last_part() -> None:
    come = frames()
    come.add(frame(HEADERS, b"x"), 0.0)
    assert (come.is_partial, come.requests) == (True, 0)
    come.add(frame(CONTINUATION, b"x", END_HEADERS), 0.0)
    assert (come.is_partial, come.requests) == (False, 1)


def test_a_body_that_brings_too_little_between_two_looks_stands_still() -> None:
    come = frames()
    for stream in (1, 3, 5):
        come.add(frame(HEADERS, b"x", END_HEADERS, stream), 0.0)
    assert come.stalled_bodies(50, {1, 3, 5}) == []
    come.add(frame(DATA, b"x" * 50, 0, 1) + frame(DATA, b"x" * 49, 0, 3), 0.0)
    assert come.stalled_bodies(50, {1, 3}) == [3]
    come.add(frame(DATA, b"x", END_STREAM, 1) + frame(RST_STREAM, bytes(4), 0, 3), 0.0)
    assert come.stalled_bodies(50, {1, 3}) == []
