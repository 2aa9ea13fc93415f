"""The sources of a test: what their definitions say, with the built-in log in place of other connectors, in partitions or the file's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.catalog.relations.rules import read_source
from engine.definition.problems import Problems
from engine.definition.relations import SourceDefinition, StreamDefinition, TableDefinition
from engine.definition.sources.connector_list import DEFAULT, MODELS
from engine.errors import DefinitionInvalid, Problem
from engine.plan.catalog import feed_of

Json = dict[str, Any]

SHARED_FEED: Final = "slackwater_test"
"""What sources without a feed of their own share where all have one partition, so that their records keep the file's order (T2)."""

STEPS: Final = ("advance", "now", "restart", "expect")
"""Steps that have these names, which no relation of a test can have."""

_KINDS: Final[dict[str, type[SourceDefinition]]] = {"streams": StreamDefinition, "tables": TableDefinition}


def read_sources(
    streams: Mapping[str, Json], tables: Mapping[str, Json], held: set[str] | None, problems: Problems
) -> dict[str, SourceDefinition]:
    """Read the sources of a test.

    Args:
        streams: name → body of ``PUT /v1/streams/…``.
        tables: name → body of ``PUT /v1/tables/…``.
        held: None: feeds and partitions are those of the definitions; otherwise every source has one partition, of a feed that all share
            but these.
        problems: where faults are added.
    """
    sources: dict[str, SourceDefinition] = {}
    for kind, bodies in (("streams", streams), ("tables", tables)):
        for name, body in bodies.items():
            pointer = f"/{kind}/{name}"
            if name in sources:
                problems.add(pointer, "name_taken", f"there is a stream {name!r} already")
            if name in STEPS:
                problems.add(pointer, "name_taken", f"{name!r} is a step of its own; call the relation otherwise in the test")
            given = logged(body) if held is None else in_one_partition(logged(body), name if name in held else SHARED_FEED)
            try:
                sources[name] = read_source(_KINDS[kind], given)
            except DefinitionInvalid as error:
                add_below(problems, pointer, error.problems)
            else:
                _check_partitions(f"{pointer}/connector/partitions", name, sources, problems)
    return sources


def tables_held_for(queries: Sequence[Json]) -> set[str]:
    """Return the tables that some query holds for: how far a table was read must not depend on the stream's records (J9)."""
    joins = [join for query in queries if isinstance(query.get("joins"), list) for join in query["joins"]]
    return {join["table"] for join in joins if isinstance(join, dict) and "hold" in join and isinstance(join.get("table"), str)}


def logged(body: Json) -> Json:
    """Return a source's body with the built-in log in place of others."""
    connector = body.get("connector")
    model = MODELS.get(str(connector.get("type"))) if isinstance(connector, dict) else None
    if not isinstance(connector, dict) or model is None or model.traits.is_kept_here:
        return body
    where = {"where": connector["where"]} if "where" in connector else {}
    return {**body, "connector": {"type": DEFAULT.name(), **where}}


def in_one_partition(body: Json, feed: str | None) -> Json:
    """Return a source's body with one partition, of the feed that it names or of this one."""
    connector = body.get("connector", {})
    if not isinstance(connector, dict) or connector.get("type", DEFAULT.name()) != DEFAULT.name():
        return body
    named = {} if feed is None else {"feed": feed}
    return {**body, "connector": {"type": DEFAULT.name(), **named, **connector, "partitions": 1}}


def partitions_of(source: SourceDefinition) -> int:
    return source.connector.test_partitions


def add_below(problems: Problems, pointer: str, found: Sequence[Problem]) -> None:
    """Add what is wrong with a part of a test, its pointers below that of the part."""
    for problem in found:
        problems.add(pointer + problem.pointer, problem.code, problem.detail)


def _check_partitions(pointer: str, name: str, sources: Mapping[str, SourceDefinition], problems: Problems) -> None:
    """Refuse what a service refuses: relations of one feed with different numbers of partitions."""
    feed = feed_of(name, sources[name])
    first = next(each for other, each in sources.items() if feed_of(other, each) == feed)
    made = partitions_of(first)
    if partitions_of(sources[name]) != made:
        detail = f"the feed {feed.log_feed!r} has {made} partitions; relations that share it have as many: write {made}"
        problems.add(pointer, "partitions_differ", detail)
