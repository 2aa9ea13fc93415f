"""What must not end the process, hang it or fill its memory. Run in a process of its own, which is allowed little of both."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import json, resource
import polars as pl
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from engine.formats.format_list import reader_of
from engine.formats.port import FormatInvalid, SideConfig
from engine.expressions.types.types import Schema, parse_type
def read(format, type, schema, payload):
    config = SideConfig(format, Schema((("a", parse_type(type)),)), schema=schema)
    raw, rejects = reader_of(config).read(pl.Series([payload], dtype=pl.Binary))
    assert raw.height + rejects.height == 1
    return rejects["reason"].to_list()
def record(kind):
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]})
def refused(*arguments):
    try:
        read(*arguments)
    except FormatInvalid as error:
        return str(error)
    raise AssertionError("it was read")
"""

CASES = {
    "groups nested a million deep": 'assert read("protobuf", "bigint", PROTO, b"\\x2b" * 1_000_000 + b"\\x2c" * 1_000_000)',
    "groups nested as deep as a short message can": 'read("protobuf", "bigint", PROTO, b"\\x2b" * 8_000 + b"\\x2c" * 8_000)',
    "a length of 2^64 - 1": 'assert read("protobuf", "string", TEXTS, b"\\x0a" + b"\\xff" * 9 + b"\\x01" + b"x")',
    "2^62 nulls in an array": 'assert "no bytes" in refused("avro", "array<int>", record(NULLS), b"\\xff" * 9 + b"\\x01\\x00")',
    "2^62 longs in an array": 'assert read("avro", "array<bigint>", record(LONGS), b"\\xfe" + b"\\xff" * 8 + b"\\x01\\x00")',
    "a text of 2^62 bytes": 'assert read("avro", "string", record("string"), b"\\xfe" + b"\\xff" * 8 + b"\\x01\\x00")',
    "a schema that holds itself": 'assert "holds itself" in refused("avro", "string", record(["null", "R"]), b"\\x02" * 100_000 + b"\\x00")',
    "a schema nested a thousand deep": 'assert refused("avro", "string", DEEP, b"")',
    "a schema of a billion values": """
parts = ['{"type":"record","name":"r0","fields":[{"name":"x","type":"int"}]}']
for i in range(1, 10):
    fields = ",".join('{"name":"f%d","type":"r%d"}' % (j, i - 1) for j in range(10))
    first = parts[-1]
    fields = fields.replace('"type":"r%d"' % (i - 1), '"type":' + first, 1)
    parts.append('{"type":"record","name":"r%d","fields":[%s]}' % (i, fields))
assert "10,000" in refused("avro", "string", parts[-1], b"")
""",
    "nulls that stand for wide structs": """
fields = [{"name": f"f{i}", "type": ["null", "string"]} for i in range(500)]
wide = {"type": "array", "items": ["null", {"type": "record", "name": "W", "fields": fields}]}
assert read("avro", "array<struct<f0:string>>", record(wide), b"\\x80\\x89\\x7a" + b"\\x00" * 1_000_001)
""",
    "json nested a million deep": 'assert read("json", "string", None, b\'{"a":\' + b"[" * 1_000_000)',
    "imports without an end": 'assert "protoc" in refused("protobuf", "string", CIRCLE, b"")',
}
PROTOS = """
PROTO = 'syntax = "proto3"; message M { int64 a = 1; }'
NULLS, LONGS = ({"type": "array", "items": each} for each in ("null", "long"))
DEEP = '{"type":"array","items":' * 900 + '"int"' + "}" * 900
CIRCLE = 'syntax = "proto3"; import "main_schema.proto"; message M { string a = 1; }'
TEXTS = 'syntax = "proto3"; message M { string a = 1; }'
"""


@pytest.mark.parametrize("name", CASES)
def test_hostile_payloads_and_schemas_are_refused_within_bounds(name: str) -> None:
    code = PRELUDE + PROTOS + textwrap.dedent(CASES[name])
    # Not `ru_maxrss`, which begins at what the process had that started this one.
    code += "\npeak_kib = int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    code += "\nassert peak_kib < 1_500_000, 'it took too much memory'\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
