"""Reads one statement: by its first word."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal

from engine.sql.expressions.expressions import check_depth, check_nesting
from engine.sql.faults import SyntaxFault
from engine.sql.lexing.cursor import Bounds
from engine.sql.lexing.tokens import statement_tokens
from engine.sql.statement_tree import (
    AssertRelation,
    AssertTopic,
    AssertValues,
    Control,
    CreateRelation,
    Define,
    SetProperty,
    Statement,
)
from engine.sql.statements.looking import LookingCursor

STATEMENT_BOUNDS: Final = Bounds(nesting=16, depth=72, values=10_000, arguments=500)
"""Of a statement. What an expression of a definition may have is for the definition to say."""

END: Final = "the end of the statement"
FIRST_WORDS: Final = (
    "SELECT", "CREATE", "INSERT", "DROP", "ALTER", "TERMINATE", "PAUSE", "RESUME", "SHOW", "LIST", "DESCRIBE", "EXPLAIN", "PRINT", "SET",
    "UNSET", "DEFINE", "UNDEFINE", "ASSERT", "RUN",
)  # fmt: skip
OTHER_SQL: Final = ("UPDATE", "DELETE", "MERGE", "WITH", "VALUES")
"""With these words statements of other SQLs begin."""


_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")
"""Neither Postgres nor UTF-8 has them."""


def parse_statement(text: str, bounds: Bounds = STATEMENT_BOUNDS) -> Statement:
    """Read one statement, without a semicolon behind it.

    Raises:
        SyntaxFault: the text is no statement, or a larger one than may be.
    """
    if (stray := _UNSTORABLE.search(text)) is not None:
        raise SyntaxFault("character", stray.start(), stray.end())
    tokens = statement_tokens(text)
    check_nesting(tokens, bounds)
    cursor = StatementCursor(tokens, bounds)
    try:
        tree = cursor.statement()
        if cursor.token.kind != "end":
            raise cursor.unfit(END)
        check_depth(tree, bounds)
    except RecursionError as error:
        raise SyntaxFault("too_deep", cursor.token.start, cursor.token.end) from error
    return tree


class StatementCursor(LookingCursor):
    """A cursor that knows all statements."""

    has_parameters = True

    def statement(self) -> Statement:
        token = self.token
        if token.word == "SELECT":
            return self.query()
        read = self._by_word.get(token.word)
        if read is not None:
            self.started = token.start
            self.advance()
            return read()
        self.note(*FIRST_WORDS)
        if token.word in OTHER_SQL:
            raise SyntaxFault("other_sql", token.start, token.end)
        raise self.unfit("a statement, such as SELECT, CREATE, INSERT, SHOW or DESCRIBE")

    @property
    def _by_word(self) -> dict[str, Callable[[], Statement]]:
        return {
            "CREATE": self.create,
            "INSERT": self.insert,
            "DROP": self.drop,
            "ALTER": self.alter,
            "TERMINATE": lambda: self._control("terminate"),
            "PAUSE": lambda: self._control("pause"),
            "RESUME": lambda: self._control("resume"),
            "SHOW": self.show,
            "LIST": self.show,
            "DESCRIBE": self.describe,
            "EXPLAIN": self.explain,
            "PRINT": self.print,
            "SET": self._set,
            "UNSET": self._unset,
            "DEFINE": self._define,
            "UNDEFINE": self._undefine,
            "ASSERT": self._assert,
            "RUN": self._run,
        }

    def _control(self, action: Literal["terminate", "pause", "resume"]) -> Control:
        start = self.started
        query = None if self.take_word("ALL") else self.name("a query, or ALL")
        return Control(action, query, span=self.span(start))

    # -------------------------------------------------------------- the session
    def _set(self) -> SetProperty:
        start, name = self.started, self.need_text("a property in single quotes")
        self.need_sign("=")
        return SetProperty(name, self.need_text("a value in single quotes"), span=self.span(start))

    def _unset(self) -> SetProperty:
        start, name = self.started, self.need_text("a property in single quotes")
        return SetProperty(name, None, span=self.span(start))

    def _define(self) -> Define:
        start, name = self.started, self.name("a variable")
        self.need_sign("=")
        return Define(name, self.need_text("a value in single quotes"), span=self.span(start))

    def _undefine(self) -> Define:
        start, name = self.started, self.name("a variable")
        return Define(name, None, span=self.span(start))

    def _run(self) -> Statement:
        start = self.started
        self.need_word("SCRIPT")
        return self.refused(start, "RUN SCRIPT")

    # -------------------------------------------------------------- assertions
    def _assert(self) -> Statement:
        start = self.started
        is_missing = self.take_word("NOT", "EXISTS")
        if self.take_word("SCHEMA"):
            return self.refused(start, "ASSERT SCHEMA")
        if self.take_word("TOPIC"):
            return self._assert_topic(start, is_missing=is_missing)
        if is_missing:
            raise self.unfit("TOPIC or SCHEMA")
        if self.take_word("NULL"):
            self.need_word("VALUES")
            return self._assert_values(start, is_null=True)
        if self.take_word("VALUES"):
            return self._assert_values(start, is_null=False)
        if self.token.word not in ("STREAM", "TABLE"):
            raise self.unfit("TOPIC, VALUES, NULL VALUES, STREAM or TABLE")
        at, kind = self.token.start, self.kind()
        name, columns, properties = self.name(f"the name of a {kind}"), self.columns(), self.properties()
        relation = CreateRelation(kind, name, columns, properties=properties, span=self.span(at))
        return AssertRelation(relation, span=self.span(start))

    def _assert_topic(self, start: int, *, is_missing: bool) -> AssertTopic:
        topic, properties = self.name_or_text("a topic"), self.properties()
        timeout = self.duration() if self.take_word("TIMEOUT") else None
        return AssertTopic(topic, properties, is_missing, timeout, span=self.span(start))

    def _assert_values(self, start: int, *, is_null: bool) -> AssertValues:
        name, columns = self.name("the name of a stream or a table"), self.names()
        self.need_word("KEY" if is_null else "VALUES")
        return AssertValues(name, columns, self.row(), is_null, span=self.span(start))
