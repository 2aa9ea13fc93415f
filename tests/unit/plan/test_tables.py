"""Queries over tables: joins on primary and foreign keys, filters, aggregations, and what is refused there."""

from __future__ import annotations

from typing import Any

import pytest

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.errors import DefinitionInvalid
from engine.plan.build import build_plan
from engine.plan.catalog import Catalog, derived_entry, source_entry
from engine.plan.model import Plan
from engine.plan.operators.aggregation import AggregateColumn, RunningAggregation, TableAggregation, TableRegrouping
from engine.plan.operators.foreign_key_join import ForeignKeyLookup, ForeignKeyResult, ForeignKeySubscription
from engine.plan.operators.row_operators import Projection
from engine.plan.operators.stream_table_join import StreamTableJoin
from engine.plan.operators.table_filter import TableFilter
from engine.plan.operators.table_table_join import TableTableJoin

HOUR_MS = 3_600_000


def _table(key: list[str], retention: str | None = None, **columns: str) -> Any:
    versioned = None if retention is None else {"history_retention": retention}
    return TableDefinition.model_validate({"key": key, "columns": columns, "versioned": versioned})


CATALOG: Catalog = {
    name: source_entry(name, definition)
    for name, definition in {
        "orders": _table(["id"], "2h", id="string", customer="string", amount="int"),
        "payments": _table(["order_id"], "1h", order_id="string", paid="int"),
        "plain": _table(["order_id"], order_id="string", note="string"),
        "customers": _table(["name"], "1h", name="string", city="string"),
        "prices": _table(["shop", "item"], shop="string", item="string", price="double"),
        "stock": _table(["item", "shop"], shop="string", item="string", left="int"),
        "clicks": StreamDefinition.model_validate({"key": ["id"], "columns": {"id": "string", "customer": "string"}}),
    }.items()
}
PAYMENTS = {"table": "payments", "as": "p", "on": "orders.id = p.order_id"}
SELECT = {"id": "orders.id", "amount": "amount"}


def build(**parts: Any) -> Plan:
    body = {"name": "q", "from": {"table": "orders"}, "into": {"table": "out"}, **parts}
    return build_plan(QueryDefinition.model_validate(body), CATALOG)


def refused(**parts: Any) -> set[tuple[str, str]]:
    with pytest.raises(DefinitionInvalid) as caught:
        build(**parts)
    return {(problem.pointer, problem.code) for problem in caught.value.problems}


def test_a_table_is_filtered_as_a_table_first_and_after_its_joins() -> None:
    plan = build(**{"from": {"table": "orders", "where": "amount > 3"}}, joins=[PAYMENTS], where="paid > 3", select=SELECT)
    first, join, second, _ = plan.stages[0].operators
    assert first == TableFilter("from.where", '"orders"."amount" > 3', ("orders.id",), 2 * HOUR_MS, tells_every_delete=True)
    assert isinstance(join, TableTableJoin)
    assert second == TableFilter("where", '"p"."paid" > 3', ("orders.id",), None)
    assert plan.inputs[0].where is None


def test_tables_that_meet_on_their_keys_are_joined_in_one_stage_the_left_one_declared_first() -> None:
    plan = build(joins=[{**PAYMENTS, "type": "outer"}], select={"id": "p.order_id", "paid": "paid"})
    left, right = plan.inputs
    assert (left.alias, left.hash_key, right.alias, right.hash_key) == ("orders", ("id",), "p", ("order_id",))
    join = plan.stages[0].operators[0]
    assert join == TableTableJoin(
        "p", "outer", 1, ("orders.id",), ("p.order_id",), ("p.$key0",), 2 * HOUR_MS, HOUR_MS, "latest", ("orders.id",),
        ("p.order_id", "p.paid"),
    )  # fmt: skip
    assert plan.output.key == ("id",)
    assert plan.stages[0].operators[1] == Projection((("id", '"p"."$key0"'), ("paid", '"p"."paid"')))


def test_a_composite_key_may_be_equated_in_any_order_and_hashes_meet() -> None:
    plan = build(
        **{"from": {"table": "prices"}}, joins=[{"table": "stock"}], select={"item": "prices.item", "shop": "prices.shop"}
    )
    assert [one.hash_key for one in plan.inputs] == [("shop", "item"), ("shop", "item")]
    join = plan.stages[0].operators[0]
    assert isinstance(join, TableTableJoin)
    assert (join.left_key, join.right_key) == (("prices.item", "prices.shop"), ("stock.item", "stock.shop"))


