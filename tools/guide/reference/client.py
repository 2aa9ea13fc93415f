"""The Python client, made of its code: griffe reads signatures and docstrings without importing it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

import griffe

from tools.guide.markdown import block, code, page, prose, table

PACKAGE: Final = "slackwater"
_HEAD: Final = """# Python client

`pip install slackwater-client` brings the package `slackwater`, without PySpark and without the service. [The
guide](../guides/python.md) shows how its parts work together.
`AsyncClient` and what it gives have the same methods with `await`, so they are not listed again."""
_TWINS: Final = "Async"
_ATTRIBUTES: Final = ("blocking.queries.Queries", "blocking.administration.ApiKeys", "blocking.administration.Connections",
                      "blocking.administration.Errors", "blocking.administration.System")  # fmt: skip
"""Classes that nobody makes: they are attributes of a client."""
_LISTED: Final = {
    griffe.DocstringSectionKind.parameters: "Argument",
    griffe.DocstringSectionKind.attributes: "Attribute",
}


def client() -> str:
    """Return the page."""
    package = griffe.load(PACKAGE)
    parts = [_HEAD]
    for title, members in _grouped(package):
        parts += [f"## {title}", *(_described(member) for member in members)]
    return page(*parts)


def described_names() -> list[str]:
    """Return what the package exports and the page describes."""
    return [member.name for _, members in _grouped(griffe.load(PACKAGE)) for member in members]


def _grouped(package: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield titles and members: the client first, then what it gives, definitions, errors."""
    exported = [_target(package[str(name)]) for name in package.exports if not str(name).startswith(_TWINS)]
    exported += [_target(package[path]) for path in _ATTRIBUTES]
    for title, prefix in (
        ("The client", f"{PACKAGE}.blocking."),
        ("Definitions", f"{PACKAGE}.definitions."),
        ("Errors", f"{PACKAGE}.errors."),
    ):
        yield title, [member for member in exported if member.path.startswith(prefix)]
    known = tuple(f"{PACKAGE}.{name}." for name in ("blocking", "definitions", "errors"))
    yield "Answers and values", [member for member in exported if not member.path.startswith(known)]


def _target(member: Any) -> Any:
    return member.final_target if member.is_alias else member


def _described(member: Any) -> str:
    parts = [f"### {member.name}"]
    if member.is_class:
        bases = ", ".join(code(str(base).rsplit(".", 1)[-1]) for base in member.bases)
        parts += [
            f"A class, of {bases}." if bases else "",
            _signature(member, member.parameters) if "__init__" in member.all_members else "",
        ]
    elif member.is_function:
        parts.append(_signature(member, member.parameters))
    else:
        parts.append(block("python", f"{member.name} = {member.value}"))
    parts += _docstring(member)
    if member.is_class:
        parts += [_method(each) for each in _methods(member)]
    return page(*parts)


def _methods(member: Any) -> list[Any]:
    """Return what a class offers, inherited things included, in the order of the code."""
    found = [_target(each) for name, each in member.all_members.items() if not name.startswith("_")]
    return [each for each in found if each.is_function or "property" in each.labels]


def _method(member: Any) -> str:
    if "property" in member.labels:
        return page(
            f"#### {member.parent.name}.{member.name}",
            block("python", f"{member.name}: {member.annotation}"),
            *_docstring(member),
        )
    return page(f"#### {member.parent.name}.{member.name}", _signature(member, member.parameters), *_docstring(member))


def _signature(member: Any, parameters: Iterable[Any]) -> str:
    """Return a call with its types, one argument a line where they are many."""
    words: list[str] = []
    kinds = griffe.ParameterKind
    for kind, listed in groupby((each for each in parameters if each.name != "self"), key=lambda each: each.kind):
        if kind is kinds.keyword_only and not any(each.startswith("*") for each in words):
            words.append("*")
        words += map(_parameter, listed)
    returns = getattr(member, "returns", None)
    ending = f" -> {returns}" if returns is not None and not member.is_class else ""
    line = f"{member.name}({', '.join(words)}){ending}"
    if len(line) > 100:
        line = f"{member.name}(\n    " + ",\n    ".join(words) + f",\n){ending}"
    return block("python", line)


def _parameter(each: Any) -> str:
    star = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}.get(each.kind, "")
    annotation = f": {each.annotation}" if each.annotation is not None else ""
    default = f" = {each.default}" if each.default is not None and not star else ""
    return f"{star}{each.name}{annotation}{default}"


def _docstring(member: Any) -> list[str]:
    if member.docstring is None:
        return []
    parts = []
    for section in member.docstring.parse("google", warnings=False):
        title = _LISTED.get(section.kind)
        if title is not None:
            rows = ((code(each.name), _line(each.description)) for each in section.value)
            parts.append(table((title, "Meaning"), rows))
        elif section.kind is griffe.DocstringSectionKind.raises:
            parts.append(
                table(("Raises", "When"), ((code(str(each.annotation)), _line(each.description)) for each in section.value))
            )
        elif section.kind is griffe.DocstringSectionKind.text:
            parts.append(_text(section.value))
        else:
            parts.append(" ".join(_line(each.description) for each in section.value))
    return parts


def _line(text: str) -> str:
    return prose(" ".join(text.split()))


def _text(text: str) -> str:
    """Return prose with its doctests as blocks."""
    return "\n\n".join(block("pycon", each) if each.lstrip().startswith(">>>") else prose(each) for each in text.split("\n\n"))
