"""Scopes as values: which names a pattern covers."""

from __future__ import annotations

import pytest

from app.access.scopes import Scope, scope_of
from app.errors.app_errors import Unprocessable


@pytest.mark.parametrize(
    ("pattern", "name", "is_within"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders*", "orders", True),
        ("orders*", "my_orders", False),
        ("*orders", "my_orders", True),
        ("o*s", "orders", True),
        ("a_c", "abc", False),
        ("*", "anything", True),
        ("prices", "materialize:prices", True),
        ("materialize*", "materialize:prices", False),
    ],
)
def test_a_star_stands_for_any_characters_and_nothing_else_does(pattern: str, name: str, is_within: bool) -> None:
    assert Scope((pattern,)).allows(name) is is_within


def test_a_scope_of_nothing_is_refused() -> None:
    assert scope_of(None) is None
    with pytest.raises(Unprocessable, match="bad_scope"):
        scope_of([])
