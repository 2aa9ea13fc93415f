"""``.proto`` files compiled by protoc: in a separate process (``protoc_process``), within bounds of time and size.

A file may also be its descriptor in base64: Confluent's client for Python registers this form. Confluent's registry converts it to text,
others (Apicurio's) keep what they got.
"""

from __future__ import annotations

import base64
import subprocess
from functools import lru_cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Final

import grpc_tools
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from engine.formats.shapes import SchemaNotRead
from engine.processes.python_processes import import_environment, python_command

MAX_PROTO_BYTES: Final = 512 << 10
_PROGRAM: Final = "engine.formats.protobuf.protoc_process"
_MAIN: Final = "main_schema.proto"
_DESCRIBED: Final = "described.bin"
_SECONDS: Final = 20
_MAX_COMPILED_BYTES: Final = 4 << 20
_MAX_ERROR_BYTES: Final = 64 << 10
_INCLUDED: Final = Path(grpc_tools.__file__).parent / "_proto"
"""Google's own files, which every file may import."""


@lru_cache(maxsize=128)
def compile_proto(text: str, references: tuple[tuple[str, str], ...] = ()) -> FileDescriptorSet:
    """Compile a file; it is the last one of the result.

    Args:
        text: the file, or its descriptor in base64.
        references: name and text of all files that it imports, directly or not; descriptors in base64 also of them.

    Raises:
        SchemaNotRead: protoc refuses it; the text is protoc's message.
    """
    if len(text) + sum(len(each) for _, each in references) > MAX_PROTO_BYTES:
        raise SchemaNotRead(f"the schema and what it imports have more than {MAX_PROTO_BYTES:,} characters")
    with TemporaryDirectory(prefix="slackwater-proto-") as folder:
        root = Path(folder)
        try:
            described = _write_all(root, (*references, (_MAIN, text)))
        except (OSError, UnicodeError):
            raise SchemaNotRead("the schema, or a name that it imports, cannot be written to a file") from None
        output, errors = root / "compiled.bin", root / "errors.txt"
        command = python_command(
            _PROGRAM,
            f"-I{root}",
            f"-I{_INCLUDED}",
            *described,
            "--include_imports",
            f"--descriptor_set_out={output}",
            _MAIN,
        )
        try:
            with errors.open("wb") as said:
                done = subprocess.run(
                    command, stdout=subprocess.DEVNULL, stderr=said, timeout=_SECONDS, check=False, cwd=root, env=_environment()
                )
        except subprocess.TimeoutExpired:
            raise SchemaNotRead(f"the schema is not compiled within {_SECONDS} seconds") from None
        if done.returncode or not output.exists():
            with errors.open("rb") as said:
                raise SchemaNotRead(_said(said.read(_MAX_ERROR_BYTES).decode("utf-8", "replace").replace(f"{root}/", "")))
        if output.stat().st_size > _MAX_COMPILED_BYTES:
            raise SchemaNotRead(f"compiled, the schema has more than {_MAX_COMPILED_BYTES:,} bytes")
        return FileDescriptorSet.FromString(output.read_bytes())


def _environment() -> dict[str, str]:
    """Return protoc's environment: nothing of the service."""
    return {name: value for name, value in import_environment().items() if not name.startswith("SLACKWATER_")}


def _write_all(root: Path, files: tuple[tuple[str, str], ...]) -> list[str]:
    """Write files for protoc; return its arguments for those that are descriptors."""
    described = FileDescriptorSet()
    for name, content in files:
        path = _path(name)
        if (_INCLUDED / path).exists():  # Google's own files come from the compiler
            continue
        descriptor = _descriptor(content)
        if descriptor is None:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(content)
        else:
            descriptor.name = name
            described.file.append(descriptor)
    if not described.file:
        return []
    (root / _DESCRIBED).write_bytes(described.SerializeToString())
    return [f"--descriptor_set_in={_DESCRIBED}"]


def _descriptor(content: str) -> FileDescriptorProto | None:
    """Return the descriptor from base64; None: it is text, whose braces base64 does not have."""
    try:
        found = FileDescriptorProto.FromString(base64.b64decode(content, validate=True))
    except (ValueError, DecodeError):
        return None
    return found if found.message_type or found.enum_type or found.dependency else None


def _path(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or not name.endswith(".proto"):
        raise SchemaNotRead(f"{name[:100]!r} is no name of a file that a schema can import")
    return path


def _said(errors: str) -> str:
    lines = [line.replace(f"{_MAIN}:", "line ") for line in errors.splitlines() if ".proto" in line and "warning" not in line]
    return f"protoc refuses the schema: {'; '.join(lines[:3])[:500] or errors[:300] or 'it says nothing'}"
