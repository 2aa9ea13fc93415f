"""The explainer of each operator: one entry per class of ``engine.plan.operators``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from app.explain.rules.facts import Step
from app.explain.rules.joins import explain_foreign_key, explain_stream_stream, explain_stream_table, explain_table_table
from app.explain.rules.subject import Desk, Explanation, Subject, explain_filter
from app.explain.rules.windows import explain_time_limit, explain_wall_clock, explain_windows
from engine.plan.operators.aggregation import RunningAggregation, TableAggregation, TableRegrouping
from engine.plan.operators.explosion import Explosion
from engine.plan.operators.foreign_key_join import ForeignKeyLookup, ForeignKeyResult, ForeignKeySubscription
from engine.plan.operators.operator import Operator
from engine.plan.operators.row_operators import Filter, Projection, Retiming
from engine.plan.operators.stream_stream_join import StreamStreamJoin
from engine.plan.operators.stream_table_join import StreamTableJoin
from engine.plan.operators.suppression import TimeLimitSuppression, WallClockSuppression
from engine.plan.operators.table_filter import TableFilter
from engine.plan.operators.table_table_join import TableTableJoin
from engine.plan.operators.windows import SessionAggregation, SlidingAggregation, WindowAggregation

S = TypeVar("S", bound=Operator)
Explainer = Callable[[Desk, S, Subject], Explanation]


def _one(explain: Callable[[Desk, S, Subject], Step]) -> Explainer[S]:
    """Make an explainer from a function that returns one step."""
    return lambda desk, spec, subject: Explanation([explain(desk, spec, subject)])


def _nothing(_desk: Desk, _spec: Operator, _subject: Subject) -> Explanation:
    """Return no step: the operator neither delays nor drops records."""
    return Explanation()


EXPLAINERS: Final[Mapping[type[Operator], Explainer[Any]]] = {
    Filter: _one(explain_filter),
    Projection: _nothing,
    Retiming: _nothing,
    Explosion: _nothing,
    TableFilter: _one(explain_filter),
    StreamTableJoin: explain_stream_table,
    StreamStreamJoin: explain_stream_stream,
    TableTableJoin: explain_table_table,
    ForeignKeySubscription: _nothing,
    ForeignKeyLookup: explain_foreign_key,
    ForeignKeyResult: _nothing,
    WindowAggregation: _one(explain_windows),
    SessionAggregation: _one(explain_windows),
    SlidingAggregation: _one(explain_windows),
    RunningAggregation: _nothing,
    TableRegrouping: _nothing,
    TableAggregation: _nothing,
    TimeLimitSuppression: _one(explain_time_limit),
    WallClockSuppression: _one(explain_wall_clock),
}
