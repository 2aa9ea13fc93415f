"""Outcomes and faults of statements, as answers show them, and the progress of a script."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from app.access.rules import visible_position_text
from app.appends.append_transaction import Appended
from app.catalog.warned import shown_warnings
from app.errors.app_errors import AppError, Fault, FaultPlace, Unprocessable
from app.http.answers.problems import StatementState
from app.http.schemas import Answer, WarningItem
from app.sql.catalog.carrying_out import Done
from app.sql.catalog.looking import Listing
from app.sql.reads.pulls import ResultRows
from engine.errors import DefinitionInvalid
from engine.expressions.model import Model
from engine.sql.lexing.places import Passage
from engine.sql.scripts import Parsed, ScriptFault
from engine.sql.sentences import sentence
from engine.statements.context.faults import StatementFault
from engine.statements.context.session import SqlRelation


@dataclass(frozen=True, slots=True)
class Defined:
    """A definition was registered, created, changed or removed."""

    parsed: Parsed
    done: Done


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of existing things."""

    parsed: Parsed
    listing: Listing


@dataclass(frozen=True, slots=True)
class Selected:
    """Rows of a pull query."""

    parsed: Parsed
    rows: ResultRows


@dataclass(frozen=True, slots=True)
class Inserted:
    """Records were appended."""

    parsed: Parsed
    relation: SqlRelation
    appended: Appended


Outcome = Defined | Listed | Selected | Inserted


MAX_SQL_CHARS = 1_000_000


class StatementsBody(Model):
    """SQL statements, and values for them."""

    sql: str = Field(
        max_length=MAX_SQL_CHARS,
        description="One statement or several, each ended by a semicolon; the last may lack it.",
        examples=["CREATE STREAM orders (id STRING KEY, amount DOUBLE) WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON');"],
    )
    parameters: list[Any] | dict[str, Any] = Field(
        default=[],
        description="Values of `?` in their order, or of `:name` by name: texts, numbers, true, false and null, never read as SQL.",
    )
    properties: dict[str, str | int | float | bool] = Field(
        default={},
        description="Properties as if set by SET before the first statement.",
        examples=[{"auto.offset.reset": "earliest"}],
    )
    variables: dict[str, str] = Field(
        default={}, description="Variables as if set by DEFINE before the first statement: values of `${name}`."
    )


class ResultColumn(Answer):
    """A column of a result."""

    name: str = Field(description="Its name.", examples=["ID"])
    type: str = Field(description="Its type.", examples=["string"])


class StatementResult(Answer):
    """The outcome of one statement."""

    statement: str = Field(description="The statement, with the values of its variables.")
    line: int = Field(description="Its first line in the script, counted from 1.")
    kind: Literal["done", "rows", "inserted"] = Field(
        description="`done`: a definition was registered, created, changed or removed; `rows`: there are columns and rows; `inserted`: "
        "records were appended."
    )
    message: str = Field(description="What was done, in a sentence; for rows, their number.")
    relation: str | None = Field(
        default=None, description="The stream or table that it made, changed or removed, by its name in paths."
    )
    query: str | None = Field(default=None, description="The query that it made, changed or removed.")
    definition: dict[str, Any] | None = Field(default=None, description="The equivalent definition, as JSON.")
    columns: list[ResultColumn] | None = Field(default=None, description="For rows: the columns in order.")
    rows: list[list[Any]] | None = Field(default=None, description="For rows: the values of each, in the order of the columns.")
    position: dict[str, Any] | None = Field(default=None, description="For a SELECT from a table: the position of the table.")
    notes: list[str] = Field(default=[], description="How the statement was understood where it was ambiguous.")
    warnings: list[WarningItem] = Field(default=[], description="Possible surprises of the definition.")


class StatementsAnswer(Answer):
    """The outcomes of the statements."""

    results: list[StatementResult] = Field(description="One for each statement, in order.")


