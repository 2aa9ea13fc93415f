"""From a definition and a catalog to a plan: the one place where a query is checked and laid out. Pure.

Operators follow T9: ``from.where`` at the source, joins, ``where``, group and window, ``having``, ``select``. A window whose group
does not contain the columns its records are spread by gets a stage of its own, behind an exchange.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace

from engine.definition.expressions import parse_aggregate
from engine.definition.operands import ExpressionInvalid
from engine.definition.queries import DAY_MS, QueryDefinition, StartAt, Window
from engine.definition.types import STRING, TIMESTAMP, Schema
from engine.plan.catalog import Catalog
from engine.plan.joins import Side, check_grace, join_columns
from engine.plan.model import (
    AggregateColumn,
    Filter,
    Input,
    LateRecords,
    Operator,
    Output,
    Plan,
    Projection,
    Stage,
    StreamTableJoin,
    WindowAggregation,
)
from engine.plan.problems import Problems
from engine.plan.support import check_support

WINDOW_OPERATOR = "window"
WINDOW_BOUNDS = ("window_start", "window_end")
DEFAULT_RETENTION_MS = 7 * DAY_MS


def normalise(definition: QueryDefinition) -> QueryDefinition:
    """Spell out the defaults that depend on other fields: the window's retention."""
    window = definition.window
    if window is None or window.retention is not None or window.size is None:
        return definition
    retention = max(DEFAULT_RETENTION_MS, window.size + window.grace)
    return definition.model_copy(update={"window": window.model_copy(update={"retention": retention})})


def build_plan(definition: QueryDefinition, catalog: Catalog) -> Plan:
    """Check a definition and lay it out.

    Args:
        definition: as the user gave it, or as stored.
        catalog: the relations by name.

    Returns:
        The plan. Equal arguments give equal plans.

    Raises:
        DefinitionInvalid: with every problem found, each with the pointer to its field.
    """
    definition = normalise(definition)
    problems = Problems()
    check_support(definition, problems)
    builder = _Builder(definition, catalog, problems)
    plan = builder.build()
    problems.raise_if_any()
    if plan is None:
        raise AssertionError("a definition without problems has a plan")
    return plan


