"""Functions that hide what a text says and keep its shape."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import Final

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.arguments import texts_of, whole
from engine.expressions.library.by_value import Unfit, by_value
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.types.types import STRING
from engine.expressions.values import evaluation_errors as gaps
from engine.expressions.values.operands import ExpressionInvalid, Operand

_BY_DEFAULT: Final = ("X", "x", "n", "-")
_PLACES: Final = {"Lu": 0, "Ll": 1, "Nd": 2}
"""Unicode's categories of capital and small letters and of digits → whose mask counts; of all others the last one does."""

_MASKS: Final = "capital?: string, small?: string, digit?: string, other?: string"
_DOC: Final = "capital letters become X, small ones x, digits n, all others -, or the masks given: one character each, NULL keeps"


def masked(text: str, masks: Sequence[str | None]) -> str:
    if any(mask is not None and len(mask) != 1 for mask in masks):
        raise Unfit
    shown = (masks[_PLACES.get(unicodedata.category(each), 3)] for each in text)
    return "".join(each if mask is None else mask for each, mask in zip(text, shown, strict=True))


def _split(text: str, count: int, *, is_left: bool) -> tuple[str, str]:
    """Return the text's first part, and its last: so many characters from the left, or from the right."""
    if count < 0:
        raise Unfit
    place = min(count, len(text)) if is_left else max(len(text) - count, 0)
    return text[:place], text[place:]


def _of_part(*, is_left: bool, is_kept: bool) -> Callable[..., str | None]:
    """Return what masks, or keeps, so many characters of one side."""

    def found(text: str | None, count: int | None, *masks: str | None) -> str | None:
        if text is None or count is None:
            return None
        first, last = _split(text, count, is_left=is_left)
        return first + masked(last, masks) if is_left == is_kept else masked(first, masks) + last

    return found


def _whole(text: str | None, *masks: str | None) -> str | None:
    return None if text is None else masked(text, masks)


def _masking(name: str, function: Callable[..., str | None], *, has_count: bool) -> Callable[[Arguments], Operand]:
    def compiled(arguments: Arguments) -> Operand:
        before = 2 if has_count else 1
        given = arguments[before:]
        if len(given) not in (0, len(_BY_DEFAULT)):
            raise ExpressionInvalid(
                "type_mismatch", f"{name} takes all four masks (capital, small, digit, other) or none, not {len(given)}"
            )
        parts = [*texts_of(name, arguments[:1]), *(whole(name, argument) for argument in arguments[1:before])]
        masks = texts_of(name, given) if given else [pl.lit(mask) for mask in _BY_DEFAULT]
        return by_value(function, [*parts, *masks], STRING, takes_null=True)

    return compiled


def _entry(name: str, doc: str, example: Example, *, is_left: bool, is_kept: bool) -> Function:
    build = _masking(name, _of_part(is_left=is_left, is_kept=is_kept), has_count=True)
    return Function(
        name, f"text: string, count: whole number, {_MASKS}", "string", f"{doc}: {_DOC}.", (example,), build,
        gaps=gaps.where_failed("outside_domain"), ksqldb=(name.upper(),),
    )  # fmt: skip


MASKS: Sequence[Function] = (
    Function(
        "mask", f"text: string, {_MASKS}", "string", f"The text with each character hidden: {_DOC}.",
        (Example("mask('Flat 12b')", "Xxxx-nnx"), Example("mask('Flat 12b', '*', '*', NULL, NULL)", "**** 12*")),
        _masking("mask", _whole, has_count=False), gaps=gaps.where_failed("outside_domain"), ksqldb=("MASK",),
    ),
    _entry("mask_left", "The text with a number of characters at the beginning hidden", Example("mask_left('Flat 12b', 4)", "Xxxx 12b"),
           is_left=True, is_kept=False),
    _entry("mask_right", "The text with a number of characters at the end hidden", Example("mask_right('Flat 12b', 3)", "Flat nnx"),
           is_left=False, is_kept=False),
    _entry("mask_keep_left", "The text with all but a number of characters at the beginning hidden",
           Example("mask_keep_left('Flat 12b', 4)", "Flat-nnx"), is_left=True, is_kept=True),
    _entry("mask_keep_right", "The text with all but a number of characters at the end hidden",
           Example("mask_keep_right('Flat 12b', 3)", "Xxxx-12b"), is_left=False, is_kept=True),
)  # fmt: skip
