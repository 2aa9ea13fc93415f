"""Answers of explanations."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from app.explain.rules.facts import Code
from app.http.schemas import Answer, Position


class RecordPlace(Answer):
    """Place of a record in the feed of its relation."""

    partition: int = Field(description="Number of the partition, from 0.")
    offset: int = Field(description="Offset in it.")
    part: str | None = Field(
        default=None,
        description="The part of the stream that has it, if queries append to the stream; null: the relation's own log. `partition` and "
        "`offset` are of the part: give its name as `part=`.",
    )


class ExplainStep(Answer):
    """The explanation of one part of the query."""

    code: Code = Field(
        description="`no_record`: no record with this key and time was read, or it was removed. `not_read_yet`: in the feed, after the "
        "query's position. `rejected`: refused by its relation. `filtered`: fails a condition. `late`: arrived too late, or would now. "
        "`buffered_until`, `window_open_until`: waits until the clock reaches `until_ms`. `expired`, `no_version`, `joined_version`: result of "
        "the join. `final`: the window's result does not change. `shown`: the row exists. `passed`: nothing blocks. `unknown`: see the sentence."
    )
    blocking: bool = Field(description="The record does not pass this step, or not yet.")
    sentence: str = Field(description="The same as a sentence.")
    kind: str = Field(description="`source`, `result`, or the operator's kind.", examples=["stream_table_join"])
    stage: int = Field(description="Stage of the plan.")
    operator: str | None = Field(description="The operator's name in clocks and counters.", examples=["w"])
    task: int | None = Field(description="The task whose clock counts; null: the smallest clock of all tasks counts.")
    clock: Literal["stream_time", "table_time", "wall_clock"] | None = Field(
        description="The clock that the record waits for: stream time, the table's time, or the wall clock; null: none."
    )
    now_ms: int | None = Field(description="Present value of that clock.")
    until_ms: int | None = Field(description="Value that the clock must reach.")
    version_ms: int | None = Field(description="Time of the version or row that is used.")
    next_version_ms: int | None = Field(description="When that version ends; null: it is the latest, or there is none.")
    reason: str | None = Field(description="A finer code: `grace`, `hold`, `late_dropped`, `deleted`, a reject's reason.")
    place: RecordPlace | None = Field(description="The record of this step.")


class NearRecord(Answer):
    """A record of the same key with another time."""

    event_time_ms: int = Field(description="Its event time, in milliseconds since 1970.")
    place: RecordPlace = Field(description="Place of the record.")
    is_read: bool = Field(description="Whether the query has read it.")


class ExplainAnswer(Answer):
    """Why there is no row yet for a key and a time, or why it is this one."""

    query: str = Field(description="Name of the query.")
    key: dict[str, str] = Field(description="The values of the question, by the columns' names in the query.")
    key_columns: list[str] = Field(
        description="The columns of the query's key, which `key=` gives. For a composite key use `key.<column>=`.",
        examples=[["departures.origin"]],
    )
    at_ms: int = Field(description="The event time of the question, in milliseconds since 1970.")
    answer: ExplainStep = Field(
        description="The step `no_record` if nothing is known about this key and time; else the first step that blocks, else the most "
        "informative one."
    )
    steps: list[ExplainStep] = Field(description="In the order of the query, up to the first that blocks.")
    nearest: list[NearRecord] = Field(
        description="If the first input has no record with this key and time: the last one before it and the first one after it. Otherwise, and "
        "if its feed cannot be searched, empty."
    )
    position: Position = Field(description="The query's position at its last commit.")
    stream_time_ms: int | None = Field(
        description="Stream time as of the last commit, in milliseconds since 1970; null before the first record."
    )
    committed_at: datetime | None = Field(description="When the query last committed; null before the first commit.")
    stale: bool = Field(description="True while the query does not run.")


_STEP: dict[str, Any] = {
    "code": "passed",
    "blocking": False,
    "sentence": "The record of departures from 2013-01-01T12:00:00Z has been read.",
    "kind": "source",
    "stage": 0,
    "operator": None,
    "task": None,
    "clock": None,
    "now_ms": None,
    "until_ms": None,
    "version_ms": None,
    "next_version_ms": None,
    "reason": None,
    "place": {"partition": 3, "offset": 1041, "part": None},
}
_WAITING: dict[str, Any] = {
    **_STEP,
    "code": "buffered_until",
    "blocking": True,
    "sentence": "It waits for the grace 1h until stream time reaches 2013-01-01T13:00:00Z; it is at 2013-01-01T12:40:00Z.",
    "kind": "stream_table_join",
    "operator": "w",
    "task": 2,
    "clock": "stream_time",
    "now_ms": 1357044000000,
    "until_ms": 1357045200000,
    "reason": "grace",
    "place": None,
}
EXPLANATION: dict[str, Any] = {
    "query": "departures_with_weather",
    "key": {"departures.origin": "JFK"},
    "key_columns": ["departures.origin"],
    "at_ms": 1357041600000,
    "answer": _WAITING,
    "steps": [_STEP, _WAITING],
    "nearest": [],
    "position": {"log:departures": {"3": 1042}, "log:weather": {"0": 2209}},
    "stream_time_ms": 1357044000000,
    "committed_at": "2025-11-21T08:00:00Z",
    "stale": False,
}
