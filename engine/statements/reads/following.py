"""What a SELECT with EMIT is answered from: the changes of the one relation that it reads, or a query of its own (``transient``)."""

from __future__ import annotations

from typing import Literal

from engine.sql.statement_tree import Select
from engine.statements.context.session import Session
from engine.statements.reads.reading import OwnedRead, is_owned_read, read_of


def beginning_of(session: Session) -> Literal["earliest", "latest"]:
    """Return where reading begins, as the session's properties say."""
    return "latest" if session.settings.values.get("auto.offset.reset", "earliest").lower() == "latest" else "earliest"


def followed_by(select: Select, session: Session) -> OwnedRead | None:
    """Return the read of a relation's single changes; None where more is asked.

    A table's WHERE needs the rows before, and records of a stream with parts have their order from a query that reads them all.

    Raises:
        StatementRefused: it is wrong.
    """
    if not is_owned_read(select) or (select.emit is not None and select.emit.mode != "changes"):
        return None
    read = read_of(select, session)
    needs_query = read.relation.kind == "table" and read.where is not None
    return None if needs_query or read.relation.entry.parts else read
