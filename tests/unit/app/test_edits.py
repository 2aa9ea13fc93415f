from __future__ import annotations

from typing import Any

import pytest

from app.catalog.stored.edit_rules import EditKind, classify, differences


@pytest.mark.parametrize(
    ("left", "right", "pointers"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, ["/a"]),
        ({"a": 1}, {}, ["/a"]),
        ({}, {"a": None}, ["/a"]),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}]}}, ["/a/b/1/c"]),
        ({"a": [1]}, {"a": [1, 2]}, ["/a"]),
        ({"a": 1}, {"a": 1.0}, ["/a"]),
        ({"a": 0}, {"a": False}, ["/a"]),
        ({"a": None}, {"a": {}}, ["/a"]),
        ({"a/b~c": 1}, {"a/b~c": 2}, ["/a~1b~0c"]),
        ({"s": {"x": 1, "y": 2}}, {"s": {"y": 2, "x": 1}}, ["/s"]),
    ],
)
def test_differences_point_to_what_differs(left: Any, right: Any, pointers: list[str]) -> None:
    assert differences(left, right) == pointers


def test_a_wish_alone_is_no_edit() -> None:
    edit = classify({"tasks": 4, "desired_state": "running"}, {"tasks": 4, "desired_state": "paused"}, is_state_compatible=False)
    assert (edit.kind, edit.pointers) == (EditKind.NO_OP, ())


@pytest.mark.parametrize(("is_compatible", "kind"), [(True, EditKind.IN_PLACE), (False, EditKind.NEEDS_NEW_STATE)])
def test_a_change_is_classified_by_whether_the_state_fits(is_compatible: bool, kind: EditKind) -> None:
    edit = classify({"where": "a"}, {"where": "b"}, is_state_compatible=is_compatible)
    assert (edit.kind, edit.pointers) == (kind, ("/where",))


@pytest.mark.parametrize(
    ("more", "kind"),
    [({}, EditKind.NO_OP), ({"tasks": 2}, EditKind.REPARTITION), ({"into": {"connector": None}}, EditKind.IN_PLACE)],
)
def test_expressions_that_are_written_otherwise_are_no_edit_by_themselves(more: dict[str, Any], kind: EditKind) -> None:
    stored = {
        "where": "a>1",
        "joins": [{"on": "a = b"}],
        "select": {"x": "a"},
        "tasks": 1,
        "into": {"connector": {"type": "files"}},
    }
    wanted = {**stored, "where": '"a" > 1', "joins": [{"on": '"a" = "b"'}], "select": {"x": '"a"'}, **more}
    assert classify(stored, wanted, is_state_compatible=True, is_plan_the_same=True).kind is kind
    assert classify(stored, wanted, is_state_compatible=True).kind in (EditKind.IN_PLACE, EditKind.REPARTITION)


@pytest.mark.parametrize("more", [{}, {"late_records": {"max_rows": 5}}])
def test_another_number_of_tasks_shares_the_state_out_and_is_otherwise_an_edit_in_place(more: dict[str, Any]) -> None:
    edit = classify(
        {"tasks": 1, "late_records": {"max_rows": 1}},
        {"tasks": 2, "late_records": {"max_rows": 1}} | more,
        is_state_compatible=True,
    )
    assert edit.kind is EditKind.REPARTITION
    assert {change.pointer: change.kind.value for change in edit.changes}["/tasks"] == "repartition"
    assert {change.kind for change in edit.changes} <= {EditKind.REPARTITION, EditKind.IN_PLACE}


def test_each_part_of_an_edit_says_how_far_it_reaches() -> None:
    stored = {"tasks": 1, "window": {"size": "1h", "grace": "0s"}, "suppress": {"limit": "5m"}}
    wanted = {"tasks": 2, "window": {"size": "2h", "grace": "1s"}, "suppress": {"limit": "9m"}}
    edit = classify(stored, wanted, is_state_compatible=False)
    assert {change.pointer: change.kind.value for change in edit.changes} == {
        "/tasks": "repartition",
        "/window/size": "needs_new_state",
        "/window/grace": "in_place",
        "/suppress/limit": "in_place",
    }
    assert all(change.reason for change in edit.changes)


@pytest.mark.parametrize(("before", "after"), [(None, "1h"), ("1h", None)])
def test_whether_there_is_a_grace_is_a_matter_of_state(before: str | None, after: str | None) -> None:
    edit = classify({"joins": [{"grace": before}]}, {"joins": [{"grace": after}]}, is_state_compatible=False)
    assert [(change.pointer, change.kind) for change in edit.changes] == [("/joins/0/grace", EditKind.NEEDS_NEW_STATE)]


def test_where_an_input_has_changed_every_part_is_a_reason() -> None:
    edit = classify({"window": {"grace": "0s"}}, {"window": {"grace": "1s"}}, is_state_compatible=False)
    assert [change.kind for change in edit.changes] == [EditKind.NEEDS_NEW_STATE]


def test_the_refusal_of_an_edit_names_the_parts_that_need_new_state_and_the_way_out() -> None:
    stored = {"tasks": 1, "window": {"size": "1h", "grace": "0s"}}
    wanted = {"tasks": 2, "window": {"size": "2h", "grace": "1s"}}
    refusal = classify(stored, wanted, is_state_compatible=False).refusal("q")
    assert refusal.code == "state_incompatible"
    assert [(fault.pointer, fault.code) for fault in refusal.faults] == [("/window/size", "needs_new_state")]
    assert "partial results" in refusal.faults[0].detail
    assert "?state=discard" in refusal.detail
