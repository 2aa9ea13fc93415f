"""How large an expression may be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds that are kept while a text is read.

    Attributes:
        nesting: brackets, CASEs and prefix operators inside each other.
        depth: levels of the tree, in which a chain of AND, OR or || is one.
        values: of one IN.
        arguments: of one call and of one ||, and branches of one CASE.
    """

    nesting: int
    depth: int
    values: int
    arguments: int
