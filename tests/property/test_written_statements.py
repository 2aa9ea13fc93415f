"""A definition written as a statement, and bound again, is the same definition."""

from __future__ import annotations

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition, StreamDefinition, TableDefinition
from engine.errors import DefinitionInvalid
from engine.plan.build import build_plan
from engine.sql.statements.statements import parse_statement
from engine.statements.actions import CreateQuery, RegisterSource
from engine.statements.binding import bind
from engine.statements.context.session import Format, Session, SqlRelation, Topic
from engine.statements.writing.writing import statement_of
from engine.statements.writing.writing_sources import source_statement_of
from tests.examples import examples
from tests.property.test_definitions import CATALOG, definitions


def _session() -> Session:
    form = Format("JSON")
    relations = {
        name.upper(): SqlRelation(
            name.upper(), entry.relation.kind, entry.relation.columns, entry.relation.key, Topic(name, form, form), entry
        )
        for name, entry in CATALOG.items()
    }
    return Session(relations)


SESSION = _session()
_RUNNING: dict[str, st.SearchStrategy[Any]] = {
    "start": st.sampled_from(["latest", {"at": "2013-01-01T00:00:00Z"}]),
    "desired_state": st.sampled_from(["paused", "stopped"]),
    "late_records": st.just({"max_rows": 5, "retention": "1h"}),
    "dialect": st.just("ksqldb"),
}


@settings(max_examples=examples(100), deadline=None)
@given(definitions(), st.fixed_dictionaries({}, optional=_RUNNING))
def test_a_query_means_the_same_as_the_statement_that_it_is_written_as(body: dict[str, Any], running: dict[str, Any]) -> None:
    definition = QueryDefinition.model_validate(body | running)
    try:
        plan = build_plan(definition, CATALOG)
    except DefinitionInvalid:
        event("refused")
        return
    action = bind(parse_statement(statement_of(definition, CATALOG)), SESSION)
    assert isinstance(action, CreateQuery)
    assert action.plan == plan
    assert action.definition.desired_state == definition.desired_state
    again = bind(parse_statement(statement_of(action.definition, CATALOG)), SESSION)
    assert isinstance(again, CreateQuery)
    assert again.definition == action.definition


@st.composite
def _sources(draw: st.DrawFn) -> SourceDefinition:
    columns = {
        "id": "int", "Name": "string", "two words": "decimal(12,2)", "seconds": "bigint", "at": "timestamp",
        "list": "array<struct<a:int,B:map<string,double>>>",
    }  # fmt: skip
    is_table = draw(st.booleans())
    key = draw(st.lists(st.sampled_from(["id", "Name", "two words"]), min_size=int(is_table), unique=True))
    timed = draw(
        st.sampled_from(
            [
                {}, {"event_time": "at"}, {"event_time": "Name"}, {"event_time": "Name", "event_time_format": "%d.%m.%Y 'T'"},
                {"event_time": "seconds", "event_time_unit": "s"}, {"event_time": "seconds"},
            ]
        )
    )  # fmt: skip
    connector = draw(
        st.sampled_from(
            [
                {}, {"type": "log", "partitions": 2, "feed": "shared", "where": "id > 3", "retention": "36h"},
                {"type": "files", "path": "/data/it's", "format": "csv"},
            ]
        )
    )  # fmt: skip
    body = {"columns": columns, "key": key, **timed, **({"connector": connector} if connector else {})}
    body |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "max_future_skew": st.sampled_from([None, "90s"]),
                "on_bad_record": st.just("stop"),
                "read_only": st.booleans(),
            },
        )
    )
    if not is_table:
        return StreamDefinition.model_validate(body)
    more = {"versioned": st.just({"history_retention": "2d"}), "materialize": st.just(True)}
    body |= draw(st.fixed_dictionaries({}, optional=more))
    if "versioned" not in body:
        body |= draw(st.fixed_dictionaries({}, optional={"conflict": st.just("latest_event_time")}))
    return TableDefinition.model_validate(body)


@settings(max_examples=examples(100), deadline=None)
@given(_sources())
def test_a_source_is_the_same_as_the_statement_that_it_is_written_as(definition: SourceDefinition) -> None:
    action = bind(parse_statement(source_statement_of("things", definition)), Session())
    assert isinstance(action, RegisterSource)
    assert action.definition == definition
    assert action.relation.definition_name == "things"
