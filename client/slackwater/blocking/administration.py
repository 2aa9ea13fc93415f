# Made from slackwater/asynchronous by `make client`: change it there.
"""What belongs to the service as a whole: connections, keys, the audit log, errors, functions, health."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Literal

from slackwater.answers.answer_list import (
    ApiKeyAnswer,
    AuditEntry,
    CheckAnswer,
    ConnectionAnswer,
    DriversAnswer,
    ErrorItem,
    FunctionsAnswer,
    MeAnswer,
    NewApiKeyAnswer,
    OverviewAnswer,
    Readiness,
    SettingItem,
    Version,
)
from slackwater.blocking.transport import Resource
from slackwater.parameters import Duration, Instant, duration, instant
from slackwater.transport.requests import new_key, path_of, request


class Connections(Resource):
    """How brokers, registries, buckets and databases are reached: ``client.connections``."""

    def put(self, name: str, definition: Mapping[str, Any]) -> ConnectionAnswer:
        """Make or replace a connection; its secrets are given each time and never shown again."""
        headers = {"idempotency-key": new_key()}
        wanted = request("PUT", _connection(name), body=dict(definition), headers=headers)
        return ConnectionAnswer(self._transport.json(wanted))

    def get(self, name: str) -> ConnectionAnswer:
        """Look at one."""
        return ConnectionAnswer(self._transport.json(request("GET", _connection(name))))

    def list(self) -> Generator[ConnectionAnswer, None, None]:
        """Yield all of them."""
        return self._transport.pages(ConnectionAnswer, path_of("connections"))

    def check(self, name: str) -> CheckAnswer:
        """Try to reach it, for five seconds at most."""
        wanted = request("POST", f"{_connection(name)}/check", is_repeatable=True)
        return CheckAnswer(self._transport.json(wanted))

    def delete(self, name: str) -> None:
        """Delete one that nobody uses."""
        self._transport.send(request("DELETE", _connection(name)))


class ApiKeys(Resource):
    """API keys: ``client.api_keys``."""

    def create(
        self,
        name: str,
        role: Literal["read", "write", "admin"],
        *,
        scope: Sequence[str] | None = None,
        expires_in: Duration | None = None,
    ) -> NewApiKeyAnswer:
        """Make a key; its secret is in the answer, this once."""
        parts = {"scope": None if scope is None else [*scope], "expires_in": duration(expires_in)}
        body = {"name": name, "role": role} | {part: value for part, value in parts.items() if value is not None}
        return NewApiKeyAnswer(self._transport.json(request("POST", path_of("api-keys"), body=body)))

    def list(self) -> Generator[ApiKeyAnswer, None, None]:
        """Yield all of them."""
        return self._transport.pages(ApiKeyAnswer, path_of("api-keys"))

    def revoke(self, name: str) -> None:
        """Revoke one."""
        self._transport.send(request("DELETE", path_of("api-keys", name)))


class Errors(Resource):
    """The service's list of error codes: ``client.errors``."""

    def list(self) -> list[ErrorItem]:
        """Return every code with its meaning and cure."""
        answer = self._transport.json(request("GET", path_of("errors")))
        return [ErrorItem(each) for each in answer["items"]]

    def get(self, code: str) -> ErrorItem:
        """Explain a code."""
        return ErrorItem(self._transport.json(request("GET", path_of("errors", code))))


class System(Resource):
    """The service itself: ``client.system``."""

    def version(self) -> Version:
        """Return the versions of service and interface."""
        return Version(self._transport.json(request("GET", path_of("version"))))

    def me(self) -> MeAnswer:
        """Return the role and the scope of the key that this client sends."""
        return MeAnswer(self._transport.json(request("GET", path_of("me"))))

    def overview(self, *, limit: int | None = None, cursor: str | None = None) -> OverviewAnswer:
        """Return every query with its numbers, and what they read and write.

        Args:
            limit: how many queries at most; ``next`` of the answer goes on.
            cursor: ``next`` of the answer before.
        """
        params = {"limit": None if limit is None else str(limit), "cursor": cursor}
        return OverviewAnswer(self._transport.json(request("GET", path_of("overview"), params=params)))

    def is_alive(self) -> bool:
        """Whether it answers at all."""
        answer = self._transport.json(request("GET", "/healthz"))
        return bool(answer["status"] == "ok")

    def ready(self, *, for_reads: bool = False) -> Readiness:
        """Return what it needs and whether that is there; ``Unavailable`` where something is not.

        Args:
            for_reads: whether a driver is there does not matter.
        """
        params = {"for": "reads" if for_reads else None}
        wanted = request("GET", "/readyz", params=params, is_repeatable=False)
        return Readiness(self._transport.json(wanted))

    def metrics(self) -> str:
        """Return its metrics, as Prometheus reads them."""
        return (self._transport.send(request("GET", "/metrics"))).text

    def functions(self) -> FunctionsAnswer:
        """Return the functions, aggregates, operators and types of expressions."""
        return FunctionsAnswer(self._transport.json(request("GET", path_of("functions"))))

    def drivers(self) -> DriversAnswer:
        """Return the processes that run queries with what each has, and the queries that no driver has."""
        return DriversAnswer(self._transport.json(request("GET", path_of("drivers"))))

    def settings(self) -> list[SettingItem]:
        """Return every setting of the service with its value and where that comes from."""
        answer = self._transport.json(request("GET", path_of("settings")))
        return [SettingItem(each) for each in answer["settings"]]

    def audit(
        self,
        *,
        resource: str | None = None,
        actor: str | None = None,
        outcome: str | None = None,
        since: Instant | None = None,
        until: Instant | None = None,
    ) -> Generator[AuditEntry, None, None]:
        """Yield who changed what and who was refused, the newest first."""
        params = {
            "resource": resource,
            "actor": actor,
            "outcome": outcome,
            "since": instant(since),
            "until": instant(until),
        }
        return self._transport.pages(AuditEntry, path_of("audit"), params)


def _connection(name: str) -> str:
    return path_of("connections", name)
