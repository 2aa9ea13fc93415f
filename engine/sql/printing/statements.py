"""From the tree of a statement back to its canonical text, in one line: parsed again it gives the same tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from engine.sql.printing import expressions as printing
from engine.sql.statement_tree import (
    AlterAdd,
    AssertRelation,
    AssertTopic,
    AssertValues,
    BufferClause,
    ColumnDefinition,
    Control,
    CreateAs,
    CreateFunction,
    CreateRelation,
    CreateType,
    Define,
    Describe,
    Drop,
    Duration,
    EmitClause,
    Explain,
    ExplainWhy,
    HoldClause,
    InsertQuery,
    InsertValues,
    JoinClause,
    Print,
    Property,
    Refused,
    Relation,
    Row,
    Select,
    SelectItem,
    SetProperty,
    Show,
    TimeTravel,
    WindowClause,
    Within,
)
from engine.sql.tree import Identifier, Node, Text, TypeName


def show(node: Node) -> str:
    """Return the canonical text of a statement, without a semicolon, or of a part of one. Types have the names that ksqlDB gives them."""
    return _show(node.mapped(_of_ksqldb))


def _of_ksqldb(node: Node) -> Node | None:
    return replace(node, name="STRING") if isinstance(node, TypeName) and node.name == "TEXT" else None


def _show(node: Node) -> str:
    shown = _SHOWN.get(type(node))
    return printing.show(node) if shown is None else shown(node)


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _if(is_so: bool, words: str) -> str:
    return words if is_so else ""


def _clause(words: str, node: Node | None) -> str:
    return "" if node is None else f"{words} {_show(node)}"


def _number(words: str, number: str | None) -> str:
    return "" if number is None else f"{words} {number}"


def _series(nodes: Iterable[Node]) -> str:
    return ", ".join(map(_show, nodes))


def _brackets(nodes: Iterable[Node]) -> str:
    return f"({_series(nodes)})"


def _listed(words: str, nodes: tuple[Node, ...]) -> str:
    return f"{words} {_series(nodes)}" if nodes else ""


def _with(node: Any) -> str:
    return f"WITH {_brackets(node.properties)}" if node.properties else ""


# ------------------------------------------------------------------ queries
def _item(node: SelectItem) -> str:
    return _joined(_show(node.value), _clause("AS", node.alias))


def _relation(node: Relation) -> str:
    time = "" if node.time is None else _show(node.time)
    return _joined(_show(node.name), _clause("AS", node.alias), time)


def _time(node: TimeTravel) -> str:
    if node.until is None:
        return f"FOR SYSTEM_TIME AS OF {_show(node.at)}"
    return f"FOR SYSTEM_TIME FROM {_show(node.at)} TO {_show(node.until)}"


def _within(node: Within) -> str:
    return f"WITHIN {_show(node.before)}" if node.before == node.after else f"WITHIN ({_show(node.before)}, {_show(node.after)})"


def _hold(node: HoldClause) -> str:
    until = "CAUGHT UP" if node.until == "caught_up" else "TABLE TIME"
    rows = "" if node.max_rows is None else f", {node.max_rows} ROWS"
    return f"HOLD UNTIL {until}{'' if node.slack is None else f' PLUS {_show(node.slack)}'}, AT MOST {_show(node.at_most)}{rows}"


def _join(node: JoinClause) -> str:
    return _joined(
        {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "outer": "FULL OUTER JOIN"}[node.type],
        _show(node.relation),
        "" if node.within is None else _show(node.within),
        _clause("GRACE PERIOD", node.grace),
        _if(node.is_unversioned, "UNVERSIONED"),
        _number("LATE", node.late and node.late.upper()),
        _number("EXPIRED", node.expired and node.expired.upper()),
        "" if node.hold is None else _show(node.hold),
        _number("HISTORY", node.history and node.history.upper()),
        _number("UNMATCHED", node.unmatched and node.unmatched.upper().replace("_", " ")),
        _clause("ON", node.on),
    )


def _window(node: WindowClause) -> str:
    first = {"tumbling": "SIZE ", "hopping": "SIZE ", "session": "", "sliding": "DIFFERENCE "}[node.type] + _show(node.length)
    others = (_clause("ADVANCE BY", node.advance), _clause("RETENTION", node.retention), _clause("GRACE PERIOD", node.grace))
    name = "" if node.name is None else _show(node.name)
    return _joined("WINDOW", name, node.type.upper(), f"({', '.join((first, *filter(None, others)))})")


def _buffer(node: BufferClause) -> str:
    sizes = (_if(node.max_rows is not None, f"{node.max_rows} ROWS"), _if(node.max_bytes is not None, f"{node.max_bytes} BYTES"))
    full = {None: "", "emit_early": "ON FULL EMIT", "stop": "ON FULL STOP"}[node.when_full]
    return _joined("BUFFER", ", ".join(filter(None, sizes)), full)


def _emit(node: EmitClause) -> str:
    return _joined(
        {"changes": "EMIT CHANGES", "final": "EMIT FINAL", "window_end": "EMIT AT WINDOW END THEN CHANGES", "all": "EMIT ALL"}[
            node.mode
        ],
        _if(node.keeps_open, "KEEP OPEN"),
        _clause("EVERY", node.every),
        _if(node.is_event_driven, "EVENT DRIVEN"),
        _clause("WAIT", node.wait),
        "" if node.buffer is None else _show(node.buffer),
        _clause("IDLE AFTER", node.idle_after),
        _number("CLOCK", node.clock and node.clock.upper()),
    )


def _select(node: Select) -> str:
    return _joined(
        _listed("SELECT", node.items),
        _clause("FROM", node.relation),
        *map(_show, node.joins),
        "" if node.window is None else _show(node.window),
        _clause("WHERE", node.where),
        _listed("GROUP BY", node.group_by),
        _listed("PARTITION BY", node.partition_by),
        _clause("HAVING", node.having),
        "" if node.emit is None else _show(node.emit),
        _number("LIMIT", node.limit),
        _clause("WAIT FOR POSITION", node.wait_for_position),
        _clause("UP TO", node.wait_up_to),
    )


# ------------------------------------------------------------------ definitions
def _column(node: ColumnDefinition) -> str:
    roles = {"value": "", "key": "KEY", "primary_key": "PRIMARY KEY", "headers": "HEADERS"}
    role = roles[node.role] if node.header is None else f"HEADER({_show(node.header)})"
    return _joined(_show(node.name), _show(node.type), role)


def _create(node: CreateRelation) -> str:
    return _joined(
        "CREATE",
        _if(node.is_replace, "OR REPLACE"),
        _if(node.is_read_only, "SOURCE"),
        _relation_head(node),
        _brackets(node.columns) if node.columns else "",
        _clause("HISTORY RETENTION", node.history_retention),
        _with(node),
    )


def _relation_head(node: CreateRelation | CreateAs) -> str:
    return _joined(node.kind.upper(), _if(node.is_if_not_exists, "IF NOT EXISTS"), _show(node.name))


def _create_as(node: CreateAs) -> str:
    return _joined(
        "CREATE",
        _if(node.is_replace, "OR REPLACE"),
        _relation_head(node),
        _clause("HISTORY RETENTION", node.history_retention),
        _with(node),
        _clause("AS", node.query),
    )


def _insert_values(node: InsertValues) -> str:
    columns = _brackets(node.columns) if node.columns else ""
    return _joined("INSERT INTO", _show(node.name), columns, _listed("VALUES", node.rows))


def _create_type(node: CreateType) -> str:
    return _joined("CREATE TYPE", _if(node.is_if_not_exists, "IF NOT EXISTS"), _show(node.name), _clause("AS", node.type))


def _create_function(node: CreateFunction) -> str:
    return _joined(
        "CREATE",
        _if(node.is_replace, "OR REPLACE"),
        f"FUNCTION {_show(node.name)}{_brackets(node.parameters)}",
        _clause("RETURNS", node.returns),
        "LANGUAGE PYTHON",
        _with(node),
        f"AS {_body(node.body)}",
    )


def _body(body: Text) -> str:
    is_plain = "$$" not in body.value and not body.value.endswith("$")
    return f"$${body.value}$$" if is_plain else _show(body)


def _drop(node: Drop) -> str:
    return _joined(
        f"DROP {node.what.upper()}",
        _if(node.is_if_exists, "IF EXISTS"),
        _show(node.name),
        _if(node.deletes_topic, "DELETE TOPIC"),
    )


def _alter(node: AlterAdd) -> str:
    added = ", ".join(f"ADD COLUMN {_show(column)}" for column in node.columns)
    return f"ALTER {node.kind.upper()} {_show(node.name)} {added}"


# ------------------------------------------------------------------ looking
def _listing(node: Show) -> str:
    return _joined(
        "SHOW",
        _if(node.is_all, "ALL"),
        node.what.upper().replace("_", " "),
        _clause("OF", node.of),
        _if(node.is_extended, "EXTENDED"),
        _number("LIMIT", node.limit),
    )


def _describe(node: Describe) -> str:
    what = "" if node.what == "relation" else node.what.upper()
    name = "" if node.name is None else _show(node.name)
    return _joined("DESCRIBE", what, name, _if(node.is_extended, "EXTENDED"))


def _why(node: ExplainWhy) -> str:
    return _joined("EXPLAIN WHY", _show(node.query), f"KEY {_brackets(node.key)}", _clause("AT", node.at))


def _print(node: Print) -> str:
    beginning = _if(node.is_from_beginning, "FROM BEGINNING")
    return _joined("PRINT", _show(node.topic), beginning, _number("INTERVAL", node.interval), _number("LIMIT", node.limit))


# ------------------------------------------------------------------ the session and assertions
def _set(node: SetProperty) -> str:
    return f"UNSET {_show(node.name)}" if node.value is None else f"SET {_show(node.name)} = {_show(node.value)}"


def _define(node: Define) -> str:
    return f"UNDEFINE {_show(node.name)}" if node.value is None else f"DEFINE {_show(node.name)} = {_show(node.value)}"


def _assert_topic(node: AssertTopic) -> str:
    return _joined(
        "ASSERT", _if(node.is_missing, "NOT EXISTS"), "TOPIC", _show(node.topic), _with(node), _clause("TIMEOUT", node.timeout)
    )


def _assert_values(node: AssertValues) -> str:
    columns = _brackets(node.columns) if node.columns else ""
    first, last = ("ASSERT NULL VALUES", "KEY") if node.is_null else ("ASSERT VALUES", "VALUES")
    return _joined(first, _show(node.name), columns, last, _show(node.row))


def _control(node: Control) -> str:
    return f"{node.action.upper()} {'ALL' if node.query is None else _show(node.query)}"


_SHOWN: Final[dict[type[Node], Callable[[Any], str]]] = {
    Identifier: printing.show,
    Property: lambda node: f"{_show(node.name)} = {_show(node.value)}",
    Duration: lambda node: f"{node.amount} {node.unit}",
    SelectItem: _item,
    TimeTravel: _time,
    Relation: _relation,
    Within: _within,
    HoldClause: _hold,
    JoinClause: _join,
    WindowClause: _window,
    BufferClause: _buffer,
    EmitClause: _emit,
    Select: _select,
    ColumnDefinition: _column,
    CreateRelation: _create,
    CreateAs: _create_as,
    InsertQuery: lambda node: _joined("INSERT INTO", _show(node.name), _with(node), _show(node.query)),
    Row: lambda node: _brackets(node.values),
    InsertValues: _insert_values,
    CreateType: _create_type,
    CreateFunction: _create_function,
    Drop: _drop,
    AlterAdd: _alter,
    Control: _control,
    Show: _listing,
    Describe: _describe,
    Explain: lambda node: f"EXPLAIN {_show(node.what)}",
    ExplainWhy: _why,
    Print: _print,
    SetProperty: _set,
    Define: _define,
    AssertTopic: _assert_topic,
    AssertValues: _assert_values,
    AssertRelation: lambda node: _show(node.relation).replace("CREATE", "ASSERT", 1),
    Refused: lambda node: node.words,
}
