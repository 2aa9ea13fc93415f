# Made from slackwater/asynchronous by `make client`: change it there.
"""Queries: creating, watching, editing, steering, explaining."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from time import monotonic
from typing import Any, Literal

from slackwater.answers.answer_list import (
    AcceptedAnswer,
    CommitsAnswer,
    Event,
    ForkAnswer,
    LateRecord,
    OneQueryAnswer,
    QueryAnswer,
    ReplayAnswer,
    RewindAnswer,
    Run,
    StoredQueryAnswer,
)
from slackwater.blocking.transport import Resource, Transport
from slackwater.definitions import QueryDefinition, json_of
from slackwater.errors import Json, NotReached, QueryFailed
from slackwater.parameters import Instant, Key, instant, key_conditions
from slackwater.rows.statuses import Explanation, Lateness, LateRecordFilter, Status, TideChart, Validation
from slackwater.transport.event_streams import Following
from slackwater.transport.requests import new_key, path_of, preconditions, request

POLL_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.0)
LONG_POLL_SECONDS = 30.0

AnyDefinition = QueryDefinition | Mapping[str, Any]
State = Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]


class Queries(Resource):
    """All queries of a service: ``client.queries``."""

    def create(self, definition: AnyDefinition) -> StoredQueryAnswer:
        """Create a query; the answer has the definition with every default, and ``warnings``.

        Args:
            definition: a builder, or its JSON.

        Raises:
            NameTaken: there is one, or a relation of the name of its result.
            Unprocessable: it is wrong; ``errors`` points at each fault.
        """
        headers = {"idempotency-key": new_key()}
        return StoredQueryAnswer(
            self._transport.json(request("POST", path_of("queries"), body=json_of(definition), headers=headers))
        )

    def put(self, definition: AnyDefinition) -> StoredQueryAnswer:
        """Create a query, or edit it in place where its kept state fits; see ``Query.edit``."""
        body = json_of(definition)
        return Query(self._transport, body["name"]).edit(body)

    def validate(self, definition: AnyDefinition) -> Validation:
        """Say what is wrong with a definition, what may surprise, its plan, and the same as SQL; nothing is stored."""
        wanted = request("POST", path_of("validations"), body=json_of(definition), is_repeatable=True)
        return Validation(self._transport.json(wanted))

    def list(self) -> Generator[QueryAnswer, None, None]:
        """Yield all queries, by name."""
        return self._transport.pages(QueryAnswer, path_of("queries"))


class Query:
    """One query, whether it is there or not."""

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport = transport
        self.name = name

    def __repr__(self) -> str:
        return f"<query {self.name}>"

    def _path(self, *more: str) -> str:
        return path_of("queries", self.name, *more)

    def info(self) -> OneQueryAnswer:
        """Look at it: its definition with every default, and the same as SQL (``sql``)."""
        return OneQueryAnswer(self._transport.json(request("GET", self._path())))

    def status(self, *, wait_for: State | None = None, timeout: float = LONG_POLL_SECONDS, tasks: bool = False) -> Status:
        """Read its status.

        Args:
            wait_for: answer when it has this state for the definition in force, when it failed, or at the timeout: compare ``state``.
            timeout: seconds to wait at most; 60 is the most.
            tasks: with what waits in each task.
        """
        params = {"wait_for": wait_for, "timeout": None if wait_for is None else timeout, "tasks": tasks or None}
        wanted = request("GET", self._path("status"), params=params, read_timeout_s=timeout + 60.0)
        return Status(self._transport.json(wanted))

    def wait_until(self, wanted: State | Literal["caught_up"], *, timeout: float = 60.0, tasks: bool = False) -> Status:
        """Wait until it has a state, or has read everything there is (``caught_up``); return its status then.

        Args:
            wanted: ``caught_up`` looks at the present ends of what it reads; of files, whose ends only the driver knows, at nothing.
            timeout: seconds to wait at most.
            tasks: with what waits in each task.

        Raises:
            QueryFailed: it failed meanwhile, and that was not waited for.
            NotReached: the time is over.
        """
        deadline = monotonic() + timeout
        looks = 0
        while True:
            left = deadline - monotonic()
            if wanted == "caught_up":
                status = self.status(tasks=tasks)
            else:
                status = self.status(wait_for=wanted, timeout=max(0.0, min(left, LONG_POLL_SECONDS)), tasks=tasks)
            if status.is_caught_up if wanted == "caught_up" else status.has_reached(wanted):
                return status
            if status.state == "failed" and status.is_current:
                raise QueryFailed(self.name, status.raw["error"])
            if left <= 0:
                raise NotReached(f"{self.name} is not {wanted} after {timeout:g} s: {status.summary}")
            if wanted == "caught_up":
                time.sleep(min(POLL_SECONDS[min(looks, len(POLL_SECONDS) - 1)], left))
            looks += 1

    def edit(
        self,
        definition: AnyDefinition,
        *,
        discard_state: bool = False,
        from_: Instant | Literal["earliest", "latest"] | None = None,
        flush_now: bool = False,
        if_match: int | None = None,
        must_be_new: bool = False,
    ) -> StoredQueryAnswer:
        """Put a definition in the place of the one in force, or create the query. ``preview`` says before what that would do.

        Args:
            definition: a builder, or its JSON.
            discard_state: start from scratch where the kept state does not fit, or where the query failed since its state cannot be used.
            from_: with ``discard_state``: start from scratch in any case, from there.
            flush_now: emit at once what is due under the new values, not with the next record.
            if_match: the version that it must have; else ``PreconditionFailed``.
            must_be_new: ``PreconditionFailed`` where it is there already.

        Raises:
            StateIncompatible: the kept state does not fit, and ``discard_state`` is not given.
        """
        params = {
            "state": "discard" if discard_state else None,
            "from": instant(from_),
            "flush": "now" if flush_now else None,
        }
        headers = preconditions(if_match, must_be_new=must_be_new)
        wanted = request("PUT", self._path(), body=json_of(definition), params=params, headers=headers)
        return StoredQueryAnswer(self._transport.json(wanted))

    def preview(self, definition: AnyDefinition) -> Validation:
        """Say what ``edit`` would do: ``edit`` of the answer has the kind, the changes and their effects."""
        return Queries(self._transport).validate({**json_of(definition), "name": self.name})

    def pause(self) -> AcceptedAnswer:
        """Ask for it to be paused: its state stays at hand."""
        return self._set_state("paused")

    def resume(self) -> AcceptedAnswer:
        """Ask for it to run."""
        return self._set_state("running")

    def stop(self) -> AcceptedAnswer:
        """Ask for it to be stopped: its resources are released; position and results stay."""
        return self._set_state("stopped")

    def _set_state(self, state: str) -> AcceptedAnswer:
        return AcceptedAnswer(self._transport.json(request("PUT", self._path("desired-state"), body={"state": state})))

    def restart(self) -> AcceptedAnswer:
        """Launch it again, with the state that it has."""
        return AcceptedAnswer(self._transport.json(request("POST", self._path("restart"))))

    def delete(self, *, keep_result: bool = False) -> None:
        """Delete it with its state, and with its result unless that is kept."""
        params = {"state": "keep" if keep_result else None}
        self._transport.send(request("DELETE", self._path(), params=params))

    def fork(
        self,
        name: str,
        *,
        definition: AnyDefinition | None = None,
        into: str | None = None,
        desired_state: Literal["running", "paused", "stopped"] | None = None,
    ) -> ForkAnswer:
        """Make a second query that goes on from what this one has committed.

        Args:
            name: of the fork.
            definition: edited; None: the same.
            into: name of its result; None: the fork's.
            desired_state: None: as this one.
        """
        parts = {"into": into, "desired_state": desired_state, "definition": _or_none(definition)}
        body = {"name": name} | {part: value for part, value in parts.items() if value is not None}
        headers = {"idempotency-key": new_key()}
        return ForkAnswer(self._transport.json(request("POST", self._path("fork"), body=body, headers=headers)))

    def take_over(self, fork: str) -> StoredQueryAnswer:
        """Put a fork in its place; the fork is gone then."""
        return StoredQueryAnswer(self._transport.json(request("PUT", self._path(), params={"from_fork": fork})))

    def restore_points(self) -> CommitsAnswer:
        """Return the commits that it can be rewound to, the newest first, and what is in the way."""
        return CommitsAnswer(self._transport.json(request("GET", self._path("restore-points"))))

    def rewind(
        self,
        batch_id: int,
        *,
        definition: AnyDefinition | None = None,
        desired_state: Literal["running", "paused", "stopped"] | None = None,
        dry_run: bool = False,
    ) -> RewindAnswer:
        """Put it back to a commit; it must be paused, stopped or failed.

        Args:
            batch_id: of ``restore_points``.
            definition: edited; None: its own.
            desired_state: None: unchanged.
            dry_run: say what would happen, and do nothing.
        """
        parts = {"desired_state": desired_state, "definition": _or_none(definition)}
        body = {"batch_id": batch_id} | {part: value for part, value in parts.items() if value is not None}
        headers = {"idempotency-key": new_key()}
        params = {"dry_run": dry_run or None}
        wanted = request("POST", self._path("rewind"), body=body, headers=headers, params=params)
        return RewindAnswer(self._transport.json(wanted))

    def explain(
        self,
        key: Key = None,
        at: Instant | None = None,
        *,
        partition: int | None = None,
        offset: int | None = None,
        part: str | None = None,
    ) -> Explanation:
        """Say why there is no row yet for a key and an event time, or why this one.

        Args:
            key: the value of the query's key, or a mapping with each of its columns.
            at: the event time.
            partition: with ``offset``, instead of ``key`` and ``at``: one record of the query's first input.
            offset: see ``partition``.
            part: with ``offset``: the part of the stream that has it.
        """
        params = [] if key is None else list(key_conditions(key))
        given = {"at": instant(at), "partition": partition, "offset": offset, "part": part}
        params += [(name, str(value)) for name, value in given.items() if value is not None]
        return Explanation(self._transport.json(request("GET", self._path("explain"), params=params)))

    def lateness(self) -> Lateness:
        """How late records came, and what other graces would have done to them."""
        return Lateness(self._transport.json(request("GET", self._path("lateness"))))

    def tide(self) -> TideChart:
        """Return a picture of stream time, the boundary, what waits before it and what came behind it."""
        return TideChart(self.status(tasks=True), self.lateness())

    def late_records(
        self,
        *,
        reason: str | None = None,
        input: str | None = None,  # noqa: A002 - what the interface calls it
        from_: Instant | None = None,
        to: Instant | None = None,
        key: Mapping[str, Any] | None = None,
        order: Literal["asc", "desc"] | None = None,
    ) -> LateRecords:
        """Choose late records, to iterate over or to replay; without an argument all.

        Args:
            reason: such as ``late_diverted``.
            input: the operator that found them late.
            from_: first event time.
            to: up to, not including, this event time.
            key: column → value of the record.
            order: ``desc``: the newest first.
        """
        chosen = LateRecordFilter(reason, input, instant(from_), instant(to), key)
        return LateRecords(self._transport, self._path("late-records"), chosen, order)

    def events(self) -> Generator[Event, None, None]:
        """Yield what happened to it, oldest first, to the present end."""
        return self._transport.pages(Event, self._path("events"))

    def follow_events(self, last_event_id: str | None = None) -> Generator[Event, None, None]:
        """Yield what happened to it and what happens, for ever, across connections."""
        following = Following(self._path("events"), {}, last_event_id)
        with closing(self._transport.followed(following)) as events:
            for event in events:
                yield Event(event.data)

    def runs(self) -> Generator[Run, None, None]:
        """Yield its launches."""
        return self._transport.pages(Run, self._path("runs"))


class LateRecords:
    """Late records that were chosen: iterate over them, or replay them."""

    def __init__(self, transport: Transport, path: str, chosen: LateRecordFilter, order: str | None) -> None:
        self._transport = transport
        self._path = path
        self._chosen = chosen
        self._order = order

    def __iter__(self) -> Iterator[LateRecord]:
        params = dict(self._chosen.params()) | ({} if self._order is None else {"order": self._order})
        return self._transport.pages(LateRecord, self._path, params)

    def replay(self, *, ids: Sequence[int] | None = None, again: bool = False) -> list[ReplayAnswer]:
        """Let them go through the query again: they are joined now, as of their own event time.

        Args:
            ids: of some; None: all that were chosen, in as many requests as that takes.
            again: also those that were replayed before.

        Returns:
            What was accepted and what was refused, of each request.

        Raises:
            ValueError: some are named by their ids, and chosen otherwise as well.
        """
        chosen = self._chosen.json()
        if ids is not None and chosen:
            raise ValueError(
                f"records are named by ids, or chosen by {', '.join(chosen)}; not both: use late_records().replay(ids=…)"
            )
        body: Json = {"again": again} | ({"filter": chosen} if ids is None else {"ids": [*ids]})
        answers: list[ReplayAnswer] = []
        while True:
            # Without `again` a repeated request replays nothing twice.
            wanted = request("POST", f"{self._path}/replay", body=body, is_repeatable=not again)
            answers.append(ReplayAnswer(self._transport.json(wanted)))
            if not answers[-1].more or again:
                return answers


def _or_none(definition: AnyDefinition | None) -> Json | None:
    return None if definition is None else json_of(definition)
