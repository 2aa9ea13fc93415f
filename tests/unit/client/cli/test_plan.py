"""The plan: what is deleted and in which order, what stands in the way, and how it is told."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from slackwater.answers.answer_list import ComparedItem, QueryAnswer, RelationAnswer
from slackwater.cli.definitions.files import FileDefinition
from slackwater.cli.definitions.plan import Plan, Step, compared, deletions
from slackwater.cli.definitions.showing import show, summary, value_at
from slackwater.cli.options.failing import UsageError
from slackwater.cli.options.output import Output

from tests.unit.client.scripted import Scripted, problem


def query(name: str, reads: str, writes: str | None = None) -> QueryAnswer:
    definition = {"from": {"stream": reads}, "joins": [], "into": {"stream": writes or name}}
    return QueryAnswer({"name": name, "definition": definition})


def inserting(name: str, reads: str, target: str) -> QueryAnswer:
    definition = {"from": {"stream": reads}, "joins": [], "into": {"stream": name, "append_to": target}}
    return QueryAnswer({"name": name, "definition": definition})


def relation(name: str, kind: str = "stream") -> RelationAnswer:
    return RelationAnswer({"name": name, "kind": kind, "produced_by": None})


def item(name: str, action: str | None, kind: str = "query", **more: Any) -> ComparedItem:
    empty = {"changes": [], "effects": [], "problems": [], "warnings": [], "definition": {}}
    return ComparedItem({"index": 0, "name": name, "kind": kind, "action": action, **empty, **more})


def step(name: str, action: Any = "no_op", kind: str = "query", **more: Any) -> Step:
    return Step(action, kind, name, FileDefinition(Path("a.yaml"), 1, "query", name), item(name, action, kind, **more))


def told(plan: Plan, **options: Any) -> str:
    output = Output()
    output.out = Console(file=StringIO(), width=200)
    show(output, plan, **options)
    text = output.out.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def test_readers_are_deleted_before_what_they_read() -> None:
    chain = [query("a", "source"), query("b", "a"), query("c", "b")]
    found = deletions([], chain, [relation("source")], ())
    assert [(each.kind, each.name, each.problems) for each in found] == [
        ("query", "c", ()), ("query", "b", ()), ("query", "a", ()), ("stream", "source", ()),
    ]  # fmt: skip


def test_a_query_that_inserts_goes_behind_the_readers_of_its_stream() -> None:
    found = deletions(
        [], [inserting("insert_rides", "more", "rides"), query("far", "rides")], [relation("rides"), relation("more")], ()
    )
    assert [each.name for each in found] == ["far", "insert_rides", "rides", "more"]
    kept = deletions([], [inserting("insert_rides", "more", "rides"), query("far", "rides")], [relation("rides")], ("insert*",))
    assert "insert_rides is read by far, which stays" in kept[0].problems[0]


def test_what_something_that_stays_reads_is_not_deleted() -> None:
    kept = step("b", definition={"from": {"stream": "a"}, "joins": [{"table": "prices"}], "into": {"stream": "b"}})
    found = deletions([kept], [query("a", "source"), query("b", "a")], [relation("prices", "table"), relation("source")], ())
    problems = {each.name: each.problems for each in found}
    assert "a is read by b, which stays" in problems["a"][0]
    assert "prices is read by b, which stays" in problems["prices"][0]
    assert problems["source"] == ()


def test_only_names_of_the_patterns_are_deleted() -> None:
    found = deletions([], [query("orders_a", "orders"), query("other", "orders")], [relation("orders")], ("orders*",))
    assert [each.name for each in found] == ["orders_a", "orders"]
    assert "orders is read by other" in found[1].problems[0]


def test_the_plan_tells_old_and_new_values_effects_and_problems() -> None:
    edited = step(
        "delays", "in_place", definition={"window": {"grace": "45m"}},
        changes=[{"pointer": "/window/grace", "kind": "in_place", "reason": "what has closed stays closed"}],
        effects=[{"pointer": "/window/grace", "effect": "windows_closed", "operator": "window", "at_least": 1, "at_most": 3,
                  "from_ms": 0, "to_ms": 3_600_000}],
    )  # fmt: skip
    edited = Step(edited.action, edited.kind, edited.name, edited.wanted, edited.item, {"window": {"grace": "30m"}})
    refused = Step("refused", "query", "bad", edited.wanted, item("bad", None), problems=("there is no stream 'x'",))
    plan = Plan((step("same"), step("new", "create"), edited, refused, Step("delete", "table", "old")))
    assert told(plan) == (
        "+ query new  create  a.yaml:1\n"
        "~ query delays  edit in place  a.yaml:1\n"
        "    /window/grace: 30m → 45m\n"
        "      what has closed stays closed\n"
        "    1 to 3 windows close at window, 1970-01-01T00:00:00Z to 1970-01-01T01:00:00Z\n"
        "✗ query bad  refused  a.yaml:1\n"
        "    there is no stream 'x'\n"
        "- table old  delete\n"
        "    all its records go with it\n"
        "Plan: 1 to create, 1 to edit in place, 1 to delete, 1 refused, 1 unchanged."
    )
    assert "= query same  no change" in told(plan, shows_all=True)
    assert plan.is_refused
    assert plan.json()["counts"] == {
        "create": 1, "in_place": 1, "repartition": 0, "needs_new_state": 0, "delete": 1, "no_op": 1, "refused": 1,
    }  # fmt: skip


def test_a_plan_without_changes_says_so() -> None:
    assert summary(Plan((step("a"), step("b")))) == "No change: the service has all 2 definitions as they are."
    assert Plan((step("a"),)).changes == []


def test_a_service_without_comparisons_is_told_to_be_older() -> None:
    service = Scripted(problem(404, "not_found"), {"version": "0.0.9"})
    with pytest.raises(UsageError, match=r"the service \(0\.0\.9\) compares no definitions yet"):
        compared(service.client(), [])


def test_pointers_lead_through_lists_and_to_nothing() -> None:
    definition = {"joins": [{"grace": "1h"}], "a/b": {"~": 1}}
    assert value_at(definition, "/joins/0/grace") == "1h"
    assert value_at(definition, "/joins/1/grace") is None
    assert value_at(definition, "/a~1b/~0") == 1
    assert value_at(definition, "/joins/x/y") is None
