"""Warnings as answers show them."""

from __future__ import annotations

from collections.abc import Iterable

from app.api.schemas import WarningItem
from app.domain.waiting import Reason
from engine.plan.warnings import DefinitionWarning


def shown_warnings(warnings: Iterable[DefinitionWarning]) -> list[WarningItem]:
    """Return warnings as a part of an answer."""
    return [WarningItem(pointer=each.pointer, code=each.code, detail=each.detail, cure=each.cure) for each in warnings]


def shown_reasons(*reasons: Reason | None) -> list[WarningItem]:
    """Return what keeps a query from its wish as warnings about the wish."""
    return [WarningItem(pointer="/desired_state", code=each.code, detail=each.fact, cure=each.cure) for each in reasons if each]
