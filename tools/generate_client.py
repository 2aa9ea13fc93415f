"""``python tools/generate_client.py [--check]``: write what of the client is made of something else.

- ``slackwater/blocking`` of ``slackwater/asynchronous``: the same without ``async`` and ``await``. So there is one text for both.
- ``slackwater/answers/answer_list.py`` of the service's OpenAPI document.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "client"
SOURCE, TARGET = HERE / "slackwater" / "asynchronous", HERE / "slackwater" / "blocking"
ANSWERS = HERE / "slackwater" / "answers" / "answer_list.py"

WORDS = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\basyncio\b", "time"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bAsyncGenerator\[(.+), None\]", r"Generator[\1, None, None]"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bAsyncIterable\b", "Iterable"),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"\basync_", ""),
    (r"__aenter__", "__enter__"),
    (r"__aexit__", "__exit__"),
    (r"__aiter__", "__iter__"),
    (r"__anext__", "__next__"),
    (r"\banext\b", "next"),
    (r"\baclosing\b", "closing"),
    (r"\baclose\b", "close"),
    (r"\baread\b", "read"),
    (r"\baiter_bytes\b", "iter_bytes"),
    (r"slackwater\.asynchronous\b", "slackwater.blocking"),
)
NOTE = "# Made from slackwater/asynchronous by `make client`: change it there.\n"


def blocking(text: str) -> str:
    """Return the text of an asynchronous module as one that blocks."""
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    return formatted(NOTE + text)


def formatted(text: str) -> str:
    """Return code as the linter wants it."""
    name = ["--stdin-filename", str(TARGET / "made.py")]
    for command in (["check", "--quiet", "--fix-only", "--select", "I,F401", *name, "-"], ["format", *name, "-"]):
        done = subprocess.run([sys.executable, "-m", "ruff", *command], input=text, text=True, capture_output=True, check=True)
        text = done.stdout
    return text


def answer_list(document: Mapping[str, Any]) -> str:
    """Return the module of answers for an OpenAPI document."""
    schemas = document["components"]["schemas"]
    wanted = sorted(_reached(document, schemas))
    head = (
        '"""Every answer of the service, read from its OpenAPI document. Made by `make client`."""\n\n'
        "from __future__ import annotations\n\nfrom datetime import datetime\nfrom typing import Any, Literal\n\n"
        "from slackwater.answers.answer import Answer, Item, by_name, many, moment\n"
    )
    parts = [head]
    done: list[str] = []
    while len(done) < len(wanted):
        ready = [name for name in wanted if name not in done and _needs(schemas[name], wanted) <= {*done}]
        if not ready:
            raise SystemExit(f"schemas refer to each other: {sorted({*wanted} - {*done})}")
        parts += [_class(name, schemas[name], {*wanted}) for name in ready]
        done += ready
    return formatted("\n\n".join(parts))


def _reached(document: Mapping[str, Any], schemas: Mapping[str, Any]) -> set[str]:
    """Return the objects that answers are made of; definitions are not among them, they are dictionaries or builders."""
    todo = {
        name
        for methods in document["paths"].values()
        for operation in methods.values()
        for status, answer in operation["responses"].items()
        if status.startswith("2")
        for content in answer.get("content", {}).values()
        for name in _names(content.get("schema", {}))
    }
    found: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in found and "properties" in schemas[name] and not name.endswith("Definition"):
            found.add(name)
            todo |= set(_names(schemas[name]))
    return found


def _names(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].rpartition("/")[2]
        for key, value in schema.items():
            if key == "properties":  # a member may be called `examples`
                yield from (name for part in value.values() for name in _names(part))
            elif key not in ("examples", "example", "default"):
                yield from _names(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _names(value)


def _needs(schema: Mapping[str, Any], wanted: list[str]) -> set[str]:
    return {name for name in _names(schema) if name in wanted}


def _class(name: str, schema: Mapping[str, Any], objects: Set[str]) -> str:
    described = " ".join(schema.get("description", "").split())
    lines = [f"class {name}(Answer):"]
    if described:
        lines.append(f'    """{_first_sentence(described)}"""\n')
    for member, part in schema["properties"].items():
        kind, read = _kind(part, objects)
        attribute = re.sub(r"\W", "", member)
        attribute += "_" if attribute in ("from", "get", "keys", "raw") else ""
        arguments = [text for text in (read, f"name={member!r}" if attribute != member else "") if text]
        lines.append(f"    {attribute} = Item[{kind}]({', '.join(arguments)})")
        if part.get("description"):
            lines.append(f'    """{_escaped(part["description"])}"""\n')
    return "\n".join(lines) + "\n"


def _first_sentence(text: str) -> str:
    return _escaped(text.partition(". ")[0].rstrip(".") + ".")


def _escaped(text: str) -> str:
    text = " ".join(text.split()).replace("\\", "\\\\").replace('"""', "'''")
    text = text + " " if text.endswith('"') else text
    return text if len(text) < 130 else "\n    ".join(_wrapped(text)) + "\n    "


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, 120)


def _kind(part: Mapping[str, Any], objects: Set[str]) -> tuple[str, str]:
    """Return the type of a member, and what reads it; an empty text: nothing needs to. Codes of errors are texts: there will be more."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return (name, name) if name in objects else ("str" if name == "ErrorCode" else "Any", "")
    if "anyOf" in part:
        kinds = [_kind(each, objects) for each in part["anyOf"] if each.get("type") != "null"]
        if len(kinds) != 1:
            return "Any", ""
        kind, read = kinds[0]
        return (kind if kind == "Any" else f"{kind} | None"), read
    if "enum" in part or "const" in part:
        values = part.get("enum") or [part["const"]]
        return f"Literal[{', '.join(map(repr, values))}]", ""
    match part.get("type"):
        case "string":
            return ("datetime", "moment") if part.get("format") == "date-time" else ("str", "")
        case "integer":
            return "int", ""
        case "number":
            return "float", ""
        case "boolean":
            return "bool", ""
        case "array":
            kind, read = _kind(part.get("items", {}), objects)
            return f"tuple[{kind}, ...]", f"many({read})" if read else "tuple"
        case "object" if isinstance(part.get("additionalProperties"), dict):
            kind, read = _kind(part["additionalProperties"], objects)
            return f"dict[str, {kind}]", f"by_name({read})" if read else ""
        case "object":
            return "dict[str, Any]", ""
    return "Any", ""


def made() -> dict[Path, str]:
    """Return every file that is made, with its text."""
    sys.path.insert(0, str(ROOT))
    from pydantic import SecretStr

    from app.main.main import create_app
    from app.settings.settings import Settings

    document = create_app(Settings(database_url=SecretStr("postgresql://nobody@localhost/nothing"))).openapi()
    document = json.loads(json.dumps(document))
    texts = {TARGET / path.name: blocking(path.read_text()) for path in sorted(SOURCE.glob("*.py"))}
    return texts | {ANSWERS: answer_list(document)}


def main() -> int:
    """Write the files; with ``--check`` say which differ instead."""
    texts = made()
    different = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    stale = [path for path in TARGET.glob("*.py") if path not in texts]
    if "--check" in sys.argv:
        for path in (*different, *stale):
            print(f"{path.relative_to(HERE)} is not what `make client` makes")
        return 1 if different or stale else 0
    TARGET.mkdir(exist_ok=True)
    for path in different:
        path.write_text(texts[path])
    for path in stale:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
