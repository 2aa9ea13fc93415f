"""Migration 0033 on a database with sources of before: those on topics that say ``skip`` read what they read, under its name."""

from __future__ import annotations

import json
import uuid
from typing import Any

import psycopg

from app.catalog.stored.catalog import load_catalog
from engine.definition.relations import StreamDefinition
from tests.conftest import migrate

COLUMNS = {"v": "bigint", "at": "bigint"}


def connector(**said: Any) -> dict[str, Any]:
    return {"type": "kafka", "bootstrap": "b:1", "topic": "t", "value": {"format": "json"}, **said}


def test_sources_that_skip_keep_the_names_of_what_they_read(empty: str) -> None:
    migrate(empty, "0032")
    with psycopg.connect(empty, autocommit=True) as connection:
        for name, said in (("skips", connector(on_lost="skip")), ("stops", connector()), ("logged", {"type": "log"})):
            definition = StreamDefinition.model_validate({"columns": COLUMNS, "connector": said}).model_dump(
                mode="json", by_alias=True
            )
            connection.execute(
                "INSERT INTO slackwater.relation (id, name, kind, definition, origin) VALUES (%s, %s, 'stream', %s, 'source')",
                (uuid.uuid4(), name, json.dumps(definition)),
            )
        migrate(empty)
        catalog = load_catalog(connection)
        # As the version before named them.
        assert {name: entry.feed.log_feed for name, entry in catalog.items()} == {
            "skips": "kafka:b:1/t/e1406ca33372",
            "stops": "kafka:b:1/t/3eb3389dfeb9",
            "logged": "logged",
        }
        assert [catalog[name].relation.lost_records for name in ("skips", "stops", "logged")] == ["skip", "stop", None]
