"""Using a sub-expression in several places without computing it several times.

An expression of Polars is a tree: a part that is used twice is planned and computed twice, and so are the parts in it. ``a + b + c + …``
that looks at each sum twice (is it finite?) would cost twice as much with each operand: thirty of them more memory than a machine has.
``once`` gives each such part a name (a field of a struct), so that an expression costs what it is long.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

_RESULT = "result"


def once(build: Callable[..., pl.Expr], *parts: pl.Expr) -> pl.Expr:
    """Return ``build(*parts)``, each part computed once however often ``build`` uses it.

    Args:
        build: makes the result of its arguments, which stand for the parts, and of nothing else that names a column.
        parts: columns and literals are handed on as they are: using them often costs nothing.
    """
    named = {f"part_{number}": part for number, part in enumerate(parts) if not _is_simple(part)}
    if not named:
        return build(*parts)
    # Columns go along as fields: what is computed here sees fields only.
    named |= {f"part_{number}": part for number, part in enumerate(parts) if not part.meta.is_literal()}
    given = [pl.field(name) if (name := f"part_{number}") in named else part for number, part in enumerate(parts)]
    return (
        pl.struct([part.alias(name) for name, part in named.items()])
        .struct.with_fields(build(*given).alias(_RESULT))
        .struct.field(_RESULT)
    )


def repeated(part: pl.Expr) -> pl.Expr:
    """Return a part of an expression with as many rows as its frame has.

    What names no column has one row and is spread by most of Polars, but not where lists and structs are made of a frame without rows.
    """
    return part if part.meta.root_names() else pl.repeat(part.first(), pl.len())


def _is_simple(part: pl.Expr) -> bool:
    return part.meta.is_column() or part.meta.is_literal()
