"""What every connector promises to the service about the feeds of its sources (``engine.sources.control``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import tuple_row

from engine.definition.relations import StreamDefinition
from engine.definition.sources.connector import LOG_PREFIX
from engine.definition.sources.connector_list import DEFAULT, MODELS
from engine.log.storage import find_feed
from engine.plan.catalog import feed_of
from engine.postgres.postgres import Connection
from engine.sources.connector_kinds import KINDS, OWN_ENDS_SQL, control_of, heads_of
from tests.contract.feeds import SAMPLES, Sample

SOURCES = [name for name in SAMPLES if name != "result"]


@pytest.fixture
def connection(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM log.feed")
        yield connection


@pytest.fixture(params=SOURCES)
def sample(request: pytest.FixtureRequest, connection: Connection, tmp_path: Path) -> Sample:
    """A source that is not registered."""
    return SAMPLES[request.param](connection, tmp_path)


def test_every_connector_is_among_the_samples(connection: Connection, tmp_path: Path) -> None:
    sampled = {SAMPLES[name](connection, tmp_path).feed.type for name in SOURCES}
    assert sampled == {*KINDS} == {*MODELS}


def test_sources_that_say_the_same_name_one_feed_and_others_another_one(sample: Sample) -> None:
    found = feed_of("sample", sample.definition)
    assert found == feed_of("sample", StreamDefinition.model_validate(sample.definition.model_dump(by_alias=True)))
    assert hash(found) == hash(feed_of("sample", sample.definition))
    is_named_by_relation = found != feed_of("other", sample.definition)
    assert is_named_by_relation == (found.type == DEFAULT.name())


def test_the_name_of_a_feed_tells_its_connector(sample: Sample) -> None:
    feed = sample.feed
    if feed.type == DEFAULT.name():
        assert feed.name == LOG_PREFIX + feed.log_feed
    else:
        assert feed.name == feed.log_feed
        assert feed.name.startswith(f"{feed.type}:")


def test_a_feed_is_registered_once_and_joined_from_then_on(sample: Sample, connection: Connection) -> None:
    sample.register()
    first = find_feed(connection, sample.feed.log_feed)
    sample.register()
    assert first is not None
    assert find_feed(connection, sample.feed.log_feed) == first


def test_what_may_change_in_place_can_be_changed(sample: Sample, connection: Connection) -> None:
    sample.register()
    sample.append([1, 2])
    ends = sample.reader().ends()
    control_of(sample.feed).change(connection, sample.feed, sample.definition.connector)
    assert sample.reader().ends() == ends


def test_a_feed_is_called_empty_only_while_it_is(sample: Sample, connection: Connection) -> None:
    sample.register()
    control = control_of(sample.feed)
    assert control.is_empty(connection, sample.feed) == sample.feed.traits.is_kept_here
    sample.append([1, 2])
    assert not control.is_empty(connection, sample.feed)


def test_heads_are_those_that_readers_find(sample: Sample, connection: Connection) -> None:
    sample.register()
    sample.append([1, 2])
    reader = sample.reader()
    ends, starts = reader.ends(), reader.starts("earliest")
    found = heads_of(connection, [sample.feed]).get(sample.feed.log_feed)
    assert (found is not None) == sample.feed.traits.has_heads
    for head in found or ():
        assert (head.start_offset, head.next_offset) == (starts[head.partition], ends[head.partition])


def test_what_was_found_so_far_is_what_readers_found(sample: Sample, connection: Connection) -> None:
    sample.register()
    sample.append([1, 2])
    ends = sample.reader().ends()
    statement = f"SELECT {OWN_ENDS_SQL} FROM log.feed f WHERE f.name = %s"
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(statement, (sample.feed.log_feed,)).fetchone()
    assert row is not None
    own = KINDS[sample.feed.type].ends_sql is not None
    assert row[0] == ({str(partition): end for partition, end in ends.items()} if own else None)


def test_a_deleted_feed_leaves_its_name(sample: Sample, connection: Connection) -> None:
    sample.register()
    sample.append([1, 2])
    control_of(sample.feed).delete(connection, sample.feed)
    assert find_feed(connection, sample.feed.log_feed) is None
    assert heads_of(connection, [sample.feed]) == {}
    sample.register()
    assert control_of(sample.feed).is_empty(connection, sample.feed) == sample.feed.traits.is_kept_here


def test_every_field_can_be_written_in_a_statement(sample: Sample) -> None:
    model = MODELS[sample.feed.type]
    assert {clause.field for clause in model.clauses} == {*model.model_fields} - {"type", "where"}
    assert any(clause.is_choice for clause in model.clauses) == (model is not DEFAULT)


def test_names_beside_its_own_are_told_with_their_fields(sample: Sample) -> None:
    connector = sample.definition.connector
    assert list(connector.faults()) == []
    for pointer, _ in connector.named():
        assert pointer.removeprefix("/connector/") in MODELS[sample.feed.type].model_fields
