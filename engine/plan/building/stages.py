"""Stages as they grow: which operators share a task, where records are exchanged, by what inputs are hashed.

Records that an operator must see together have to be in one task. A stage's records are spread by the hash of some columns (its
*spread*); an operator fits into the stage as long as what it wants together has some of these columns in common. Where it has none,
the next stage begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from engine.definition.start import StartAt
from engine.expressions.expressions import qualify
from engine.expressions.pseudo_columns import EVENT_TIME
from engine.expressions.syntax import quoted, reference
from engine.expressions.types.types import BIGINT, ColumnType, Schema
from engine.plan.building.scope import Checked, Scope, Side, unqualified
from engine.plan.model import Computed, Input, Stage
from engine.plan.operators.operator import Operator
from engine.plan.operators.row_operators import Projection

_TIMES = (Computed(EVENT_TIME, reference(EVENT_TIME), BIGINT),)
"""What an input makes where the event time of its records is read."""


@dataclass(slots=True)
class _Read:
    """One relation that a stage reads.

    Attributes:
        place: in ``Scope.sides``.
        hashed_by: from a column of the spread to the relation's own column that equals it.
        computed: columns that are made of the relation's own.
        time_key: see ``Input``; None while no keyed operator reads it.
    """

    place: int
    hashed_by: Mapping[str, str]
    computed: tuple[Computed, ...] = ()
    time_key: tuple[str, ...] | None = None


@dataclass(slots=True)
class _Draft:
    """A stage in the making.

    Attributes:
        entering: columns of the running relation at its beginning.
        spread: columns whose hash chooses the task, None while nothing has asked for any.
        names: columns of the spread that joins have replaced: what holds their values now.
        emitted: columns at its end.
    """

    entering: Schema
    spread: tuple[str, ...] | None
    names: dict[str, str] = field(default_factory=dict)
    reads: list[_Read] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    emitted: Schema = field(default_factory=Schema)


class Stages:
    """Takes operators in the order of T9 and gives stages and inputs."""

    def __init__(self, scope: Scope, used: frozenset[str], original: Callable[[str], str]) -> None:
        """Begin with the input of the query.

        Args:
            scope: the relations.
            used: qualified columns that anything after the inputs reads.
            original: gives the column that another one always equals.
        """
        self._scope = scope
        self._columns = tuple(_needed(side, used) for side in scope.sides)
        self._times = tuple(_TIMES if side.event_time in used else () for side in scope.sides)
        self._original = original
        source = scope.source
        self.schema = self._schema_of(0)
        own = (*self._columns[0], *(each.name for each in self._times[0]))
        hashed_by = {source.qualified(name): name for name in own}
        # The changes of one row of a table must stay in their order, so a table is always spread by its key.
        spread = source.key() if source.kind == "table" else None
        self._drafts = [_Draft(self.schema, spread, reads=[_Read(0, hashed_by)])]

    @property
    def columns(self) -> tuple[str, ...]:
        """The running relation's columns."""
        return self.schema.names

    def add(self, operator: Operator, schema: Schema | None = None) -> None:
        """Append an operator; ``schema`` has the columns behind it, where they are others than before it."""
        self._drafts[-1].operators.append(operator)
        self.schema = schema or self.schema

    def read(self, place: int, hashed_by: Mapping[str, str], computed: tuple[Computed, ...] = ()) -> Schema:
        """Let the stage read one more relation and return its columns, those that are computed last.

        Args:
            place: in ``Scope.sides``; an operator that reads it names it so until ``finish``.
            hashed_by: from the running relation's columns to the relation's own ones that equal them.
            computed: columns that are made of the relation's own.
        """
        draft = self._drafts[-1]
        entered = {now: name for name, now in draft.names.items()}
        equal = {self._original(name): own for name, own in hashed_by.items()}
        draft.reads.append(_Read(place, {entered.get(name, name): own for name, own in equal.items()}, computed))
        side = self._scope.sides[place]
        if side.kind == "stream":
            texts = {each.name: each.text for each in computed}
            draft.reads[-1].time_key = tuple(texts.get(own) or quoted(own) for own in dict.fromkeys(hashed_by.values()))
        return Schema((*self._schema_of(place).items(), *((side.qualified(each.name), each.type) for each in computed)))

    def compute(self, computed: Mapping[str, Checked], step: str) -> None:
        """Add columns that are more than columns, by name, for a step such as ``group_by``."""
        if not computed:
            return
        columns = (*((name, reference(name)) for name in self.columns), *((name, value.text) for name, value in computed.items()))
        types = tuple((name, value.scalar.type) for name, value in computed.items())
        self.add(Projection(columns, step), Schema((*self.schema.items(), *types)))

    def gather(self, columns: tuple[str, ...], computed: Mapping[str, Checked], step: str = "group_by") -> None:
        """Bring records with equal values of these columns into one task, in this stage or, where it must be, in a new one.

        Args:
            columns: of the running relation or of ``computed``.
            computed: columns that are made first, and what of.
            step: what they are made for.
        """
        self._note_time_key(columns, computed)
        self.compute(computed, step)
        draft, wanted = self._drafts[-1], tuple(dict.fromkeys(map(self._original, columns)))
        if draft.spread is None:
            usable = tuple(name for name in wanted if name in draft.entering)
            is_fitting = bool(usable) or not wanted
        else:
            usable = tuple(name for name in draft.spread if draft.names.get(name, name) in wanted)
            is_fitting = bool(usable) or not draft.spread
        if is_fitting:
            draft.spread = usable
            return
        if draft.spread is None:
            read = {column for value in computed.values() for column in value.scalar.columns}
            draft.spread = tuple(name for name in draft.entering if name in read)
        self.exchange(wanted)

    def _note_time_key(self, columns: tuple[str, ...], computed: Mapping[str, Checked]) -> None:
        """Note the key of the first keyed operator, as far as a record of the source alone has it: not what an array's element gives."""
        read, source = self._drafts[0].reads[0], self._scope.source
        if read.time_key is not None or source.kind == "table" or not columns:
            return
        known, texts = source.schema(), []
        for name in columns:
            value = computed.get(name)
            if (frozenset({name}) if value is None else value.scalar.columns) <= set(known.names):
                texts.append(qualify(reference(name) if value is None else value.text, known, unqualified))
        read.time_key = tuple(texts)

    def note_time(self, step: str) -> None:
        """Make a column of the rows' event time, for an operator that reads ``$event_time_ms``."""
        others = tuple(pair for pair in self.schema.items() if pair[0] != EVENT_TIME)
        columns = tuple((name, reference(name)) for name, _ in (*others, (EVENT_TIME, BIGINT)))
        self.add(Projection(columns, step), Schema((*others, (EVENT_TIME, BIGINT))))

    def rename(self, names: Mapping[str, str]) -> None:
        """Say that records stay where they are, but columns of the running relation are replaced by others of the same values."""
        draft = self._drafts[-1]
        for name in draft.spread or ():
            now = draft.names.get(name, name)
            draft.names[name] = names.get(now, now)

    def exchange(self, columns: tuple[str, ...]) -> None:
        """Begin a new stage whose records are spread by these columns."""
        self._drafts[-1].emitted = self.schema
        self._drafts.append(_Draft(self.schema, columns))

    def finish(self) -> tuple[tuple[Stage, ...], tuple[Input, ...]]:
        """Return the stages and the inputs, a stage's tables before its streams (T2)."""
        first = self._drafts[0]
        if first.spread is None:
            first.spread = self._scope.source.key()
        sides = self._scope.sides
        reads = [(number, read) for number, draft in enumerate(self._drafts) for read in draft.reads]
        order = sorted(reads, key=lambda item: (item[0], sides[item[1].place].kind == "stream", item[1].place))
        inputs = tuple(self._input(index, number, read) for index, (number, read) in enumerate(order))
        index_of = {read.place: index for index, (_, read) in enumerate(order)}
        # Behind all others: operators name inputs by index, and another writer changes nothing of what they keep.
        parts = ((item, feed) for item in inputs for feed in sides[order[item.index][1].place].entry.parts)
        inputs += tuple(
            replace(item, index=len(inputs) + number, feed=feed, part_of=item.index) for number, (item, feed) in enumerate(parts)
        )
        return tuple(self._stage(number, draft, inputs, index_of) for number, draft in enumerate(self._drafts)), inputs

    def _schema_of(self, place: int) -> Schema:
        side = self._scope.sides[place]
        times = (each.name for each in self._times[place])
        return side.schema().select(map(side.qualified, (*self._columns[place], *times)))

    def _input(self, index: int, stage: int, read: _Read) -> Input:
        side, spread = self._scope.sides[read.place], self._drafts[stage].spread or ()
        return Input(
            index=index,
            alias=side.alias,
            relation=side.entry.relation,
            feed=side.entry.feed,
            columns=self._columns[read.place],
            hash_key=tuple(read.hashed_by[name] for name in spread),
            time_key=tuple(map(quoted, side.entry.relation.key)) if side.kind == "table" else read.time_key or (),
            start=_start(self._scope) if side.kind == "stream" else "earliest",
            stage=stage,
            computed=(*self._times[read.place], *read.computed),
        )

    def _stage(self, number: int, draft: _Draft, inputs: tuple[Input, ...], index_of: Mapping[int, int]) -> Stage:
        columns: dict[str, ColumnType] = {} if number == 0 else dict(draft.entering.items())
        for source in inputs:
            if source.stage == number:
                columns |= {f"{source.alias}.{name}": kind for name, kind in source.schema.items()}
        following = None if number + 1 == len(self._drafts) else self._drafts[number + 1]
        return Stage(
            index=number,
            schema=Schema(tuple(columns.items())),
            running=index_of[0] if number == 0 else None,
            operators=tuple(operator.renumbered(index_of) for operator in draft.operators),
            exchange_key=() if following is None else following.spread or (),
            emitted=draft.emitted,
        )


def _needed(side: Side, used: frozenset[str]) -> tuple[str, ...]:
    relation = side.entry.relation
    return tuple(name for name in relation.columns.names if name in relation.key or side.qualified(name) in used)


def _start(scope: Scope) -> Literal["earliest", "latest"] | int:
    start = scope.definition.start
    return start.at_ms if isinstance(start, StartAt) else start
