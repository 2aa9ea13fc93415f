"""Forks over HTTP: what is copied of which commit, what is refused, and a fork in the place of its original. The test plays the driver."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import polars as pl
import psycopg
import pytest
import sqlalchemy as sa
from psycopg.types.json import Jsonb

from app.catalog.history.forks import Forked, Forking, at_one_commit, fork_query
from app.catalog.stored.state_files import StateFiles, checkpoint_directory, state_store_of
from app.db.database import engine_for
from app.errors.app_errors import Conflict
from app.settings.settings import Settings
from engine.commit.removed_records import as_unread
from engine.commit.task_states import Layout, TaskState, begin_state, load_committed_state, load_states
from engine.definition.queries import QueryDefinition
from engine.log.storage import append_batches, encode_batch, ensure_feed
from engine.postgres.fence import claim_epoch
from engine.postgres.postgres import connect
from engine.runtime.planning.cursors import new_cursor
from engine.sources.log.replay_reader import replay_feed
from tests.api.committed import commit, emitted
from tests.api.conftest import JOIN, WINDOWS, Problem
from tests.api.test_statement_edits import statement_of, write_in_sql
from tests.derived_log import read_feed
from tests.late_frames import late_frame

pytestmark = pytest.mark.usefixtures("sources")
COUNTS: dict[str, Any] = {
    "name": "counts",
    "from": {"stream": "departures"},
    "group_by": ["origin"],
    "aggregate": {"flights": "count(*)"},
    "into": {"table": "counts"},
    "tasks": 1,
}
FEED = "log:departures"
SEGMENT, NEWER = "000000000000-aaaaaaaa-00000000", "000000000002-bbbbbbbb-00000000"


def rows(*counted: tuple[str, int, int]) -> pl.DataFrame:
    return pl.DataFrame(
        [(*row, 0) for row in counted],
        schema={"origin": pl.String, "flights": pl.Int64, "_ts": pl.Int64, "_op": pl.Int8},
        orient="row",
    )


def ids_of(dsn: str, name: str) -> tuple[UUID, UUID]:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT id, checkpoint_id FROM slackwater.query WHERE name = %s AND deleted_at IS NULL", (name,)
        ).fetchone()
    assert row is not None
    return row[0], row[1]


def begin(settings: Settings, dsn: str, name: str, segments: Sequence[str] = (SEGMENT,), root: UUID | None = None) -> Path:
    """Play the first launch of a query: it has state with these segments. Returns their directory."""
    query_id, checkpoint_id = ids_of(dsn, name)
    settings.checkpoints_dir.mkdir(parents=True, exist_ok=True)
    file = settings.checkpoints_dir / "root.json"
    if not file.exists():
        file.write_text(json.dumps({"format": 1, "id": str(uuid.uuid4())}))
    folder = checkpoint_directory(settings.checkpoints_dir, query_id, checkpoint_id) / "segments" / "0" / "0"
    folder.mkdir(parents=True)
    for segment in segments:
        (folder / f"{segment}.arrow").write_text(segment)
    states = {(0, 0): TaskState.of({"rows": [{"segment": segment} for segment in segments]})}
    with connect(dsn, "test") as connection:
        claim_epoch(connection, query_id, checkpoint_id, 1)
        cursor = new_cursor({FEED: {"0": 0, "1": 0}}, 0, 0)
        begin_state(connection, query_id, 1, Layout(1, 0, 77), cursor, states)
        connection.execute(
            "UPDATE slackwater.query_status SET epoch = 1, state_root = %s, state_checkpoint_id = %s WHERE query_id = %s",
            (root or UUID(json.loads(file.read_text())["id"]), checkpoint_id, query_id),
        )
    return folder


async def counted(client: httpx.AsyncClient, table: str) -> dict[str, int]:
    answer = (await client.get(f"/v1/tables/{table}/rows")).json()
    return {row["origin"]: row["flights"] for row in answer["rows"]}


async def running(client: httpx.AsyncClient, settings: Settings, dsn: str, definition: dict[str, Any] = COUNTS) -> Path:
    """A query that has committed twice."""
    assert (await client.post("/v1/queries", json=definition)).status_code == 201
    folder = begin(settings, dsn, definition["name"])
    late = late_frame([("w", "late", 1_000, 1_009, 0, '{"origin":"JFK"}')])
    name = definition["name"]
    commit(dsn, name, [(0, 0, emitted({}, late=late, changes=rows(("JFK", 1, 1_000), ("LGA", 1, 2_000))))], {FEED: {0: 3}})
    commit(dsn, name, [(0, 0, emitted({}, changes=rows(("JFK", 2, 3_000))))], {FEED: {0: 4}})
    return folder


async def fork(client: httpx.AsyncClient, name: str = "counts", **body: Any) -> dict[str, Any]:
    response = await client.post(f"/v1/queries/{name}/fork", json={"name": "counts_too", **body})
    assert response.status_code == 201, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def test_a_fork_has_result_log_state_and_position_of_one_commit(
    client: httpx.AsyncClient, settings: Settings, dsn: str
) -> None:
    folder = await running(client, settings, dsn)
    answer = await fork(client)
    assert answer["definition"]["into"]["table"] == "counts_too"
    assert answer["changes"] == []
    assert (answer["fork_of"]["query"], answer["fork_of"]["batch_id"]) == ("counts", 1)
    assert await counted(client, "counts_too") == await counted(client, "counts") == {"JFK": 2, "LGA": 1}
    changes = [
        (await client.get(f"/v1/tables/{name}/changes?from=earliest")).json()["changes"] for name in ("counts", "counts_too")
    ]
    assert changes[0] == changes[1] != []
    late = [(await client.get(f"/v1/queries/{name}/late-records")).json()["items"] for name in ("counts", "counts_too")]
    assert [record["record"] for record in late[0]] == [record["record"] for record in late[1]] != []
    source, copy = ids_of(dsn, "counts"), ids_of(dsn, "counts_too")
    with connect(dsn, "test") as connection:
        kept, original = load_committed_state(connection, *copy), load_committed_state(connection, *source)
        assert original.cursor is not None
        assert kept == replace(original, cursor=as_unread(original.cursor)), "nothing was read behind it by the copy itself"
        manifests = [{place: each.manifest for place, each in load_states(connection, one[0]).items()} for one in (source, copy)]
        tokens = [{each.token for each in load_states(connection, one[0]).values()} for one in (source, copy)]
        assert manifests[0] == manifests[1] != {}
        assert not tokens[0] & tokens[1], "a worker that knows one of them must not take the other for it"
        positions = connection.execute("SELECT position, batch_id, detail FROM log.commit ORDER BY query_id").fetchall()
        assert positions[0] == positions[1]
        assert positions[0][0] == {FEED: {"0": 4, "1": 0}}
    linked = checkpoint_directory(settings.checkpoints_dir, *copy) / "segments" / "0" / "0" / f"{SEGMENT}.arrow"
    assert linked.samefile(folder / f"{SEGMENT}.arrow")


async def test_a_fork_goes_on_by_itself(client: httpx.AsyncClient, settings: Settings, dsn: str) -> None:
    await running(client, settings, dsn)
    await fork(client)
    commit(dsn, "counts_too", [(0, 0, emitted({}, changes=rows(("LGA", 9, 9_000))))], {FEED: {0: 5}})
    commit(dsn, "counts", [(0, 0, emitted({}, changes=rows(("JFK", 3, 9_000))))], {FEED: {0: 5}})
    assert await counted(client, "counts_too") == {"JFK": 2, "LGA": 9}
    assert await counted(client, "counts") == {"JFK": 3, "LGA": 1}
    last = (await client.get("/v1/tables/counts_too/changes?from=earliest")).json()["changes"][-1]
    assert last["offset"] == 3, "numbered behind what was copied"


async def test_a_fork_of_what_has_not_begun_begins_anew(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/queries", json=COUNTS)).status_code == 201
    answer = await fork(client, into="other", desired_state="paused")
    assert answer["fork_of"] == {"query": "counts", "batch_id": None, "committed_at": None}
    shown = {each["name"]: each["fork_of"] for each in (await client.get("/v1/overview")).json()["queries"]}
    assert shown == {"counts": None, "counts_too": "counts"}
    assert (answer["desired_state"], answer["definition"]["into"]["table"]) == ("paused", "other")


async def test_an_edited_fork_says_what_it_does_otherwise(client: httpx.AsyncClient, settings: Settings, dsn: str) -> None:
    await running(client, settings, dsn)
    edited = {**COUNTS, "select": {"origin": "origin", "flights": "flights", "twice": "flights * 2"}, "tasks": 2}
    answer = await fork(client, definition=edited)
    assert {change["pointer"]: change["kind"] for change in answer["changes"]} == {"/select": "in_place", "/tasks": "repartition"}
    found = (await client.get("/v1/tables/counts_too/rows")).json()
    assert [(row["origin"], row["flights"], row["twice"]) for row in found["rows"]] == [("JFK", 2, None), ("LGA", 1, None)]


@pytest.mark.parametrize(
    ("body", "status", "code", "pointer"),
    [
        ({"name": "counts"}, 409, "name_taken", "/name"),
        ({"name": "weather"}, 409, "name_taken", "/into"),
        ({"name": "x", "into": "counts"}, 409, "name_taken", "/into"),
        ({"name": "x", "definition": {**COUNTS, "where": "delay > 0"}}, 409, "state_incompatible", "/definition/where"),
        ({"name": "x", "definition": {**COUNTS, "into": {"stream": "x"}}}, 409, "state_incompatible", "/definition/into/stream"),
        ({"name": "x", "definition": {**COUNTS, "group_by": ["nothing"]}}, 422, "unknown_column", "/definition/group_by/0"),
        ({"name": "x", "definition": {**COUNTS, "name": "y"}}, 422, "name_mismatch", "/definition/name"),
        (
            {"name": "x", "into": "y", "definition": {**COUNTS, "into": {"table": "z"}}},
            422,
            "name_mismatch",
            "/definition/into/table",
        ),
        ({"name": "Not a name"}, 422, "malformed_name", "/name"),
        ({"name": "x", "more": 1}, 422, "unknown_field", "/more"),
    ],
)
async def test_what_does_not_fit_is_refused_with_its_place(
    client: httpx.AsyncClient, problem: Problem, body: dict[str, Any], status: int, code: str, pointer: str | None
) -> None:
    assert (await client.post("/v1/queries", json=COUNTS)).status_code == 201
    problem(await client.post("/v1/queries/counts/fork", json=body), status, code, pointer)
    assert len((await client.get("/v1/queries")).json()["items"]) == 1


async def test_a_repeated_request_makes_one_fork(
    client: httpx.AsyncClient, settings: Settings, dsn: str, problem: Problem
) -> None:
    await running(client, settings, dsn)
    headers = {"idempotency-key": "once"}
    answers = [await client.post("/v1/queries/counts/fork", json={"name": "again"}, headers=headers) for _ in range(2)]
    assert [each.status_code for each in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    problem(
        await client.post("/v1/queries/counts/fork", json={"name": "b"}, headers={"if-match": '"9"'}), 412, "version_mismatch"
    )
    problem(await client.post("/v1/queries/none/fork", json={"name": "b"}), 404, "query_not_found")


async def test_a_fork_leaves_no_files_where_it_is_refused(
    client: httpx.AsyncClient, settings: Settings, dsn: str, problem: Problem
) -> None:
    folder = await running(client, settings, dsn)
    before = {path.name for path in settings.checkpoints_dir.iterdir()}
    (folder / f"{SEGMENT}.arrow").unlink()
    body = problem(await client.post("/v1/queries/counts/fork", json={"name": "b"}), 409, "fork_not_possible")
    assert SEGMENT in body["detail"]
    assert {path.name for path in settings.checkpoints_dir.iterdir()} == before


async def test_state_in_another_directory_is_not_copied(
    client: httpx.AsyncClient, settings: Settings, dsn: str, problem: Problem
) -> None:
    assert (await client.post("/v1/queries", json=COUNTS)).status_code == 201
    begin(settings, dsn, "counts", root=uuid.uuid4())
    problem(await client.post("/v1/queries/counts/fork", json={"name": "b"}), 409, "fork_not_possible")


@dataclass(frozen=True, slots=True)
class GoesOn(StateFiles):
    """Files whose query has released and removed a segment, and committed that, since the caller has looked."""

    dsn: str
    folder: Path

    def copy(self, *args: Any) -> None:
        gone = self.folder / f"{SEGMENT}.arrow"
        if gone.exists():
            (self.folder / f"{NEWER}.arrow").write_text("newer")
            manifest = TaskState.of({"rows": [{"segment": NEWER}]}).manifest
            with connect(self.dsn, "test") as connection, connection.transaction():
                connection.execute("UPDATE log.task_state SET manifest = %s", (manifest,))
                connection.execute("UPDATE log.commit SET batch_id = 2")
            gone.unlink()
        StateFiles.copy(self, *args)


def forked_by_hand(dsn: str, files: StateFiles, most_bytes: int = 1 << 30) -> Forked:
    """Fork the query `counts` below HTTP."""
    definition = QueryDefinition.model_validate({**COUNTS, "name": "counts_too", "into": {"table": "counts_too"}})
    engine = engine_for(dsn, poolclass=sa.NullPool)

    def work(connection: sa.Connection, query_id: UUID, checkpoint_id: UUID, is_held: bool) -> Forked:
        return fork_query(connection, "counts", definition, Forking(files, most_bytes, query_id, checkpoint_id, is_held))

    return at_one_commit(engine, files, work)


async def test_a_segment_that_goes_while_it_is_copied_is_looked_for_at_the_next_commit(
    client: httpx.AsyncClient, settings: Settings, dsn: str
) -> None:
    folder = await running(client, settings, dsn)
    forked = forked_by_hand(dsn, GoesOn(settings.checkpoints_dir, state_store_of(settings), dsn, folder))
    assert forked.row.fork_of is not None
    assert forked.row.fork_of["batch_id"] == 2
    made = checkpoint_directory(settings.checkpoints_dir, *ids_of(dsn, "counts_too")) / "segments" / "0" / "0"
    assert [path.stem for path in made.iterdir()] == [NEWER]


async def test_a_result_beyond_the_limit_is_not_copied(client: httpx.AsyncClient, settings: Settings, dsn: str) -> None:
    await running(client, settings, dsn)
    with pytest.raises(Conflict, match="SLACKWATER_LIMITS__FORK_BYTES") as refused:
        forked_by_hand(dsn, StateFiles(settings.checkpoints_dir, state_store_of(settings)), most_bytes=1_000)
    assert refused.value.code == "fork_too_large"


async def test_changes_that_a_fork_has_to_read_are_kept_from_its_first_moment(
    client: httpx.AsyncClient, settings: Settings, dsn: str
) -> None:
    await running(client, settings, dsn)
    reader = {"name": "doubled", "from": {"table": "counts"}, "select": {"origin": "origin", "n": "flights * 2"}}
    assert (await client.post("/v1/queries", json={**reader, "into": {"table": "doubled"}, "tasks": 1})).status_code == 201
    await fork(client, "doubled")
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            "SELECT r.name FROM slackwater.query_read d JOIN slackwater.query q ON q.id = d.query_id "
            "JOIN slackwater.relation r ON r.id = d.relation_id WHERE q.name = 'counts_too'"
        ).fetchall()
    assert found == [("counts",)]


async def test_replays_that_wait_are_the_forks_too(client: httpx.AsyncClient, settings: Settings, dsn: str) -> None:
    await running(client, settings, dsn)
    query_id, _ = ids_of(dsn, "counts")
    with connect(dsn, "test") as connection, connection.transaction():
        feed = ensure_feed(connection, replay_feed(query_id), 1)
        append_batches(connection, feed.id, [(0, encode_batch(rows(("JFK", 7, 7_000)), 0))])
        waiting = Jsonb({"format": 1, "feeds": {FEED: {"0": 4}, replay_feed(query_id): {"0": 0}}})
        connection.execute("UPDATE log.commit SET cursor = %s", (waiting,))
    await fork(client)
    fork_id, checkpoint_id = ids_of(dsn, "counts_too")
    with connect(dsn, "test") as connection:
        kept = load_committed_state(connection, fork_id, checkpoint_id)
        assert kept.cursor is not None
        assert kept.cursor["feeds"] == {FEED: {"0": 4}, replay_feed(fork_id): {"0": 0}}
        both = [[frame.rows() for _, frame in read_feed(connection, replay_feed(one))] for one in (query_id, fork_id)]
    assert both[0] == both[1] != []


async def test_a_query_takes_over_its_fork(client: httpx.AsyncClient, settings: Settings, dsn: str, problem: Problem) -> None:
    await running(client, settings, dsn)
    await write_in_sql(client, "counts")
    edited = {**COUNTS, "select": {"origin": "origin", "flights": "flights", "twice": "flights * 2"}}
    await fork(client, definition=edited)
    frame = rows(("LGA", 5, 9_000)).with_columns(pl.lit(10, pl.Int64).alias("twice"))
    commit(dsn, "counts_too", [(0, 0, emitted({}, changes=frame))], {FEED: {0: 6}})
    before = (await client.get("/v1/tables/counts/changes?from=earliest")).json()["next"]
    fork_ids, old = ids_of(dsn, "counts_too"), ids_of(dsn, "counts")
    with connect(dsn, "test") as connection:
        wanted = load_committed_state(connection, *fork_ids)
    response = await client.put("/v1/queries/counts?from_fork=counts_too")
    assert response.status_code == 200, response.text
    assert (response.json()["generation"], response.json()["fork_of"]) == (2, None)
    assert response.json()["definition"]["into"]["table"] == "counts"
    assert await statement_of(client, "counts") is None
    found = (await client.get("/v1/tables/counts/rows")).json()["rows"]
    assert [(row["origin"], row["flights"], row["twice"]) for row in found] == [("JFK", 2, None), ("LGA", 5, 10)]
    new = ids_of(dsn, "counts")
    assert new[0] == old[0] != fork_ids[0], "it is the same query"
    with connect(dsn, "test") as connection:
        assert load_committed_state(connection, *new) == wanted
        assert len(load_states(connection, new[0])) == 1
    assert list((checkpoint_directory(settings.checkpoints_dir, *new) / "segments" / "0" / "0").iterdir())
    problem(await client.get("/v1/queries/counts_too"), 404, "query_not_found")
    problem(await client.get("/v1/tables/counts_too"), 404, "relation_not_found")
    problem(await client.get("/v1/tables/counts/changes", params={"cursor": before}), 410, "cursor_expired")
    late = (await client.get("/v1/queries/counts/late-records")).json()["items"]
    assert len(late) == 1
    commit(dsn, "counts", [(0, 0, emitted({}, changes=frame.with_columns(flights=pl.lit(6, pl.Int64))))], {FEED: {0: 7}})
    assert await counted(client, "counts") == {"JFK": 2, "LGA": 6}
    assert (await fork(client))["fork_of"]["batch_id"] == 3, "the fork's names are free again"


async def test_a_launch_that_was_decided_on_before_cannot_take_the_fence_of_what_was_taken_over(
    client: httpx.AsyncClient, settings: Settings, dsn: str
) -> None:
    await running(client, settings, dsn)
    await fork(client)
    query_id, _ = ids_of(dsn, "counts")
    with psycopg.connect(dsn) as connection:
        version = connection.execute("SELECT version FROM slackwater.query_status WHERE query_id = %s", (query_id,)).fetchone()
    assert (await client.put("/v1/queries/counts?from_fork=counts_too")).status_code == 200
    with psycopg.connect(dsn) as connection:
        after = connection.execute(
            "SELECT s.version, s.state_checkpoint_id = q.checkpoint_id FROM slackwater.query_status s "
            "JOIN slackwater.query q ON q.id = s.query_id WHERE s.query_id = %s",
            (query_id,),
        ).fetchone()
    assert version is not None
    assert after == (version[0] + 1, True)


async def test_what_others_read_is_not_exchanged(
    client: httpx.AsyncClient, settings: Settings, dsn: str, problem: Problem
) -> None:
    await running(client, settings, dsn)
    await fork(client)
    for table in ("counts", "counts_too"):
        reader = {"name": "reader", "from": {"table": table}, "select": {"origin": "origin"}, "into": {"table": "read"}}
        assert (await client.post("/v1/queries", json=reader)).status_code == 201
        body = problem(await client.put("/v1/queries/counts?from_fork=counts_too"), 409, "relation_in_use")
        assert "reader" in body["detail"]
        assert (await client.delete("/v1/queries/reader")).status_code == 204
    assert (await client.put("/v1/queries/counts?from_fork=counts_too")).status_code == 200


async def test_only_a_fork_of_the_query_that_has_begun_is_taken_over(client: httpx.AsyncClient, problem: Problem) -> None:
    for definition in (COUNTS, JOIN):
        assert (await client.post("/v1/queries", json=definition)).status_code == 201
    await fork(client)
    url = "/v1/queries/counts"
    problem(await client.put(f"{url}?from_fork=joined"), 409, "fork_not_possible", "?from_fork")
    problem(await client.put(f"{url}?from_fork=counts_too"), 409, "fork_not_possible", "?from_fork")
    problem(await client.put(f"{url}?from_fork=none"), 404, "query_not_found")
    problem(await client.put(f"{url}?from_fork=counts_too", json=COUNTS), 400, "bad_parameter", "?from_fork")
    problem(await client.put(f"{url}?from_fork=counts_too&state=discard"), 400, "conflicting_parameters")
    headers = {"if-match": '"7"'}
    problem(await client.put(f"{url}?from_fork=counts_too", headers=headers), 412, "version_mismatch")


async def test_a_fork_that_began_anew_is_taken_over_with_another_result(
    client: httpx.AsyncClient, settings: Settings, dsn: str
) -> None:
    """What needs new state is tried in a fork, too."""
    await running(client, settings, dsn)
    await fork(client)
    other = {**COUNTS, "name": "counts_too", "where": "delay > 0", "into": {"table": "counts_too"}}
    assert (await client.put("/v1/queries/counts_too?state=discard", json=other)).status_code == 200
    begin(settings, dsn, "counts_too", segments=())
    commit(dsn, "counts_too", [(0, 0, emitted({}, changes=rows(("EWR", 1, 1_000))))], {FEED: {0: 1}})
    response = await client.put("/v1/queries/counts?from_fork=counts_too")
    assert response.status_code == 200, response.text
    assert response.json()["definition"]["where"] == "delay > 0"
    assert await counted(client, "counts") == {"EWR": 1}


async def test_a_writer_of_a_shared_stream_is_forked_into_a_stream_of_its_own(
    client: httpx.AsyncClient, problem: Problem
) -> None:
    whole = {
        "name": "all",
        "from": {"stream": "departures"},
        "select": {"origin": "origin", "flight": "flight"},
        "into": {"stream": "every"},
    }
    part = {**whole, "name": "part", "into": {"stream": "part", "append_to": "every"}}
    for definition in (whole, part):
        assert (await client.post("/v1/queries", json=definition)).status_code == 201
    answer = await fork(client, "part", definition=part)
    assert "append_to" not in answer["definition"]["into"]
    other = {**part, "into": {"stream": "part", "append_to": "departures"}}
    refused = await client.post("/v1/queries/part/fork", json={"name": "x", "definition": other})
    problem(refused, 422, "name_mismatch", "/definition/into/append_to")


async def test_rows_of_windows_and_their_versions_are_copied(client: httpx.AsyncClient, settings: Settings, dsn: str) -> None:
    shown = {
        **WINDOWS,
        "into": {"table": "delays", "materialize_open": True, "versioned": {"history_retention": "2d"}},
        "tasks": 1,
    }
    assert (await client.post("/v1/queries", json=shown)).status_code == 201
    begin(settings, dsn, "delays")
    row = "'JFK', timestamptz 'epoch', timestamptz 'epoch' + interval '1 hour', 2, 1.5, 9"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"INSERT INTO views.delays VALUES ({row})")
        connection.execute(f"INSERT INTO open.delays VALUES ({row})")
        connection.execute(f"INSERT INTO history.delays VALUES ({row}, false)")
    await fork(client, "delays")
    with psycopg.connect(dsn, autocommit=True) as connection:
        for schema in ("views", "open", "history"):
            both = [connection.execute(f"SELECT * FROM {schema}.{name}").fetchall() for name in ("delays", "counts_too")]
            assert both[0] == both[1] != []
