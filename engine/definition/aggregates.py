"""The aggregates a group may have. One entry says everything of one but how it is computed (``engine.core.aggregation.aggregate``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from engine.definition.documented import JsonValue
from engine.definition.limits import MAX_COLLECTED_VALUES, MAX_DISTINCT_VALUES
from engine.definition.operands import ExpressionInvalid
from engine.definition.suggestions import meant
from engine.definition.types import BIGINT, DOUBLE, MAX_DECIMAL_PRECISION, STRING, ColumnType, decimal, parse_type
from engine.sql.tree import Call, Node, Number, Star

AggregateName = Literal[
    "count", "count_distinct", "sum", "avg", "min", "max", "stddev", "variance", "first", "last", "first_by_arrival",
    "last_by_arrival", "collect_list", "collect_set", "top_k", "histogram",
]  # fmt: skip
AggregateFunction = Literal[AggregateName, "concat", "trace"]
"""Those that a definition may name, and two that serve the conformance corpora."""

MAX_TOP_K: Final = 100
"""Every change of a group repeats its k values: more than this is a list, not a top."""

_LATER = ("median", "percentile", "stddev_pop", "var_pop")
"""Known names that come with a later release."""

_ORDERED = ("int", "bigint", "double", "decimal", "string", "date", "time", "timestamp")


@dataclass(frozen=True)
class AggregateExample:
    """A call, the values of x in a group in their order (of event time and arrival alike), and what it gives; tests run it."""

    call: str
    values: tuple[int | None, ...]
    gives: JsonValue


@dataclass(frozen=True)
class Aggregate:
    """One entry of the list: everything there is to say of an aggregate.

    Attributes:
        name: as it is called; of ``count_distinct`` the call is ``count(distinct x)``.
        takes: its arguments, in words.
        result: type of its result, in words.
        doc: what it gives.
        result_type: from (name, type of the argument) to the type of the result; refuses types that it does not work on.
        is_undoable: whether a row can be taken out of it again, as an aggregation over a table must (A1). The smallest of a group's
            values, for one, cannot be known once the smallest has gone, unless all are kept.
        is_growing: whether its result takes more room with every record (``engine.plan.folding``).
        is_of_text: whether it takes its argument as text.
        aliases: further names of the same.
        written: how it is written, where that is not ``name(x)``.
        takes_rows: ``*`` in place of an argument counts rows.
        of_distinct: the aggregate that ``name(distinct x)`` is.
        largest_k: a second argument says how many values are kept, written out, 1 to this.
        ksqldb: its names in definitions of the dialect ksqldb, in capital letters: a call of one of them there means this entry.
    """

    name: AggregateFunction
    takes: str
    result: str
    doc: str
    result_type: Callable[[str, ColumnType], ColumnType]
    example: AggregateExample
    is_undoable: bool = False
    is_growing: bool = False
    is_of_text: bool = False
    aliases: tuple[str, ...] = ()
    written: str | None = None
    takes_rows: bool = False
    of_distinct: AggregateName | None = None
    largest_k: int | None = None
    ksqldb: tuple[str, ...] = ()

    @property
    def form(self) -> str:
        """How it is written."""
        return self.written or f"{self.name}(x)"


class WrittenAggregate(NamedTuple):
    """One aggregate call as it was written.

    Attributes:
        function: which aggregate.
        argument: the tree of what it aggregates; None for ``count(*)``.
        limit: k of ``top_k``, else None.
    """

    function: AggregateFunction
    argument: Node | None
    limit: int | None = None


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
    name, arguments = tree.name.text, tree.arguments
    if name in _LATER:
        raise ExpressionInvalid("not_supported_yet", f"{name} comes later; there are {FORMS}")
    entry = _SUPPORTED.get(name)
    if entry is None:
        near = meant(name, _SUPPORTED)
        ending = f"; there are {FORMS}" if near is None else f"; did you mean {near}?"
        raise ExpressionInvalid("unknown_function", f"there is no aggregate {name[:60]!r}{ending}")
    if entry.largest_k is not None:
        return _with_k(entry, entry.largest_k, tree)
    if tree.is_distinct:
        return _distinct(entry, arguments)
    if len(arguments) != 1:
        raise ExpressionInvalid("type_mismatch", f"{name} takes one argument, not {len(arguments)}")
    argument = arguments[0]
    if isinstance(argument, Star):
        if entry.takes_rows:
            return WrittenAggregate(entry.name, None)
        raise ExpressionInvalid("type_mismatch", f"{name} takes a column, not *")
    return WrittenAggregate(entry.name, argument)


def _distinct(entry: Aggregate, arguments: Sequence[Node]) -> WrittenAggregate:
    if entry.of_distinct is None:
        those = " and ".join(each.name for each in _LIST if each.of_distinct is not None)
        raise ExpressionInvalid("not_supported_yet", f"{entry.name}(distinct …) comes later; only {those} takes distinct")
    if len(arguments) != 1:
        raise ExpressionInvalid(
            "not_supported_yet", f"{entry.name}(distinct …) takes one expression for now; join several with ||"
        )
    return WrittenAggregate(entry.of_distinct, arguments[0])


def _with_k(entry: Aggregate, largest: int, tree: Call) -> WrittenAggregate:
    name, arguments, as_in = entry.name, tree.arguments, f"as in {entry.name}(x, 3)"
    if len(arguments) != 2:
        raise ExpressionInvalid("type_mismatch", f"{name} takes a column and how many, {as_in}; not {len(arguments)}")
    argument, written = arguments
    if isinstance(argument, Star) or tree.is_distinct:
        raise ExpressionInvalid("type_mismatch", f"{name} takes a column first, {as_in}")
    text = written.text if isinstance(written, Number) else ""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(largest)) and 1 <= int(text) <= largest):
        raise ExpressionInvalid("type_mismatch", f"{name} takes its k written out, 1 to {largest}")
    return WrittenAggregate(name, argument, int(text))


def is_undoable(function: AggregateFunction) -> bool:
    """Whether a row can be taken out of the aggregate again; see ``Aggregate``."""
    return ENTRIES[function].is_undoable


def result_type(function: AggregateFunction, argument: ColumnType) -> ColumnType:
    """Return the type an aggregate gives.

    Raises:
        ExpressionInvalid: ``type_mismatch``: the function does not work on that type.
    """
    return ENTRIES[function].result_type(function, argument)


def _of_anything(_: str, __: ColumnType) -> ColumnType:
    return BIGINT


def _same(_: str, argument: ColumnType) -> ColumnType:
    return argument


def _list(function: str, argument: ColumnType) -> ColumnType:
    result = ColumnType("array", element=argument)
    try:
        return parse_type(str(result))
    except ValueError as error:
        raise ExpressionInvalid("type_mismatch", f"{function} would give a type that cannot be declared: {error}") from error


def _distinct_count(_: str, argument: ColumnType) -> ColumnType:
    _check_comparable(argument, "distinct ones cannot be counted")
    return BIGINT


def _distinct_list(_: str, argument: ColumnType) -> ColumnType:
    _check_comparable(argument, "distinct ones cannot be collected")
    return ColumnType("array", element=argument)


def _total(function: str, argument: ColumnType) -> ColumnType:
    _check_numeric(function, argument)
    if argument.kind == "double":
        return DOUBLE
    return BIGINT if argument.is_integer else decimal(MAX_DECIMAL_PRECISION, argument.scale or 0)


def _moment(function: str, argument: ColumnType) -> ColumnType:
    _check_numeric(function, argument)
    return DOUBLE


def _extreme(function: str, argument: ColumnType) -> ColumnType:
    if argument.kind not in _ORDERED:
        raise ExpressionInvalid("type_mismatch", f"{function} needs values that have an order, not {argument}")
    return argument


def _greatest(function: str, argument: ColumnType) -> ColumnType:
    return ColumnType("array", element=_extreme(function, argument))


def _frequencies(function: str, argument: ColumnType) -> ColumnType:
    if argument.is_nested or argument.kind == "bytes":
        raise ExpressionInvalid("type_mismatch", f"{function} counts values by their text, and {argument} has none")
    return ColumnType("map", key=STRING, value=BIGINT)


def _text(_: str, __: ColumnType) -> ColumnType:
    return STRING


def _check_comparable(argument: ColumnType, consequence: str) -> None:
    if argument.is_nested:
        raise ExpressionInvalid("type_mismatch", f"{argument} cannot be compared, so {consequence}")


def _check_numeric(function: str, argument: ColumnType) -> None:
    if not argument.is_numeric:
        raise ExpressionInvalid("type_mismatch", f"{function} works on numbers, not {argument}")


_FULL: Final = f"the first {MAX_COLLECTED_VALUES:,}, or 1 MiB."
_NUMBERS, _ORDER, _ANY = "x: number", "x: any that has an order", "x: any"
_LIST: Final[Sequence[Aggregate]] = (
    Aggregate(
        "count", "*, or x: any", "bigint", "How many rows; of `count(x)` those in which x is not NULL.", _of_anything,
        AggregateExample("count(*)", (1, 2, None), 3), is_undoable=True, written="count(*), count(x)", takes_rows=True,
        of_distinct="count_distinct",
    ),
    Aggregate(
        "count_distinct", "distinct x: any but nested", "bigint",
        f"How many different values; written count(distinct x). NULL from {MAX_DISTINCT_VALUES:,} values or 64 MiB in a group of a stream on.",
        _distinct_count, AggregateExample("count(distinct x)", (1, 2, 2), 2), is_undoable=True, written="count(distinct x)",
    ),
    Aggregate(
        "sum", _NUMBERS, "bigint; of doubles double, of decimals decimal(38,s)", "The sum; of doubles without error of rounding.", _total,
        AggregateExample("sum(x)", (1, 2, None), 3), is_undoable=True,
    ),
    Aggregate("avg", _NUMBERS, "double", "The mean.", _moment, AggregateExample("avg(x)", (1, 2), 1.5), is_undoable=True),
    Aggregate("min", _ORDER, "type of x", "The smallest value.", _extreme, AggregateExample("min(x)", (3, 1, 2), 1)),
    Aggregate("max", _ORDER, "type of x", "The greatest value.", _extreme, AggregateExample("max(x)", (3, 1, 2), 3)),
    Aggregate(
        "stddev", _NUMBERS, "double", "The standard deviation of a sample; NULL of one value.", _moment,
        AggregateExample("stddev(x)", (1, 3, 5), 2.0), is_undoable=True, aliases=("stddev_samp",),
    ),
    Aggregate(
        "variance", _NUMBERS, "double", "The variance of a sample; NULL of one value.", _moment,
        AggregateExample("variance(x)", (1, 3, 5), 4.0), is_undoable=True, aliases=("var_samp",),
    ),
    Aggregate("first", _ANY, "type of x", "The value with the earliest event time.", _same, AggregateExample("first(x)", (3, 1, 2), 3)),
    Aggregate("last", _ANY, "type of x", "The value with the latest event time.", _same, AggregateExample("last(x)", (3, 1, 2), 2)),
    Aggregate(
        "first_by_arrival", _ANY, "type of x", "The value that came first.", _same, AggregateExample("first_by_arrival(x)", (3, 1, 2), 3),
        aliases=("earliest_by_offset",),
    ),
    Aggregate(
        "last_by_arrival", _ANY, "type of x", "The value that came last.", _same, AggregateExample("last_by_arrival(x)", (3, 1, 2), 2),
        aliases=("latest_by_offset",),
    ),
    Aggregate(
        "collect_list", _ANY, "array of the type of x", f"All values in the order of event time; {_FULL}", _list,
        AggregateExample("collect_list(x)", (3, 1, 3), [3, 1, 3]), is_growing=True,
    ),
    Aggregate(
        "collect_set", "x: any but nested", "array of the type of x", f"Every different value once, in the order of event time; {_FULL}",
        _distinct_list, AggregateExample("collect_set(x)", (3, 1, 3), [3, 1]), is_growing=True,
    ),
    Aggregate(
        "top_k", "x: any that has an order, k: whole number", "array of the type of x",
        f"The k greatest values, the greatest first, of at most 1 MiB; k is written out, 1 to {MAX_TOP_K}.", _greatest,
        AggregateExample("top_k(x, 2)", (3, 1, 2), [3, 2]), aliases=("topk",), written="top_k(x, k)", largest_k=MAX_TOP_K,
    ),
    Aggregate(
        "histogram", "x: any but nested and bytes", "map<string,bigint>",
        f"How often each value occurs, by its text; of more than {MAX_COLLECTED_VALUES:,} texts or 1 MiB the first in their order.",
        _frequencies, AggregateExample("histogram(x)", (1, 2, 2), {"1": 1, "2": 2}), is_undoable=True, is_growing=True, is_of_text=True,
    ),
)  # fmt: skip

_FOR_CORPORA: Final[Sequence[Aggregate]] = (
    Aggregate(
        "concat", "x: string", "string", "The texts in the order of arrival.", _text, AggregateExample("concat(x)", (1, 2), "12"),
        is_growing=True,
    ),
    Aggregate(
        "trace", "x: string", "string", "What was added and taken out again, in the order of arrival.", _text,
        AggregateExample("trace(x)", (1, 2), "0+1+2"), is_undoable=True, is_growing=True,
    ),
)  # fmt: skip

AGGREGATES: Final[Mapping[AggregateFunction, Aggregate]] = {each.name: each for each in _LIST}
"""Those that a definition may name."""
ENTRIES: Final[Mapping[AggregateFunction, Aggregate]] = {each.name: each for each in (*_LIST, *_FOR_CORPORA)}
"""All."""
_CALLED: Final = tuple(each for each in _LIST if each.name not in {other.of_distinct for other in _LIST})
_SUPPORTED: Final[Mapping[str, Aggregate]] = {written: each for each in _CALLED for written in (each.name, *each.aliases)}
"""As written → which aggregate. The names of SQL and of ksqlDB mean the same ones."""

KSQLDB_AGGREGATES: Final[Mapping[str, str]] = {name: each.name for each in _LIST for name in each.ksqldb}
"""Names of ksqlDB, in capital letters → the entry that a call means in the dialect ksqldb."""

AGGREGATE_NAMES: Final = frozenset((*_SUPPORTED, *_LATER))
FORMS: Final = ", ".join(each.form for each in _LIST)
UNDOABLE: Final = tuple(each.name for each in _CALLED if each.is_undoable)
"""Names of those that an aggregation over a table may call."""