def test_a_third_table_may_be_joined_by_the_second_ones_key() -> None:
    plan = build(joins=[PAYMENTS, {"table": "plain", "on": "p.order_id = plain.order_id"}], select={"id": "orders.id"})
    second = plan.stages[0].operators[1]
    assert isinstance(second, TableTableJoin)
    assert second.left_key == ("orders.id",)


@pytest.mark.parametrize(
    ("type_", "select", "shown"),
    [
        ("left", {"paid_for": "p.order_id", "id": "orders.id"}, {"paid_for": '"p"."order_id"', "id": '"orders"."id"'}),
        ("left", {"id": "p.order_id"}, {"id": '"orders"."id"'}),
        ("right", {"id": "orders.id"}, {"id": '"p"."order_id"'}),
        ("right", {"left_id": "orders.id", "id": "p.order_id"}, {"left_id": '"orders"."id"', "id": '"p"."order_id"'}),
        ("outer", {"id": "orders.id", "right_id": "p.order_id"}, {"id": '"p"."$key0"', "right_id": '"p"."order_id"'}),
        ("outer", {"left_id": "orders.id", "id": "coalesce(p.order_id, orders.id)"}, {"left_id": '"orders"."id"', "id": '"p"."$key0"'}),
        ("inner", {"id": "p.order_id"}, {"id": '"orders"."id"'}),
    ],
)  # fmt: skip
def test_the_column_that_is_the_results_key_shows_it_and_every_other_one_its_own_side(
    type_: str, select: dict[str, str], shown: dict[str, str]
) -> None:
    plan = build(joins=[{**PAYMENTS, "type": type_}], select=select)
    assert plan.output.key == ("id",)
    assert plan.stages[0].operators[-1] == Projection(tuple(shown.items()))


def test_the_key_of_a_side_that_may_be_absent_is_no_key_of_the_rows() -> None:
    left = {**PAYMENTS, "type": "left"}
    again = {"table": "plain", "on": "p.order_id = plain.order_id"}
    plan = build(joins=[left, again], select=SELECT)
    assert isinstance(plan.stages[0].operators[1], ForeignKeySubscription), "p.order_id is null where there is no payment"
    grouped = build(joins=[left], group_by=["p.order_id"], aggregate={"n": "count(*)"})
    assert grouped.stages[0].exchange_key == ("p.order_id",)
    assert ("/joins/1/type", "unsupported_pair") in refused(joins=[left, {**again, "type": "outer"}], select=SELECT)


def test_a_third_table_meets_an_outer_joins_rows_by_the_coalesce_of_both_keys() -> None:
    third = {"table": "plain", "type": "outer", "on": "coalesce(orders.id, p.order_id) = plain.order_id"}
    plan = build(joins=[{**PAYMENTS, "type": "outer"}, third], select={"id": "coalesce(orders.id, p.order_id, plain.order_id)"})
    first, second, _ = plan.stages[0].operators
    assert isinstance(first, TableTableJoin)
    assert isinstance(second, TableTableJoin)
    assert second.left_key == first.key == ("p.$key0",)
    assert [one.hash_key for one in plan.inputs] == [("id",), ("order_id",), ("order_id",)]
    assert plan.output.key == ("id",)


def test_any_other_left_expression_is_a_foreign_key_and_takes_three_stages() -> None:
    join = {"table": "customers", "as": "c", "type": "left", "on": "lower(customer) = c.name"}
    plan = build(joins=[join], select={**SELECT, "city": "city"})
    subscription, lookup, result = (stage.operators[0] for stage in plan.stages)
    assert isinstance(subscription, ForeignKeySubscription)
    assert isinstance(lookup, ForeignKeyLookup)
    assert isinstance(result, ForeignKeyResult)
    assert subscription.foreign_key == ('lower("orders"."customer")',)
    assert [stage.exchange_key for stage in plan.stages] == [("c.$fk0",), ("orders.id",), ()]
    assert [(one.alias, one.stage, one.hash_key) for one in plan.inputs] == [("orders", 0, ("id",)), ("c", 1, ("name",))]
    assert plan.stages[0].emitted.names[-3:] == ("c.$fk0", "c.$generation", "c.$action")
    assert [type(operator) for operator in plan.stages[2].operators] == [ForeignKeyResult, Projection]
    assert plan.output.key == ("id",)


def test_a_table_may_be_joined_with_itself_under_another_name() -> None:
    plan = build(joins=[{"table": "orders", "as": "parent", "on": "orders.customer = parent.id"}], select={"id": "orders.id"})
    assert [(one.alias, one.feed.name) for one in plan.inputs] == [("orders", "log:orders"), ("parent", "log:orders")]


