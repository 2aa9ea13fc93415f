"""Bodies of answers about edits of queries."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from app.catalog.queries.previews import EffectKind
from app.http.schemas import Answer, ProblemItem, WarningItem, refers_to


class EditChange(Answer):
    """One part of a definition that differs from the one in force."""

    pointer: str = Field(description="JSON pointer of the part.", examples=["/window/grace"])
    kind: Literal["in_place", "repartition", "needs_new_state"] = Field(
        description="What the change asks for: nothing more, another sharing out of the state, or new state."
    )
    reason: str = Field(description="What becomes of what is held, or why that cannot be used.")


class EditEffect(Answer):
    """What the edit does to what is there. `at_least` equals `at_most` where the number is exact."""

    pointer: str = Field(description="The part of the definition that causes it.", examples=["/window/grace"])
    effect: EffectKind = Field(description="What happens.")
    operator: str | None = Field(description="Where; null: in the results or the late records.", examples=["window"])
    at_least: int = Field(description="To how many records, rows or windows at least.", examples=[3])
    at_most: int = Field(description="To how many at most.", examples=[3])
    from_ms: int | None = Field(
        description="The earliest time concerned: event times of records and versions, ends of windows; of a hold the wall clock.",
        examples=[1357034400000],
    )
    to_ms: int | None = Field(description="The latest one.", examples=[1357041600000])


class EditPreview(Answer):
    """What a PUT of this definition would do to the query of that name."""

    kind: Literal["no_op", "in_place", "repartition", "needs_new_state"] = Field(
        description="`repartition`: in place, and the next launch shares the state out among another number of tasks."
    )
    generation: int = Field(description="Of the definition in force.")
    changes: list[EditChange] = Field(description="What differs; empty for `no_op`.")
    effects: list[EditEffect] = Field(
        description="Of an edit in place: with each task's next record, or at once with `?flush=now`. As of the last commit; estimates "
        "are bounds."
    )
    committed_at: datetime | None = Field(description="The commit that this is said of; null: there is none yet.")


class ValidationAnswer(Answer):
    """What the service thinks of a definition."""

    valid: bool = Field(description="Whether it would be accepted.")
    problems: list[ProblemItem] = Field(description="Every fault of it; empty where it is valid.")
    warnings: list[WarningItem] = Field(description="What may surprise of a valid definition; empty where nothing does.")
    definition: dict[str, Any] | None = Field(
        description="With every default spelled out; null where it could not be read.",
        json_schema_extra=refers_to("QueryDefinition"),
    )
    sql: str | None = Field(description="The same as a statement of SQL; null where it is not valid.")
    output: dict[str, Any] | None = Field(description="The relation it would produce.")
    plan: dict[str, Any] | None = Field(description="Inputs, stages and operators.")
    edit: EditPreview | None = Field(description="The edit it would be; null where no query has this name.")
