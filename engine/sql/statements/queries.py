"""Reads queries: SELECT with its clauses, in the order that ksqlDB has, and ours at the places that ``statement_tree`` tells."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from engine.sql.faults import SyntaxFault
from engine.sql.statement_tree import BufferClause, Duration, EmitClause, Select, SelectItem, WindowClause
from engine.sql.statements.joins import JoinCursor
from engine.sql.tree import AllFields, Between, Binary, Chain, Identifier, In, Is, Like, Negative, Node, Not, Star

_ORDER: Final = "FROM, JOIN, WINDOW, WHERE, GROUP BY, PARTITION BY, HAVING, EMIT, LIMIT"
_LATE: Final = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "WINDOW", "WHERE", "GROUP", "PARTITION", "HAVING", "EMIT", "LIMIT")
OTHER_CLAUSES: Final = ("ORDER", "UNION", "INTERSECT", "EXCEPT", "OFFSET", "CROSS", "QUALIFY", "FETCH", "NATURAL")
"""With these words clauses of other SQLs begin."""

_LOOSER: Final = (Between, Binary, Chain, In, Is, Like, Negative, Not, Star)

_SIZES: Final = {"BYTES": 1, "KB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}


class QueryCursor(JoinCursor):
    """A cursor that knows queries."""

    def query(self) -> Select:
        start = self.token.start
        self.need_word("SELECT")
        if self.token.word == "DISTINCT":
            raise SyntaxFault("other_sql", self.token.start, self.token.end)
        items = self.series(self._item)
        if not self.take_word("FROM"):
            raise self.unfit("a comma or FROM")
        relation = self.relation()
        joins = self.joins()
        window = self._window() if self.take_word("WINDOW") else None
        where = self.expression() if self.take_word("WHERE") else None
        group_by = self._keys() if self.take_word("GROUP", "BY") else ()
        partition_by = self._keys() if self.take_word("PARTITION", "BY") else ()
        having = self.expression() if self.take_word("HAVING") else None
        emit = self._emit() if self.take_word("EMIT") else None
        limit = self.whole_number() if self.take_word("LIMIT") else None
        position, up_to = None, None
        if self.take_word("WAIT", "FOR", "POSITION"):
            position = self.need_text("a position in single quotes")
            up_to = self.duration() if self.take_word("UP", "TO") else None
        self._refuse_rest()
        return Select(
            items,
            relation,
            joins,
            window,
            where,
            group_by,
            partition_by,
            having,
            emit,
            limit,
            position,
            up_to,
            span=self.span(start),
        )

    def _refuse_rest(self) -> None:
        token = self.token
        if token.word in _LATE:
            raise SyntaxFault("order", token.start, token.end, _ORDER)
        if token.word in OTHER_CLAUSES:
            raise SyntaxFault("other_sql", token.start, token.end)

    def _item(self) -> SelectItem:
        start = self.token.start
        value = self.expression()
        if self.token.is_sign("->"):  # what stands before -> * is a value
            if isinstance(value, _LOOSER):
                raise self.unfit("a comma or FROM")
            self.need_sign("->")
            self.need_sign("*")
            return SelectItem(AllFields(value, span=self.span(start)), span=self.span(start))
        if isinstance(value, Star):
            return SelectItem(value, span=self.span(start))
        if self.token.word == "OVER" and self.ahead().is_sign("("):
            raise SyntaxFault("window_function", self.token.start, self.token.end)
        alias: Identifier | None = None
        if self.take_word("AS") or self.stands_name():
            alias = self.name("a name for the column")
        return SelectItem(value, alias, span=self.span(start))

    def _keys(self) -> tuple[Node, ...]:
        """Read expressions with commas between them, or the same in brackets."""
        if not (self.token.is_sign("(") and self._is_list()):
            return self.series(self.expression)
        return self.listed(self.expression)

    def _is_list(self) -> bool:
        """Whether the bracket that stands next holds a list, not one expression."""
        depth, distance = 1, 1
        while depth and self.ahead(distance).kind != "end":
            token = self.ahead(distance)
            if depth == 1 and token.is_sign(","):
                return True
            depth += token.is_sign("(", "[")
            depth -= token.is_sign(")", "]")
            distance += 1
        return False

    # -------------------------------------------------------------- windows
    def _window(self) -> WindowClause:
        start = self.token.start
        name = self.name() if self.stands_name() and not self.ahead().is_sign("(") else None
        if self.take_word("TUMBLING"):
            return self._sized(start, name, is_hopping=False)
        if self.take_word("HOPPING"):
            return self._sized(start, name, is_hopping=True)
        if self.take_word("SESSION"):
            self.need_sign("(")
            gap = self.duration()
            retention, grace = self._window_bounds()
            return WindowClause("session", gap, None, retention, grace, name, span=self.span(start))
        if self.take_word("SLIDING"):
            self.need_sign("(")
            self.need_word("DIFFERENCE")
            difference = self.duration()
            retention, grace = self._window_bounds()
            return WindowClause("sliding", difference, None, retention, grace, name, span=self.span(start))
        raise self.unfit("TUMBLING, HOPPING, SESSION or SLIDING")

    def _sized(self, start: int, name: Identifier | None, *, is_hopping: bool) -> WindowClause:
        self.need_sign("(")
        self.need_word("SIZE")
        size, advance = self.duration(), None
        if is_hopping:
            self.need_sign(",")
            self.need_word("ADVANCE")
            self.need_word("BY")
            advance = self.duration()
        retention, grace = self._window_bounds()
        return WindowClause("hopping" if is_hopping else "tumbling", size, advance, retention, grace, name, span=self.span(start))

    def _window_bounds(self) -> tuple[Duration | None, Duration | None]:
        """Read ``[, RETENTION d] [, GRACE PERIOD d] )``."""
        retention = grace = None
        if self.token.is_sign(",") and self.ahead().word == "RETENTION":
            self.advance()
            self.need_word("RETENTION")
            retention = self.duration()
        if self.take_sign(","):
            self.need_word("GRACE")
            self.need_word("PERIOD")
            grace = self.duration()
        if not self.take_sign(")"):
            raise self.unfit("GRACE PERIOD or )" if self.token.is_sign(",") else "a comma or )")
        return retention, grace

    # -------------------------------------------------------------- results
    def _emit(self) -> EmitClause:
        start = self.token.start
        if self.take_word("CHANGES"):
            every = self.duration() if self.take_word("EVERY") else None
            is_event_driven = every is not None and self.take_word("EVENT", "DRIVEN")
            waits = self.token.word == "WAIT" and self.ahead().word != "FOR"
            wait = self.duration() if waits and self.take_word("WAIT") else None
            found = EmitClause("changes", every=every, is_event_driven=is_event_driven, wait=wait)
        elif self.take_word("FINAL"):
            found = EmitClause("final", keeps_open=self.take_word("KEEP", "OPEN"))
        elif self.take_word("AT"):
            for word in ("WINDOW", "END", "THEN", "CHANGES"):
                self.need_word(word)
            found = EmitClause("window_end")
        elif self.take_word("ALL"):
            found = EmitClause("all")
        else:
            raise self.unfit("CHANGES or FINAL")
        return self._bounded(start, found)

    def _bounded(self, start: int, emit: EmitClause) -> EmitClause:
        """Read ``[BUFFER ...] [IDLE AFTER d] [CLOCK FASTEST | SLOWEST]``."""
        buffer = self._buffer() if self.take_word("BUFFER") else None
        idle_after = self.duration() if self.take_word("IDLE", "AFTER") else None
        clock = self._clock() if self.take_word("CLOCK") else None
        return replace(emit, buffer=buffer, idle_after=idle_after, clock=clock, span=self.span(start))

    def _clock(self) -> Literal["fastest", "slowest"]:
        if self.take_word("SLOWEST"):
            return "slowest"
        if self.take_word("FASTEST"):
            return "fastest"
        raise self.unfit("FASTEST or SLOWEST")

    def _buffer(self) -> BufferClause:
        start = self.token.start
        rows = size = None
        while True:
            number = self.whole_number()
            if self.take_word("ROWS"):
                rows = number
            elif (unit := next((unit for unit in _SIZES if self.take_word(unit)), None)) is not None:
                size = str(int(number) * _SIZES[unit])
            else:
                raise self.unfit("ROWS, BYTES, KB, MB or GB")
            if not self.take_sign(","):
                break
        when_full: Literal["emit_early", "stop"] | None = None
        if self.take_word("ON", "FULL"):
            is_early = self.take_word("EMIT")
            if not is_early and not self.take_word("STOP"):
                raise self.unfit("EMIT or STOP")
            when_full = "emit_early" if is_early else "stop"
        return BufferClause(rows, size, when_full, span=self.span(start))
