"""Faults of statements in answers: line, column, and the line itself with marks below the fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.errors.app_errors import AppError, Fault, FaultPlace, Unprocessable
from engine.errors import DefinitionInvalid
from engine.sql.lexing.places import Passage
from engine.sql.scripts import Parsed, ScriptFault
from engine.sql.sentences import sentence
from engine.statements.context.faults import StatementFault

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
