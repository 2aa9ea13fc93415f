"""GET /v1/functions: functions, operators and types for expressions."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from app.http.answers.documented import answered, problems
from app.http.parameters import OnlyKnownParameters
from app.http.schemas import Answer
from engine.expressions.aggregates.aggregates import AGGREGATES
from engine.expressions.documented import TYPES, Argument, Example
from engine.expressions.library.function_list import FUNCTIONS, TABLE_FUNCTIONS
from engine.expressions.library.operator_list import OPERATORS
from engine.expressions.pseudo_columns import PSEUDO_COLUMNS

router = APIRouter(prefix="/v1", tags=["service"], dependencies=[OnlyKnownParameters])


class ArgumentItem(Answer):
    """One argument of a function."""

    name: str = Field(description="Name of the argument.", examples=["digits"])
    type: str = Field(description="Allowed types.", examples=["whole number"])
    optional: bool = Field(description="It may be omitted.")
    repeated: bool = Field(description="Any number of them is allowed.")


class ExpressionExample(Answer):
    """An expression and its value."""

    expression: str = Field(description="An expression of literals.", examples=["round(2.5)"])
    gives: Any = Field(description="Its value in JSON.", examples=[3.0])


class FunctionItem(Answer):
    """A scalar function."""

    name: str = Field(description="Name in expressions; letter case does not count.", examples=["round"])
    arguments: list[ArgumentItem] = Field(description="Its arguments in order.")
    result: str = Field(description="Type of its result.", examples=["double"])
    description: str = Field(description="What it returns.")
    examples: list[ExpressionExample] = Field(description="Calls with their results.")
    ksqldb: list[str] = Field(description="Its names in SQL, and in definitions of the dialect ksqldb.", examples=[["ROUND"]])


class AggregateExampleItem(Answer):
    """An aggregate over some values."""

    call: str = Field(description="The aggregate.", examples=["sum(x)"])
    values: list[Any] = Field(description="The values of x in a group, in order.", examples=[[1, 2, None]])
    gives: Any = Field(description="The result in JSON.", examples=[3])


class AggregateItem(Answer):
    """An aggregate."""

    name: str = Field(description="Name of the aggregate.", examples=["sum"])
    form: str = Field(description="Its form in expressions.", examples=["sum(x)"])
    aliases: list[str] = Field(description="Other names of it.")
    argument: str = Field(description="Its argument.", examples=["x: number"])
    result: str = Field(description="Type of its result.", examples=["double"])
    description: str = Field(description="What it returns.")
    over_tables: bool = Field(description="It also works over a table's rows: it can undo a change of a row.")
    example: AggregateExampleItem = Field(description="A call with its result.")


class OperatorItem(Answer):
    """A form of expression other than a call."""

    form: str = Field(description="Its form; parts in […] may be omitted.", examples=["x [NOT] BETWEEN low AND high"])
    result: str = Field(description="Type of its result.", examples=["boolean"])
    description: str = Field(description="What it returns.")
    examples: list[ExpressionExample] = Field(description="Expressions with their results.")


class TypeItem(Answer):
    """A type of columns."""

    form: str = Field(description="Its form in definitions.", examples=["decimal(12,2)"])
    description: str = Field(description="Its values.")
    example: Any = Field(description="A value in JSON.", examples=["12.50"])


class TableFunctionItem(Answer):
    """A function that makes rows."""

    form: str = Field(description="Its form in expressions.", examples=["explode(x: array)"])
    result: str = Field(description="Type of the value in each row.", examples=["type of the elements"])
    description: str = Field(description="Which rows it makes.")


class PseudoColumnItem(Answer):
    """A pseudo-column."""

    form: str = Field(description="Its form in expressions.", examples=["$event_time_ms"])
    type: str = Field(description="Type of its values.", examples=["bigint"])
    description: str = Field(description="Its meaning, and the relations that have it.")


class FunctionsAnswer(Answer):
    """Everything that expressions of definitions can use."""

    functions: list[FunctionItem] = Field(description="Scalar functions.")
    table_functions: list[TableFunctionItem] = Field(description="Functions that make rows, in `select`.")
    pseudo_columns: list[PseudoColumnItem] = Field(
        description="Values that expressions can read but that are not columns of a record."
    )
    aggregates: list[AggregateItem] = Field(description="Aggregates, for `aggregate` and `having`.")
    operators: list[OperatorItem] = Field(description="Forms other than calls.")
    types: list[TypeItem] = Field(description="Types of columns, and of CAST.")


def listed() -> FunctionsAnswer:
    """Return the lists that the compiler of expressions uses."""
    return FunctionsAnswer(
        functions=[
            FunctionItem(
                name=each.name, arguments=[_argument(one) for one in each.arguments], result=each.result, description=each.doc,
                examples=[_example(one) for one in each.examples], ksqldb=list(each.ksqldb),
            )
            for each in FUNCTIONS.values()
        ],
        table_functions=[TableFunctionItem(form=each.form, result=each.result, description=each.doc) for each in TABLE_FUNCTIONS],
        pseudo_columns=[PseudoColumnItem(form=each.form, type=each.type, description=each.doc) for each in PSEUDO_COLUMNS],
        aggregates=[
            AggregateItem(
                name=each.name, form=each.form, aliases=list(each.aliases), argument=each.takes, result=each.result, description=each.doc,
                over_tables=each.is_undoable,
                example=AggregateExampleItem(call=each.example.call, values=list(each.example.values), gives=each.example.gives),
            )
            for each in AGGREGATES.values()
        ],
        operators=[
            OperatorItem(form=each.form, result=each.result, description=each.doc, examples=[_example(one) for one in each.examples])
            for each in OPERATORS
        ],
        types=[TypeItem(form=each.form, description=each.doc, example=each.example) for each in TYPES],
    )  # fmt: skip


def _argument(argument: Argument) -> ArgumentItem:
    return ArgumentItem(name=argument.name, type=argument.type, optional=argument.is_optional, repeated=argument.is_repeated)


def _example(example: Example) -> ExpressionExample:
    return ExpressionExample(expression=example.expression, gives=example.gives)


_LISTED = listed()
_SHOWN = _LISTED.model_copy(
    update={
        "functions": [each for each in _LISTED.functions if each.name == "round"],
        "aggregates": [each for each in _LISTED.aggregates if each.name == "sum"],
        "operators": [each for each in _LISTED.operators if "BETWEEN" in each.form],
        "types": [each for each in _LISTED.types if each.form == "date"],
    }
)


@router.get(
    "/functions",
    summary="List functions, aggregates, operators and types",
    response_model=FunctionsAnswer,
    responses={200: answered(_SHOWN.model_dump(mode="json"), "Everything that expressions can use."), **problems(400)},
)
async def get_functions() -> FunctionsAnswer:
    """Every function and aggregate with its arguments, its result and examples; operators; types. The list is complete."""
    return _LISTED
