from __future__ import annotations

from typing import Any

import pytest

from app.domain.edits import EditKind, classify, differences


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
    edit = classify({"grace": "1h"}, {"grace": "2h"}, is_state_compatible=is_compatible)
    assert (edit.kind, edit.pointers) == (kind, ("/grace",))


def test_the_refusal_of_an_edit_names_its_parts_and_the_way_out() -> None:
    refusal = classify({"tasks": 1}, {"tasks": 2}, is_state_compatible=False).refusal("q")
    assert refusal.code == "state_incompatible"
    assert [fault.pointer for fault in refusal.faults] == ["/tasks"]
    assert "?state=discard" in refusal.detail
