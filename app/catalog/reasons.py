"""Why something is not in its desired state: a code, the fact and the cure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """What keeps a query from its desired state, and what can be done about it."""

    code: str
    fact: str
    cure: str

    @property
    def detail(self) -> str:
        """Both together."""
        return f"{self.fact}. {self.cure[:1].upper()}{self.cure[1:]}"
