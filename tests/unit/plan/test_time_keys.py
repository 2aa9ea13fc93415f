"""Which of a stream's records move time: those that have the key of the first keyed operator (T1a)."""

from __future__ import annotations

from typing import Any

import pytest

from engine.plan.build import build_plan
from tests.unit.plan.test_build import CATALOG, COUNT, JOIN, SELECT, WINDOW, query

INTO = {"into": {"table": "result"}, "window": WINDOW, "aggregate": COUNT}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"joins": [JOIN], "select": SELECT}, ('"origin"',)),
        ({"joins": [JOIN], **INTO, "group_by": ["flights.dest", "w.temp"]}, ('"origin"',)),  # a later key does not count
        ({**INTO, "group_by": ["origin", "dest"]}, ('"origin"', '"dest"')),
        ({**INTO, "group_by": ["origin", "upper(dest)"]}, ('"origin"', 'upper("dest")')),  # spread by the first alone
        (
            {**INTO, "group_by": ["coalesce(dest, 'none')"]},
            ("coalesce(\"dest\", 'none')",),
        ),  # which a null does not make null
        ({"where": "delay > 3", "select": {"dest": "dest"}}, ()),
    ],
)
def test_a_stream_s_time_key(parts: dict[str, Any], expected: tuple[str, ...]) -> None:
    plan = build_plan(query(**parts), CATALOG)
    assert [each.time_key for each in plan.inputs if each.alias == "flights"] == [expected]


def test_a_stream_beside_has_the_key_of_its_join() -> None:
    join = {
        "stream": "flights",
        "as": "f",
        "type": "inner",
        "on": "flights.origin = upper(f.dest)",
        "within": {"before": "1h", "after": "0s"},
    }
    plan = build_plan(query(joins=[join], select={"o": "flights.origin"}), CATALOG)
    assert [each.time_key for each in plan.inputs] == [('"origin"',), ('upper("dest")',)]


def test_a_table_has_its_own_key_whatever_is_read_of_it() -> None:
    plan = build_plan(query(joins=[JOIN], select=SELECT), CATALOG)
    assert [each.time_key for each in plan.inputs if each.alias == "w"] == [('"origin"',)]
