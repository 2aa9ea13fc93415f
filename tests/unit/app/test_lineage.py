"""The graph around a relation: its order, its edges, and how far readers are behind."""

from __future__ import annotations

import pytest

from app.status.lineage.rules import FeedFact, Graph, Part, QueryFact, Read, RelationFact, assemble
from tests.unit.app.graphs import derived, graph_of, query, source


def reads(graph: Graph) -> dict[tuple[str, str], Read]:
    return {(read.relation, read.query): read for read in assemble(graph).reads}


def test_nothing_stands_before_what_it_is_made_of() -> None:
    graph = graph_of(
        derived("a", "made_last"), derived("b", "zero"), source("z"), query("zero", "z"), query("made_last", "b", "z")
    )
    lineage = assemble(graph)
    assert [relation.name for relation in lineage.relations] == ["z", "b", "a"]
    assert [each.name for each in lineage.queries] == ["zero", "made_last"]
    assert [(read.relation, read.query) for read in lineage.reads] == [("z", "zero"), ("z", "made_last"), ("b", "made_last")]
    assert [(write.query, write.relation) for write in lineage.writes] == [("zero", "b"), ("made_last", "a")]


def test_lag_is_the_greatest_over_partitions() -> None:
    parts = (Part(0, 0, 10, 90_000), Part(1, 0, 10, 50_000))
    reader = query("q", "s", position={"s": {"0": 9, "1": 4}}, read_to={"s": {"0": 80_000, "1": 20_000}})
    read = reads(graph_of(source("s", *parts), reader))["s", "q"]
    assert (read.records, read.lag_ms, [part.lag_ms for part in read.parts]) == (7, 30_000, [10_000, 30_000])


def test_lag_is_nothing_where_everything_is_read() -> None:
    reader = query("q", "s", position={"s": {"0": 10}}, read_to={"s": {"0": 80_000}})
    read = reads(graph_of(source("s", Part(0, 0, 10, 90_000)), reader))["s", "q"]
    assert (read.records, read.lag_ms) == (0, 0)


def test_lag_is_nothing_where_unread_records_are_older_than_what_was_read() -> None:
    reader = query("q", "s", position={"s": {"0": 9}}, read_to={"s": {"0": 95_000}})
    other = query("other", "s", position={"s": {"0": 0}}, read_to={"s": {"0": 20_000}})
    edges = reads(graph_of(source("s", Part(0, 0, 10, 90_000)), reader, other))
    assert edges["s", "q"].lag_ms == 0
    assert edges["s", "other"].lag_ms == 75_000, "what another query has met is in the feed"


@pytest.mark.parametrize("position", [{}, {"s": {"0": 0, "1": 4}}])
def test_lag_is_not_known_before_anything_is_read_of_a_partition(position: dict[str, dict[str, int]]) -> None:
    parts = (Part(0, 0, 10, 90_000), Part(1, 0, 4, 50_000))
    reader = query("q", "s", position=position, read_to={"s": {"1": 50_000}} if position else {})
    read = reads(graph_of(source("s", *parts), reader))["s", "q"]
    assert (read.records, read.lag_ms) == (10 if position else 14, None)


def test_records_that_retention_removed_are_not_counted_as_unread() -> None:
    read = reads(graph_of(source("s", Part(0, 900, 1_000, 90_000)), query("q", "s")))["s", "q"]
    assert (read.records, read.parts[0].next_offset) == (100, None)


def test_files_have_no_known_end() -> None:
    files = RelationFact("f", "table", "source", FeedFact("files:csv:/data", None))
    graph = graph_of(files, query("q", "f", position={"files:csv:/data": {"0": 12}}))
    assert reads(graph)["f", "q"] == Read("f", "q", (), None, None)
    assert assemble(graph).newest_ms == {"f": None}


def test_an_internal_query_has_no_edge_back_to_its_table() -> None:
    graph = graph_of(source("t"), query("materialize:t", "t", is_internal=True))
    lineage = assemble(graph)
    assert ([(read.relation, read.query) for read in lineage.reads], lineage.writes) == ([("t", "materialize:t")], ())


def test_a_kept_result_has_no_writer() -> None:
    lineage = assemble(graph_of(derived("kept", None, next_sequence=3), query("q", "kept")))
    assert (lineage.writes, [relation.name for relation in lineage.relations]) == ((), ["kept"])
    assert isinstance(lineage.queries[0], QueryFact)
