"""What the audit log says of a change: what was done to which resource, and how that looked before and after. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal


class Action(StrEnum):
    """What was done."""

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
    """A change of the control plane.

    Attributes:
        before: the resource's body until now; None where there was none. Never a secret.
        after: its body from now on; None where it is gone.
    """

    action: Action
    kind: ResourceKind
    name: str
    before: Body | None
    after: Body | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that the caller was not allowed to make.

    Attributes:
        request: method and route.
        kind: of the resource, where the route has one.
        code: of the answer.
        repeats: equal ones since the last entry that have none of their own.
    """

    request: str
    kind: ResourceKind | None
    name: str | None
    code: str
    repeats: int
