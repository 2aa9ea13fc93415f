"""The aggregates by name, and how a call of one is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from engine.expressions.aggregates.aggregate_entries import Aggregate, AggregateExample, AggregateFunction, AggregateName, Typed
from engine.expressions.aggregates.aggregate_list import FOR_CORPORA, LIST, MAX_TOP_K
from engine.expressions.suggestions import meant
from engine.expressions.types.types import ColumnType
from engine.expressions.values.operands import ExpressionInvalid
from engine.sql.tree import Boolean, Call, Node, Number, Star

__all__ = [
    "AGGREGATES", "AGGREGATE_NAMES", "ENTRIES", "FORMS", "KSQLDB_AGGREGATES", "MAX_TOP_K", "UNDOABLE", "Aggregate", "AggregateExample",
    "AggregateFunction", "AggregateName", "CallOptions", "Typed", "WrittenAggregate", "is_undoable", "read_call", "result_type",
]  # fmt: skip

_LATER = ("stddev_pop", "var_pop")
"""Known names that come with a later release."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What few calls have.

    Attributes:
        further: canonical texts of the values behind the first one.
        fraction: a number from 0 to 1, as it was written.
        keeps_nulls: NULL is a value like others.
    """

    further: tuple[str, ...] = ()
    fraction: str | None = None
    keeps_nulls: bool = False


class WrittenAggregate(NamedTuple):
    """One aggregate call as it was written.

    Attributes:
        function: which aggregate.
        argument: the tree of what it aggregates; None for ``count(*)``.
        limit: the number behind the values, as k of ``top_k``, else None.
        further: trees of the values behind the first one.
        fraction: see ``CallOptions``.
        keeps_nulls: see ``CallOptions``.
    """

    function: AggregateFunction
    argument: Node | None
    limit: int | None = None
    further: tuple[Node, ...] = ()
    fraction: str | None = None
    keeps_nulls: bool = False


def read_call(tree: Node) -> WrittenAggregate:
    """Read one aggregate call.

    Raises:
        ExpressionInvalid: ``not_supported_yet``, ``unknown_function``, ``type_mismatch`` or ``expression_malformed``.
    """
    if not isinstance(tree, Call):
        if any(isinstance(node, Call) and node.name.text in AGGREGATE_NAMES for node in tree.walk()):
            raise ExpressionInvalid(
                "not_supported_yet", "an aggregate is one call, such as sum(x); compute from several of them in `select`"
            )
        raise ExpressionInvalid("expression_malformed", f"this is no aggregate; write one of {FORMS}")
    name = tree.name.text
    if name in _LATER:
        raise ExpressionInvalid("not_supported_yet", f"{name} comes later; there are {FORMS}")
    entry = _SUPPORTED.get(name)
    if entry is None:
        near = meant(name, _SUPPORTED)
        ending = f"; there are {FORMS}" if near is None else f"; did you mean {near}?"
        raise ExpressionInvalid("unknown_function", f"there is no aggregate {name[:60]!r}{ending}")
    if tree.is_distinct:
        return _distinct(entry, tree.arguments)
    return _read(entry, list(tree.arguments))


def _distinct(entry: Aggregate, arguments: Sequence[Node]) -> WrittenAggregate:
    if entry.of_distinct is None:
        those = " and ".join(each.name for each in LIST if each.of_distinct is not None)
        raise ExpressionInvalid("not_supported_yet", f"{entry.name}(distinct …) comes later; only {those} takes distinct")
    if len(arguments) != 1:
        raise ExpressionInvalid(
            "not_supported_yet", f"{entry.name}(distinct …) takes one expression for now; join several with ||"
        )
    return WrittenAggregate(entry.of_distinct, arguments[0])


def _read(entry: Aggregate, rest: list[Node]) -> WrittenAggregate:
    """Take what stands behind the values off the end of the arguments, and judge what is left."""
    count = len(rest)
    keeps_nulls, limit, fraction = False, None, None
    last = rest[-1] if len(rest) > entry.values else None
    if entry.takes_ignore_nulls and isinstance(last, Boolean):
        keeps_nulls = not last.value
        rest.pop()
    if entry.largest_k is not None and (len(rest) > entry.values or entry.needs_k):
        limit = _k(entry, entry.largest_k, rest)
    if entry.takes_fraction:
        fraction = _fraction(entry, rest)
    if len(rest) < entry.values or (len(rest) > entry.values and not entry.takes_further):
        takes = "one argument" if entry.written is None else entry.form
        raise ExpressionInvalid("type_mismatch", f"{entry.name} takes {takes}, not {count}")
    if isinstance(rest[0], Star) and entry.takes_rows:
        return WrittenAggregate(entry.name, None)
    if any(isinstance(each, Star) for each in rest):
        raise ExpressionInvalid("type_mismatch", f"{entry.name} takes a column, not *")
    return WrittenAggregate(entry.name, rest[0], limit, tuple(rest[1:]), fraction, keeps_nulls)


def _k(entry: Aggregate, largest: int, rest: list[Node]) -> int:
    if len(rest) < 2:
        as_in = f"as in {entry.name}(x, 3)"
        raise ExpressionInvalid("type_mismatch", f"{entry.name} takes a column and how many, {as_in}; not {len(rest)}")
    written = rest.pop()
    digits = written.text if isinstance(written, Number) else ""
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(largest)) and 1 <= int(digits) <= largest):
        letter = "k" if entry.needs_k else "n"
        raise ExpressionInvalid("type_mismatch", f"{entry.name} takes its {letter} written out, 1 to {largest}")
    return int(digits)


def _fraction(entry: Aggregate, rest: list[Node]) -> str:
    written = rest.pop() if len(rest) > 1 else None
    if not isinstance(written, Number) or len(written.text) > _LONGEST_FRACTION or not 0 <= float(written.text) <= 1:
        detail = f"{entry.name} takes a number from 0 to 1 last, written out, as in {entry.name}(x, 0.9)"
        raise ExpressionInvalid("type_mismatch", detail)
    return written.text


_LONGEST_FRACTION: Final = 20
"""Characters: more than a double tells apart."""


def is_undoable(function: AggregateFunction) -> bool:
    """Whether a row can be taken out of the aggregate again; see ``Aggregate``."""
    return ENTRIES[function].is_undoable


def result_type(function: AggregateFunction, arguments: Sequence[ColumnType], limit: int | None = None) -> ColumnType:
    """Return the type an aggregate gives.

    Raises:
        ExpressionInvalid: ``type_mismatch``: the function does not work on those types.
    """
    return ENTRIES[function].result_type(Typed(function, tuple(arguments), limit))


AGGREGATES: Final[Mapping[AggregateFunction, Aggregate]] = {each.name: each for each in LIST}
"""Those that a definition may name."""
ENTRIES: Final[Mapping[AggregateFunction, Aggregate]] = {each.name: each for each in (*LIST, *FOR_CORPORA)}
"""All."""
_SUPPORTED: Final[Mapping[str, Aggregate]] = {written: each for each in LIST for written in (each.name, *each.aliases)}
"""As written → which aggregate. The names of SQL and of ksqlDB mean the same ones."""

KSQLDB_AGGREGATES: Final[Mapping[str, str]] = {name: each.name for each in LIST for name in each.ksqldb}
"""Names of ksqlDB, in capital letters → the entry that a call means in the dialect ksqldb."""

AGGREGATE_NAMES: Final = frozenset((*_SUPPORTED, *_LATER))
FORMS: Final = ", ".join(each.form for each in LIST)
UNDOABLE: Final = tuple(each.name for each in LIST if each.is_undoable)
"""Names of those that an aggregation over a table may call."""
