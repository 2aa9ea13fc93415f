"""Walks a plan as a task would, without running it: every column and every expression must be there, with its type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.expressions.aggregates.aggregates import result_type
from engine.expressions.expressions import compile_scalar
from engine.expressions.pseudo_columns import EVENT_TIME
from engine.expressions.types.types import BIGINT, BOOLEAN, STRING, TIMESTAMP, ColumnType, Schema
from engine.plan.building.join_keys import joined_schema
from engine.plan.model import Input, Plan, Stage
from engine.plan.operators.aggregation import AggregateColumn, RunningAggregation, TableAggregation, TableRegrouping
from engine.plan.operators.explosion import Explosion
from engine.plan.operators.foreign_key_join import ForeignKeyLookup, ForeignKeyResult, ForeignKeySubscription
from engine.plan.operators.foreign_keys import answer_schema, foreign_key_columns, generation_column, subscription_schema
from engine.plan.operators.operator import Operator
from engine.plan.operators.regrouping import has_new_column, has_old_column, regrouped_rows, regrouped_schema
from engine.plan.operators.row_operators import Filter, Projection, Retiming
from engine.plan.operators.stream_stream_join import StreamStreamJoin
from engine.plan.operators.stream_table_join import StreamTableJoin
from engine.plan.operators.suppression import TimeLimitSuppression, WallClockSuppression
from engine.plan.operators.table_filter import TableFilter
from engine.plan.operators.table_table_join import TableTableJoin
from engine.plan.operators.windows import WindowedAggregation


def walk(plan: Plan) -> list[Operator]:
    """Check a plan and return its operators in order."""
    assert [source.index for source in plan.inputs] == list(range(len(plan.inputs)))
    order = [(source.stage, source.relation.kind == "stream") for source in plan.inputs]
    assert order == sorted(order)
    assert [stage.running is None for stage in plan.stages] == [False, *(True for _ in plan.stages[1:])]
    arriving: Schema | None = None
    spread: tuple[str, ...] = ()
    for stage in plan.stages:
        inputs = {source.index: source for source in plan.inputs if source.stage == stage.index}
        if stage.running is not None:
            source = inputs[stage.running]
            arriving = columns_of(source)
            spread = tuple(f"{source.alias}.{name}" for name in source.hash_key)
        assert arriving is not None
        for source in inputs.values():
            _check_input(source, stage, [arriving[name] for name in spread])
        assert {*arriving} <= {*stage.schema}
        running = arriving
        for operator in stage.operators:
            running = _Step(plan, stage, inputs, running).after(operator)
        is_last = stage.index == len(plan.stages) - 1
        if is_last:
            assert running == plan.output.columns
            assert (stage.exchange_key, stage.emitted) == ((), Schema())
        else:
            assert stage.emitted.items() == running.items()
            spread, arriving = stage.exchange_key, stage.emitted
            assert {*spread} <= {*arriving}
    assert {*plan.output.key} <= {*plan.output.columns}
    return [operator for stage in plan.stages for operator in stage.operators]


def columns_of(source: Input) -> Schema:
    """Return an input's columns by their names inside the plan."""
    return Schema(tuple((f"{source.alias}.{name}", kind) for name, kind in source.schema.items()))


def _check_input(source: Input, stage: Stage, spread: list[ColumnType]) -> None:
    assert {*columns_of(source)} <= {*stage.schema}
    assert {*source.hash_key} <= {*source.schema}
    assert {*source.relation.key} <= {*source.columns}
    types = [source.schema[name] for name in source.hash_key]
    assert list(map(_family, types)) == list(map(_family, spread))
    if source.where is not None:
        assert compile_scalar(source.where, source.relation.readable).type == BOOLEAN


def _family(kind: ColumnType) -> str:
    assert not kind.is_nested
    return "integer" if kind.is_integer else str(kind)