def state_fingerprint(plan: Plan) -> str:
    """Return a digest of what kept state depends on.

    Left out are the parts that may be edited in place: graces of joins (J11), late policies, what a window keeps for reading, and how
    many late records are kept.
    """

    def neutral(operator: Operator) -> Operator:
        return replace(operator, grace_ms=None if operator.grace_ms is None else 0, late="join") if isinstance(operator, StreamTableJoin) else operator

    kept = replace(
        plan,
        stages=tuple(replace(stage, operators=tuple(map(neutral, stage.operators))) for stage in plan.stages),
        output=replace(plan.output, retention_ms=None),
        late_records=LateRecords(0, 0),
    )
    text = json.dumps(asdict(kept), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(slots=True)
class _Builder:
    """Holds what the steps of one build share."""

    definition: QueryDefinition
    catalog: Catalog
    problems: Problems

    def build(self) -> Plan | None:
        sides = self._sides()
        if sides is None:
            return None
        stream, tables = sides[0], sides[1:]
        schema = self._full_schema(sides)
        joins = self._joins(stream, tables)
        self._check_conditions(stream, schema)
        window = self._window(schema)
        self._check_cycle(sides)
        if self.problems.found or joins is None:
            return None
        final = schema if window is None else self._window_schema(window, schema)
        projection = self._projection(final, sides, is_windowed=window is not None)
        if projection is None:
            return None
        output = self._output(projection, final, window, stream)
        if output is None:
            return None
        return self._assemble(sides, joins, window, projection, output)

    # -- relations ---------------------------------------------------------------------------------------------------------------

    def _sides(self) -> list[Side] | None:
        """Resolve the input and the joined tables; None where one is unknown."""
        source = self.definition.source
        named = [(source.alias or source.relation, source.relation, "stream", "/from/stream")]
        named += [
            (join.alias or join.relation, join.relation, "table", f"/joins/{index}/table")
            for index, join in enumerate(self.definition.joins)
        ]
        if self.problems.found and any(problem.pointer.endswith(("/from/table", "/stream")) for problem in self.problems.found):
            return None
        sides = []
        for alias, name, kind, pointer in named:
            entry = self.catalog.get(name)
            if entry is None:
                self.problems.add(pointer, "unknown_relation", f"there is no {kind} {name}; register it with PUT /v1/{kind}s/{name}")
            elif entry.relation.kind != kind:
                self.problems.add(pointer, "wrong_kind", f"{name} is a {entry.relation.kind}; a {kind} is needed here")
            elif any(side.alias == alias for side in sides):
                self.problems.add(pointer, "name_clash", f"two inputs are called {alias}; give one of them another name with 'as'")
            else:
                sides.append(Side(alias, entry, pointer))
        return sides if len(sides) == len(named) else None

    def _check_cycle(self, sides: list[Side]) -> None:
        """A query must not read what it writes, directly or through other queries."""
        target, waiting, seen = self.definition.into.relation, [side.entry.relation.name for side in sides], set[str]()
        while waiting:
            name = waiting.pop()
            if name == target:
                self.problems.add("/into", "query_cycle", f"this query would read its own result {target}")
                return
            if name not in seen:
                seen.add(name)
                entry = self.catalog.get(name)
                waiting.extend(entry.reads if entry is not None else ())

    def _full_schema(self, sides: list[Side]) -> Schema:
        columns = [(side.qualified(name), kind) for side in sides for name, kind in side.entry.relation.columns.items()]
        columns += [(f"{side.alias}.$match", STRING) for side in sides[1:]]
        return Schema(tuple(columns))

    # -- joins and conditions ----------------------------------------------------------------------------------------------------

    def _joins(self, stream: Side, tables: list[Side]) -> list[tuple[Side, tuple[str, ...]]] | None:
        """Check each join; return the tables with the stream's columns that meet their keys."""
        found: list[tuple[Side, tuple[str, ...]]] = []
        for index, (join, table) in enumerate(zip(self.definition.joins, tables, strict=True)):
            pointer = f"/joins/{index}"
            check_grace(join, table, pointer, self.problems)
            columns = join_columns(join, stream, table, pointer, self.problems)
            if columns is None:
                continue
            if found and columns != found[0][1]:
                self.problems.add(
                    f"{pointer}/on", "not_supported_yet",
                    "several joins must use the same columns of the stream for now; put the second join into a query of its own",
                )  # fmt: skip
            found.append((table, columns))
        return found if len(found) == len(tables) else None

    def _check_conditions(self, stream: Side, schema: Schema) -> None:
        if self.definition.source.where is not None:
            self.problems.condition("/from/where", self.definition.source.where, stream.entry.relation.columns)
        if self.definition.where is not None:
            self.problems.condition("/where", self.definition.where, schema)

    # -- windows -----------------------------------------------------------------------------------------------------------------

    def _window(self, schema: Schema) -> WindowAggregation | None:
        """Check and plan the window; None where there is none or it is wrong."""
        definition, window = self.definition, self.definition.window
        if window is None:
            if definition.suppress.mode == "until_window_closes":
                self.problems.add("/suppress/mode", "final_without_window", "only windows become final; give a window or another mode")
            if definition.having is not None:
                self.problems.add("/having", "having_without_window", "`having` filters aggregates; use `where`")
            return None
        sizes = self._sizes(window)
        group = self._group(schema)
        aggregates = self._aggregates(schema)
        if sizes is None:
            return None
        planned = WindowAggregation(
            name=WINDOW_OPERATOR,
            group=group,
            size_ms=sizes[0],
            advance_ms=sizes[1],
            grace_ms=window.grace,
            aggregates=aggregates,
            emit="final" if definition.suppress.mode == "until_window_closes" else "changes",
            having=definition.having,
        )
        if definition.having is not None and not self.problems.found:
            self.problems.condition("/having", definition.having, self._window_schema(planned, schema))
        return planned

    def _sizes(self, window: Window) -> tuple[int, int] | None:
        """Check sizes; return (size, advance) in ms."""
        if window.type not in ("tumbling", "hopping"):
            return None
        before = len(self.problems.found)
        wanted = ("size",) if window.type == "tumbling" else ("size", "advance")
        for name in ("size", "advance", "difference", "gap"):
            value = getattr(window, name)
            pointer = f"/window/{name}"
            if name in wanted and value is None:
                self.problems.add(pointer, "field_missing", f"a {window.type} window needs `{name}`")
            elif name in wanted and value == 0:
                self.problems.add(pointer, "invalid_value", f"`{name}` must be longer than 0s")
            elif name not in wanted and value is not None:
                self.problems.add(pointer, "unknown_field", f"a {window.type} window has no `{name}`")
        if len(self.problems.found) > before or window.size is None:
            return None
        advance = window.size if window.advance is None else window.advance
        if advance > window.size:
            self.problems.add(
                "/window/advance", "advance_exceeds_size", "windows would leave gaps and lose records; `advance` is at most `size`"
            )
        if window.retention is not None and window.retention < window.size + window.grace:
            self.problems.add(
                "/window/retention", "retention_below_size_plus_grace",
                "a window must stay readable at least for its size and grace; raise `retention` or leave it out",
            )  # fmt: skip
        return window.size, advance

    def _group(self, schema: Schema) -> tuple[tuple[str, str], ...]:
        group: list[tuple[str, str]] = []
        for index, text in enumerate(self.definition.group_by):
            pointer = f"/group_by/{index}"
            scalar = self.problems.compile(pointer, text, schema)
            if scalar is None:
                continue
            source = next(iter(scalar.columns), None)
            if source is None or len(scalar.columns) != 1 or text.replace('"', "").split(".")[-1] != source.split(".", 1)[1]:
                self.problems.add(pointer, "not_supported_yet", "a group is made of plain columns for now; compute others in a query before")
                continue
            name = source.split(".", 1)[1]
            if scalar.type.is_nested:
                self.problems.add(pointer, "type_mismatch", f"{name} is of type {scalar.type}, which cannot be a key")
            elif any(name == taken for taken, _ in group):
                self.problems.add(pointer, "name_clash", f"two group columns are called {name}")
            else:
                group.append((name, source))
        return tuple(group)

    def _aggregates(self, schema: Schema) -> tuple[AggregateColumn, ...]:
        if not self.definition.aggregate:
            self.problems.add("/aggregate", "window_without_aggregate", "say what to compute, such as {'records': 'count(*)'}")
        taken = {*(text.split(".")[-1] for text in self.definition.group_by), *WINDOW_BOUNDS}
        planned = []
        for name, text in self.definition.aggregate.items():
            pointer = f"/aggregate/{name}"
            if name in taken:
                self.problems.add(pointer, "name_clash", f"{name} is a group column or a bound of the window; choose another name")
            try:
                function, argument, _ = parse_aggregate(text, schema)
            except ExpressionInvalid as error:
                self.problems.add(pointer, error.code, error.detail)
                continue
            planned.append(AggregateColumn(name, function, argument))
        return tuple(planned)

    def _window_schema(self, window: WindowAggregation, schema: Schema) -> Schema:
        columns = [(name, schema[source]) for name, source in window.group]
        columns += [(bound, TIMESTAMP) for bound in WINDOW_BOUNDS]
        columns += [(name, parse_aggregate(text, schema)[2]) for name, text in self.definition.aggregate.items()]
        return Schema(tuple(columns))

    # -- result ------------------------------------------------------------------------------------------------------------------

    def _projection(self, schema: Schema, sides: list[Side], *, is_windowed: bool) -> Projection | None:
        """Plan the ``select``, or the default one."""
        if self.definition.select is not None:
            if not self.definition.select:
                self.problems.add("/select", "invalid_value", "select at least one column, or leave `select` out")
                return None
            compiled = {
                name: self.problems.compile(f"/select/{name}", text, schema) for name, text in self.definition.select.items()
            }
            return Projection(tuple(self.definition.select.items())) if all(compiled.values()) else None
        if is_windowed:
            return Projection(tuple((name, _reference(name)) for name in schema.names))
        chosen: dict[str, str] = {}
        for place, side in enumerate(sides):
            relation = side.entry.relation
            for name in relation.columns.names:
                if place and name in relation.key:
                    continue
                if name in chosen:
                    self.problems.add(
                        "/select", "name_clash", f"both {chosen[name]} and {side.qualified(name)} would be called {name}; write a `select`"
                    )
                    return None
                chosen[name] = side.qualified(name)
        return Projection(tuple((name, _reference(source)) for name, source in chosen.items()))

    def _output(self, projection: Projection, schema: Schema, window: WindowAggregation | None, stream: Side) -> Output | None:
        types, source_of = [], {}
        for name, text in projection.columns:
            scalar = self.problems.compile(f"/select/{name}", text, schema)
            if scalar is None:
                return None
            types.append((name, scalar.type))
            if len(scalar.columns) == 1 and text.replace('"', "") in (*scalar.columns, next(iter(scalar.columns)).split(".", 1)[-1]):
                source_of.setdefault(next(iter(scalar.columns)), name)
        wanted = (
            [stream.qualified(name) for name in stream.entry.relation.key]
            if window is None
            else [*(name for name, _ in window.group), *WINDOW_BOUNDS]
        )
        into, key = self.definition.into, tuple(source_of[name] for name in wanted if name in source_of)
        if into.table is not None and (len(key) < len(wanted) or not wanted):
            absent = ", ".join(name for name in wanted if name not in source_of)
            self.problems.add(
                "/select" if absent else "/into/table", "key_missing_in_select",
                f"a table needs its key: select {absent} as plain columns, or make the result a stream" if absent
                else "the stream has no key, so its records cannot be rows of a table; make the result a stream",
            )  # fmt: skip
            return None
        window_def = self.definition.window
        return Output(
            name=into.relation,
            kind="table" if into.table is not None else "stream",
            columns=Schema(tuple(types)),
            key=key if len(key) == len(wanted) else (),
            is_windowed=window is not None and set(WINDOW_BOUNDS) <= set(key),
            is_final=window is not None and window.emit == "final",
            retention_ms=None if window_def is None else window_def.retention,
        )

    # -- stages ------------------------------------------------------------------------------------------------------------------

    def _assemble(
        self,
        sides: list[Side],
        joins: list[tuple[Side, tuple[str, ...]]],
        window: WindowAggregation | None,
        projection: Projection,
        output: Output,
    ) -> Plan:
        stream = sides[0]
        group = () if window is None else tuple(source for _, source in window.group)
        if joins:
            spread = joins[0][1]
        elif window is not None:
            spread = tuple(source.split(".", 1)[1] for source in group)
        else:
            spread = stream.entry.relation.key
        inputs = self._inputs(sides, spread, self._used(sides, window, projection))
        entering = Schema(
            tuple((f"{source.alias}.{name}", source.relation.columns[name]) for source in inputs for name in source.columns)
        )
        stream_index = len(inputs) - 1
        first: list[Operator] = [
            self._join_operator(index, table, columns, stream, inputs) for index, (table, columns) in enumerate(joins)
        ]
        if self.definition.where is not None:
            first.append(Filter(self.definition.where))
        is_spread_by_group = {stream.qualified(name) for name in spread} <= set(group)
        last: list[Operator] = [projection] if window is None else [window, projection]
        if window is None or is_spread_by_group:
            stages: tuple[Stage, ...] = (Stage(0, entering, stream_index, (*first, *last)),)
        else:
            joined = Schema((*entering.items(), *((f"{table.alias}.$match", STRING) for table, _ in joins)))
            stages = (Stage(0, entering, stream_index, tuple(first), exchange_key=group), Stage(1, joined, 0, tuple(last)))
        late = self.definition.late_records
        return Plan(
            self.definition.name, self.definition.tasks, inputs, stages, output, LateRecords(late.max_rows, late.retention)
        )

    def _used(self, sides: list[Side], window: WindowAggregation | None, projection: Projection) -> set[str]:
        """Return the qualified columns that any expression or group reads."""
        schema = self._full_schema(sides)
        texts = [] if self.definition.where is None else [self.definition.where]
        if window is None:
            texts += [text for _, text in projection.columns]
        else:
            texts += [column.argument for column in window.aggregates if column.argument is not None]
        used = {source for _, source in window.group} if window is not None else set()
        for text in texts:
            scalar = self.problems.compile("", text, schema)
            used |= scalar.columns if scalar is not None else frozenset()
        return used

    def _inputs(self, sides: list[Side], spread: tuple[str, ...], used: set[str]) -> tuple[Input, ...]:
        """Return the inputs, tables first (T2)."""
        ordered = [*sides[1:], sides[0]]
        inputs = []
        for index, side in enumerate(ordered):
            relation = side.entry.relation
            is_stream = side is sides[0]
            hash_key = spread if is_stream else relation.key
            needed = {*hash_key, *relation.key} | {name for name in relation.columns.names if side.qualified(name) in used}
            inputs.append(
                Input(
                    index=index,
                    alias=side.alias,
                    relation=relation,
                    feed=side.entry.feed,
                    columns=tuple(name for name in relation.columns.names if name in needed),
                    hash_key=hash_key,
                    where=self.definition.source.where if is_stream else None,
                    start=self._start() if is_stream else "earliest",
                )
            )
        return tuple(inputs)

    def _start(self) -> str | int:
        start = self.definition.start
        return start.at_ms if isinstance(start, StartAt) else start

    def _join_operator(
        self, index: int, table: Side, columns: tuple[str, ...], stream: Side, inputs: tuple[Input, ...]
    ) -> StreamTableJoin:
        join = self.definition.joins[index]
        relation = table.entry.relation
        return StreamTableJoin(
            name=table.alias,
            type="left" if join.type == "left" else "inner",
            table_index=index,
            stream_key=tuple(stream.qualified(name) for name in columns),
            table_key=tuple(table.qualified(name) for name in relation.key),
            history_retention_ms=relation.history_retention_ms,
            grace_ms=join.grace,
            late=join.late,
            expired=join.expired,
            table_columns=tuple(table.qualified(name) for name in inputs[index].columns),
        )


def _reference(name: str) -> str:
    """Return an expression that is exactly this column."""
    return ".".join(f'"{part}"' for part in name.split(".", 1))
