"""Runs Python functions of users: reads columns, gives one back, and knows nothing else.

Its process (``engine.processes.function_process``) bounds memory; the caller bounds time. What a function prints is dropped.
"""

from __future__ import annotations

import io
import json
import select
import struct
from collections.abc import Callable
from typing import Any, BinaryIO

import polars as pl

Compiled = Callable[..., Any]


def compiled(body: str, parameters: list[str]) -> Compiled:
    """Return the function whose body this is; it may be an expression alone.

    Raises:
        SyntaxError: it is no Python.
    """
    lines = [line.rstrip() for line in body.strip("\n").splitlines()]
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    lines = [line[indent:] for line in lines]
    text = "\n".join(lines).strip()
    try:
        compile(text, "function", "eval")
        lines = [f"return ({text})"]
    except SyntaxError:
        pass
    source = f"def function({', '.join(parameters)}):\n" + "\n".join(f"    {line}" for line in lines)
    names: dict[str, Any] = {"pl": pl, "polars": pl}
    exec(compile(source, "function", "exec"), names)  # noqa: S102 - that is what an administrator has asked for
    made: Compiled = names["function"]
    return made


def applied(function: Compiled, columns: pl.DataFrame) -> pl.Series:
    """Return what a function makes of columns: a value for each row.

    Raises:
        ValueError: it gave another number of values.
    """
    found = function(*columns.get_columns())
    if not isinstance(found, pl.Series):
        values = list(found) if isinstance(found, list | tuple) else [found] * columns.height
        found = pl.Series(values, strict=False)
    if found.len() == 1 and columns.height != 1:
        found = found.new_from_index(0, columns.height)
    if found.len() != columns.height:
        raise ValueError(f"the function gave {found.len()} values for {columns.height} rows")
    return found.alias("value")


def warm_up() -> None:
    """Do once what every call does, so that what Polars keeps for itself is there before memory is bounded."""
    asked, answer = io.BytesIO(), io.BytesIO()
    pl.DataFrame({"_0": [1.0, None], "_1": ["a", None]}).write_ipc(asked, compression="uncompressed")
    columns = pl.read_ipc(io.BytesIO(asked.getvalue()))
    columns.select(value=pl.col("_0") + pl.col("_1").str.len_chars()).write_ipc(answer, compression="uncompressed")


def serve(source: BinaryIO, target: BinaryIO, idle_s: float) -> None:
    """Answer until the caller is gone, or has asked nothing for twice ``idle_s`` after a call: by then it expects no answer from here."""
    known: dict[str, Compiled] = {}
    while head := source.read(12):
        size, rows = struct.unpack("<IQ", head)
        asked = json.loads(source.read(size))
        columns = pl.read_ipc(io.BytesIO(source.read(rows)))
        try:
            function = known.get(asked["id"])
            if function is None:
                function = known[asked["id"]] = compiled(asked["body"], asked["parameters"])
            out = io.BytesIO()
            applied(function, columns).to_frame().write_ipc(out, compression="uncompressed")
            status, answer = 0, out.getvalue()
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises is its answer
            status, answer = 1, f"{type(error).__name__}: {error}".encode()[:2_000]
        target.write(struct.pack("<BQ", status, len(answer)) + answer)
        target.flush()
        del columns, answer  # which a function that is not asked does not need
        if not select.select([source], [], [], 2 * idle_s)[0]:
            return