@dataclass
class _Step:
    plan: Plan
    stage: Stage
    inputs: dict[int, Input]
    before: Schema

    def after(self, operator: Operator) -> Schema:
        """Check one operator against the columns before it; return those behind it."""
        if isinstance(operator, Projection):
            return self._projected(operator)
        if isinstance(operator, Explosion):
            arrays = [(name, compile_scalar(text, self.before).type.element) for name, text in operator.arrays]
            elements = [(name, kind) for name, kind in arrays if kind is not None]
            assert len(elements) == len(arrays) > 0
            return Schema((*self.before.select(operator.carried).items(), *elements))
        if isinstance(operator, Filter | TableFilter):
            assert compile_scalar(operator.condition, self.before).type == BOOLEAN
            self._has(operator.key if isinstance(operator, TableFilter) else ())
            return self.before
        if isinstance(operator, Retiming):
            self._has((operator.column,))
            return self.before
        if isinstance(operator, TimeLimitSuppression | WallClockSuppression):
            self._has(operator.key)
            assert operator.key
            return self.before
        if isinstance(operator, WindowedAggregation | RunningAggregation | TableAggregation | TableRegrouping):
            return self._aggregated(operator)
        return self._joined(operator)

    def _has(self, names: Sequence[str]) -> None:
        assert {*names} <= {*self.before}

    def _projected(self, operator: Projection) -> Schema:
        is_select = self.stage.index == len(self.plan.stages) - 1 and not any(
            isinstance(each, Projection) for each in self.stage.operators[self.stage.operators.index(operator) + 1 :]
        )
        is_forced = is_select and self.plan.idle_after_ms is not None
        forced = (("$forced", BOOLEAN),) if is_forced else ()
        times = () if EVENT_TIME in self.before else ((EVENT_TIME, BIGINT),)
        before = Schema((*self.before.items(), *forced, *times))
        return Schema(tuple((name, compile_scalar(text, before).type) for name, text in operator.columns))

    def _joined(self, operator: Operator) -> Schema:
        if isinstance(operator, ForeignKeySubscription):
            self._has((*operator.key, *operator.left_columns))
            assert self.stage.exchange_key == foreign_key_columns(operator)
            return subscription_schema(operator, self.before)
        if isinstance(operator, ForeignKeyResult):
            self._has((*operator.columns, *operator.key, generation_column(operator.name)))
            return self.before.select(operator.columns)
        assert isinstance(operator, StreamTableJoin | TableTableJoin | ForeignKeyLookup | StreamStreamJoin)
        index = operator.stream_index if isinstance(operator, StreamStreamJoin) else operator.table_index
        source = self.inputs[index]
        right = columns_of(source)
        assert source.alias == operator.name
        if isinstance(operator, ForeignKeyLookup):
            self._has((*operator.left_columns, *foreign_key_columns(operator), *operator.key))
            assert {*operator.right_key, *operator.right_columns} <= {*right}
            return answer_schema(operator, self.before, right)
        if isinstance(operator, StreamTableJoin):
            left_key, right_key, columns = operator.stream_key, operator.table_key, operator.table_columns
        else:
            left_key, right_key, columns = operator.left_key, operator.right_key, operator.right_columns
        self._has(left_key)
        assert len(left_key) == len(right_key)
        assert [_family(self.before[name]) for name in left_key] == [_family(right[name]) for name in right_key]
        if isinstance(operator, TableTableJoin):
            assert operator.left_columns == self.before.names
            after = joined_schema(operator, self.before, right)
            assert {*operator.key} <= {*after}
            return after
        match = ((f"{operator.name}.$match", STRING),) if isinstance(operator, StreamTableJoin) else ()
        if isinstance(operator, StreamStreamJoin) and operator.is_eager:
            assert operator.type != "inner"
            match = ((operator.state_column, STRING),)
        return Schema((*self.before.items(), *right.select(columns).items(), *match))

    def _aggregated(self, operator: WindowedAggregation | RunningAggregation | TableAggregation | TableRegrouping) -> Schema:
        if isinstance(operator, TableRegrouping):
            self._has((*operator.key, *operator.group, *operator.columns))
            assert self.stage.exchange_key == operator.group
            return regrouped_schema(operator, self.before)
        rows = self.before
        if isinstance(operator, TableAggregation):
            self._has((has_old_column(operator.name), has_new_column(operator.name)))
            rows = regrouped_rows(operator.name, self.before)
        columns = [(name, self.before[source]) for name, source in operator.group]
        if isinstance(operator, WindowedAggregation):
            columns += [("window_start", TIMESTAMP), ("window_end", TIMESTAMP)]
        columns += [(column.name, _result_type(column, rows)) for column in operator.aggregates]
        after = Schema(tuple(columns))
        if operator.having is not None:
            assert compile_scalar(operator.having, after).type == BOOLEAN
        if isinstance(operator, WindowedAggregation) and operator.emit == "corrections":
            after = Schema((*after.items(), ("$state", STRING)))
        return after


def _result_type(column: AggregateColumn, rows: Schema) -> ColumnType:
    arguments = [compile_scalar(text, rows).type for text in column.arguments] or [STRING]
    return result_type(column.function, arguments, column.limit)  # type: ignore[arg-type]  # a definition never names the corpora's own functions
