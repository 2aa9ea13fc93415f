"""Python functions that definitions call: a copy of each stands in the definition, and its digest in canonical texts.

So what a query computes never changes behind its back, kept state depends on the body by the text that it stands in, and whoever reads a
plan can run it. A text alone cannot bring a function along: what is not known by its digest does not exist.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import polars as pl
from pydantic import Field

from engine.errors import PythonFailed
from engine.expressions.durations import Duration
from engine.expressions.model import Model, TypeText
from engine.expressions.types.types import ColumnType, parse_type
from engine.expressions.values.evaluation_errors import Gaps
from engine.expressions.values.operands import ExpressionInvalid, Operand, coerce
from engine.processes.function_times import function_time
from engine.processes.python_functions import FunctionEnded, FunctionFailed, FunctionRefused, Runnable, call
from engine.sql.tree import Call, Identifier, Node, Text

CALL: Final = "python_function"
"""What canonical texts call; its first argument is the function's digest."""

MAX_BODY_CHARS: Final = 20_000
MAX_PARAMETERS: Final = 50
MAX_BYTES: Final = 4 << 30

MAX_ENDED: Final = 100
"""How often a batch may end a function's process, by time or memory, before the query fails: each time costs up to a call's time."""

MOST_LOST_S: Final = 40.0
"""How long the calls of a batch may take that end a function's process, together, before the query fails and names the function. Below
``engine.runtime.limits.watchdog.STALL_S``: the worker is not ended first, which names nothing, and has the query tried alone for as long again
(247 s until a hanging function was named). Four calls of the default ``timeout``; starting the processes takes the rest of a minute."""


class FunctionDefinition(Model):
    """A function in Python over columns: each parameter is a Polars series, and so is its result, with a value for each row."""

    parameters: dict[str, TypeText] = Field(max_length=MAX_PARAMETERS, description="Parameter → type, in order.")
    returns: TypeText = Field(description="Type of the result.")
    body: str = Field(
        min_length=1, max_length=MAX_BODY_CHARS, description="Body of the function, or one expression. `pl` is Polars."
    )
    on_error: Literal["null", "stop"] = Field(
        default="null",
        description="Where it raises: `null`: the row's value is NULL and counted (`function_failed`), as is a value that is none of "
        "`returns`; `stop`: the query fails. It also fails where a batch ends the function's process 100 times, by time or memory.",
    )
    timeout: Duration = Field(default=10_000, description="How long one call may take, of a batch's rows together.")
    memory_bytes: int = Field(
        default=512 << 20,
        ge=1 << 20,
        le=MAX_BYTES,
        description="How much memory its process may take.",
    )

    @property
    def digest(self) -> str:
        """What tells it from every other function."""
        said = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()[:32]


Functions = dict[str, FunctionDefinition]
"""Functions by name, in lower case."""


@dataclass(frozen=True)
class KnownFunction:
    """A function that texts may call by its digest; making one makes it known, also in the process that a plan is sent to."""

    name: str
    definition: FunctionDefinition

    def __post_init__(self) -> None:
        _KNOWN[self.definition.digest] = self

    def __reduce__(self) -> tuple[Callable[..., KnownFunction], tuple[str, dict[str, Any]]]:
        return _known, (self.name, self.definition.model_dump(mode="json"))


_KNOWN: dict[str, KnownFunction] = {}


def _known(name: str, definition: dict[str, Any]) -> KnownFunction:
    return KnownFunction(name, FunctionDefinition.model_validate(definition))


def known_functions(functions: Mapping[str, FunctionDefinition]) -> tuple[KnownFunction, ...]:
    """Make functions known."""
    return tuple(KnownFunction(name, each) for name, each in sorted(functions.items()))


def with_digests(tree: Node, functions: Mapping[str, FunctionDefinition]) -> Node:
    """Return a tree in which calls of these functions name them by their digests."""

    def named(node: Node) -> Node | None:
        if not isinstance(node, Call) or node.name.text.lower() not in functions:
            return None
        digest = functions[node.name.text.lower()].digest
        arguments = tuple(with_digests(each, functions) for each in node.arguments)
        return Call(Identifier(CALL), (Text(digest), *arguments), span=node.span)

    return tree.mapped(named) if functions else tree


