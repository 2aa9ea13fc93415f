"""Reads what makes arrays, maps, structs and functions without a name (lambdas)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from engine.sql.expressions.types import TypeCursor
from engine.sql.tree import ArrayOf, Call, Entry, FieldValue, Identifier, Lambda, MapOf, Node, StructOf


class ConstructorCursor(TypeCursor):
    """A cursor that knows constructors."""

    @abstractmethod
    def expression(self) -> Node:
        """Read an expression."""

    def array(self) -> ArrayOf:
        """Read ``ARRAY[items]``."""
        start = self.advance().start
        self.need_sign("[")
        items = self.expressions("]")
        span = self.span(start)
        self.check_list("ARRAY", len(items), self.bounds.values, span)
        return ArrayOf(items, span=span)

    def struct(self) -> StructOf:
        """Read ``STRUCT(name := value, ...)``."""
        start = self.advance().start
        self.need_sign("(")
        fields: list[FieldValue] = []
        while not self.take_sign(")"):
            at = self.token.start
            name = self.identifier()
            self.need_sign(":=")
            fields.append(FieldValue(name, self.expression(), span=self.span(at)))
            if not self.token.is_sign(")") and not self.take_sign(","):
                raise self.unfit("a comma or )")
        span = self.span(start)
        self.check_list("STRUCT", len(fields), self.bounds.values, span)
        return StructOf(tuple(fields), span=span)

    def map(self) -> Node:
        """Read ``MAP(key := value, ...)``, or a call of a function of this name."""
        start, name = self.token.start, self.identifier()
        self.need_sign("(")
        entries: list[Entry] = []
        while not self.take_sign(")"):
            key = self.argument()
            if not entries and not self.token.is_sign(":="):
                return self.call(name, start, (key,))
            self.need_sign(":=")
            entries.append(Entry(key, self.expression(), span=self.span_from(key)))
            if not self.token.is_sign(")") and not self.take_sign(","):
                raise self.unfit("a comma or )")
        span = self.span(start)
        self.check_list("MAP", len(entries), self.bounds.values, span)
        return MapOf(tuple(entries), span=span)

    def call(self, name: Identifier, start: int, first: tuple[Node, ...] = ()) -> Call:
        """Read the rest of a call, behind its bracket or behind the first argument."""
        is_distinct = not first and self.take_word("DISTINCT")
        if not first and not is_distinct and self.token.word == "ALL" and not self.ahead().is_sign(")", ","):
            self.advance()
        if first and not self.token.is_sign(")") and not self.take_sign(","):
            raise self.unfit("a comma or )")
        arguments = first + self._list(")", self.argument)
        span = self.span(start)
        self.check_list(name.text.lower(), len(arguments), self.bounds.arguments, span)
        return Call(Identifier(name.text.lower(), name.is_quoted), arguments, is_distinct, span=span)

    def argument(self) -> Node:
        """Read an argument of a call: an expression, or a lambda (``x => e``, ``(a, b) => e``)."""
        if not self._is_lambda():
            return self.expression()
        start = self.token.start
        is_bracketed = self.take_sign("(")
        names = [self.identifier()]
        while is_bracketed and self.take_sign(","):
            names.append(self.identifier())
        if is_bracketed:
            self.need_sign(")")
        self.need_sign("=>")
        return Lambda(tuple(names), self.deeper(self.expression), span=self.span(start))

    def _is_lambda(self) -> bool:
        if not self.token.is_sign("("):
            return self.token.kind in ("word", "quoted") and self.ahead().is_sign("=>")
        distance = 1
        while self.ahead(distance).kind in ("word", "quoted"):
            if self.ahead(distance + 1).is_sign(")"):
                return self.ahead(distance + 2).is_sign("=>")
            if not self.ahead(distance + 1).is_sign(","):
                return False
            distance += 2
        return False

    def expressions(self, closing: str) -> tuple[Node, ...]:
        """Read expressions up to the closing bracket; a comma may stand before it."""
        return self._list(closing, self.expression)

    def _list(self, closing: str, item: Callable[[], Node]) -> tuple[Node, ...]:
        items: list[Node] = []
        while not self.take_sign(closing):
            items.append(item())
            if not self.token.is_sign(closing) and not self.take_sign(","):
                raise self.unfit(f"a comma or {closing}")
        return tuple(items)
