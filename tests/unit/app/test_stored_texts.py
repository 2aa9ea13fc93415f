"""Texts that the database cannot store."""

from __future__ import annotations

from typing import Any

import pytest

from app.errors.app_errors import Unprocessable
from app.http.requests.bodies import parse_request
from app.http.requests.stored_texts import refuse_unstorable
from engine.errors import DefinitionInvalid


@pytest.mark.parametrize(
    ("value", "pointers"),
    [
        ("\0", [""]),
        ({"into": {"connector": "a\0b"}}, ["/into/connector"]),
        ({"a/b": ["x", {"c": "\0"}]}, ["/a~1b/1/c"]),
        ({"a\0": 1}, [""]),
        ({"a": ["\0", "\0"]}, ["/a/0", "/a/1"]),
    ],
)
def test_each_text_with_u_0000_has_its_pointer(value: Any, pointers: list[str]) -> None:
    with pytest.raises(DefinitionInvalid) as refused:
        refuse_unstorable(value)
    assert [(each.pointer, each.code) for each in refused.value.problems] == [(pointer, "invalid_string") for pointer in pointers]


def test_other_texts_pass() -> None:
    refuse_unstorable({"a": [1, None, True, "\\u0000", "\u0001", ""]})


def test_a_parsed_request_refuses_u_0000() -> None:
    with pytest.raises(Unprocessable, match=r"/sql: .*U\+0000"):
        parse_request(rb'{"sql": "SHOW\u0000"}')
