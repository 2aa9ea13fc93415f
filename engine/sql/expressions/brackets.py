"""Where a tree gets brackets that nobody wrote: a test that is an operand (``(a IS NULL) = b``) can then be read in one way only.

Canonical texts hold these brackets, so kept state depends on where they stand.
"""

from __future__ import annotations

from typing import Final

from engine.sql.tree import Between, Binary, Chain, In, Is, Like, Negative, Node, Not, Paren

DISTINCT: Final = ("IS DISTINCT FROM", "IS NOT DISTINCT FROM")
_COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=", *DISTINCT)


def is_test(node: Node) -> bool:
    """Whether a node is IS … or IS [NOT] DISTINCT FROM …."""
    return isinstance(node, Is) or (isinstance(node, Binary) and node.sign in DISTINCT)


def _is_truth(node: Node) -> bool:
    """Whether a node gives a truth value by its form alone."""
    is_compared = isinstance(node, Binary) and node.sign in _COMPARISONS
    return is_compared or isinstance(node, Not | Is | Like | Between | In) or (isinstance(node, Chain) and node.sign != "||")


def bracketed(node: Node) -> Node:
    """Return a node in brackets that nobody wrote."""
    return Paren(node, span=node.span)


def closed(node: Node) -> Node:
    """Return what stands before an operator, in brackets where it ends with a NOT, which would take what follows for its own."""
    last = node
    while isinstance(last, Binary | Negative):
        last = last.right if isinstance(last, Binary) else last.operand
    return bracketed(node) if isinstance(last, Not) else node


def as_side(node: Node) -> Node:
    """Return a side of a comparison, in brackets where it is a test."""
    return bracketed(node) if is_test(node.operand if isinstance(node, Not) else node) else node


def as_tested(node: Node, *, is_distinct: bool = False) -> Node:
    """Return what IS tests, in brackets where its end would not be seen."""
    is_plain = (
        isinstance(node, Between | In)
        or (isinstance(node, Like) and not node.is_negated)
        or (isinstance(node, Is) and not is_distinct)
    )
    return bracketed(node) if _is_truth(node) and not is_plain else node


def as_operand_of_test(node: Node) -> Node:
    """Return what stands behind IS and IS DISTINCT FROM, in brackets where it is a truth value."""
    return bracketed(node) if _is_truth(node) else node
