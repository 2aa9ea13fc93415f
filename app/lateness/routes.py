"""GET …/lateness: how late records come, and which grace would have been sufficient."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import Field

from app.catalog.queries.plans import PlannedQuery, get_planned
from app.http.answers.documented import answered, problems
from app.http.parameters import LongInspection, Name, OnlyKnownParameters
from app.http.schemas import Answer
from app.lateness.rules import advise, histogram_of, histograms_of, shown_buckets
from engine.definition.queries import QueryDefinition
from engine.operators.tasks.lateness import Counted
from engine.plan.lateness import settings_of
from engine.plan.model import Input
from engine.plan.operators.answers import Setting


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
    """Lateness of the records of one input: how far each was behind stream time when it came."""

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


router = APIRouter(prefix="/v1/queries", tags=["queries"], dependencies=[OnlyKnownParameters])


@router.get(
    "/{name}/lateness",
    summary="Read how late records come",
    response_model=LatenessAnswer,
    responses={200: answered(LATENESS, "A histogram per input, and advice per setting."), **problems(400, 404)},
)
def get_lateness(name: Name, transaction: LongInspection) -> LatenessAnswer:
    """How late records came, per input, and for each grace and history retention, the share of records that other values would make late.

    A record's lateness is the difference between stream time at its arrival and its event time; 0 if it is not behind. The
    advice counts by the rule of the operator: a record is late for a window if its window would have been closed. All counts begin
    when the query began with its current state. They are written in the transaction of each result, so a crash counts nothing twice.
    """
    query = get_planned(transaction, name)
    measured = histograms_of(query.committed.detail)
    return LatenessAnswer(
        query=name,
        inputs=[_input(item, measured.get(item.alias)) for item in sorted(query.plan.whole_inputs, key=lambda item: item.alias)],
        settings=[_setting(setting, query, measured.get(setting.gauge)) for setting in settings_of(query.plan)],
        committed_at=query.committed.committed_at,
        stale=query.row.state != "running",
    )


def _input(item: Input, counted: Counted | None) -> InputLateness:
    histogram = histogram_of(counted)
    return InputLateness(
        input=item.alias,
        relation=item.relation.name,
        kind=item.relation.kind,
        count=histogram.count,
        max_ms=histogram.max_ms,
        quantiles=Quantiles(**histogram.quantiles()),
        buckets=[LatenessBucket(up_to_ms=bucket.up_to_ms, count=bucket.count) for bucket in shown_buckets(histogram)],
    )


def _setting(setting: Setting, query: PlannedQuery, counted: Counted | None) -> SettingAdvice:
    histogram = histogram_of(counted)
    is_grace = setting.kind != "history_retention"
    relation = None if is_grace else next(item.relation.name for item in query.plan.inputs if item.alias == setting.input)
    return SettingAdvice(
        pointer=_pointer(setting, query.definition),
        relation=relation,
        operator=setting.operator,
        input=setting.input,
        rule=setting.rule,
        current_ms=setting.current_ms,
        count=histogram.count,
        exact=setting.is_exact,
        advice=[
            AdviceItem(
                value_ms=each.value_ms,
                late_count=each.late_count,
                late_share=each.late_share,
                added_wait_ms=each.added_wait_ms,
                exact=each.is_exact,
                current=each.is_current,
            )
            for each in advise(histogram, setting.current_ms, waits=is_grace)
        ],
    )


def _pointer(setting: Setting, definition: QueryDefinition) -> str:
    """Return the JSON pointer of the setting in the definition of the query or of the table."""
    if setting.kind == "history_retention":
        return "/versioned/history_retention"
    if setting.kind == "window_grace":
        return "/window/grace"
    index = next(i for i, join in enumerate(definition.joins) if (join.alias or join.relation) == setting.operator)
    return f"/joins/{index}/grace" if definition.joins[index].within is None else f"/joins/{index}/within/grace"
