"""Aggregates whose records are cut into partials, merged in any way, and taken out again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import InvariantBroken
from engine.expressions.aggregates.aggregates import is_undoable
from engine.operators.aggregation.aggregate import Aggregates
from engine.plan.operators.aggregation import AggregateColumn
from engine.state.sorted.running import Groups
from tests.examples import examples
from tests.property import aggregate_model as model


def shown(aggregates: Aggregates, partials: pl.DataFrame) -> list[dict[str, Any]]:
    columns, _ = aggregates.results(partials)
    assert [(column.name, column.dtype) for column in columns] == [(name, kind.polars) for name, kind in aggregates.schema]
    return [model.plain(row) for row in pl.DataFrame(columns).to_dicts()]


def merged(aggregates: Aggregates, partials: pl.DataFrame, owners: Sequence[int]) -> pl.DataFrame:
    """Merge the partials of each owner, keep the owner as ``_owner``."""
    grouped = partials.with_columns(pl.Series("_owner", owners, dtype=pl.Int64)).group_by("_owner")
    return aggregates.run_until_idle(grouped.agg(aggregates.merge(partials.columns)).sort("_owner"))


def lifted(columns: Sequence[AggregateColumn], rows: Sequence[model.Row]) -> tuple[Aggregates, pl.DataFrame]:
    aggregates = Aggregates(columns, model.SCHEMA)
    positions = pl.Series(range(len(rows)), dtype=pl.Int64)
    return aggregates, pl.DataFrame(aggregates.lift(model.frame(rows), positions))


@settings(max_examples=examples(60), deadline=None)
@given(rows=model.ROWS.filter(bool), data=st.data())
def test_partials_merge_to_the_aggregate_of_all_records_in_any_order_and_any_parts(rows: list[model.Row], data: Any) -> None:
    order = data.draw(st.permutations(range(len(rows))))
    owners = data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
    aggregates, partials = lifted(model.ALL, rows)
    parts = merged(aggregates, partials[order], owners)
    own = [
        [rows[i] for i in sorted(i for i, owner in zip(order, owners, strict=True) if owner == wanted)]
        for wanted in parts["_owner"]
    ]
    parts = parts.drop("_owner")
    assert shown(aggregates, parts) == [model.values(part, model.ALL) for part in own]
    parts = parts[data.draw(st.permutations(range(parts.height)))]
    whole = merged(aggregates, parts, [0] * parts.height)
    assert shown(aggregates, whole) == [model.values(rows, model.ALL)]


@settings(max_examples=examples(60), deadline=None)
@given(rows=model.ROWS.filter(bool), data=st.data())
def test_running_values_are_the_aggregates_of_every_prefix(rows: list[model.Row], data: Any) -> None:
    groups = sorted(data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows))))
    head = data.draw(st.integers(0, groups.count(groups[0])))
    aggregates, partials = lifted(model.ALL, rows)
    if head:  # the records before the batch are one partial
        partials = pl.concat([merged(aggregates, partials[:head], [0] * head).drop("_owner"), partials[head:]], how="diagonal")
    firsts = range(max(head, 1), len(rows) + 1)
    ids = pl.DataFrame({"group": [groups[end - 1] for end in firsts]})
    columns, _ = aggregates.running(partials, Groups.of(ids))
    expected = [model.values([rows[i] for i in range(end) if groups[i] == groups[end - 1]], model.ALL) for end in firsts]
    assert [column.dtype for column in columns] == [kind.polars for _, kind in aggregates.schema]
    assert [model.plain(row) for row in pl.DataFrame(columns).to_dicts()] == expected


@settings(max_examples=examples(60), deadline=None)
@given(rows=model.ROWS.filter(bool), data=st.data())
def test_records_taken_out_leave_the_aggregate_of_the_others(rows: list[model.Row], data: Any) -> None:
    taken = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1))))
    steps = [(i, 1) for i in range(len(rows))] + [(i, -1) for i in taken]
    owners = data.draw(st.lists(st.integers(0, 2), min_size=len(steps), max_size=len(steps)))
    aggregates = Aggregates(model.UNDOABLE, model.SCHEMA, with_undo=True)
    frame = model.frame([rows[i] for i, _ in steps])
    signs = np.array([sign for _, sign in steps])
    partials = pl.DataFrame(aggregates.lift(frame, pl.Series(range(len(steps)), dtype=pl.Int64), signs))
    parts = merged(aggregates, partials, owners).drop("_owner")
    whole = merged(aggregates, parts, [0] * parts.height)
    left = [row for i, row in enumerate(rows) if i not in taken]
    assert shown(aggregates, whole) == [model.values(left, model.UNDOABLE, is_table=True)]
    columns, _ = aggregates.running(partials, Groups.of(pl.DataFrame({"group": [0] * len(steps)})))
    assert model.plain(pl.DataFrame(columns).row(-1, named=True)) == model.values(left, model.UNDOABLE, is_table=True)


@pytest.mark.parametrize("column", model.ALL, ids=lambda column: column.name)
def test_only_what_can_be_undone_is_made_for_tables(column: AggregateColumn) -> None:
    is_known_undoable = column.function in {each.function for each in (*model.UNDOABLE, *model.IN_ORDER)}
    assert Aggregates.undoable(column.function) == is_undoable(column.function) == is_known_undoable
    if not is_known_undoable:
        with pytest.raises(InvariantBroken):
            Aggregates([column], model.SCHEMA, with_undo=True)
