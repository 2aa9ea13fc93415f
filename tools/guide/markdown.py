"""Markdown in parts: what the pages of the reference are put together from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

_CODE: Final = re.compile(r"(``.+?``|`[^`]+`)")


def code(text: str) -> str:
    """Return a text in code font; one with a backtick in it, too."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def value(content: Any) -> str:
    """Return a value as JSON, in code font."""
    return code(json.dumps(content, ensure_ascii=False))


def block(language: str, text: str) -> str:
    """Return a block of code."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; its cells are Markdown. Empty where there are no rows."""
    lines = [_line(row) for row in rows]
    return "".join([_line(head), _line(["---"] * len(head)), *lines]) if lines else ""


def link(text: str, page: str, heading: str | None = None) -> str:
    """Return a link to a page, or to a heading on it."""
    return f"[{text}]({page}{'' if heading is None else '#' + anchor(heading)})"


def anchor(heading: str) -> str:
    """Return the anchor that the site gives a heading."""
    plain = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
    return re.sub(r"[-\s]+", "-", plain)


def page(*parts: str) -> str:
    """Return a page of its parts, with an empty line between them."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def prose(text: str) -> str:
    """Return a docstring as Markdown: what stands in double backticks is code there, too; roles of Sphinx are not used in this code."""
    return re.sub(r"``(.+?)``", r"`\1`", text)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escaped(cell.replace("\n", " ").strip()) for cell in cells) + " |\n"


def _escaped(cell: str) -> str:
    """Return a cell whose bars divide nothing; in code font they divide nothing as they are, and a backslash would be shown."""
    return "".join(part if part.startswith("`") else part.replace("|", "\\|") for part in _CODE.split(cell))
