"""Reads types, and texts with a type before them (``DATE '2013-01-01'``)."""

from __future__ import annotations

from typing import Final

from engine.sql.faults import SyntaxFault
from engine.sql.lexing.cursor import Cursor
from engine.sql.tree import Cast, FieldType, TypeName

_WRITTEN: Final = {
    "INT": "INT INTEGER INT4 INT32",
    "BIGINT": "BIGINT LONG INT64",
    "DOUBLE": "DOUBLE FLOAT8",
    "FLOAT": "FLOAT REAL FLOAT4",
    "DECIMAL": "DECIMAL NUMERIC DEC NUMBER FIXED",
    "TEXT": "TEXT STRING LONGTEXT MEDIUMTEXT TINYTEXT CLOB",
    "VARCHAR": "VARCHAR NVARCHAR NVARCHAR2 VARCHAR2",
    "CHAR": "CHAR CHARACTER NCHAR",
    "BOOLEAN": "BOOLEAN BOOL",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMPTZ",
    "DATETIME": "DATETIME",
    "DATE": "DATE",
    "TIME": "TIME",
    "BINARY": "BINARY",
    "VARBINARY": "VARBINARY BYTEA BLOB",
    "ARRAY": "ARRAY",
    "MAP": "MAP",
    "STRUCT": "STRUCT",
}

TYPE_WORDS: Final = {word: name for name, words in _WRITTEN.items() for word in words.split()}
"""A type's word, in upper case → as it is printed. Other words are printed as they are written."""

TYPE_PHRASES: Final = {
    ("DOUBLE", "PRECISION"): "DOUBLE",
    ("CHARACTER", "VARYING"): "VARCHAR",
    ("CHAR", "VARYING"): "VARCHAR",
    ("TIMESTAMP", "WITH", "TIME", "ZONE"): "TIMESTAMPTZ",
    ("TIMESTAMP", "WITHOUT", "TIME", "ZONE"): "TIMESTAMP",
}
"""Types of several words."""


class TypeCursor(Cursor):
    """A cursor that knows types.

    Attributes:
        type_words: what may stand for the number of a type.
    """

    type_words: tuple[str, ...] = ("MAX",)

    def typed_text(self) -> Cast | None:
        """Read ``DATE '2013-01-01'``; None where something else stands there."""
        start = self.token.start
        if self.token.word not in TYPE_WORDS:  # as the first word of every phrase is
            return None
        phrase = next((words for words in TYPE_PHRASES if self.stands(words)), None)
        behind = 1 if phrase is None else len(phrase)
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
        start = self.token.start
        found = self._named_type(start)
        while True:
            if self.token.is_sign("[") and self.ahead().is_sign("]"):
                self.advance()
            elif not (self.token.word == "ARRAY" and not self.ahead().is_sign("<")):
                return found
            self.advance()
            found = TypeName("ARRAY", types=(found,), span=self.span(start))

    def _named_type(self, start: int) -> TypeName:
        name = next((name for words, name in TYPE_PHRASES.items() if self.take_word(*words)), None)
        is_own = False
        if name is None:
            token = self.token
            if token.kind not in ("word", "quoted"):
                raise self.unfit("a type")
            written = self.advance().text
            name = TYPE_WORDS.get(written.upper(), written)
            is_own = token.kind == "quoted" and name == written and written.upper() not in TYPE_WORDS
        if name == "STRUCT":
            return TypeName(name, fields=self._fields(), span=self.span(start))
        numbers = self._numbers() if self.take_sign("(") else ()
        types = self._types() if name in ("ARRAY", "MAP") and self.take_sign("<") else ()
        return TypeName(name, numbers, types, is_quoted=is_own, span=self.span(start))

    def _fields(self) -> tuple[FieldType, ...]:
        """Read ``<name type, ...>``; ``name: type`` is read, too."""
        if self.take_sign("<>"):
            return ()
        self.need_sign("<")
        found: list[FieldType] = []
        while not self.take_sign(">"):
            if found and not self.take_sign(","):
                raise self.unfit("a comma or >")
            start = self.token.start
            name = self.identifier()
            self.take_sign(":")
            found.append(FieldType(name, self.deeper(self.type_name), span=self.span(start)))
        return tuple(found)

    def _numbers(self) -> tuple[str, ...]:
        found: list[str] = []
        while not found or self.take_sign(","):
            if not (self.token.kind == "number" and self.token.text.isdigit()) and self.token.word not in self.type_words:
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
