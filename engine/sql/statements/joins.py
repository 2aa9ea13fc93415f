"""Reads what a query reads: relations, as of a time, and joins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeVar

from engine.sql.faults import SyntaxFault
from engine.sql.statement_tree import (
    Expired,
    History,
    HoldClause,
    JoinClause,
    JoinType,
    Late,
    Relation,
    TimeTravel,
    Unmatched,
    Within,
)
from engine.sql.statements.clauses import ClauseCursor
from engine.sql.tree import Identifier

_BEHIND: Final[dict[str, tuple[str, ...]]] = {
    "EMIT": ("CHANGES", "FINAL", "AT", "ALL"),
    "PARTITION": ("BY",),
    "GRACE": ("PERIOD",),
    "FOR": ("SYSTEM_TIME",),
    "LATE": ("JOIN", "DROP", "DIVERT"),
    "EXPIRED": ("NULL", "DROP", "DIVERT"),
    "HOLD": ("UNTIL",),
    "HISTORY": ("COMPLETE", "LATEST"),
    "UNMATCHED": ("EAGER", "WHEN"),
    "WAIT": ("FOR",),
    "ORDER": ("BY",),
    "CROSS": ("JOIN",),
    "NATURAL": ("JOIN", "LEFT", "INNER"),
}
"""Words that begin a clause where one of these follows; else they are the relation's alias."""

_NO_ALIASES: Final = frozenset({"UNION", "INTERSECT", "EXCEPT"})
_CLAUSES: Final = (
    "EMIT",
    "WINDOW",
    "WHERE",
    "GROUP",
    "PARTITION",
    "HAVING",
    "LIMIT",
    "JOIN",
    "INNER",
    "LEFT",
    "RIGHT",
    "FULL",
    "ON",
    "WITHIN",
)

_LATE: Final[dict[str, Late]] = {"JOIN": "join", "DROP": "drop", "DIVERT": "divert"}
_EXPIRED: Final[dict[str, Expired]] = {"NULL": "null", "DROP": "drop", "DIVERT": "divert"}
_HISTORY: Final[dict[str, History]] = {"COMPLETE": "complete", "LATEST": "latest"}
_UNMATCHED: Final[dict[str, Unmatched]] = {"EAGER": "eager", "WHEN CLOSED": "when_closed"}

_Choice = TypeVar("_Choice")


class JoinCursor(ClauseCursor):
    """A cursor that knows relations and joins."""

    def relation(self) -> Relation:
        """Read ``name [FOR SYSTEM_TIME ...] [[AS] alias] [FOR SYSTEM_TIME ...]``."""
        start, name = self.token.start, self.name("a stream or a table")
        time = self._time()
        alias = self._alias()
        return Relation(name, alias, time or self._time(), span=self.span(start))

    def _alias(self) -> Identifier | None:
        if self.stands(("AS",)) and not self._stands_as_of():
            self.advance()
            return self.name("another name for the relation")
        return self.name() if self.stands_name() and not self._stands_clause() else None

    def _stands_clause(self) -> bool:
        behind = self.ahead()
        if self.token.word == "EMIT":  # EMIT CHANGE is misspelt, not an alias
            return behind.kind == "end" or (behind.kind == "word" and behind.word not in _CLAUSES)
        return self.token.word in _NO_ALIASES or behind.word in _BEHIND.get(self.token.word, ())

    def _stands_as_of(self) -> bool:
        is_time = self.ahead(2).kind == "text" or (self.ahead(2).word == "TIMESTAMP" and self.ahead(3).kind == "text")
        return self.stands(("AS", "OF")) and is_time

    def _time(self) -> TimeTravel | None:
        start = self.token.start
        if self._stands_as_of() or self.take_word("FOR", "SYSTEM_TIME"):
            if self.take_word("AS", "OF"):
                return TimeTravel(self.operand(), span=self.span(start))
            if not self.take_word("FROM"):
                raise self.unfit("AS OF or FROM")
            at = self.operand()
            self.need_word("TO")
            return TimeTravel(at, self.operand(), span=self.span(start))
        return None

    def joins(self) -> tuple[JoinClause, ...]:
        """Read all joins that stand next."""
        found: list[JoinClause] = []
        while (its_type := self._join_type()) is not None:
            found.append(self._join(its_type))
        return tuple(found)

    def _join_type(self) -> JoinType | None:
        types: dict[str, JoinType] = {"LEFT": "left", "RIGHT": "right", "FULL": "outer"}
        for word, its_type in types.items():
            if self.take_word(word):
                self.take_word("OUTER")
                self.need_word("JOIN")
                return its_type
        if self.take_word("INNER"):
            self.need_word("JOIN")
            return "inner"
        return "inner" if self.take_word("JOIN") else None

    def _join(self, its_type: JoinType) -> JoinClause:
        start = self.token.start
        relation = self.relation()
        within = self._within() if self.take_word("WITHIN") else None
        grace = self.duration() if self.take_word("GRACE", "PERIOD") else None
        is_unversioned = grace is not None and self.take_word("UNVERSIONED")
        late = self._choice(_LATE) if self.take_word("LATE") else None
        expired = self._choice(_EXPIRED) if self.take_word("EXPIRED") else None
        hold = self._hold() if self.take_word("HOLD") else None
        history = self._choice(_HISTORY) if self.take_word("HISTORY") else None
        unmatched = self._choice(_UNMATCHED) if self.take_word("UNMATCHED") else None
        if not self.take_word("ON"):
            if self.token.word == "USING":
                raise SyntaxFault("other_sql", self.token.start, self.token.end)
            raise self.unfit("ON")
        on = self.expression()
        return JoinClause(
            its_type, relation, within, grace, is_unversioned, late, expired, hold, history, unmatched, on, span=self.span(start)
        )

    def _choice(self, choices: Mapping[str, _Choice]) -> _Choice:
        for words, choice in choices.items():
            if self.take_word(*words.split()):
                return choice
        raise self.unfit(" or ".join(choices))

    def _within(self) -> Within:
        start = self.token.start
        if not self.take_sign("("):
            both = self.duration()
            return Within(both, both, span=self.span(start))
        before = self.duration()
        self.need_sign(",")
        after = self.duration()
        self.need_sign(")")
        return Within(before, after, span=self.span(start))

    def _hold(self) -> HoldClause:
        """Read ``UNTIL TABLE TIME | CAUGHT UP [PLUS d], AT MOST d [, n ROWS]``."""
        start = self.token.start
        self.need_word("UNTIL")
        until: Literal["table_time", "caught_up"] = "table_time"
        if self.take_word("CAUGHT", "UP"):
            until = "caught_up"
        elif not self.take_word("TABLE", "TIME"):
            raise self.unfit("TABLE TIME or CAUGHT UP")
        slack = self.duration() if self.take_word("PLUS") else None
        self.need_sign(",")
        self.need_word("AT")
        self.need_word("MOST")
        at_most = self.duration()
        max_rows: str | None = None
        if self.take_sign(","):
            max_rows = self.whole_number()
            self.need_word("ROWS")
        return HoldClause(until, at_most, slack, max_rows, span=self.span(start))