def test_an_aggregation_over_a_table_sends_old_and_new_rows_to_their_groups() -> None:
    plan = build(group_by=["customer"], aggregate={"total": "sum(amount)"}, having="total > 0")
    first, second = plan.stages
    assert first.operators == (
        TableRegrouping("aggregate", ("orders.id",), 2 * HOUR_MS, ("orders.customer",), ("orders.amount",)),
    )
    assert first.exchange_key == ("orders.customer",)
    assert first.emitted.names == (
        "orders.customer", "aggregate.$old.orders.amount", "aggregate.$new.orders.amount", "aggregate.$has_old", "aggregate.$has_new",
    )  # fmt: skip
    assert second.operators[0] == TableAggregation(
        "aggregate",
        (("customer", "orders.customer"),),
        (AggregateColumn("total", "sum", '"orders"."amount"'),),
        '"total" > 0',
    )
    assert plan.output.key == ("customer",)


@pytest.mark.parametrize(
    ("having", "meant"),
    [
        ("count(*) > 0", '"n" > 0'),
        ("COUNT(*)>0 AND sum(orders.amount) > 1", '"n" > 0 AND "total" > 1'),
        ("count(*)", None),
    ],
)
def test_having_may_write_aggregates_out(having: str, meant: str | None) -> None:
    """A2: as SQL writes it."""
    aggregate = {"n": "count(*)", "total": "sum(amount)"}
    if meant is None:
        with pytest.raises(DefinitionInvalid):
            build(group_by=["customer"], aggregate=aggregate, having=having)
        return
    found = build(group_by=["customer"], aggregate=aggregate, having=having).stages[-1].operators[0]
    assert isinstance(found, TableAggregation)
    assert found.having == meant


def test_an_aggregation_over_a_stream_needs_no_window() -> None:
    plan = build(**{"from": {"stream": "clicks"}}, group_by=["customer"], aggregate={"n": "count(*)"})
    assert plan.stages[0].operators[0] == RunningAggregation(
        "aggregate", (("customer", "clicks.customer"),), (AggregateColumn("n", "count", None),)
    )
    assert plan.inputs[0].hash_key == ("customer",)


def test_a_versioned_result_is_a_versioned_table_to_its_readers() -> None:
    into = {"table": "kept", "versioned": {"history_retention": "3h"}}
    kept = derived_entry(build(joins=[PAYMENTS], select=SELECT, into=into))
    assert kept.relation.history_retention_ms == 3 * HOUR_MS
    body = {"name": "r", "from": {"stream": "clicks"}, "joins": [{"table": "kept", "grace": "3h"}], "into": {"stream": "seen"}}
    join = build_plan(QueryDefinition.model_validate(body), {**CATALOG, "kept": kept}).stages[0].operators[0]
    assert isinstance(join, StreamTableJoin)
    assert (join.history_retention_ms, join.grace_ms) == (3 * HOUR_MS, 3 * HOUR_MS)


def test_complete_history_goes_on_through_a_chain_and_latest_ends_it() -> None:
    complete = {**PAYMENTS, "history": "complete"}
    other = {"table": "payments", "as": "again", "on": "orders.id = again.order_id", "history": "complete"}
    second = build(joins=[complete, other], select=SELECT).stages[0].operators[1]
    assert isinstance(second, TableTableJoin)
    assert (second.left_retention_ms, second.history) == (HOUR_MS, "complete")
    assert ("/joins/1/history", "history_needs_versioned_tables") in refused(joins=[PAYMENTS, other], select=SELECT)


