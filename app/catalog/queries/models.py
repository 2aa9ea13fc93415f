"""Bodies of answers about edits of queries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from app.catalog.queries.previews import Effect, EffectKind
from app.catalog.stored.edit_rules import Change
from app.http.schemas import Answer, ProblemItem, WarningItem, refers_to


class EditChange(Answer):
    """One part of a definition that differs from the stored one."""

    pointer: str = Field(description="JSON pointer of the part.", examples=["/window/grace"])
    kind: Literal["in_place", "repartition", "needs_new_state"] = Field(
        description="What the change needs: nothing more, another division of the state, or new state."
    )
    reason: str = Field(description="What happens to the stored data, or why it cannot be used.")


class EditEffect(Answer):
    """The effect of the edit on stored data. `at_least` equals `at_most` if the number is exact."""

    pointer: str = Field(description="The part of the definition that causes it.", examples=["/window/grace"])
    effect: EffectKind = Field(description="What happens.")
    operator: str | None = Field(description="The operator; null: the results or the late records.", examples=["window"])
    at_least: int = Field(description="Least number of records, rows or windows.", examples=[3])
    at_most: int = Field(description="Greatest number.", examples=[3])
    from_ms: int | None = Field(
        description="The earliest time: event times of records and versions, ends of windows; for a hold the wall clock.",
        examples=[1357034400000],
    )
    to_ms: int | None = Field(description="The latest time.", examples=[1357041600000])


class EditPreview(Answer):
    """The effect of a PUT of this definition on the query of that name."""

    kind: Literal["no_op", "in_place", "repartition", "needs_new_state"] = Field(
        description="`repartition`: in place, and the next launch divides the state among another number of tasks."
    )
    generation: int = Field(description="Generation of the stored definition.")
    changes: list[EditChange] = Field(description="The differing parts; empty for `no_op`.")
    effects: list[EditEffect] = Field(
        description="For an edit in place: effects with each task's next record, or at once with `?flush=now`. As of the last commit; "
        "estimates are bounds."
    )
    committed_at: datetime | None = Field(description="Time of the commit that the numbers are from; null: there is none yet.")


class ValidationAnswer(Answer):
    """The result of a validation."""

    valid: bool = Field(description="Whether it would be accepted.")
    problems: list[ProblemItem] = Field(description="All faults; empty if it is valid.")
    warnings: list[WarningItem] = Field(description="Warnings about a valid definition; may be empty.")
    definition: dict[str, Any] | None = Field(
        description="With every default; null if it could not be read.",
        json_schema_extra=refers_to("QueryDefinition"),
    )
    sql: str | None = Field(description="The same as an SQL statement; null if it is not valid.")
    output: dict[str, Any] | None = Field(description="The relation it would produce.")
    plan: dict[str, Any] | None = Field(description="Inputs, stages and operators.")
    edit: EditPreview | None = Field(description="The edit of the stored query; null if no query has this name.")


def shown_changes(changes: Iterable[Change]) -> list[EditChange]:
    return [EditChange.model_validate(asdict(each)) for each in changes]


def shown_effects(effects: Iterable[Effect]) -> list[EditEffect]:
    return [
        EditEffect(
            pointer=each.pointer, effect=each.kind, operator=each.operator, at_least=each.least, at_most=each.most,
            from_ms=each.from_ms, to_ms=each.to_ms,
        )
        for each in effects
    ]  # fmt: skip
