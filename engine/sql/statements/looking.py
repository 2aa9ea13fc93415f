"""Reads statements that show: SHOW, DESCRIBE, EXPLAIN, PRINT."""

from __future__ import annotations

from abc import abstractmethod

from engine.sql.statement_tree import Describe, Explain, ExplainWhy, Print, Show, ShownKind, Statement
from engine.sql.statements.definitions import DefinitionCursor
from engine.sql.tree import Node

_SHOWN: dict[str, ShownKind] = {
    "STREAMS": "streams",
    "TABLES": "tables",
    "TOPICS": "topics",
    "QUERIES": "queries",
    "FUNCTIONS": "functions",
    "PROPERTIES": "properties",
    "TYPES": "types",
    "VARIABLES": "variables",
    "CONNECTORS": "connectors",
}
_EXTENDED = ("streams", "tables", "topics", "queries")


class LookingCursor(DefinitionCursor):
    """A cursor that knows what shows."""

    @abstractmethod
    def statement(self) -> Statement:
        """Read a statement."""

    def show(self) -> Statement:
        """Read a SHOW or LIST, behind this word."""
        start = self.started
        if self.take_word("CONNECTOR", "PLUGINS"):
            return Show("connector_plugins", span=self.span(start))
        if self.take_word("LATE", "RECORDS"):
            self.need_word("OF")
            query = self.name("a query")
            limit = self.whole_number() if self.take_word("LIMIT") else None
            return Show("late_records", of=query, limit=limit, span=self.span(start))
        is_all = self.token.word == "ALL" and self.ahead().word == "TOPICS" and self.take_word("ALL")
        if self.token.word in ("SOURCE", "SINK") and self.ahead().word == "CONNECTORS":
            self.advance()
        what = next((kind for word, kind in _SHOWN.items() if self.take_word(word)), None)
        if what is None:
            raise self.unfit("STREAMS, TABLES, TOPICS, QUERIES, FUNCTIONS, PROPERTIES, TYPES or VARIABLES")
        is_extended = what in _EXTENDED and self.take_word("EXTENDED")
        return Show(what, is_extended, is_all=is_all, span=self.span(start))

    def describe(self) -> Statement:
        """Read a DESCRIBE, behind this word."""
        start = self.started
        behind = self.ahead()
        is_all = behind.kind == "end" or behind.word == "EXTENDED"
        if self.token.word == "CONNECTOR" and not is_all:
            return self.refused(start, "DESCRIBE CONNECTOR")
        if self.token.word == "FUNCTION" and not is_all:
            self.advance()
            return Describe("function", self.name("a function"), span=self.span(start))
        if self.take_word("STREAMS"):
            return Describe("streams", None, self.take_word("EXTENDED"), span=self.span(start))
        if self.take_word("TABLES"):
            return Describe("tables", None, self.take_word("EXTENDED"), span=self.span(start))
        name = self.name("the name of a stream or a table")
        return Describe("relation", name, self.take_word("EXTENDED"), span=self.span(start))

    def explain(self) -> Statement:
        """Read an EXPLAIN, behind this word."""
        start = self.started
        if self.token.word == "WHY" and self.ahead(2).word == "KEY":
            return self._why(start)
        if self.stands_name() and self.ahead().kind == "end":
            return Explain(self.name(), span=self.span(start))
        return Explain(self.deeper(self.statement), span=self.span(start))

    def _why(self, start: int) -> ExplainWhy:
        self.need_word("WHY")
        query = self.name("a query")
        self.need_word("KEY")
        key: tuple[Node, ...] = self.listed(self.expression)
        at = self.expression() if self.take_word("AT") else None
        return ExplainWhy(query, key, at, span=self.span(start))

    def print(self) -> Statement:
        """Read a PRINT, behind this word."""
        start = self.started
        topic = self.name_or_text("a topic")
        is_from_beginning = self.take_word("FROM", "BEGINNING")
        interval = self.whole_number() if self.take_word("INTERVAL") or self.take_word("SAMPLE") else None
        limit = self.whole_number() if self.take_word("LIMIT") else None
        return Print(topic, is_from_beginning, interval, limit, span=self.span(start))
