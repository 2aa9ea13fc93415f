"""Answers about the lateness of records."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from app.http.schemas import Answer


class LatenessBucket(Answer):
    """Records with a lateness above the previous bucket, up to and including ``up_to_ms``."""

    up_to_ms: int | None = Field(description="Null: no end.", examples=[1000])
    count: int = Field(description="Number of records in it.", examples=[412])


class Quantiles(Answer):
    """Lateness in milliseconds that this share of the records does not exceed; null before the first record."""

    p50: int | None = Field(description="Half of the records.")
    p90: int | None = Field(description="90 % of them.")
    p99: int | None = Field(description="99 % of them.")
    p999: int | None = Field(description="99.9 % of them.")


class InputLateness(Answer):
    """Lateness of the records of one input: how far each was behind the greatest event time that its task had read of this input."""

    input: str = Field(description="Its alias in the definition.", examples=["departures"])
    relation: str = Field(description="The relation that it reads.")
    kind: Literal["stream", "table"] = Field(description="Whether that is a stream or a table.")
    count: int = Field(description="Records measured since the query began with this state; records that are not late count too.")
    max_ms: int = Field(description="The greatest lateness.", examples=[120000])
    quantiles: Quantiles = Field(description="Lateness that most records do not exceed, in milliseconds.")
    buckets: list[LatenessBucket] = Field(
        description="Buckets that have records; their ends are 0, 1, 2, 5, 10 ms and so on up to a year."
    )


class AdviceItem(Answer):
    """The effect that one value would have had on the measured records."""

    value_ms: int = Field(description="The value, in milliseconds.", examples=[10000])
    late_count: int = Field(description="Records that would have been late.", examples=[4120])
    late_share: float = Field(description="Of all records measured, from 0 to 1.", examples=[0.0045])
    added_wait_ms: int = Field(description="Additional wait of a result compared with 0, in event time.", examples=[10000])
    exact: bool = Field(description="False: the number is an upper bound; the value lies inside a bucket.")
    current: bool = Field(description="This is the current value.")


class SettingAdvice(Answer):
    """A setting of the query, or of a table that it reads, and the effect of other values."""

    pointer: str = Field(description="JSON pointer into the definition.", examples=["/joins/0/grace"])
    relation: str | None = Field(description="The table whose definition `pointer` refers to; null: the query's.")
    operator: str | None = Field(description="The join or aggregation that decides which records are late.", examples=["w"])
    input: str | None = Field(description="The input whose records are measured; null: results of earlier operators.")
    rule: str = Field(description="Code of the rule that decides.", examples=["J3"])
    current_ms: int | None = Field(description="The current value, in milliseconds; null: none is set.")
    count: int = Field(description="Records measured.")
    exact: bool = Field(description="False: a session may still include some of the records that count as late.")
    advice: list[AdviceItem] = Field(description="Values from 0 up to the first with no late record, and the current one.")


class LatenessAnswer(Answer):
    """The lateness of records, and what it means for graces and history retentions."""

    query: str = Field(description="Name of the query.")
    inputs: list[InputLateness] = Field(description="How late the records of each input come.")
    settings: list[SettingAdvice] = Field(description="The effect of graces and history retentions on these records.")
    committed_at: datetime | None = Field(description="The commit to which the answer refers; null before the first.")
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
