"""Reads types, and texts with a type before them (``DATE '2013-01-01'``)."""

from __future__ import annotations

from engine.sql.cursor import Cursor
from engine.sql.faults import SyntaxFault
from engine.sql.tree import Cast, TypeName
from engine.sql.type_names import TYPE_PHRASES, TYPE_WORDS


class TypeCursor(Cursor):
    """A cursor that knows types."""

    def typed_text(self) -> Cast | None:
        """Read ``DATE '2013-01-01'``; None where something else stands there."""
        start = self.token.start
        phrase = next((words for words in TYPE_PHRASES if self.stands(words)), None)
        behind = 1 if phrase is None else len(phrase)
        if phrase is None and self.token.word not in TYPE_WORDS:
            return None
        if self.ahead(behind).is_sign("("):
            behind += next((length for length in (3, 5) if self.ahead(behind + length - 1).is_sign(")")), 0)
        if self.ahead(behind).kind != "text":
            return None
        target = self.type_name()
        found = Cast(self.text(), target, span=self.span(start))
        if self.token.is_sign("::"):
            raise SyntaxFault("cast_of_typed_text", self.token.start, self.token.end)
        return found

    def type_name(self) -> TypeName:
        """Read a type."""
        start = self.token.start
        name = next((name for words, name in TYPE_PHRASES.items() if self.take_word(*words)), None)
        if name is None:
            if self.token.kind not in ("word", "quoted"):
                raise self.unfit("a type")
            written = self.advance().text
            name = TYPE_WORDS.get(written.upper(), written)
        numbers = self._numbers() if self.take_sign("(") else ()
        types = self._types() if name in ("ARRAY", "MAP") and self.take_sign("<") else ()
        found = TypeName(name, numbers, types, span=self.span(start))
        while self.token.is_sign("[") and self.ahead().is_sign("]"):
            self.advance()
            self.advance()
            found = TypeName("ARRAY", types=(found,), span=self.span(start))
        return found

    def _numbers(self) -> tuple[str, ...]:
        found: list[str] = []
        while not found or self.take_sign(","):
            if not (self.token.kind == "number" and self.token.text.isdigit()) and self.token.word != "MAX":
                raise self.unfit("a whole number")
            found.append(self.advance().text.upper())
        self.need_sign(")")
        return tuple(found)

    def _types(self) -> tuple[TypeName, ...]:
        found = [self.deeper(self.type_name)]
        while self.take_sign(","):
            found.append(self.deeper(self.type_name))
        self.need_sign(">")
        return tuple(found)
