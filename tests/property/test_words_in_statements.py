"""A statement that the service shows is read again as it was meant, whatever columns, fields, parameters and aggregates are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from app.sql.catalog.sessions import relation_of
from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition, StreamDefinition, TableDefinition
from engine.errors import DefinitionInvalid
from engine.expressions.aggregates.aggregates import AGGREGATE_NAMES, KSQLDB_AGGREGATES
from engine.expressions.library.function_list import FUNCTIONS
from engine.plan.build import build_plan
from engine.plan.catalog import CatalogEntry, derived_entry, source_entry
from engine.sql.expressions.types import TYPE_WORDS
from engine.sql.expressions.values import RESERVED
from engine.sql.scripts import parse_script
from engine.statements.actions import Action, CreateQuery, RegisterSource
from engine.statements.binding import bind
from engine.statements.context.naming import SYSTEM_COLUMNS
from engine.statements.context.session import Session
from engine.statements.writing.writing import statement_of
from engine.statements.writing.writing_sources import source_statement_of
from tests.examples import examples
from tests.unit.sql.test_words_as_names import FREE, TAKEN

_UPPER = {
    *RESERVED, *(word.upper() for word in (*FREE, *TAKEN)), *(name.upper() for name in FUNCTIONS), *map(str.upper, AGGREGATE_NAMES),
    *KSQLDB_AGGREGATES, *TYPE_WORDS, *SYSTEM_COLUMNS, "NULL", "TRUE", "FALSE", "END", "ROWKEY", "WINDOW_START", "WINDOW_END",
    "EVENT_TIME_MS", "STATE", "MATCH", "FORCED", "GROUP_1", "GROUP_2", "AGGREGATE_1", "KSQL_COL_0", "A", "B", "W",
}  # fmt: skip
WORDS = sorted(
    {*_UPPER, *map(str.lower, _UPPER), "two words", "x${x}", "a;b", "it's", "--", "/*", "?", ":a", "größe", "1", "x$$y"}
)
"""Also names that would end a statement, or begin a comment, a variable or a parameter, outside of quotes."""

PARAMETERS = [*WORDS, "$event_time_ms", "$state", "_x"]
ALIASES = ["a", "select", "from", "window", "aggregate", "filter", "suppress", "input_1", "table", "rowtime", "windowstart"]


def _quoted(name: str) -> str:
    return f'"{name}"'


def _optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


def _session(catalog: Mapping[str, CatalogEntry], counts: QueryDefinition) -> Session:
    """Return a session as the service makes it: bounds of windows are no columns of its relations."""
    made = {"counted": counts.model_dump(mode="json", by_alias=True)}
    relations = [relation_of(name, entry, None, (), made.get(name)) for name, entry in catalog.items()]
    return Session({each.name: each for each in relations})


def _bound(text: str, session: Session) -> Action:
    """Bind a statement as it comes by the network: cut out of a script, with values for variables."""
    script = parse_script(f"{text};")
    assert not script.faults, [(fault.fault.kind, fault.line) for fault in script.faults]
    (parsed,) = script.statements
    return bind(parsed.tree, session)


@dataclass(frozen=True)
class _Drawn:
    """A query, the relations that it may read, and the query that made one of them."""

    definition: QueryDefinition
    catalog: Mapping[str, CatalogEntry]
    counts: QueryDefinition


@dataclass(frozen=True)
class _Names:
    """What things are called."""

    key: str
    number: str
    texts: str
    structs: str
    field: str
    first: str
    second: str
    third: str
    alias: str
    is_qualified: bool

    def column(self, name: str) -> str:
        """Return a reference to an input's column."""
        return f"{_quoted(self.alias)}.{_quoted(name)}" if self.is_qualified else _quoted(name)


def _catalog(names: _Names, kind: str) -> tuple[dict[str, CatalogEntry], QueryDefinition]:
    """Return a stream, a table with the same columns, and the windows of a query over the stream."""
    columns = {names.key: "string", names.number: "int", names.texts: "array<string>", names.structs: "array<struct<n:int>>"}
    body = {"key": [names.key], "columns": columns, "max_future_skew": None}
    catalog = {
        "things": source_entry("things", StreamDefinition.model_validate(body)),
        "facts": source_entry("facts", TableDefinition.model_validate(body)),
    }
    counts = QueryDefinition.model_validate(
        {
            "name": "counts", "from": {"stream": "things"}, "group_by": [_quoted(names.key)],
            "window": {"type": "hopping", "size": "1h", "advance": "30m"}, "aggregate": {names.first: "count(*)"},
            "into": {kind: "counted"},
        }
    )  # fmt: skip
    catalog["counted"] = derived_entry(build_plan(counts, catalog))
    return catalog, counts


def _of_windows(draw: st.DrawFn, names: _Names, kind: str) -> dict[str, Any]:
    """Draw a query over the windows of another one."""
    column = names.column
    chosen = {"window_start": column("window_start"), "window_end": column("window_end"), names.key: column(names.key)}
    chosen |= {names.second: column(names.first), names.third: f"epoch_ms({column('window_end')})"}
    body = {"from": {kind: "counted", "as": names.alias}, "select": chosen, "into": {kind: "out"}}
    return body | draw(_optional(where=st.just(f"{column('window_start')} < {column('window_end')}")))


