"""The scalar functions an expression may call: an allow-list. What is not here does not exist.

One entry (``engine.expressions.library``, a file for each theme) says everything of a function: how it is called, compiled and
explained. The compiler, `GET /v1/functions` and the reference (`/guide/reference/functions/`) read it here, and its examples run as tests.

Every function is deterministic and depends on its arguments alone: a replayed batch must give the same bytes, so there is no now()
and no random(). An argument that is NULL makes the result NULL, except for coalesce, greatest, least and concat, which pass over
NULLs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.expressions.library.casts import CASTS
from engine.expressions.library.choosing import CHOOSING
from engine.expressions.library.entry import Function
from engine.expressions.library.json.json_texts import JSON_TEXTS
from engine.expressions.library.nested.arrays import ARRAYS
from engine.expressions.library.nested.maps import MAPS
from engine.expressions.library.nested.more_arrays import COMBINATIONS, LAMBDAS, MIXED_ARRAYS
from engine.expressions.library.numbers.angles import ANGLES, PLACES
from engine.expressions.library.numbers.numbers import NUMBERS
from engine.expressions.library.numbers.rounding import ROUNDING
from engine.expressions.library.texts.binary import BINARY
from engine.expressions.library.texts.masks import MASKS
from engine.expressions.library.texts.more_texts import MORE_TEXTS
from engine.expressions.library.texts.regular_expressions import REGULAR_EXPRESSIONS
from engine.expressions.library.texts.texts import TEXTS
from engine.expressions.library.texts.texts_and_bytes import TEXTS_AND_BYTES
from engine.expressions.library.times.time_arithmetic import TIME_ARITHMETIC
from engine.expressions.library.times.time_texts import TIME_TEXTS
from engine.expressions.library.times.times import TIMES
from engine.expressions.library.urls import URLS
from engine.expressions.suggestions import meant
from engine.expressions.values.operands import ExpressionInvalid


def function_of(name: str) -> Function:
    """Return the function of the allow-list that a call names.

    Raises:
        ExpressionInvalid: ``unknown_function``.
    """
    function = FUNCTIONS.get(name.lower())
    if function is None:
        raise ExpressionInvalid("unknown_function", f"there is no function {name[:60]!r}; {_instead_of(name.lower())}")
    return function


def check_count(function: Function, count: int) -> None:
    """Raise ExpressionInvalid (``type_mismatch``) where a call has too few or too many arguments."""
    fewest, most = function.fewest, function.most
    if count < fewest or (most is not None and count > most):
        wanted = f"{fewest}" if most == fewest else f"{fewest} to {most or 'many'}"
        raise ExpressionInvalid(
            "type_mismatch", f"{function.name} takes {wanted} argument(s), not {count}: {function.name}({function.takes})"
        )


def _instead_of(name: str) -> str:
    own = ELSEWHERE.get(name)
    if own is not None:
        return f"here it is {own}" if own in FUNCTIONS else own
    near = meant(name, FUNCTIONS)
    return "GET /v1/functions lists all" if near is None else f"did you mean {near}?"


_NOW = "a result must not depend on when it is computed; use the event time, or `$event_time_ms` of a record"
_ADVICE: Mapping[str, str] = {
    "if": "write CASE WHEN … THEN … ELSE … END", "iif": "write CASE WHEN … THEN … ELSE … END", "decode": "write CASE … WHEN … THEN … END",
    "date_part": "write EXTRACT(part FROM time)", "year": "write EXTRACT(year FROM time)", "hour": "write EXTRACT(hour FROM time)",
    "month": "write EXTRACT(month FROM time)", "day": "write EXTRACT(day FROM time)", "to_date": "write CAST(… AS date)",
    "now": _NOW, "current_timestamp": _NOW, "random": "a result must be the same each time it is computed",
    "rand": "a result must be the same each time it is computed",
    "explode": "it makes rows, so it stands in `select` alone", "unnest": "write explode(array) in `select`",
    "regexp_like": "write regexp_extract(pattern, text) IS NOT NULL",
}  # fmt: skip
"""Names of functions that other systems have → what to write here instead."""

_LIST: Sequence[Function] = (
    *NUMBERS,
    *ROUNDING,
    *ANGLES,
    *TEXTS,
    *TEXTS_AND_BYTES,
    *MORE_TEXTS,
    *MASKS,
    *REGULAR_EXPRESSIONS,
    *BINARY,
    *JSON_TEXTS,
    *URLS,
    *PLACES,
    *CHOOSING,
    *TIMES,
    *CASTS,
    *ARRAYS,
    *MIXED_ARRAYS,
    *MAPS,
    *LAMBDAS,
    *TIME_TEXTS,
    *TIME_ARITHMETIC,
    *COMBINATIONS,
)

FUNCTIONS: Mapping[str, Function] = {function.name: function for function in _LIST}
ELSEWHERE: Mapping[str, str] = {**_ADVICE, **{name: function.name for function in _LIST for name in function.elsewhere}}
"""Names that other systems have → ours, or what to write instead."""
KSQLDB: Mapping[str, str] = {name: function.name for function in _LIST for name in function.ksqldb}
"""Names of ksqlDB, in capital letters → the entry that a call means in the dialect ksqldb. What is not here that dialect does not know."""


EXPLODE: Final = "explode"
"""Makes rows, as many of a record as an array has elements. Only ``select`` takes it (``engine.plan.building.exploding``)."""


@dataclass(frozen=True, slots=True)
class TableFunction:
    """One of them, documented."""

    form: str
    result: str
    doc: str


TABLE_FUNCTIONS: Final[Sequence[TableFunction]] = (
    TableFunction(
        f"{EXPLODE}(x: array)",
        "type of the elements",
        "A row for each element, in order; what else is selected stands in each of them. Several give one row per place together, NULL where an "
        "array has ended. Empty arrays and NULL give no row. In `select` of a stream that is not grouped, also inside other expressions.",
    ),
)