def compiled(arguments: Sequence[Operand], gaps: Gaps) -> Operand:
    """Compile a call by digest.

    Raises:
        ExpressionInvalid: ``unknown_function``; ``type_mismatch`` for its arguments.
    """
    digest = arguments[0].literal if arguments else None
    function = _KNOWN.get(digest) if isinstance(digest, str) else None
    if function is None:
        raise ExpressionInvalid("unknown_function", f"there is no function {CALL!r}; GET /v1/functions lists all")
    definition = function.definition
    kinds = [parse_type(text) for text in definition.parameters.values()]
    given = arguments[1:]
    if len(given) != len(kinds):
        raise ExpressionInvalid("type_mismatch", f"{function.name} takes {len(kinds)} argument(s), not {len(given)}")
    values = [coerce(each, kind, function.name) for each, kind in zip(given, kinds, strict=True)]
    returns = parse_type(definition.returns)
    runnable = Runnable(
        definition.digest, definition.body, tuple(definition.parameters), definition.timeout / 1_000, definition.memory_bytes
    )
    if not values:
        raise ExpressionInvalid("type_mismatch", f"{function.name} takes no argument, so it is a constant; write its value")
    both = pl.struct(*(value.alias(f"_{number}") for number, value in enumerate(values)))
    run = _Run(runnable, returns, is_stop=definition.on_error == "stop", name=function.name)
    dtype = pl.Struct({"value": returns.polars, "failed": pl.Boolean()})
    found = both.map_batches(lambda rows: run.over(rows), return_dtype=dtype, is_elementwise=True)
    if definition.on_error == "null":
        gaps.add("function_failed", found.struct.field("failed"))
    return Operand(found.struct.field("value"), returns)


_LAST: dict[str, tuple[bytes, pl.DataFrame]] = {}
"""Of each function: the digest of what it was asked last, and the answer."""


def _digest_of(frame: pl.DataFrame) -> bytes:
    sent = io.BytesIO()
    frame.write_ipc(sent, compression="uncompressed")
    return hashlib.blake2b(sent.getbuffer(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class _Run:
    """Calls a function over the rows of a batch."""

    runnable: Runnable
    returns: ColumnType
    is_stop: bool
    name: str
    most_lost_s: float = MOST_LOST_S

    def over(self, rows: pl.Series) -> pl.Series:
        """Return ``{value, failed}`` of each row; what was asked last is remembered, for both parts are asked for one after the other."""
        frame = rows.struct.unnest()
        key = _digest_of(frame)
        known = _LAST.get(self.runnable.id)
        if known is None or known[0] != key:
            with function_time(self.name):
                values, failed = self._parts(frame.get_columns(), frame.height, [])
            known = _LAST[self.runnable.id] = key, pl.DataFrame({"value": values, "failed": failed})
        return known[1].to_struct(rows.name)

    def _parts(self, columns: list[pl.Series], height: int, ended: list[float]) -> tuple[pl.Series, pl.Series]:
        """Return values, and where there are none; of rows that fail together those that fail alone are found by halves.

        Args:
            columns: arguments of the function.
            height: rows.
            ended: seconds of each call that ended the process, of this batch.

        Raises:
            PythonFailed: it failed and shall stop the query, the batch ended its process too often or lost too much time in this way, or this
                machine runs no functions.
        """
        if height == 0:
            return pl.Series([], dtype=self.returns.polars), pl.Series([], dtype=pl.Boolean)
        try:
            values, failed = _as_declared(call(self.runnable, columns), self.returns)
            if not (self.is_stop and failed.any()):
                return values, failed
            raise PythonFailed(f"the function {self.name} failed: it gave a value that is no {self.returns}")
        except FunctionRefused as error:
            raise PythonFailed(f"the function {self.name} cannot run: {error}") from error
        except FunctionFailed as error:
            if isinstance(error, FunctionEnded):
                ended.append(error.lost_s)
            if self.is_stop or len(ended) >= MAX_ENDED or sum(ended) >= self.most_lost_s:
                raise PythonFailed(f"the function {self.name} failed: {error}") from error
        if height == 1:
            return pl.Series([None], dtype=self.returns.polars), pl.Series([True])
        half = height // 2
        first, first_failed = self._parts([each[:half] for each in columns], half, ended)
        second, second_failed = self._parts([each[half:] for each in columns], height - half, ended)
        return pl.concat([first, second]), pl.concat([first_failed, second_failed])


def _as_declared(found: pl.Series, returns: ColumnType) -> tuple[pl.Series, pl.Series]:
    """Return values of the declared type, and which of them are none of it.

    Raises:
        FunctionFailed: no value of that type can be one.
    """
    try:
        values = found.cast(returns.polars, strict=False)
    except pl.exceptions.PolarsError as error:
        raise FunctionFailed(f"it gave values of type {found.dtype}, and is declared to return {returns}") from error
    if values.dtype != returns.polars:
        raise FunctionFailed(f"it gave values of type {found.dtype}, and is declared to return {returns}")
    return values, (found.is_not_null() & values.is_null()).alias("failed")
