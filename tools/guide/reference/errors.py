"""Every code of an error, with its meaning and its cure: one heading for each, so that a link leads to it."""

from __future__ import annotations

from typing import Final

from app.errors.error_list import ERRORS, ErrorEntry
from tools.guide.markdown import page

_HEAD: Final = """# Errors

Every error has a code, and each code has a heading here. An answer with a status of 400 or more is
`application/problem+json`; its `code` is what a program looks at, its `detail` says what is wrong in this request, its `cure` what helps
in general, and its `type`
(`/v1/errors/{code}`) leads a browser to this page and answers a program with the same as JSON."""
_KINDS: Final = {
    "request": ("Of requests", "The answer to a request carries the code."),
    "definition": (
        "Of definitions",
        "A field of a definition or of another body is wrong: an entry of `errors`, with a pointer to the field.",
    ),
    "statement": ("Of statements", "A statement of SQL is wrong: an entry of `errors`, with line and column."),
    "record": ("Of records", "A record was refused. The answer to the append and the relation's rejects carry the code."),
    "query": ("Of queries", "A query failed, is tried again, or waits. Its status carries the code."),
    "warning": ("Of warnings", "Something was accepted and may still surprise: an entry of `warnings` in the answer."),
}


def errors() -> str:
    """Return the page."""
    parts = [_HEAD]
    for kind, (title, text) in _KINDS.items():
        parts += [f"## {title}", text]
        parts += [_entry(entry) for entry in ERRORS.values() if entry.kind == kind]
    return page(*parts)


def _entry(entry: ErrorEntry) -> str:
    statuses = ", ".join(f"{status}" for status in entry.statuses)
    where = f"Status {statuses}" if statuses else "Stands in a status"
    again = "the same may succeed later" if entry.is_retryable else "the same again does not help"
    kept = f"{where}; {again}" if entry.kind != "warning" else "A warning refuses nothing"
    return page(f"### {entry.code}", entry.meaning, f"**Cure:** {entry.cure}", f"*{kept}.*")


def kinds() -> frozenset[str]:
    """Return the kinds of codes that have a part of the page."""
    return frozenset(_KINDS)
