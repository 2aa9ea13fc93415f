"""Builders of definitions say what the interface takes, all of it, and nothing that was not given."""

from __future__ import annotations

import doctest
from dataclasses import fields
from datetime import UTC, datetime, timedelta

import pytest
import slackwater.definitions
from pydantic import BaseModel
from slackwater import (
    FINAL,
    From,
    Hold,
    Into,
    Join,
    Log,
    QueryDefinition,
    StreamDefinition,
    TableDefinition,
    Versioned,
    hopping,
    session,
    sliding,
    tumbling,
)

from engine.definition import queries, relations
from engine.definition.sources.connector_list import MODELS as CONNECTORS
from engine.definition.start import StartAt

MODELS: dict[str, type[BaseModel]] = {
    "StreamDefinition": relations.StreamDefinition,
    "TableDefinition": relations.TableDefinition,
    "Versioned": relations.Versioned,
    "QueryDefinition": queries.QueryDefinition,
    "StartAt": StartAt,
    **{
        name: getattr(queries, name)
        for name in ("From", "Hold", "Within", "Join", "Window", "Buffer", "Suppress", "Idle", "Into", "LateRecordsKept")
    },
}
NAMES = {"from_": "from", "as_": "as"}


@pytest.mark.parametrize("name", MODELS)
def test_a_builder_has_every_field_of_its_model(name: str) -> None:
    builder = getattr(slackwater.definitions, name)
    model = MODELS[name]
    wanted = {field.alias or each for each, field in model.model_fields.items()}
    assert {NAMES.get(field.name, field.name) for field in fields(builder)} == wanted
    required = {field.alias or each for each, field in model.model_fields.items() if field.is_required()}
    mandatory = {
        NAMES.get(field.name, field.name) for field in fields(builder) if field.default.__class__.__name__ == "_MISSING_TYPE"
    }
    assert required <= mandatory


def test_every_connector_has_a_builder_with_its_fields() -> None:
    for name, model in CONNECTORS.items():
        builder = getattr(slackwater.definitions, name.capitalize())
        assert {field.name for field in fields(builder)} == {field.alias or each for each, field in model.model_fields.items()}, (
            name
        )


def test_a_whole_query_is_read_by_the_service_as_it_was_meant() -> None:
    query = QueryDefinition(
        name="priced", from_=From(stream="orders", as_="o", where="n > 0"), tasks=1,
        joins=[Join(table="prices", as_="p", type="left", on="o.item = p.item", grace=timedelta(seconds=5),
                    hold=Hold(at_most="10m", until="caught_up"))],
        select={"item": "o.item", "price": "p.price"}, into=Into(table="priced", versioned=Versioned(history_retention="2d")),
        start=slackwater.definitions.StartAt(at=datetime(2025, 1, 1, tzinfo=UTC)),
    )  # fmt: skip
    read = queries.QueryDefinition.model_validate(query.json())
    assert (read.source.alias, read.joins[0].grace, read.joins[0].hold and read.joins[0].hold.at_most) == ("o", 5_000, 600_000)
    assert read.into.versioned is not None
    assert "desired_state" not in query.json()
    assert str(query).startswith('{\n  "name": "priced",\n  "from": {')


@pytest.mark.parametrize(
    "window", [tumbling("1h", grace="10m"), hopping("1h", "5m"), sliding("5m"), session(timedelta(minutes=5), retention="8d")]
)
def test_windows_of_every_type_are_read(window: slackwater.Window) -> None:
    query = QueryDefinition(
        name="w", from_=From(stream="s"), group_by=["k"], window=window, aggregate={"n": "count(*)"}, suppress=FINAL, into=Into(table="w")
    )  # fmt: skip
    assert queries.QueryDefinition.model_validate(query.json()).window is not None


def test_sources_are_read() -> None:
    stream = StreamDefinition(columns={"n": "int"}, connector=Log(partitions=2, retention=timedelta(days=1)))
    assert relations.StreamDefinition.model_validate(stream.json()).key == ()
    table = TableDefinition(key=["n"], columns={"n": "int"}, versioned=Versioned(history_retention="1d"), materialize=True)
    assert relations.TableDefinition.model_validate(table.json()).materialize


def test_the_examples_in_the_texts_are_right() -> None:
    done = doctest.testmod(slackwater.definitions)
    assert (done.failed, done.attempted) == (0, 3)
