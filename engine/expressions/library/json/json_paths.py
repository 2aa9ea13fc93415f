"""Paths of JSON by Polars' own reader, for the texts of which it gives what ``json_values`` gives.

That reader refuses every text that ``json_values`` refuses, and some more. It writes numbers anew: a pattern finds those that it may write
otherwise than they stood, and sometimes such digits inside of a text. What is not certain is left to ``json_values``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import polars as pl

from engine.expressions.library.by_value import Quick
from engine.expressions.limits import MAX_TEXT_BYTES

_NUMBERS_WRITTEN_ANEW: Final = "|".join(
    (
        r"-?[0-9.]+[eE][-+]?[0-9]+",
        r"-0(?:\.0+)?",
        r"-?[0-9]+\.[0-9]+0",
        r"-?0\.0000[0-9]*",
        # Beyond 18 digits no 64 bits, and with a fraction beyond 15 no double has them all.
        r"-?[0-9]{19,}",
        r"-?(?:[0-9]{10,}\.[0-9]+|[0-9]{7,}\.[0-9]{7,}|[0-9]{4,}\.[0-9]{10,}|[0-9]+\.[0-9]{13,})",
    )
)
_WRITTEN_ANEW: Final = rf"(?:^|[:,\[\s])(?:{_NUMBERS_WRITTEN_ANEW})(?:$|[,\]}}\s])"

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACE: Final = re.compile(r"0|[1-9][0-9]{0,8}")


def quickly_extracted(steps: Sequence[str]) -> Quick | None:
    """Return how Polars gives what stands at a path, or None where names need a reader that knows more.

    Args:
        steps: names and places, from the outermost value on.
    """
    if not all(_NAME.fullmatch(step) or _PLACE.fullmatch(step) for step in steps):
        return None
    path = "$" + "".join(f"[{step}]" if step.isdigit() else f"['{step}']" for step in steps)
    has_names_alone = not any(step.isdigit() for step in steps)

    def quick(given: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
        texts = given.to_series(0)
        found = texts.str.json_path_match(path)
        rows = pl.DataFrame([texts.alias("text"), found.alias("found")])
        text, value = pl.col("text"), pl.col("found")
        # Signs are written as \u001F here and as \u001f there, inside of values alone: a text is given as it is.
        is_exact = ~text.str.contains(_WRITTEN_ANEW) & ~(value.str.contains(r"^[{\[]") & text.str.contains(r"\u", literal=True))
        is_given = value.is_not_null() & is_exact & (value.str.len_bytes() <= MAX_TEXT_BYTES)
        is_sure = rows.select((text.is_null() | is_given).fill_null(value=False)).to_series()
        return found, is_sure | _is_absent(texts, found) if has_names_alone else is_sure

    return quick


def quickly_validated(given: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """Return where texts are JSON, as far as Polars knows."""
    is_json = given.to_series(0).str.json_path_match("$").is_not_null()
    return is_json, is_json


def _is_absent(texts: pl.Series, found: pl.Series) -> pl.Series:
    """Return where nothing stands at a path of names: the text is JSON, and holds no null, which the reader does not tell from nothing."""
    is_sought = found.is_null() & ~texts.str.contains("null", literal=True).fill_null(value=True)
    if not is_sought.any():
        return is_sought
    is_json = texts.set(~is_sought, None).str.json_path_match("$").is_not_null()
    return is_sought & is_json
