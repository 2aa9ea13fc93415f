"""Words of the language are names wherever a name stands and nothing else can be meant."""

from __future__ import annotations

import pytest

from engine.sql.faults import SyntaxFault
from engine.sql.printing.statements import show
from engine.sql.statements.statements import parse_statement

FREE = [
    "add", "advance", "alter", "analyze", "array", "assert", "beginning", "buffer", "catalog", "caught", "changes", "column", "columns",
    "clock", "complete", "connector", "connectors", "create", "cursor", "date", "day", "days", "decimal", "define", "delete", "describe",
    "difference", "divert", "drop", "eager", "emit", "escape", "every", "explain", "expired", "export", "extended", "extract", "fastest",
    "final", "for", "function", "functions", "grace", "header", "headers", "history", "hold", "hopping", "hour", "hours", "id", "idle",
    "if", "insert", "interval", "keep", "key", "language", "late", "list", "load", "map", "materialized", "millisecond", "milliseconds",
    "minute", "minutes", "month", "months", "most", "namespace", "open", "partition", "partitions", "pause", "period", "plugins", "plus",
    "primary", "print", "properties", "queries", "query", "records", "rename", "replace", "reset", "resume", "retention", "returns", "row",
    "rows", "run", "sample", "schema", "script", "second", "seconds", "session", "set", "show", "sink", "size", "slowest", "sliding",
    "source", "stop", "stream", "streams", "string", "subject", "system", "system_time", "table", "tables", "terminate", "then_", "time",
    "timeout", "timestamp", "to", "topic", "topics", "tumbling", "type", "types", "undefine", "unmatched", "unset", "until", "unversioned",
    "up", "variables", "versioned", "view", "wait", "why", "year", "years", "zone",
]  # fmt: skip
PLACES = [
    "CREATE STREAM {0} ({0} INT KEY, b ARRAY<STRUCT<{0} INT>>) WITH ({0} = 'x')",
    "CREATE TABLE {0} AS SELECT {0} FROM {0} AS {0} WINDOW TUMBLING (SIZE 1 DAYS) GROUP BY {0} EMIT FINAL",
    "SELECT {0}.*, {0}, {0} AS {0}, {0}->{0}, {0}.b->* FROM {0} AS {0} WHERE {0} AND {0} LIKE {0} PARTITION BY {0} EMIT CHANGES",
    "SELECT -{0}, NOT {0}, {0} IN ({0}), {0} || {0}, STRUCT({0} := {0}), ARRAY[{0}], MAP({0} := {0}), f({0} => {0}) FROM b",
    "SELECT CASE {0} WHEN {0} THEN {0} ELSE {0} END FROM b JOIN {0} AS {0} WITHIN 1 DAYS ON {0}.{0} = b.{0} LIMIT 1",
    "INSERT INTO {0} ({0}) VALUES ({0})",
    "DROP STREAM {0}",
    "PAUSE {0}",
    "EXPLAIN {0}",
    "PRINT {0}",
    "ALTER TABLE {0} ADD COLUMN {0} INT",
]
BARE = ["SELECT {0} {0} FROM b", "SELECT b FROM b {0}", "SELECT b FROM b {0} WHERE c", "SELECT b FROM b JOIN c {0} ON d"]
TAKEN = ["select", "from", "where", "group", "having", "window", "join", "on", "with", "values", "as", "and", "null", "limit"]


@pytest.mark.parametrize("word", FREE)
def test_a_word_is_a_name(word: str) -> None:
    for place in PLACES:
        assert show(parse_statement(place.format(word))) == place.format(word)


@pytest.mark.parametrize("word", sorted({*FREE} - {"emit"}))
def test_a_word_is_another_name_without_as(word: str) -> None:
    for place in BARE:
        tree = parse_statement(place.format(word))
        assert f" AS {word}" in show(tree)


@pytest.mark.parametrize("word", TAKEN)
def test_a_word_that_ends_what_stands_before_is_a_name_in_quotes_only(word: str) -> None:
    parse_statement(f'SELECT "{word}" AS "{word}" FROM "{word}" AS "{word}"')
    with pytest.raises(SyntaxFault):
        parse_statement(f"SELECT b FROM {word}")
