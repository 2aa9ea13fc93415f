"""Entries of the audit log: the action, the resource, and its state before and after. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal


class Action(StrEnum):
    """The action."""

    CREATE = "create"
    REPLACE = "replace"
    DELETE = "delete"
    SET_DESIRED_STATE = "set_desired_state"
    RESTART = "restart"
    REPLAY = "replay"
    REWIND = "rewind"
    REVOKE = "revoke"
    CHECK = "check"


ResourceKind = Literal["stream", "table", "query", "api_key", "connection"]
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a resource.

    Attributes:
        before: the resource's body before; None if it did not exist. Never a secret.
        after: its body after; None if it was deleted.
    """

    action: Action
    kind: ResourceKind
    name: str
    before: Body | None
    after: Body | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that the caller lacks the permission for.

    Attributes:
        request: method and route.
        kind: of the resource, where the route has one.
        code: of the answer.
        repeats: equal denials since the last entry that have no entry.
    """

    request: str
    kind: ResourceKind | None
    name: str | None
    code: str
    repeats: int
