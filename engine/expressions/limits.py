"""How large a definition may be: every bound in one place, each with its reason.

A definition is checked and laid out while somebody waits, and each of its parts costs every batch something. The bounds are beyond what
people write, and low enough that the largest definition is checked within about a second. What an operator of the service would want to
change (sizes of bodies, how much may be under way) is a setting instead (``app.settings.settings``).

Bounds that the models check count for what users send, not for what is stored: what one version has stored is valid for every later one.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

MAX_COLUMNS: Final = 1_500
"""Columns of a relation, given or made. A table of Postgres holds 1,600 columns and a statement's answer 1,664; ours are among them."""

MAX_KEY_COLUMNS: Final = 32
"""``INDEX_MAX_KEYS`` of Postgres as everybody builds it. The key of a versioned table's history also has the version's time."""

MAX_KEY_PARTS: Final = 100
"""Columns of a source's key, and parts of ``group_by``: each is hashed, and compared behind the hash, for every record. Where rows are kept,
``MAX_KEY_COLUMNS`` counts."""

MAX_JOINS: Final = 32
"""Each join is an operator with a state of its own, and at most one more stage of tasks."""

MAX_AGGREGATES: Final = 500
"""Each keeps a value per group, which every merge of state writes again."""

MAX_FUNCTIONS: Final = 50
"""In Python, of one query: each has a process of its own in every worker."""

MAX_EXPRESSION_CHARS: Final = 10_000
"""Of one expression. Longer text is not written by a person; the parser's cost grows with it."""

MAX_DEFINITION_CHARS: Final = 40_000
"""Of all expressions of one query: 30,000 of the costliest are checked in a second. 1,500 columns of 26 characters each."""

MAX_CANONICAL_CHARS: Final = 1_000_000
"""Of an expression as the plan writes it: every column by its full name in quotes, up to 130 characters for one that was written."""

MAX_IN_VALUES: Final = 2_000
"""A longer list of values is a table, and IN a join with it."""

MAX_ARGUMENTS: Final = 500
"""Of one call (concat, coalesce, greatest, least), and branches of one CASE, which Polars nests."""

MAX_TEXT_BYTES: Final = 1 << 20
"""Of a text that a function makes longer, and of all texts that a lambda makes for one record, beyond those it is given: as much as is kept of
a late record."""

MAX_MADE_BYTES: Final = 16 << 20
"""Of all texts that the expressions of a `select` make for one row: as many as a record may hold."""

MAX_COLLECTED_VALUES: Final = 10_000
"""Of a group's collect_list, collect_set or histogram: each change of the group writes and sends all of them again (P12)."""

MAX_COLLECTED_BYTES: Final = 1 << 20
"""Of the same, and of top_k: what stands before a value that is collected. A value is collected whole, so the last may pass it."""

MAX_REDUCED_ELEMENTS: Final = 10_000
"""Of an array or map that is reduced: each is a step of its own, of some 0.2 ms for all rows together."""

MAX_REDUCED_BYTES: Final = 256 << 20
"""Of the texts that a reduction makes on its way for one record: one that grows by ten bytes with each of 7,000 elements."""

MAX_LAMBDA_CELLS: Final = 10_000_000
"""Values that a lambda which reads whole arrays, or makes some, looks at for one record: elements times what stands beside each."""

LAMBDA_STEP_CELLS: Final = 2_000_000
"""Of the same, how many are in memory at once."""

LAMBDA_STEP_TEXTS: Final = 4_096
"""Texts that a lambda which may make long ones makes at once, of up to ``MAX_TEXT_BYTES`` each."""

LAMBDA_STEP_TEXT_LISTS: Final = 512
"""Arrays of such texts that it makes at once, of up to about ``MAX_TEXT_BYTES`` together each."""

MADE_LIST_CELLS: Final = 1_000
"""As how many values an array counts that a lambda makes for each element, before it is there to be counted."""

MAX_ARRAY_ELEMENTS: Final = 10_000
"""Of an array or map that an expression makes longer than it was given."""

MAX_DISTINCT_VALUES: Final = 1_000_000
"""That count(distinct x) tells apart in a group of a stream: each batch of the group reads all of them."""

MAX_DISTINCT_BYTES: Final = 64 << 20
"""Of the same: a million texts of 60 bytes."""

MAX_NESTING: Final = 16
"""Brackets, CASEs and prefix operators inside each other. The parser and the compiler recurse some twenty Python frames a level, of
1,000 in all: what the service accepts must also compile deep inside a driver's stack."""

MAX_TREE_DEPTH: Final = 64
"""Levels of the tree, where chains of one operator (a + b + c …) count too. AND and OR chains count once."""

MAX_NAMES_LOOKED_AT: Final = 6_000
"""Names among which one is sought that may have been meant: it takes a microsecond each."""

MAX_LOOKED_AT_CHARS: Final = 130
"""Of a name that is sought so: an alias and a column."""

MAX_FIELDS: Final = 100
"""Of an object whose fields are fixed; none has more than some twenty. pydantic makes a fault of each field that there is not."""

MAX_PROBLEMS: Final = 100
"""Faults of a definition that are listed. Nobody mends more at once, and each may look for a name that was meant."""

MAX_PROBLEMS_READ: Final = 5_000
"""Faults that are looked at to list the first ones: pydantic hands over all or none, at 8 µs each."""


STORED: Final = {"is_stored": True}
"""Context of a validation that reads a stored definition."""


class FewFields(BaseModel):
    """A model that refuses an object of far too many fields before it looks at each: `too_many_fields`."""

    @model_validator(mode="before")
    @classmethod
    def _has_few_fields(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, dict) and len(value) > MAX_FIELDS and not info.context:
            raise too_many("fields", len(value), MAX_FIELDS)
        return value


def at_most(most: int, what: str) -> Any:
    """Return an annotation that refuses a longer array or object before its parts are looked at.

    Args:
        most: how many parts there may be.
        what: the parts, for the message and the code (``too_many_joins``).
    """

    def check(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, list | tuple | dict) and len(value) > most and not info.context:
            raise too_many(what, len(value), most)
        return value

    return BeforeValidator(check)


def too_many(what: str, count: int, most: int) -> PydanticCustomError:
    """Return the error of a field with too many parts; its type is the code."""
    found = {"count": f"{count:,}", "words": what.replace("_", " "), "most": f"{most:,}"}
    return PydanticCustomError(f"too_many_{what}", "{count} {words} are too many: there may be at most {most}", found)


def _of_readable_length(text: str, info: ValidationInfo) -> str:
    if len(text) > MAX_EXPRESSION_CHARS and not info.context:
        detail = "An expression may have {most} characters, this one has {count}; compute parts of it in a query before"
        found = {"most": f"{MAX_EXPRESSION_CHARS:,}", "count": f"{len(text):,}"}
        raise PydanticCustomError("expression_too_long", detail, found)
    return text


Expression = Annotated[
    str, Field(min_length=1, json_schema_extra={"maxLength": MAX_EXPRESSION_CHARS}), AfterValidator(_of_readable_length)
]
"""Text of a SQL scalar expression."""
