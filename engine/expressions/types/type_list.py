"""What each type is and how JSON shows it: for `GET /v1/functions` and the reference. A test holds it against ``types``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine.expressions.documented import JsonValue


@dataclass(frozen=True)
class TypeForm:
    """One type.

    Attributes:
        form: how it is written.
        doc: what it holds.
        example: a value as JSON shows it.
    """

    form: str
    doc: str
    example: JsonValue


TYPES: Final[Sequence[TypeForm]] = (
    TypeForm("boolean", "true or false.", True),
    TypeForm("int", "A whole number of 32 bits.", 12),
    TypeForm(
        "bigint",
        "A whole number of 64 bits; beyond 2^53 it may be sent as text, and is answered so with `bigints=string`.",
        1357041600000,
    ),
    TypeForm("double", "A number with a floating point of 64 bits; finite.", 2.5),
    TypeForm(
        "decimal(12,2)", "An exact number: digits in all (1 to 38), and those behind the point. May be sent as text.", "12.50"
    ),
    TypeForm("string", "Text in Unicode, without the character U+0000.", "tea"),
    TypeForm("bytes", "Bytes, in base64.", "dGVh"),
    TypeForm("date", "A day.", "2013-01-31"),
    TypeForm("time", "A time of day, to the microsecond, without a zone.", "13:45:00"),
    TypeForm(
        "timestamp", "An instant, to the microsecond. Sent with any zone, kept and answered in UTC.", "2013-01-01T12:00:00Z"
    ),
    TypeForm("array<string>", "Values of one type, in order.", ["a", "b"]),
    TypeForm("map<string,int>", "Values by text.", {"a": 1}),
    TypeForm(
        "struct<name:string,count:int>",
        "Named fields; a name that is no plain word stands in quotes.",
        {"name": "tea", "count": 2},
    ),
)
