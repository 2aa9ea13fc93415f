"""Completion: which names may stand at the cursor."""

from __future__ import annotations

import pytest
from slackwater.cli.shell.names import Names, proposals

NAMES = Names(
    relations={"hourly": {"ORIGIN": "string", "N": "bigint"}, "weather": {"origin": "string", "temp": "double"}},
    kinds={"hourly": "table", "weather": "table"},
    queries=("hourly", "joined"),
    functions={"lcase": "Lower case.", "len": "Length."},
)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("SELECT * FROM ", "", ["hourly", "weather"]),
        ("SELECT * FROM ho", "", ["hourly"]),
        ("DESCRIBE w", "", ["weather"]),
        ("PAUSE ", "", ["hourly", "joined"]),
        ("EXPLAIN WHY j", "", ["joined"]),
        ("SELECT ori", " FROM hourly", ["origin"]),
        ("SELECT O", " FROM hourly", ["ORIGIN", "OF", "ON", "OPEN", "OR", "OUTER"]),
        ("SELECT ", " FROM weather w", ["`origin`", "`temp`"]),
        ("SELECT w.", " FROM weather w", ["`origin`", "`temp`"]),
        ("SELECT w.te", " FROM weather w", ["`temp`"]),
        ("SELECT h.o", " FROM hourly h JOIN weather w ON h.origin = w.`origin`", ["origin"]),
        ("SELECT x.", " FROM hourly h", []),
        ("SELECT lc", " FROM hourly", ["lcase("]),
        ("sel", "", ["select"]),
        ("SELECT * FROM weather WHERE ", "", ["`origin`", "`temp`"]),
    ],
)
def test_what_may_stand_at_the_cursor(before: str, after: str, expected: list[str]) -> None:
    found = [each.text for each in proposals(before, before + after, NAMES)]
    assert found[: len(expected)] == expected if expected else found == []


def test_what_was_typed_is_replaced_with_its_quotation_mark() -> None:
    (found,) = proposals("SELECT `te", "SELECT `te FROM weather", NAMES)
    assert (found.text, found.typed, found.kind) == ("`temp`", 3, "double of weather")
