"""The process that runs Python functions of users: reads columns, gives one back, and knows nothing else.

It is started by ``engine.python_functions`` with bounds of memory; time is bounded by who waits. What a function prints goes nowhere.
"""

from __future__ import annotations

import io
import json
import resource
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

import polars as pl

Compiled = Callable[..., Any]

READY = b"r"
"""Sent once everything is imported, so that starting does not count as the function's time."""


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


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answer until the caller is gone."""
    known: dict[str, Compiled] = {}
    target.write(READY)
    target.flush()
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


def main() -> None:
    """Bound the memory and serve."""
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    target = sys.stdout.buffer
    sys.stdout = io.StringIO()
    serve(sys.stdin.buffer, target)


if __name__ == "__main__":
    main()
