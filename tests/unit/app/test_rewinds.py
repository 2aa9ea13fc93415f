"""What is in the way of going back to a commit."""

from __future__ import annotations

from uuid import UUID

import pytest

from app.catalog.history.rewind_rules import forked_since, missing_records, named
from app.errors.app_errors import Unprocessable
from app.following.cursors import identity_of

KEPT = {"log:orders": {"0": (10, 20), "1": (0, 5)}}


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"log:orders": {"0": 10, "1": 5}}, None),
        ({"log:orders": {"0": 9}}, "from 9 to 10 in partition 0 were removed"),
        ({"log:orders": {"1": 6}}, "ends with 5 in partition 1, before 6"),
        ({"files:orders": {"0": 3}}, None),
        ({}, None),
    ],
)
def test_records_have_to_be_there_from_where_reading_goes_on(wanted: dict[str, dict[str, int]], told: str | None) -> None:
    found = missing_records(wanted, KEPT)
    assert found is None if told is None else told in str(found)


def test_only_forks_of_later_commits_are_in_the_way() -> None:
    assert forked_since(5, [("early", 5), ("anew", None)]) is None
    assert "late continued" in str(forked_since(5, [("early", 5), ("late", 6)]))


def test_a_definition_may_leave_the_name_out_and_name_no_other() -> None:
    assert named({"tasks": 2}, "q") == {"name": "q", "tasks": 2}
    assert named([1], "q") == [1]
    with pytest.raises(Unprocessable, match="cannot be renamed"):
        named({"name": "other"}, "q")


def test_a_log_that_was_rewound_is_another_one_to_its_followers() -> None:
    relation, one, two = UUID(int=1), UUID(int=2), UUID(int=3)
    identities = [identity_of(relation, 7), identity_of(relation, 7, one), identity_of(relation, 7, None, one)]
    identities += [identity_of(relation, 7, None, two), identity_of(relation, 7, one, one)]
    assert len(set(identities)) == len(identities)