def answer_of(outcome: Outcome) -> StatementResult:
    parsed = outcome.parsed
    about = {"statement": parsed.text, "line": parsed.place.line}
    match outcome:
        case Defined(done=done):
            return StatementResult(
                **about, kind="done", message=done.sentence, relation=done.relation, query=done.query, definition=done.definition,
                notes=list(done.notes), warnings=shown_warnings(done.warnings),
            )  # fmt: skip
        case Listed(listing=listing):
            columns = [ResultColumn(name=name, type=kind) for name, kind in listing.columns]
            rows = [list(row) for row in listing.rows]
            return StatementResult(**about, kind="rows", message=_counted(len(rows)), columns=columns, rows=rows)
        case Selected(rows=result):
            columns = [ResultColumn(name=name, type=str(kind)) for name, kind in result.columns.items()]
            shown = values_of(result.texts())
            position = None if result.position is None else json.loads(visible_position_text(result.position))
            return StatementResult(
                **about, kind="rows", message=_counted(len(shown)), columns=columns, rows=shown, position=position
            )  # fmt: skip
        case Inserted(appended=appended, relation=relation):
            refused = "" if not appended.rejected_count else f", {appended.rejected_count} refused: {appended.rejected[0].detail}"
            message = f"{appended.count} {'record' if appended.count == 1 else 'records'} appended{refused}"
            return StatementResult(**about, kind="inserted", message=message, relation=relation.definition_name)


def values_of(objects: Any) -> list[list[Any]]:
    """Return the values of JSON objects in the order of their members."""
    return [list(json.loads(text).values()) for text in objects]


def _counted(number: int) -> str:
    return "1 row" if number == 1 else f"{number:,} rows"


@dataclass(slots=True)
class Progress:
    """A script during its execution.

    Attributes:
        outcomes: of the first statements, in order; grows.
    """

    statements: Sequence[Parsed]
    outcomes: list[Outcome] = field(default_factory=list)

    def states(self) -> list[StatementState]:
        """Return the state of each statement, if the one after the last outcome failed."""
        failed = len(self.outcomes)
        return [
            StatementState(
                statement=parsed.text,
                line=parsed.place.line,
                state="done" if number < failed else "failed" if number == failed else "not_tried",
                message=answer_of(self.outcomes[number]).message if number < failed else None,
            )
            for number, parsed in enumerate(self.statements)
        ]

    def sentence(self) -> str:
        done = len(self.outcomes)
        left = len(self.statements) - done - 1
        return f"statement {done + 1} of {len(self.statements)} failed: {done} carried out before it, {left} behind it not tried"


POINTER = "/sql"


def of_script(faults: tuple[ScriptFault, ...]) -> Unprocessable:
    """Return the error for a script that cannot be parsed, with every fault."""
    return _refusal([_fault("syntax_error", sentence(each.fault, each.text), each.passage) for each in faults])


@contextmanager
def placed(parsed: Parsed) -> Iterator[None]:
    """Add to errors the place of the statement: line, column, the line itself with a mark.

    Raises:
        Unprocessable: the statement is not valid here, or its definition is wrong.
        AppError: the original one, with the statement's place.
    """
    try:
        yield
    except StatementFault as error:
        raise _refusal([_fault(each.code, each.sentence, parsed.passage(each.span)) for each in error.all]) from error
    except DefinitionInvalid as error:
        raise _refusal([_fault(each.code, each.detail, parsed.passage()) for each in error.problems]) from error
    except AppError as error:
        if not error.faults or error.faults[0].place is None:
            error.faults = (_fault(error.code, error.detail, parsed.passage()),)
        raise


def _refusal(faults: list[Fault]) -> Unprocessable:
    codes = {fault.code for fault in faults}
    code = codes.pop() if len(codes) == 1 else "sql_invalid"
    return Unprocessable(code, "; ".join(fault.detail for fault in faults), faults)


def _fault(code: str, text: str, passage: Passage) -> Fault:
    place = passage.place
    where = FaultPlace(place.line, place.column, passage.marked)
    return Fault(POINTER, code, f"line {place.line}, column {place.column}: {text}", where)
