"""The statements of drivers about queries: leases and guarded transitions, with their runs and events.

Every statement that changes a status row has a guard: the lease owner, and for transitions the version that was read. If no row changed,
another writer was first: discard the row and read it again. Synchronous: drivers have no event loop. Connections are in autocommit mode.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from app.access.scopes import PREFIX
from app.catalog.drivers.crash_suspects import LOST
from app.catalog.drivers.lifecycle import Action
from app.catalog.drivers.states import Desired, DesiredState, ErrorReport, Outcome, State, Status
from engine.commit.history.segment_collector import delete_state

Connection = psycopg.Connection[Any]

# A query's state is in the root (``app.driver.state_root``) of its last launch, unless it has been rebuilt from scratch since. A stop needs no
# state. A driver of its root removes the state of a deleted query; if none is alive, any driver removes the rows.
_HERE = """
    CASE
        WHEN q.desired_state = 'stopped' AND q.deleted_at IS NULL THEN true
        WHEN s.state_checkpoint_id = q.checkpoint_id THEN s.state_root = %(root)s OR (q.deleted_at IS NOT NULL AND NOT EXISTS (
            SELECT FROM slackwater.driver d
            WHERE d.detail ->> 'state_root' = s.state_root::text AND d.heartbeat_at > now() - interval '10 minutes'
        ))
        ELSE true
    END
"""
# Queries without a valid lease and with something to do. An errand (stop, purge) takes no place of a driver; everything else does. A lease
# longer than the setting's maximum was given before the database's clock was set back, and not renewed since. Users' queries and internal
# ones are counted separately, because only users' queries have a limit; errands of both kinds are claimed.
_DUE = f"""
    FROM slackwater.query_status s JOIN slackwater.query q ON q.id = s.query_id
    WHERE (s.lease_owner IS NULL OR s.lease_expires_at NOT BETWEEN now() AND now() + interval '10 minutes')
      AND (q.desired_state = 'stopped' OR q.deleted_at IS NOT NULL) = %(is_errand)s
      AND (%(is_errand)s OR starts_with(q.name, %(prefix)s) = %(is_internal)s)
      AND ({_HERE})
      AND CASE s.state
            WHEN 'stopped' THEN q.desired_state <> 'stopped' OR q.deleted_at IS NOT NULL
            WHEN 'failed' THEN q.desired_state = 'stopped' OR q.deleted_at IS NOT NULL
                OR (s.observed_generation, s.observed_restart_nonce) <> (q.generation, q.restart_nonce)
            ELSE true
          END
"""
_UNPLACED = f"SELECT count(*) {_DUE}"
_CLAIM = f"""
    WITH due AS (
        SELECT s.query_id {_DUE}
        ORDER BY s.query_id
        LIMIT %(limit)s
        FOR UPDATE OF s SKIP LOCKED
    )
    UPDATE slackwater.query_status s
    SET lease_owner = %(driver)s, lease_expires_at = now() + %(ttl_ms)s * interval '1 ms', heartbeat_at = now(),
        version = s.version + 1
    FROM due WHERE s.query_id = due.query_id
    RETURNING s.query_id
"""  # noqa: S608 - made of constants
_RENEW = """
    UPDATE slackwater.query_status
    SET lease_expires_at = now() + %(ttl_ms)s * interval '1 ms', heartbeat_at = now()
    WHERE lease_owner = %(driver)s
