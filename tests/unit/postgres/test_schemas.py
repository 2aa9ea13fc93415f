from __future__ import annotations

import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from engine.postgres.schemas import CHANNELS, PREFIX_RULE, SCHEMAS, BadPrefix, Schemas

ACME = Schemas("acme_")


@pytest.mark.parametrize(
    ("plain", "prefixed"),
    [
        ("SELECT b.rows FROM log.batch b, slackwater.query", "SELECT b.rows FROM acme_log.batch b, acme_slackwater.query"),
        ("SELECT log.batch.rows FROM log.batch", "SELECT acme_log.batch.rows FROM acme_log.batch"),
        ("COPY log.reject (owner) FROM STDIN", "COPY acme_log.reject (owner) FROM STDIN"),
        (
            "SELECT to_regclass('log.batch'), 'open'::regnamespace",
            "SELECT to_regclass('acme_log.batch'), 'acme_open'::regnamespace",
        ),
        ("SELECT to_regclass(format('history.%I', x))", "SELECT to_regclass(format('acme_history.%I', x))"),
        ("CREATE SCHEMA IF NOT EXISTS open; DROP SCHEMA views", "CREATE SCHEMA IF NOT EXISTS acme_open; DROP SCHEMA acme_views"),
        ("LISTEN slackwater_fact", "LISTEN acme_slackwater_fact"),
        ("SELECT pg_notify('slackwater_commit', %s)", "SELECT pg_notify('acme_slackwater_commit', %s)"),
        ("DO $$ BEGIN DELETE FROM log.head; END $$", "DO $$ BEGIN DELETE FROM acme_log.head; END $$"),
        ("-- it's\nDELETE FROM log.head /* log.x ' */", "-- it's\nDELETE FROM acme_log.head /* log.x ' */"),
    ],
)
def test_schemas_and_channels_are_named_with_the_prefix_once(plain: str, prefixed: str) -> None:
    assert ACME.text(plain) == prefixed
    assert ACME.text(prefixed) == prefixed
    assert Schemas().text(plain) == plain


@pytest.mark.parametrize(
    "statement",
    [
        'SELECT v."log.x", v."open"."x", "views" FROM t v',
        "SELECT 'open', 'log', ' log.x', 'it''s log.x', 'log:' || f.name",
        'SELECT x.log.y, catalog.z, slackwater_factory, "a""log.b"',
    ],
)
def test_what_users_name_and_say_stays_as_it_is(statement: str) -> None:
    assert ACME.text(statement) == statement


def test_a_composed_statement_keeps_names_and_values_of_users() -> None:
    parts = [sql.Identifier("views", 'log."x'), sql.Identifier("log"), sql.Identifier("v", "views"), sql.Literal("log.batch")]
    statement = sql.SQL("SELECT {1}, {2}, {3} FROM log.feed, {0} WHERE a = {4}").format(*parts, sql.Placeholder())
    translated = 'SELECT "log", "v"."views", \'log.batch\' FROM acme_log.feed, "acme_views"."log.""x" WHERE a = %s'
    assert ACME.statement(statement, None) == translated


@pytest.mark.parametrize("statement", [b"SELECT 1", 1])
def test_a_statement_of_a_kind_that_is_not_known_is_refused(statement: object) -> None:
    with pytest.raises(TypeError, match="cannot be translated"):
        ACME.statement(statement, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("prefix", ["Acme_", "1acme", "_acme", "a-b", "a b", "pg_", "pg_mine_", "ä", "a" * 33, "acme_\n", '"'])
def test_a_bad_prefix_is_refused_with_the_rule(prefix: str) -> None:
    with pytest.raises(BadPrefix, match=PREFIX_RULE[:10]):
        Schemas(prefix)


def test_the_longest_names_with_the_longest_prefix_fit() -> None:
    longest = Schemas("a" * 32)
    assert max(len(longest.named(name)) for name in (*SCHEMAS, *CHANNELS)) <= 63


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p%40ss@h:5432/db",
        "postgresql://u@h1:1,h2:2/db?sslmode=prefer",
        "postgresql:///db?host=%2Ftmp%2Fx&options=-c%20timezone%3DUTC",
        "postgresql:///db?options=-c%20slackwater.schema_prefix%3Dother_%20-c%20timezone%3DUTC&host=%2Ftmp%2Fx",
    ],
)
def test_a_url_carries_the_prefix_and_nothing_of_it_is_lost(url: str) -> None:
    carried = ACME.carried_by(url)
    assert Schemas.of(carried) == ACME
    assert ACME.carried_by(carried) == carried
    assert Schemas().carried_by(url) == url
    before, after = conninfo_to_dict(url), conninfo_to_dict(carried)
    assert {**after, "options": None} == {**before, "options": None}
    assert ("timezone=UTC" in str(before.get("options"))) == ("timezone=UTC" in str(after["options"]))


def test_locks_differ_between_prefixes_and_are_the_old_ones_without() -> None:
    keys = {Schemas(prefix).lock(number) for prefix in ("", "a", "acme_", "b_") for number in (0x51AC, 0x51AD)}
    assert len(keys) == 8
    assert Schemas().lock(0x51AC) == 0x51AC
    assert all(0 < key < 1 << 63 for key in keys)
