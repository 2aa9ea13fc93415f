"""Warnings, faults and obstacles in answers, each with a link to the explanation of its code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.errors.error_list import explained_at
from app.http.schemas import ProblemItem, WarningItem
from engine.errors import Problem
from engine.plan.warnings import DefinitionWarning


@dataclass(frozen=True, slots=True)
class Reason:
    """The obstacle to a query's desired state, and its cure."""

    code: str
    fact: str
    cure: str

    @property
    def detail(self) -> str:
        return f"{self.fact}. {self.cure[:1].upper()}{self.cure[1:]}"


def shown_warnings(warnings: Iterable[DefinitionWarning]) -> list[WarningItem]:
    return [_item(each.pointer, each.code, each.detail, each.cure) for each in warnings]


def shown_reasons(*reasons: Reason | None) -> list[WarningItem]:
    """Return obstacles to a query's desired state as warnings about the desired state."""
    return [_item("/desired_state", each.code, each.fact, each.cure) for each in reasons if each]


def shown_problems(problems: Iterable[Problem]) -> list[ProblemItem]:
    return [
        ProblemItem(pointer=each.pointer, code=each.code, detail=each.detail, type=explained_at(each.code)) for each in problems
    ]


def _item(pointer: str, code: str, detail: str, cure: str) -> WarningItem:
    return WarningItem(pointer=pointer, code=code, detail=detail, cure=cure, type=explained_at(code))
