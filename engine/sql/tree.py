"""The nodes of a tree. Frozen and compared by what they mean: where a node stood in the text does not count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace

Span = tuple[int, int]


_PARTS: dict[type, tuple[str, ...]] = {}
"""A kind of node → its fields, in the order of the text: asking dataclasses each time would take longer than all the rest."""


@dataclass(frozen=True, slots=True)
class Node:
    """Part of an expression.

    Attributes:
        span: first character in the text and the one behind the last; None where it comes from no text.
    """

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)

    def _parts(self) -> tuple[str, ...]:
        kind = type(self)
        if kind not in _PARTS:
            _PARTS[kind] = tuple(each.name for each in fields(kind) if each.name != "span")
        return _PARTS[kind]

    @property
    def children(self) -> Iterator[Node]:
        """The nodes right below."""
        for name in self._parts():
            value = getattr(self, name)
            if isinstance(value, Node):
                yield value
            elif isinstance(value, tuple):
                yield from (part for part in value if isinstance(part, Node))

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below, in the order of the text."""
        pending: list[Node] = [self]
        while pending:
            node = pending.pop()
            yield node
            pending.extend(reversed(list(node.children)))

    def mapped(self, change: Callable[[Node], Node | None]) -> Node:
        """Return the tree with each node that ``change`` gives another one for replaced by that, from above; None keeps and goes on below."""
        changed = change(self)
        if changed is not None:
            return changed
        values: dict[str, object] = {}
        for name in self._parts():
            value = getattr(self, name)
            if isinstance(value, Node):
                values[name] = value.mapped(change)
            elif isinstance(value, tuple):
                values[name] = tuple(part.mapped(change) if isinstance(part, Node) else part for part in value)
        return replace(self, **values)  # type: ignore[arg-type]

    @property
    def bare(self) -> Node:
        """What is in the brackets, where it stands in some."""
        node = self
        while isinstance(node, Paren):
            node = node.inner
        return node


@dataclass(frozen=True, slots=True)
class Identifier(Node):
    """A name as it is written. Letter case counts."""

    text: str
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class Column(Node):
    """``name`` or ``table.name``."""

    name: Identifier
    table: Identifier | None = None

    @property
    def full_name(self) -> str:
        """``table.name``, or the name alone."""
        return self.name.text if self.table is None else f"{self.table.text}.{self.name.text}"


@dataclass(frozen=True, slots=True)
class Star(Node):
    """``*`` or ``table.*``."""

    table: Identifier | None = None


@dataclass(frozen=True, slots=True)
class Number(Node):
    """A number as it is written, without a sign."""

    text: str


@dataclass(frozen=True, slots=True)
class Text(Node):
    """A text, without its quotes."""

    value: str


@dataclass(frozen=True, slots=True)
class Boolean(Node):
    """TRUE or FALSE."""

    value: bool


@dataclass(frozen=True, slots=True)
class Null(Node):
    """NULL."""


@dataclass(frozen=True, slots=True)
class Paren(Node):
    """An expression in brackets."""

    inner: Node


@dataclass(frozen=True, slots=True)
class Not(Node):
    """NOT, in front of an expression or in IS NOT, NOT IN and NOT BETWEEN."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Negative(Node):
    """Minus in front of a number."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Chain(Node):
    """Two or more operands between which the same one of AND, OR and || stands."""

    sign: str
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """A comparison (``IS [NOT] DISTINCT FROM`` too) or arithmetic, by its sign as it is printed."""

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Is(Node):
    """``operand IS wanted``."""

    operand: Node
    wanted: Null | Boolean


@dataclass(frozen=True, slots=True)
class Between(Node):
    """``operand BETWEEN low AND high``."""

    operand: Node
    low: Node
    high: Node


@dataclass(frozen=True, slots=True)
class In(Node):
    """``operand IN (items)``."""

    operand: Node
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Like(Node):
    """``operand [NOT] LIKE|ILIKE pattern [ESCAPE escape]``."""

    operand: Node
    pattern: Node
    escape: Text | None = None
    is_case_sensitive: bool = True
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class When(Node):
    """``WHEN condition THEN result``."""

    condition: Node
    result: Node


@dataclass(frozen=True, slots=True)
class Case(Node):
    """CASE, with a subject to compare with or without one."""

    subject: Node | None
    branches: tuple[When, ...]
    default: Node | None


@dataclass(frozen=True, slots=True)
class FieldType(Node):
    """A field of a struct type: ``name type``."""

    name: Identifier
    type: TypeName


@dataclass(frozen=True, slots=True)
class TypeName(Node):
    """A type: its name as it is printed, and what stands in its brackets: numbers, or types or fields in ``<>``.

    A name in quotes is that of a type that somebody made (CREATE TYPE).
    """

    name: str
    numbers: tuple[str, ...] = ()
    types: tuple[TypeName, ...] = ()
    fields: tuple[FieldType, ...] = ()
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class Cast(Node):
    """``CAST(operand AS type)``, ``operand::type`` or ``TYPE 'text'``."""

    operand: Node
    type: TypeName


@dataclass(frozen=True, slots=True)
class Extract(Node):
    """``EXTRACT(part FROM operand)``; the part is a word in upper case, or a text."""

    part: Identifier | Text
    operand: Node


@dataclass(frozen=True, slots=True)
class Call(Node):
    """``name([DISTINCT] arguments)``; the name in lower case."""

    name: Identifier
    arguments: tuple[Node, ...]
    is_distinct: bool = False


@dataclass(frozen=True, slots=True)
class Field(Node):
    """``operand->name``: a field of a struct."""

    operand: Node
    name: Identifier


@dataclass(frozen=True, slots=True)
class AllFields(Node):
    """``operand->*``: every field of a struct, as columns of a SELECT."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Element(Node):
    """``operand[index]``: an element of an array, counted from 1 (from the end where it is negative), or a map's value of a key."""

    operand: Node
    index: Node


@dataclass(frozen=True, slots=True)
class ArrayOf(Node):
    """``ARRAY[items]``."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Entry(Node):
    """``key := value``, of a map."""

    key: Node
    value: Node


@dataclass(frozen=True, slots=True)
class MapOf(Node):
    """``MAP(key := value, ...)``."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class FieldValue(Node):
    """``name := value``, of a struct."""

    name: Identifier
    value: Node


@dataclass(frozen=True, slots=True)
class StructOf(Node):
    """``STRUCT(name := value, ...)``."""

    fields: tuple[FieldValue, ...]


@dataclass(frozen=True, slots=True)
class Lambda(Node):
    """``x => body``, ``(a, b) => body``: an argument of TRANSFORM, FILTER and REDUCE."""

    parameters: tuple[Identifier, ...]
    body: Node


@dataclass(frozen=True, slots=True)
class Parameter(Node):
    """``?``, or ``:name``: a value that comes beside the text."""

    name: str | None = None