"""
_LOAD = """
    SELECT q.id AS query_id, q.name, q.definition, q.checkpoint_id, q.desired_state, q.generation, q.restart_nonce,
        q.deleted_at IS NOT NULL AS is_deleted,
        s.state, s.outcome, s.epoch, s.attempt, s.losses, s.outages, s.observed_generation, s.observed_restart_nonce, s.error, s.phase,
        s.version,
        (extract(epoch FROM s.next_attempt_at) * 1000)::bigint AS next_attempt_ms,
        (extract(epoch FROM s.state_since) * 1000)::bigint AS state_since_ms,
        (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms
    FROM slackwater.query_status s JOIN slackwater.query q ON q.id = s.query_id
    WHERE s.lease_owner = %(driver)s
"""
_LOAD_ALL = f"{_LOAD} ORDER BY s.query_id"
_LOAD_SOME = f"{_LOAD} AND s.query_id = ANY(%(only)s) ORDER BY s.query_id"
_SAVE = """
WITH saved AS (
    UPDATE slackwater.query_status SET
        state = %(state)s, phase = %(phase)s, outcome = %(outcome)s, state_since = to_timestamp(%(state_since_ms)s / 1000.0),
        observed_generation = %(observed_generation)s, observed_restart_nonce = %(observed_nonce)s, epoch = %(epoch)s,
        attempt = %(attempt)s, losses = %(losses)s, outages = %(outages)s,
        next_attempt_at = to_timestamp(%(next_attempt_ms)s / 1000.0), error = %(error)s,
        lease_owner = CASE WHEN %(is_released)s THEN NULL ELSE lease_owner END,
        lease_expires_at = CASE WHEN %(is_released)s THEN NULL ELSE lease_expires_at END,
        state_root = CASE WHEN %(is_launch)s THEN %(root)s ELSE state_root END,
        state_checkpoint_id = CASE WHEN %(is_launch)s THEN %(checkpoint)s ELSE state_checkpoint_id END,
        version = version + 1
    WHERE query_id = %(query)s AND version = %(version)s AND lease_owner = %(driver)s
    RETURNING query_id
), noted AS (
    INSERT INTO slackwater.query_event (query_id, kind, from_state, to_state, epoch, actor, detail)
    SELECT query_id, %(kind)s, %(from_state)s, %(to_state)s, %(epoch)s, 'driver', %(detail)s FROM saved
)"""
_RUN_BEGINS = """, begun AS (
    INSERT INTO slackwater.query_run (query_id, epoch, generation, driver_id)
    SELECT query_id, %(epoch)s, %(observed_generation)s, %(driver)s FROM saved
)"""
_RUN_RUNS = """, running AS (
    UPDATE slackwater.query_run r SET running_at = now() FROM saved WHERE r.query_id = saved.query_id AND r.epoch = %(epoch)s
)"""
_RUN_ENDS = """, ended AS (
    UPDATE slackwater.query_run r SET ended_at = now(), end_reason = %(end_reason)s, error = %(end_error)s
    FROM saved WHERE r.query_id = saved.query_id AND r.epoch = %(ended_epoch)s AND r.ended_at IS NULL
)"""
_SAVED = " SELECT FROM saved"
_RELEASE = """
    UPDATE slackwater.query_status SET lease_owner = NULL, lease_expires_at = NULL, version = version + 1
    WHERE lease_owner = %(driver)s AND query_id = %(query)s
"""
_HOLD = "SELECT FROM slackwater.query WHERE id = %s AND checkpoint_id = %s AND deleted_at IS NULL FOR KEY SHARE"
_PURGE = """
    DELETE FROM slackwater.query q USING slackwater.query_status s
    WHERE q.id = %(query)s AND q.deleted_at IS NOT NULL
      AND s.query_id = q.id AND s.version = %(version)s AND s.lease_owner = %(driver)s
"""


@dataclass(frozen=True, slots=True)
class LeasedQuery:
    """A query that a driver leases, as read at ``now_ms`` of the database's clock.

    Attributes:
        version: of the status row; the guard of the next transition.
        phase: the row's phase of a running launch.
    """

    query_id: UUID
    name: str
    definition: Mapping[str, Any]
    checkpoint_id: UUID
    desired: DesiredState
    status: Status
    version: int
    phase: str | None
    now_ms: int


@dataclass(frozen=True, slots=True)
class Claimant:
    """A driver that leases queries.

    Attributes:
        ttl_ms: lifetime of a lease without renewal.
        root: id of the driver's state root.
    """

    driver_id: UUID
    ttl_ms: int
    root: UUID

    def values(self, *, is_errand: bool = False, is_internal: bool = False, limit: int | None = None) -> dict[str, Any]:
        names = {"driver": self.driver_id, "ttl_ms": self.ttl_ms, "root": self.root}
        return {**names, "is_errand": is_errand, "is_internal": is_internal, "prefix": PREFIX, "limit": limit}


def claim(connection: Connection, claimant: Claimant, limit: int, *, is_internal: bool = False) -> list[UUID]:
    """Lease up to ``limit`` of users' (or internal) queries without a driver that are to run and whose state is in the driver's root.

    Two drivers never get the same query.
    """
    return _claim(connection, claimant.values(is_internal=is_internal, limit=limit))


def claim_errands(connection: Connection, claimant: Claimant) -> list[UUID]:
    """Lease every query without a driver that only has to be stopped or purged. Such queries take no place of a driver."""
    return _claim(connection, claimant.values(is_errand=True))


def _claim(connection: Connection, values: Mapping[str, Any]) -> list[UUID]:
    return [row[0] for row in connection.execute(_CLAIM, values)]


def unplaced(connection: Connection, claimant: Claimant, *, is_internal: bool = False) -> int:
    """Count users' (or internal) queries that are to run, have no driver, and could be this driver's."""
    row = connection.execute(_UNPLACED, claimant.values(is_internal=is_internal)).fetchone()
    return 0 if row is None else int(row[0])


def renew(connection: Connection, driver_id: UUID, ttl_ms: int) -> None:
    """Renew every lease that is still the driver's; others belong to another driver by now."""
    connection.execute(_RENEW, {"driver": driver_id, "ttl_ms": ttl_ms})


def load_leased(connection: Connection, driver_id: UUID, only: Collection[UUID] | None = None) -> list[LeasedQuery]:
    """Return the queries that the driver leases; only those in ``only`` if it is set."""
    statement, names = (_LOAD_ALL, {}) if only is None else (_LOAD_SOME, {"only": list(only)})
    with connection.cursor(row_factory=dict_row) as cursor:
        return [_leased(row) for row in cursor.execute(statement, {"driver": driver_id, **names})]


def save(connection: Connection, claimant: Claimant, leased: LeasedQuery, action: Action) -> LeasedQuery | None:
    """Write a transition with its run and its event, in one statement.

    Returns:
        The query after the transition, or None: the lease or the version has changed, and nothing was written.
    """
    after = action.status
    if after is None:
        return leased
    phase = "queued" if after.state is State.STARTING else None
    names = {"query": leased.query_id, "version": leased.version, "driver": claimant.driver_id, "phase": phase}
    place = {"is_launch": after.epoch != leased.status.epoch, "root": claimant.root, "checkpoint": leased.checkpoint_id}
    statement, of_run = _run_change(leased.status, after)
    values = (
        _values(after) | names | place | of_run | _event(leased.status, after, action) | {"is_released": action.is_lease_released}
    )
    if connection.execute(f"{_SAVE}{statement}{_SAVED}", values).rowcount != 1:
        return None
    return replace(leased, status=after, version=leased.version + 1, phase=phase)


def note_phase(connection: Connection, driver_id: UUID, leased: LeasedQuery, phase: str | None) -> None:
    """Write the phase of a launch. This is no transition: version and history do not change."""
    connection.execute(
        "UPDATE slackwater.query_status SET phase = %s WHERE query_id = %s AND version = %s AND lease_owner = %s",
        (phase, leased.query_id, leased.version, driver_id),
    )


def hold_query(connection: Connection, query_id: UUID, checkpoint_id: UUID) -> psycopg.Cursor[Any]:
    """Lock a query against deletion and rebuilding until the transaction ends; return one row if neither has happened."""
    return connection.execute(_HOLD, (query_id, checkpoint_id))


def has_taken_fence(connection: Connection, leased: LeasedQuery) -> bool:
    """Whether the newest launch of a query has begun: each takes its fence first (``app.driver.launches.launching``)."""
    names = (leased.query_id, leased.status.epoch)
    return connection.execute("SELECT FROM log.commit WHERE query_id = %s AND epoch >= %s", names).fetchone() is not None


def release(connection: Connection, driver_id: UUID, query_id: UUID) -> None:
    """Release one lease. For all leases of a lost driver see ``drivers.forget_driver``."""
    connection.execute(_RELEASE, {"driver": driver_id, "query": query_id})


def purge(connection: Connection, driver_id: UUID, leased: LeasedQuery, root: UUID) -> bool:
    """Remove the rows of a deleted query: the counts of a late batch, then the query with all its history.

    Its late records may be many, and leases wait for this transaction: a service removes them in steps (``purging.sweep_late_records``). The
    next collection in its state root removes the rest of its state.

    Returns:
        False if the lease was lost; then nothing was removed.
    """
    with connection.transaction():
        if connection.execute(_PURGE, {"query": leased.query_id, "version": leased.version, "driver": driver_id}).rowcount != 1:
            return False
        connection.execute("DELETE FROM log.commit WHERE query_id = %s", (leased.query_id,))
        connection.execute("DELETE FROM log.task_state WHERE query_id = %s", (leased.query_id,))
        connection.execute("DELETE FROM log.counter WHERE owner = %s", (leased.query_id,))
        delete_state(connection, leased.query_id, root)
    return True


def error_to_json(error: ErrorReport | None) -> dict[str, Any] | None:
    """Return an error as the API shows it."""
    if error is None:
        return None
    result = {"code": error.code, "domain": error.domain, "retryable": error.is_retryable, "detail": error.detail}
    if error.problems:
        result["errors"] = [{"pointer": pointer, "code": code, "detail": detail} for pointer, code, detail in error.problems]
    return result


def error_from_json(stored: Mapping[str, Any] | None) -> ErrorReport | None:
    """Read the form that ``error_to_json`` writes."""
    if stored is None:
        return None
    problems = tuple((fault["pointer"], fault["code"], fault["detail"]) for fault in stored.get("errors", ()))
    return ErrorReport(stored["code"], stored["domain"], stored["retryable"], stored["detail"], problems)


def _leased(row: Mapping[str, Any]) -> LeasedQuery:
    return LeasedQuery(
        query_id=row["query_id"],
        name=row["name"],
        definition=row["definition"],
        checkpoint_id=row["checkpoint_id"],
        desired=DesiredState(Desired(row["desired_state"]), row["generation"], row["restart_nonce"], row["is_deleted"]),
        status=Status(
            state=State(row["state"]),
            outcome=None if row["outcome"] is None else Outcome(row["outcome"]),
            epoch=row["epoch"],
            attempt=row["attempt"],
            next_attempt_ms=row["next_attempt_ms"],
            state_since_ms=row["state_since_ms"],
            observed_generation=row["observed_generation"],
            observed_nonce=row["observed_restart_nonce"],
            error=error_from_json(row["error"]),
            losses=row["losses"],
            outages=row["outages"],
        ),
        version=row["version"],
        phase=row["phase"],
        now_ms=row["now_ms"],
    )


def _values(status: Status) -> dict[str, Any]:
    error = error_to_json(status.error)
    return {
        **{name: value for name, value in asdict(status).items() if name != "error"},
        "state": status.state.value,
        "outcome": None if status.outcome is None else status.outcome.value,
        "error": None if error is None else Jsonb(error),
    }


def _run_change(before: Status, after: Status) -> tuple[str, dict[str, Any]]:
    """Return the change of the launch's row in ``query_run``, with its values."""
    statement, values = "", dict[str, Any]()
    if after.epoch != before.epoch:
        statement += _RUN_BEGINS
    elif after.state is State.RUNNING and before.state is State.STARTING:
        statement += _RUN_RUNS
    if before.state is State.STOPPING and after.state is not State.STOPPING:
        # An error belongs to the run that it ended; a user's stop has no error.
        is_lost = before.error is not None and before.error.code == LOST.code
        is_error = before.outcome in (Outcome.BACKOFF, Outcome.FAILED) or is_lost
        error = error_to_json(before.error) if is_error else None
        statement += _RUN_ENDS
        values = {
            "ended_epoch": before.epoch,
            "end_reason": before.outcome and before.outcome.value,
            "end_error": None if error is None else Jsonb(error),
        }
    return statement, values


def _event(before: Status, after: Status, action: Action) -> dict[str, Any]:
    detail: dict[str, Any] = {"rule": action.rule}
    if after.outcome is not None:
        detail["outcome"] = after.outcome.value
    if after.error is not None and after.error != before.error:
        detail["error"] = error_to_json(after.error)
    if after.attempt != before.attempt:
        detail["attempt"] = after.attempt
    return {
        "kind": "query_transitioned" if after.state is not before.state else "query_recorded",
        "from_state": before.state.value,
        "to_state": after.state.value,
        "detail": Jsonb(detail),
    }