def _nested(draw: st.DrawFn, names: _Names) -> str:
    """Draw an expression whose parameters and fields are called like words, columns and each other."""
    column, field = names.column, _quoted(names.field)
    one = _quoted(draw(st.sampled_from(PARAMETERS)))
    two = _quoted(draw(st.sampled_from([*PARAMETERS, names.key, names.number, names.texts, names.field])))
    inner = draw(st.sampled_from([f"upper({two})", f"{two} || {column(names.key)}", f"cast({column(names.number)} as string)"]))
    inside = f"transform({column(names.texts)}, {two} => {inner})"
    forms = [
        inside,
        f"transform({column(names.texts)}, {one} => reduce({inside}, {one}, ({two}, {field}) => {two} || {field}))",
        f"transform({column(names.structs)}, {two} => {two}->n)[1] + struct({field} := {column(names.number)})->{field}",
        f"transform({column(names.structs)}, x => x->n + 1)",
        f"cast(struct({field} := {column(names.number)}) as struct<{field} int>)",
        f"array[{column(names.key)}, lower({column(names.key)})]",
        f"case when {column(names.number)} > 1 then '${{x}};' else '-- /* ? :a' end",
    ]
    return draw(st.sampled_from(forms))


def _of_stream(draw: st.DrawFn, names: _Names) -> dict[str, Any]:
    """Draw a query over a stream; behind a join its columns are known by their input."""
    column = names.column
    body: dict[str, Any] = {"from": {"stream": "things", "as": names.alias}}
    condition = f"{column(names.number)} > 1 OR array_contains({column(names.texts)}, 'a')"
    body |= draw(_optional(where=st.just(condition)))
    if names.is_qualified and names.alias != "b" and draw(st.booleans()):
        body["joins"] = [{"table": "facts", "as": "b", "type": "left", "on": f"{column(names.key)} = b.{_quoted(names.key)}"}]
    if draw(st.booleans()):
        chosen = {names.key: column(names.key), names.first: column(names.number), names.second: _nested(draw, names)}
        return body | {"select": chosen, "into": {"stream": "out", "key": [names.key]}}
    return body | _grouped(draw, names)


def _grouped(draw: st.DrawFn, names: _Names) -> dict[str, Any]:
    first, second = _quoted(names.first), _quoted(names.second)
    body: dict[str, Any] = {"aggregate": {names.first: "count(*)", names.second: f"sum({names.column(names.number)})"}}
    body |= {"group_by": [names.column(names.key)], "into": {"table": "out"}}
    windows = [{"type": "tumbling", "size": "1h"}, {"type": "session", "gap": "5m"}]
    condition = f"{first} > 1 AND {_quoted(names.key)} <> 'a'"
    body |= draw(_optional(having=st.just(condition), window=st.sampled_from(windows)))
    shown = {names.key: _quoted(names.key)}
    if draw(st.booleans()):
        body["group_by"].append(f"lower({names.column(names.key)})")
        shown["group_2"] = "group_2"
    if "window" in body:
        shown |= {"window_start": "window_start", "window_end": "window_end"}
    shown |= {names.first: first, names.third: f"{second} + {first}"}
    shown |= draw(st.sampled_from([{}, {names.second: second}, {names.second: f"{second} + 1"}]))
    return body | draw(_optional(select=st.just(shown)))


@st.composite
def _queries(draw: st.DrawFn) -> _Drawn:
    """Draw a query whose names are words."""
    words = draw(st.lists(st.sampled_from(WORDS), min_size=8, max_size=8, unique=True))
    assume(not {words[0], words[5]} & {"window_start", "window_end"})
    names = _Names(*words, draw(st.sampled_from(ALIASES)), draw(st.booleans()))
    kind = draw(st.sampled_from(["stream", "table"]))
    catalog, counts = _catalog(names, kind)
    body = _of_windows(draw, names, kind) if draw(st.integers(0, 2)) == 0 else _of_stream(draw, names)
    return _Drawn(QueryDefinition.model_validate({"name": "q", **body}), catalog, counts)


@settings(max_examples=examples(400), deadline=None)
@given(_queries())
def test_a_query_with_words_for_names_means_the_same_as_its_statement(drawn: _Drawn) -> None:
    definition, catalog = drawn.definition, drawn.catalog
    session = _session(catalog, drawn.counts)
    try:
        plan = build_plan(definition, catalog)
    except DefinitionInvalid as error:
        event("; ".join(sorted({problem.code for problem in error.problems})))
        return
    event("planned")
    text = statement_of(definition, catalog)
    action = _bound(text, session)
    assert isinstance(action, CreateQuery)
    assert action.plan == plan, text
    assert statement_of(action.definition, catalog) == text


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=3, max_size=3, unique=True), st.booleans())
def test_a_source_with_words_for_names_is_the_same_as_its_statement(names: list[str], is_table: bool) -> None:
    key, time, value = names
    body = {"key": [key], "columns": {key: "string", time: "timestamp", value: "map<string,array<int>>"}, "event_time": time}
    model: type[SourceDefinition] = TableDefinition if is_table else StreamDefinition
    definition = model.model_validate(body)
    action = _bound(source_statement_of("things", definition), Session())
    assert isinstance(action, RegisterSource)
    assert action.definition == definition
