"""Every statement and clause of SQL in short, made of the nodes that the parser makes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Final

from engine.sql import statement_tree
from engine.sql.statement_tree import Refused, Statement
from engine.sql.tree import Node
from tools.guide.markdown import page, table

_OURS: Final = "Ours: "
_HEAD: Final = """# Statements

Every statement and clause in short: `[…]` may be left out, `|` stands between alternatives, `d` is a duration such as `5 MINUTES`.
*Ours* is what ksqlDB's language does not
have. [SQL](sql.md) explains the statements, [Functions](functions.md) has what stands in expressions."""
_WITHOUT_FORM: Final = (Statement, Refused)
_FORM: Final = re.compile(r"``(.+?)``[.,;:]?\s*(.*)", re.DOTALL)


class FormMissing(ValueError):
    """The docstring of a node does not begin with the form of what it stands for."""


def statements() -> str:
    """Return the page.

    Raises:
        FormMissing: a node's docstring does not say how it is written.
    """
    return page(
        _HEAD,
        "## Statements",
        _table(node for node in nodes() if issubclass(node, Statement)),
        "## Clauses",
        _table(node for node in nodes() if not issubclass(node, Statement)),
    )


def nodes() -> list[type[Node]]:
    """Return the nodes that stand for something a user writes, in the order of the module."""
    found = [each for _, each in inspect.getmembers(statement_tree, inspect.isclass) if issubclass(each, Node)]
    own = [each for each in found if each.__module__ == statement_tree.__name__ and each not in _WITHOUT_FORM]
    return sorted(own, key=lambda each: inspect.getsourcelines(each)[1])


def _table(listed: Iterable[type[Node]]) -> str:
    return table(("Form", "Ours", "Notes"), (_row(node) for node in listed))


def _row(node: type[Node]) -> tuple[str, str, str]:
    text = inspect.getdoc(node) or ""
    is_ours = text.startswith(_OURS)
    found = _FORM.fullmatch(text.removeprefix(_OURS))
    if found is None:
        raise FormMissing(
            f"{node.__name__}: let its docstring begin with the form in double backticks, {_OURS!r} before it where it is ours"
        )
    form, notes = (" ".join(part.split()) for part in found.groups())
    return f"`{form}`", "ours" if is_ours else "", notes.replace("``", "`").removesuffix(".")
