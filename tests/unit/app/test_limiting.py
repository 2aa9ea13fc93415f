"""What limits a query: the first rule that is true."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.status.limiting import Facts, Limit, busiest_task_of, functions_of, limit_of, shares_of, slow_function

BUSY = {"reading": 0.3, "tasks": 0.4, "commit": 0.15, "other_queries": 0.1, "busiest_task": 0.9}
FACTS = Facts("running", is_waiting=False, is_merging=False, unread=0, measured=BUSY, age_s=0.5)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (FACTS, "tasks"),
        (replace(FACTS, measured=BUSY | {"reading": 0.5}), "reading"),
        (replace(FACTS, measured=BUSY | {"commit": 0.5}), "commit"),
        (replace(FACTS, measured=BUSY | {"other_queries": 0.6}), "other_queries"),
        (replace(FACTS, measured=BUSY | {"tasks": 0.2}), "input"),
        (replace(FACTS, measured=BUSY | {"tasks": 0.2}, unread=7), "input"),
        (replace(FACTS, measured=BUSY | {"tasks": 0.2}, unread=7, is_merging=True), "upstream"),
        (replace(FACTS, unread=7, is_merging=True), "tasks"),
        (replace(FACTS, is_waiting=True), "upstream"),
        (replace(FACTS, age_s=11.0), "input"),
        (replace(FACTS, age_s=11.0, unread=7), "unmeasured"),
        (replace(FACTS, measured=None, age_s=None), "unmeasured"),
        (replace(FACTS, measured=None, age_s=None, unread=7), "unmeasured"),
        (replace(FACTS, state="paused", is_waiting=True), "paused"),
        (replace(FACTS, state="failed"), "not_running"),
    ],
)
def test_the_first_rule_that_is_true_names_the_limit(facts: Facts, expected: Limit) -> None:
    assert limit_of(facts) == expected


def test_what_was_measured_long_ago_says_nothing() -> None:
    assert (shares_of(FACTS)["tasks"], busiest_task_of(FACTS)) == (0.4, 0.9)
    old = replace(FACTS, age_s=11.0)
    assert (set(shares_of(old).values()), busiest_task_of(old)) == ({0.0}, None)


SLOW = replace(FACTS, measured=BUSY | {"functions": {"tax": 0.1, "score": 0.6}})


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (SLOW, "score"),
        (replace(SLOW, age_s=30.0, unread=7), "score"),
        (replace(SLOW, age_s=30.0), None),
        (replace(SLOW, measured=BUSY | {"functions": {"score": 0.4}}), None),
        (replace(SLOW, measured={"tasks": 0.7, "functions": {"score": 0.6}}), None),
        (replace(SLOW, is_waiting=True), None),
        (replace(SLOW, state="paused"), None),
        (FACTS, None),
        (replace(FACTS, measured=None, age_s=None), None),
    ],
)
def test_a_function_is_slow_where_it_takes_most_of_the_time_of_a_query_that_does_not_keep_up(
    facts: Facts, expected: str | None
) -> None:
    found = slow_function(facts)
    assert (found is not None) == (expected is not None)
    assert found is None or (found.code == "slow_function" and f"the Python function {expected} for 60%" in found.detail)


def test_functions_are_told_with_what_was_measured_lately() -> None:
    assert list(functions_of(SLOW).items()) == [("score", 0.6), ("tax", 0.1)]
    assert functions_of(replace(SLOW, age_s=30.0)) == {}
