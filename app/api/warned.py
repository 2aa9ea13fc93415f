"""Warnings as answers show them."""

from __future__ import annotations

from collections.abc import Iterable

from app.api.schemas import WarningItem
from engine.plan.warnings import DefinitionWarning


def shown_warnings(warnings: Iterable[DefinitionWarning]) -> list[WarningItem]:
    """Return warnings as a part of an answer."""
    return [WarningItem(pointer=each.pointer, code=each.code, detail=each.detail, cure=each.cure) for each in warnings]
