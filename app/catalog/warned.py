"""Warnings and faults of definitions as answers show them, each with a link to where its code is explained."""

from __future__ import annotations

from collections.abc import Iterable

from app.catalog.reasons import Reason
from app.errors.error_list import explained_at
from app.http.schemas import ProblemItem, WarningItem
from engine.errors import Problem
from engine.plan.warnings import DefinitionWarning


def shown_warnings(warnings: Iterable[DefinitionWarning]) -> list[WarningItem]:
    """Return warnings as a part of an answer."""
    return [_item(each.pointer, each.code, each.detail, each.cure) for each in warnings]


def shown_reasons(*reasons: Reason | None) -> list[WarningItem]:
    """Return what keeps a query from its desired state as warnings about the desired state."""
    return [_item("/desired_state", each.code, each.fact, each.cure) for each in reasons if each]


def shown_problems(problems: Iterable[Problem]) -> list[ProblemItem]:
    """Return the faults of a definition as a part of an answer."""
    return [
        ProblemItem(pointer=each.pointer, code=each.code, detail=each.detail, type=explained_at(each.code)) for each in problems
    ]


def _item(pointer: str, code: str, detail: str, cure: str) -> WarningItem:
    return WarningItem(pointer=pointer, code=code, detail=detail, cure=cure, type=explained_at(code))
