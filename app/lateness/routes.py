"""GET …/lateness: how late records come, and which grace would have been sufficient."""

from __future__ import annotations

from fastapi import APIRouter

from app.catalog.queries.plans import PlannedQuery, get_planned
from app.http.answers.documented import answered, problems
from app.http.parameters import LongInspection, Name, OnlyKnownParameters
from app.lateness.models import LATENESS, AdviceItem, InputLateness, LatenessAnswer, LatenessBucket, Quantiles, SettingAdvice
from app.lateness.rules import advise, histogram_of, histograms_of, shown_buckets
from engine.definition.queries import QueryDefinition
from engine.operators.tasks.lateness import Counted
from engine.plan.lateness import settings_of
from engine.plan.model import Input
from engine.plan.operators.answers import Setting

router = APIRouter(prefix="/v1/queries", tags=["queries"], dependencies=[OnlyKnownParameters])


@router.get(
    "/{name}/lateness",
    summary="Read how late records come",
    response_model=LatenessAnswer,
    responses={200: answered(LATENESS, "A histogram per input, and advice per setting."), **problems(400, 404)},
)
def get_lateness(name: Name, transaction: LongInspection) -> LatenessAnswer:
    """How late records came, per input, and for each grace and history retention, the share of records that other values would make late.

    A record's lateness is the difference between the stream time of its task at its arrival and its event time; 0 if it is not behind. The
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
