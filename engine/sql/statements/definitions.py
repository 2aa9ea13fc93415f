"""Reads statements that make, change and drop: relations, types, functions, and what is put into relations."""

from __future__ import annotations

from typing import Literal

from engine.sql.faults import SyntaxFault
from engine.sql.statement_tree import (
    AlterAdd,
    ColumnDefinition,
    CreateAs,
    CreateFunction,
    CreateRelation,
    CreateType,
    Drop,
    InsertQuery,
    InsertValues,
    Refused,
    RelationKind,
    Row,
    Statement,
)
from engine.sql.statements.queries import QueryCursor
from engine.sql.tree import FieldType


class DefinitionCursor(QueryCursor):
    """A cursor that knows definitions."""

    def refused(self, start: int, words: str) -> Refused:
        """Go past all that follows, and return what it was."""
        while self.token.kind != "end":
            self.advance()
        return Refused(words, span=self.span(start))

    def create(self) -> Statement:
        """Read a CREATE, behind this word."""
        start = self.started
        is_replace = self.take_word("OR", "REPLACE")
        for kind in ("SOURCE", "SINK"):
            if self.take_word(kind, "CONNECTOR"):
                return self.refused(start, f"CREATE {kind} CONNECTOR")
        is_read_only = self.take_word("SOURCE")
        if self.take_word("STREAM"):
            return self._create_relation(start, "stream", is_replace=is_replace, is_read_only=is_read_only)
        if self.take_word("TABLE"):
            return self._create_relation(start, "table", is_replace=is_replace, is_read_only=is_read_only)
        if not is_read_only and self.take_word("FUNCTION"):
            return self._create_function(start, is_replace=is_replace)
        if not is_read_only and not is_replace and self.take_word("TYPE"):
            return self._create_type(start)
        raise self.unfit("STREAM or TABLE" if is_read_only or is_replace else "STREAM, TABLE, TYPE or FUNCTION")

    def _create_relation(self, start: int, kind: RelationKind, *, is_replace: bool, is_read_only: bool) -> Statement:
        is_if_not_exists = self._if_not_exists()
        name = self.name(f"a name for the {kind}")
        columns = self.columns()
        history = self.duration() if self.take_word("HISTORY", "RETENTION") else None
        properties = self.properties()
        if columns or is_read_only or not self.take_word("AS"):
            if self.token.word == "AS":
                raise SyntaxFault("columns_and_query" if columns else "read_only", self.token.start, self.token.end)
            return CreateRelation(
                kind, name, columns, history, properties, is_replace, is_read_only, is_if_not_exists, span=self.span(start)
            )
        query = self.query()
        return CreateAs(kind, name, query, history, properties, is_replace, is_if_not_exists, span=self.span(start))

    def _create_type(self, start: int) -> CreateType:
        is_if_not_exists = self._if_not_exists()
        name = self.name("a name for the type")
        self.need_word("AS")
        return CreateType(name, self.type_name(), is_if_not_exists, span=self.span(start))

    def _create_function(self, start: int, *, is_replace: bool) -> CreateFunction:
        name = self.name("a name for the function")
        parameters: tuple[FieldType, ...] = ()
        if self.token.is_sign("(") and self.ahead().is_sign(")"):
            self.advance()
            self.advance()
        else:
            parameters = self.listed(self._parameter)
        self.need_word("RETURNS")
        returns = self.type_name()
        self.need_word("LANGUAGE")
        self.need_word("PYTHON")
        properties = self.properties()
        self.need_word("AS")
        body = self.need_text("the function between $$ and $$")
        return CreateFunction(name, parameters, returns, body, properties, is_replace, span=self.span(start))

    def _parameter(self) -> FieldType:
        start = self.token.start
        name = self.name("a parameter")
        return FieldType(name, self.type_name(), span=self.span(start))

    def _if_not_exists(self) -> bool:
        return self.take_word("IF", "NOT", "EXISTS")

    def drop(self) -> Statement:
        """Read a DROP, behind this word."""
        start = self.started
        if self.take_word("CONNECTOR"):
            return self.refused(start, "DROP CONNECTOR")
        kinds: tuple[Literal["stream", "table", "type", "function"], ...] = ("stream", "table", "type", "function")
        what = next((kind for kind in kinds if self.take_word(kind.upper())), None)
        if what is None:
            raise self.unfit("STREAM, TABLE, TYPE or FUNCTION")
        is_if_exists = self.take_word("IF", "EXISTS")
        name = self.name(f"the name of a {what}")
        deletes_topic = what in ("stream", "table") and self.take_word("DELETE", "TOPIC")
        return Drop(what, name, is_if_exists, deletes_topic, span=self.span(start))

    def alter(self) -> Statement:
        """Read an ALTER, behind this word."""
        start = self.started
        if self.take_word("SYSTEM"):
            return self.refused(start, "ALTER SYSTEM")
        kind = self.kind()
        name = self.name(f"the name of a {kind}")
        columns = [self._added()]
        while self.take_sign(","):
            columns.append(self._added())
        return AlterAdd(kind, name, tuple(columns), span=self.span(start))

    def kind(self) -> RelationKind:
        """Read STREAM or TABLE."""
        if self.take_word("STREAM"):
            return "stream"
        if self.take_word("TABLE"):
            return "table"
        raise self.unfit("STREAM or TABLE")

    def _added(self) -> ColumnDefinition:
        """Read ``ADD [COLUMN] name type``."""
        self.need_word("ADD")
        start = self.token.start
        is_name = self.ahead(2).kind == "end" or self.ahead(2).is_sign(",", "(", "<")
        if self.token.word == "COLUMN" and not is_name:  # ADD column INT: a column of this name
            self.advance()
        name = self.name("a column")
        return ColumnDefinition(name, self.type_name(), span=self.span(start))

    def insert(self) -> Statement:
        """Read an INSERT, behind this word."""
        start = self.started
        self.need_word("INTO")
        name = self.name("the name of a stream or a table")
        columns = self.names()
        if columns or self.token.word == "VALUES":
            self.need_word("VALUES")
            return InsertValues(name, columns, self.series(self.row), span=self.span(start))
        properties = self.properties()
        self.note("VALUES", "SELECT")
        if self.token.word != "SELECT":
            raise self.unfit("VALUES or SELECT")
        return InsertQuery(name, self.query(), properties, span=self.span(start))

    def row(self) -> Row:
        """Read ``(value, ...)``."""
        start = self.token.start
        if self.token.is_sign("(") and self.ahead().is_sign(")"):
            self.advance()
            self.advance()
            return Row((), span=self.span(start))
        return Row(self.listed(self.expression), span=self.span(start))