VERSIONED = {"table": "out", "versioned": {"history_retention": "1h"}}
COUNT = {"n": "count(*)"}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"joins": [{"stream": "clicks"}]}, ("/joins/0/stream", "unsupported_pair")),
        ({"joins": [{**PAYMENTS, "grace": "1m"}]}, ("/joins/0/grace", "unsupported_option")),
        ({"joins": [{**PAYMENTS, "late": "drop"}]}, ("/joins/0/late", "unsupported_option")),
        ({"joins": [{**PAYMENTS, "expired": "drop"}]}, ("/joins/0/expired", "unsupported_option")),
        ({"joins": [{**PAYMENTS, "hold": {"at_most": "1m"}}]}, ("/joins/0/hold", "unsupported_option")),
        ({"joins": [{**PAYMENTS, "unversioned_ok": True}]}, ("/joins/0/unversioned_ok", "unsupported_option")),
        ({"joins": [{**PAYMENTS, "within": {"before": "1m", "after": "1m"}}]}, ("/joins/0/within", "unsupported_option")),
        ({"joins": [{"table": "plain", "on": "id = plain.order_id", "history": "complete"}]},
         ("/joins/0/history", "history_needs_versioned_tables")),
        ({"joins": [{"table": "customers", "on": "customer = customers.name", "type": "right"}]},
         ("/joins/0/type", "unsupported_pair")),
        ({"joins": [{"table": "customers", "on": "customer = customers.name", "type": "outer"}]},
         ("/joins/0/type", "unsupported_pair")),
        ({"joins": [{"table": "customers", "on": "customer = customers.name", "history": "complete"}]},
         ("/joins/0/history", "unsupported_option")),
        ({"joins": [{"table": "customers", "on": "customer = customers.city"}]}, ("/joins/0/on", "join_key_mismatch")),
        ({"joins": [{"table": "customers", "on": "amount = customers.name"}]}, ("/joins/0/on", "type_mismatch")),
        ({"joins": [{**PAYMENTS, "as": "aggregate", "on": "id = aggregate.order_id"}]}, ("/joins/0/as", "name_clash")),
        ({"window": {"type": "tumbling", "size": "1h"}, "aggregate": COUNT}, ("/window", "window_over_table")),
        ({"group_by": ["customer"], "aggregate": {"x": "max(amount)"}}, ("/aggregate/x", "aggregate_not_undoable")),
        ({"group_by": ["customer"], "aggregate": {"x": "last(amount)"}}, ("/aggregate/x", "aggregate_not_undoable")),
        ({"start": "latest"}, ("/start", "start_needs_stream")),
        ({"select": {"amount": "amount"}}, ("/select", "key_missing_in_select")),
        ({"select": {"id": "lower(id)"}}, ("/select", "key_missing_in_select")),
        ({"suppress": {"mode": "until_time_limit", "limit": "1m"}}, ("/suppress/mode", "suppress_on_versioned_table")),
        ({"joins": [{"table": "plain", "on": "id = plain.order_id"}], "select": SELECT, "into": VERSIONED},
         ("/into/versioned", "result_not_versionable")),
        ({"joins": [{"table": "customers", "on": "customer = customers.name"}], "select": SELECT, "into": VERSIONED},
         ("/into/versioned", "result_not_versionable")),
        ({"into": {"table": "orders"}}, ("/into", "query_cycle")),
    ],
)  # fmt: skip
def test_what_tables_cannot_do_is_refused_with_a_pointer(parts: dict[str, Any], expected: tuple[str, str]) -> None:
    assert expected in refused(**parts)


def test_a_hopping_window_that_would_copy_each_record_ten_thousand_times_is_refused() -> None:
    window = {"type": "hopping", "size": "30d", "advance": "1ms"}
    found = refused(**{"from": {"stream": "clicks"}}, group_by=["customer"], window=window, aggregate=COUNT)
    assert found == {("/window/advance", "advance_too_small")}


def test_a_copy_of_a_versioned_table_judges_its_puts() -> None:
    into = {"table": "out", "versioned": {"history_retention": "1h"}}
    [admission, *_] = build(into=into).stages[0].operators
    assert admission == TableFilter("orders", "true", ("orders.id",), HOUR_MS, tells_every_delete=True)
    assert not any(isinstance(operator, TableFilter) for operator in build().stages[0].operators), "an unversioned copy takes all"


def test_only_a_materialised_source_is_copied_into_its_own_rows() -> None:
    into = {"table": "orders"}
    assert refused(into=into) == {("/into", "query_cycle")}
    entry = source_entry("orders", TableDefinition(key=("id",), columns={"id": "string"}, materialize=True))
    definition = QueryDefinition.model_validate({"name": "orders", "from": {"table": "orders"}, "into": into})
    output = build_plan(definition, {"orders": entry}).output
    assert (output.name, output.key, output.columns.names) == ("orders", ("id",), ("id",))


def test_a_tombstone_counts_for_the_time_of_a_join_only_where_the_result_keeps_the_versions_of_its_rows() -> None:
    """TT3, TT5: behind an aggregation the versions are those of its groups, and the join's sides need not be versioned."""
    versioned = {"table": "out", "versioned": {"history_retention": "1d"}}
    plain = {"table": "plain", "as": "q", "on": "o.order_id = q.order_id"}
    counted = {"group_by": ["o.note"], "aggregate": {"n": "count(*)"}}

    def join(**parts: Any) -> TableTableJoin:
        operator = build(**parts).stages[0].operators[0]
        assert isinstance(operator, TableTableJoin)
        return operator

    assert join(joins=[PAYMENTS], select=SELECT, into=versioned).is_result_versioned
    assert not join(joins=[PAYMENTS], select=SELECT).is_result_versioned
    aggregated = join(**{"from": {"table": "plain", "as": "o"}}, joins=[plain], **counted, into=versioned)
    assert (aggregated.left_retention_ms, aggregated.right_retention_ms, aggregated.is_result_versioned) == (None, None, False)
