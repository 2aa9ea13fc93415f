"""Functions between texts, bytes and numbers.

Encodings are ``hex``, ``utf8``, ``ascii`` and ``base64``. What one cannot show becomes its sign for that: ``?`` in ASCII, U+FFFD in texts.
"""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from collections.abc import Callable, Sequence
from typing import Final

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.arguments import given, of_values
from engine.expressions.library.by_value import Unfit
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.types.types import BIGINT, BYTES, DOUBLE, INT, STRING, ColumnType
from engine.expressions.values import evaluation_errors as gaps
from engine.expressions.values.once import once
from engine.expressions.values.operands import ExpressionInvalid, Operand, finite

_ENCODINGS: Final = ("hex", "utf8", "ascii", "base64")
_ORDERS: Final = {"big_endian": "big", "little_endian": "little"}
_FOREIGN: Final = re.compile("[^A-Za-z0-9+/]")


def _decoded(text: str, encoding: str) -> bytes:
    match encoding:
        case "hex":
            return _of_hex(text)
        case "base64":
            return _of_base64(text if text.endswith("=") else text + "=" * (-len(text) % 4))
        case "ascii":
            return text.encode("ascii", "replace")
    return text.encode()


def _of_hex(text: str) -> bytes:
    try:
        return binascii.unhexlify(text)
    except (binascii.Error, ValueError) as error:
        raise Unfit from error


def _of_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Unfit from error


def _encoded(value: bytes, encoding: str) -> str:
    match encoding:
        case "hex":
            return value.hex()
        case "base64":
            return base64.b64encode(value).decode()
        case "ascii":
            return value.decode("ascii", "replace")
    return value.decode("utf-8", "replace")


def _known(encoding: str) -> str:
    lowered = encoding.lower()
    if lowered not in _ENCODINGS:
        raise Unfit
    return lowered


def _to_bytes(text: str, encoding: str) -> bytes:
    return _decoded(text, _known(encoding))


def _from_bytes(value: bytes, encoding: str) -> str:
    known = _known(encoding)
    return _encoded(value, known).upper() if known == "hex" else _encoded(value, known)


def _reencoded(text: str, source: str, target: str) -> str:
    """Write a text of one encoding in another; hexadecimal digits may be written 0x… or X'…', and base64 as loosely as people do."""
    first, second = _known(source), _known(target)
    if first == second:
        raise Unfit
    if first == "hex":
        return _encoded(_of_hex(_digits_of(text)), second)
    if first == "base64":
        return _encoded(_of_loose_base64(text), second)
    value = _encoded(_decoded(text, first), first) if first == "ascii" else text
    return _encoded(_decoded(value, "utf8"), second)


def _digits_of(text: str) -> str:
    if text.startswith("0x"):
        return "0" + text[2:] if len(text) % 2 else text[2:]
    return text[2:-1] if re.fullmatch("[xX]'.*'", text) else text


def _of_loose_base64(text: str) -> bytes:
    letters = _FOREIGN.sub("", text.partition("=")[0].replace("-", "+").replace("_", "/"))
    whole = letters[: len(letters) - (len(letters) % 4 == 1)]
    return base64.b64decode(whole + "=" * (-len(whole) % 4))


def from_number(name: str, kind: ColumnType) -> Callable[[Arguments], Operand]:
    """Compile the reading of a number from its bytes."""
    size = {INT: 4}.get(kind, 8)

    def compiled(arguments: Arguments) -> Operand:
        value = given(name, arguments[0], BYTES)
        written = arguments[1].literal if len(arguments) > 1 else "BIG_ENDIAN"
        order = _ORDERS.get(written.lower()) if isinstance(written, str) else None
        if order is None:
            raise ExpressionInvalid(
                "type_mismatch", f"{name} takes its order of bytes written out: 'BIG_ENDIAN' or 'LITTLE_ENDIAN'"
            )

        def build(part: pl.Expr) -> pl.Expr:
            fitting = pl.when(part.bin.size() == size).then(part)
            return fitting.bin.reinterpret(dtype=kind.polars, endianness="big" if order == "big" else "little")

        number = once(build, value)
        return Operand(finite(number) if kind == DOUBLE else number, kind)

    return compiled


def _uuid(value: bytes) -> str:
    if len(value) != 16:  # bytes of a UUID
        raise Unfit
    return str(uuid.UUID(bytes=value))


def _record(failures: gaps.Gaps, arguments: Arguments, result: Operand) -> None:
    gaps.without_result("outside_domain")(failures, arguments[:1], result)


def _of_number(name: str, kind: ColumnType, example: Example) -> Function:
    return Function(
        name, "value: bytes, order?: string", str(kind),
        f"The {kind} that {4 if kind == INT else 8} bytes are, the highest first (or 'LITTLE_ENDIAN', written out); NULL of any other size.",
        (example,), from_number(name, kind), gaps=_record, ksqldb=(name.upper(),),
    )  # fmt: skip


BINARY: Sequence[Function] = (
    Function(
        "to_bytes", "text: string, encoding: string", "bytes", "The bytes that a text means: hex, utf8, ascii or base64.",
        (Example("from_bytes(to_bytes('746561', 'hex'), 'utf8')", "tea"),),
        of_values("to_bytes", _to_bytes, [STRING], BYTES), gaps=gaps.where_failed("outside_domain"),
        ksqldb=("TO_BYTES",),
    ),
    Function(
        "from_bytes", "value: bytes, encoding: string", "string", "The bytes as text: hex, utf8, ascii or base64.",
        (Example("from_bytes(to_bytes('tea', 'utf8'), 'hex')", "746561"),),
        of_values("from_bytes", _from_bytes, [BYTES, STRING], STRING),
        gaps=gaps.where_failed("outside_domain"), ksqldb=("FROM_BYTES",),
    ),
    Function(
        "encode", "text: string, from: string, to: string", "string", "A text of one encoding in another: hex, utf8, ascii or base64.",
        (Example("encode('tea', 'utf8', 'base64')", "dGVh"), Example("encode('0x746561', 'hex', 'ascii')", "tea")),
        of_values("encode", _reencoded, [STRING], STRING), gaps=gaps.where_failed("outside_domain"),
        ksqldb=("ENCODE",),
    ),
    _of_number("int_from_bytes", INT, Example("int_from_bytes(to_bytes('0000002A', 'hex'))", 42)),
    _of_number("bigint_from_bytes", BIGINT, Example("bigint_from_bytes(to_bytes('2A00000000000000', 'hex'), 'LITTLE_ENDIAN')", 42)),
    _of_number("double_from_bytes", DOUBLE, Example("double_from_bytes(to_bytes('4004000000000000', 'hex'))", 2.5)),
    Function(
        "uuid", "value: bytes", "string", "16 bytes as a UUID. There is none without bytes: a result must be the same each time it is computed.",
        (Example("uuid(to_bytes('00112233445566778899aabbccddeeff', 'hex'))", "00112233-4455-6677-8899-aabbccddeeff"),),
        of_values("uuid", _uuid, [BYTES], STRING), gaps=gaps.where_failed("outside_domain"), ksqldb=("UUID",),
    ),
)  # fmt: skip
