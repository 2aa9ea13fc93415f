"""Every scenario's queries in SQL: what is written as a statement is the same plan, so the corpora judge SQL as they judge definitions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.definition.queries import QueryDefinition
from engine.errors import DefinitionInvalid
from engine.plan.build import build_plan
from engine.plan.catalog import CatalogEntry, derived_entry, source_entry
from engine.sql.scripts import parse_script
from engine.sql.statements.statements import parse_statement
from engine.statements.actions import CreateQuery, RegisterSource
from engine.statements.binding import bind
from engine.statements.context.faults import StatementFault
from engine.statements.context.session import Format, Session, SqlRelation, Topic
from engine.statements.writing.writing import statement_of
from engine.statements.writing.writing_sources import source_statement_of
from tests.conformance.corpus import CORPORA, Scenario, files, load
from tests.conformance.queries import Case, case_of

NO_QUERIES = {"versioned_store", "merge_order"}


def session_of(catalog: dict[str, CatalogEntry]) -> Session:
    form = Format("JSON")
    relations = [
        SqlRelation(name.upper(), entry.relation.kind, entry.relation.columns, entry.relation.key, Topic(name, form, form), entry)
        for name, entry in catalog.items()
    ]
    return Session({each.name: each for each in relations})


def different(path: Path) -> list[Scenario]:
    """Return one scenario of each operator of a file: their steps are no matter of the language."""
    return list({json.dumps(each.op, sort_keys=True): each for each in load(path) if each.op["kind"] not in NO_QUERIES}.values())


def catalog_of(case: Case) -> dict[str, CatalogEntry]:
    """Return the sources as their statements register them."""
    catalog = {}
    for name, definition in case.sources.items():
        action = bind(parse_statement(source_statement_of(name, definition)), Session())
        assert isinstance(action, RegisterSource)
        assert action.definition == definition
        catalog[name] = source_entry(name, action.definition)
    return catalog


@pytest.mark.parametrize("path", files(CORPORA), ids=lambda path: path.name.partition(".")[0])
def test_the_queries_of_a_corpus_are_the_same_plans_in_sql(path: Path) -> None:
    for scenario in different(path):
        case = case_of(scenario.op)
        catalog = catalog_of(case)
        for body in case.queries:
            definition = QueryDefinition.model_validate(body)
            (parsed,) = parse_script(statement_of(definition, catalog)).statements
            try:
                wanted = build_plan(definition, catalog)
            except DefinitionInvalid:
                assert scenario.is_rejected
                with pytest.raises(StatementFault):
                    bind(parsed.tree, session_of(catalog))
                break
            action = bind(parsed.tree, session_of(catalog))
            assert isinstance(action, CreateQuery)
            assert action.plan == wanted, parsed.text
            catalog[wanted.output.name] = derived_entry(wanted)
