"""Which relations show the records of a topic, and in which order."""

from __future__ import annotations

import polars as pl
import pytest

from app.sql.catalog.following import each_once
from app.sql.reads.printing import relations_on
from engine.sql.statement_tree import Print
from engine.sql.statements.statements import parse_statement
from engine.statements.context.faults import StatementRefused
from tests.unit.statements.scripts import bound

RELATIONS = """
CREATE TABLE last (id INT PRIMARY KEY, n INT) WITH (KAFKA_TOPIC='orders', FORMAT='JSON', FEED='orders');
CREATE STREAM few (id INT KEY, n INT) WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', FEED='orders', FEED_WHERE='N = 1');
CREATE STREAM whole (id INT KEY, n INT) WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', FEED='orders');
CREATE STREAM orders (id INT KEY, n INT) WITH (KAFKA_TOPIC='new_orders', VALUE_FORMAT='JSON');
CREATE STREAM bids (id INT KEY, n INT) WITH (KAFKA_TOPIC='all', VALUE_FORMAT='JSON');
CREATE STREAM asks (id INT KEY, n INT) WITH (KAFKA_TOPIC='all', VALUE_FORMAT='JSON');
CREATE STREAM big (id INT KEY, n INT) WITH (KAFKA_TOPIC='ALL', VALUE_FORMAT='JSON');
"""


def names(text: str) -> list[str]:
    tree = parse_statement(text)
    assert isinstance(tree, Print)
    return [each.name for each in relations_on(tree, bound(RELATIONS)[1])]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("PRINT 'orders'", ["WHOLE", "LAST", "FEW"]),
        ("PRINT orders", ["WHOLE", "LAST", "FEW"]),
        ("PRINT 'new_orders'", ["ORDERS"]),
        ("PRINT few", ["FEW"]),
        ("PRINT 'ALL'", ["BIG"]),
    ],
)
def test_the_nearest_name_of_a_topic_is_meant(text: str, shown: list[str]) -> None:
    assert names(text) == shown


@pytest.mark.parametrize("text", ["PRINT 'all'", "PRINT 'All'"])
def test_a_name_of_several_logs_is_refused(text: str) -> None:
    with pytest.raises(StatementRefused, match=r"ASKS reads log:asks, .*BIDS reads log:bids") as caught:
        names(text)
    assert (caught.value.code, caught.value.span) == ("ambiguous_topic", (6, len(text)))


def test_each_record_is_shown_once_in_the_order_of_the_log() -> None:
    first = pl.DataFrame({"_offset": [4, 6, 7], "v": ["d", "f", "g"]})
    second = pl.DataFrame({"_offset": [4, 5, 7, 8, 9], "w": [4, 5, 7, 8, 9]})
    found = each_once([("a", first), ("b", second), ("c", second)])
    assert [(name, frame["_offset"].to_list()) for name, frame in found] == [("a", [4]), ("b", [5]), ("a", [6, 7]), ("b", [8, 9])]
    assert each_once([("a", first.clear()), ("b", second)]) == [("b", second)]
