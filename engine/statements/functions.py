"""CREATE FUNCTION and DROP FUNCTION: functions in Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from engine.definition.problems import problems_of
from engine.expressions.aggregates.aggregates import AGGREGATE_NAMES
from engine.expressions.library.function_list import FUNCTIONS, KSQLDB
from engine.expressions.python_functions import FunctionDefinition
from engine.expressions.suggestions import hint
from engine.sql.statement_tree import CreateFunction, Drop
from engine.sql.tree import Call, Identifier, Node
from engine.statements.actions import Action, DropFunction, Nothing, RegisterFunction
from engine.statements.context.faults import Faults, StatementRefused
from engine.statements.context.naming import definition_name, folded
from engine.statements.context.properties import Properties
from engine.statements.context.session import Session
from engine.statements.context.type_names import type_of

_BUILT_IN = frozenset({*FUNCTIONS, *(name.lower() for name in KSQLDB), *AGGREGATE_NAMES})


def bind_create_function(statement: CreateFunction, session: Session) -> Action:
    properties = Properties(statement.properties)
    name = ""
    with properties.faults.part():
        name = definition_name(folded(statement.name), statement.name)
        _check_free(name, statement, session)
    parameters, returns = _types(statement, session, properties.faults)
    with properties.faults.part():
        _check_python(statement, tuple(parameters))
    body = {"parameters": parameters, "returns": returns, "body": statement.body.value, **_options(properties)}
    try:
        definition = FunctionDefinition.model_validate(body)
    except ValidationError as error:
        for each in problems_of(error, FunctionDefinition):
            properties.faults.add(StatementRefused(each.code, f"{each.pointer}: {each.detail}", statement))
        raise properties.refusal() from error
    properties.check_all_read()
    return RegisterFunction(name, definition)


def _check_free(name: str, statement: CreateFunction, session: Session) -> None:
    detail = None
    if name in _BUILT_IN:
        detail = f"there is a function {name.upper()} already that everybody has"
    elif name in session.functions and not statement.is_replace:
        detail = f"there is a function {name.upper()} already; CREATE OR REPLACE FUNCTION changes it"
    if detail is not None:
        raise StatementRefused("function_exists", detail, statement.name)


def _types(statement: CreateFunction, session: Session, faults: Faults) -> tuple[dict[str, str], str]:
    """Return the types of the parameters and of the result as definitions write them. One that is wrong is reported, and is a text here."""
    parameters: dict[str, str] = {}
    for each in statement.parameters:
        with faults.part():
            name = _parameter(each.name)
            if name in parameters:
                raise StatementRefused("duplicate_column", f"two parameters are called {name}: rename one", each)
            parameters[name] = "string"
            parameters[name] = str(type_of(each.type, session.types))
    returns = "string"
    with faults.part():
        returns = str(type_of(statement.returns, session.types))
    return parameters, returns


def _options(properties: Properties) -> dict[str, object]:
    """Return what properties say of a function, as fields of its definition."""
    body: dict[str, object] = {}
    if (on_error := properties.one_of("ON_ERROR", ("NULL", "STOP"))) is not None:
        body["on_error"] = on_error.lower()
    if (timeout_ms := properties.duration("TIMEOUT")) is not None:
        body["timeout"] = f"{timeout_ms}ms"
    if (megabytes := properties.whole("MEMORY_MB")) is not None:
        body["memory_bytes"] = megabytes << 20
    return body


def bind_drop_function(statement: Drop, session: Session) -> Action:
    name = folded(statement.name).lower()
    if name in session.functions:
        return DropFunction(name)
    if statement.is_if_exists:
        return Nothing(f"there is no function {name.upper()}")
    known = [each.upper() for each in session.functions]
    raise StatementRefused("unknown_function", f"there is no function {name.upper()}{hint(name.upper(), known)}", statement.name)


def functions_called(trees: Iterator[Node], functions: Mapping[str, FunctionDefinition]) -> dict[str, FunctionDefinition]:
    """Return the functions that these trees call, by name."""
    called = {node.name.text.lower() for tree in trees for node in tree.walk() if isinstance(node, Call)}
    return {name: functions[name] for name in sorted(called) if name in functions and name not in _BUILT_IN}


def _parameter(name: Identifier) -> str:
    found = name.text if name.is_quoted else name.text.lower()
    if not found.isidentifier():
        raise StatementRefused("malformed_name", f"{found} is no name that Python knows", name)
    return found


def _check_python(statement: CreateFunction, parameters: tuple[str, ...]) -> None:
    """Refuse what is no Python, at the line where it is wrong."""
    text = "\n".join(f"    {line}" for line in statement.body.value.strip("\n").splitlines())
    for source in (f"def function({', '.join(parameters)}):\n{text}", f"({statement.body.value.strip()})"):
        try:
            compile(source, "function", "exec")
        except (SyntaxError, ValueError) as error:
            fault = error
        else:
            return
    raise StatementRefused("function_malformed", f"the function is no Python: {fault}", statement.body)
