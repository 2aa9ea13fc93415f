"""Why a resource is not in its desired state: a code, the fact and the cure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """The obstacle to a query's desired state, and its cure."""

    code: str
    fact: str
    cure: str

    @property
    def detail(self) -> str:
        """The fact and the cure."""
        return f"{self.fact}. {self.cure[:1].upper()}{self.cure[1:]}"
