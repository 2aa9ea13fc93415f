"""Answers about how late records come."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from app.http.schemas import Answer


class LatenessBucket(Answer):
    """Records with a lateness above the bucket before, up to and with ``up_to_ms``."""

    up_to_ms: int | None = Field(description="Null: no end.", examples=[1000])
    count: int = Field(description="Number of records in it.", examples=[412])


class Quantiles(Answer):
    """A lateness in milliseconds that so many of the records do not exceed; null before the first record."""

    p50: int | None = Field(description="Half of the records.")
    p90: int | None = Field(description="90 % of them.")
    p99: int | None = Field(description="99 % of them.")
    p999: int | None = Field(description="99.9 % of them.")


class InputLateness(Answer):
    """How late one input's records come: how far each is behind the greatest event time that its task had read of this input."""

    input: str = Field(description="Its alias in the definition.", examples=["departures"])
    relation: str = Field(description="The relation that it reads.")
    kind: Literal["stream", "table"] = Field(description="Whether that is a stream or a table.")
    count: int = Field(description="Records measured since the query began with this state; 0 late counts too.")
    max_ms: int = Field(description="The greatest lateness.", examples=[120000])
    quantiles: Quantiles = Field(description="Latenesses that most records do not exceed, in milliseconds.")
    buckets: list[LatenessBucket] = Field(
        description="Buckets that hold records; ends are 0, 1, 2, 5, 10 ms and so on up to a year."
    )


class AdviceItem(Answer):
    """What one value would have done to the records measured."""

    value_ms: int = Field(description="The value, in milliseconds.", examples=[10000])
    late_count: int = Field(description="Records that would have been late.", examples=[4120])
    late_share: float = Field(description="Of all records measured, from 0 to 1.", examples=[0.0045])
    added_wait_ms: int = Field(description="How much longer than with 0 a result waits, in event time.", examples=[10000])
    exact: bool = Field(description="False: at most so many; the value lies inside a bucket.")
    current: bool = Field(description="The value in force.")


class SettingAdvice(Answer):
    """A setting of the query, or of a table it reads, and what other values would have done."""

    pointer: str = Field(description="Where it stands in the definition.", examples=["/joins/0/grace"])
    relation: str | None = Field(description="The table whose definition `pointer` is of; null: the query's.")
    operator: str | None = Field(description="The join or aggregation that judges.", examples=["w"])
    input: str | None = Field(description="The input whose records are judged; null: what operators before it made.")
    rule: str = Field(description="Code of the rule that judges.", examples=["J3"])
    current_ms: int | None = Field(description="The value in force, in milliseconds; null: none is set.")
    count: int = Field(description="Records measured.")
    exact: bool = Field(description="False: a session may still take some of the records that count as late.")
    advice: list[AdviceItem] = Field(description="From 0 up to the first value that finds nothing late, and the one in force.")


class LatenessAnswer(Answer):
    """How late records came, and what that says about graces and history retentions."""

    query: str = Field(description="Name of the query.")
    inputs: list[InputLateness] = Field(description="How late the records of each input come.")
    settings: list[SettingAdvice] = Field(description="What graces and history retentions would have done to them.")
    committed_at: datetime | None = Field(description="The commit as of which this is said; null before the first.")
    stale: bool = Field(description="True while the query does not run.")


LATENESS: dict[str, Any] = {
    "query": "departures_with_weather",
    "inputs": [
        {
            "input": "departures",
            "relation": "departures",
            "kind": "stream",
            "count": 27004,
            "max_ms": 4800000,
            "quantiles": {"p50": 0, "p90": 60000, "p99": 1800000, "p999": 3600000},
            "buckets": [{"up_to_ms": 0, "count": 20100}, {"up_to_ms": 3600000, "count": 6900}, {"up_to_ms": 7200000, "count": 4}],
        }
    ],
    "settings": [
        {
            "pointer": "/joins/0/grace",
            "relation": None,
            "operator": "w",
            "input": "departures",
            "rule": "J3",
            "current_ms": 3600000,
            "count": 27004,
            "exact": True,
            "advice": [
                {
                    "value_ms": 0, "late_count": 6904, "late_share": 0.2557, "added_wait_ms": 0, "exact": True, "current": False,
                },
                {
                    "value_ms": 3600000, "late_count": 4, "late_share": 0.00015, "added_wait_ms": 3600000, "exact": True,
                    "current": True,
                },
            ],
        }
    ],
    "committed_at": "2025-11-21T08:00:00Z",
    "stale": False,
}  # fmt: skip
