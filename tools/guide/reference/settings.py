"""Every setting, made of the models that read the environment; what a setting means stands in the docstring of its model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from griffe import Docstring, DocstringSectionAttributes
from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined

from app.settings.settings import ENV_PREFIX, NESTING, Settings
from tools.guide.markdown import code, page, prose, table
from tools.guide.reference.definitions import type_of

_HEAD: Final = """# Settings

Every setting is an environment variable; groups are joined by two underscores (`SLACKWATER_SPARK__MASTER`). `slackwater config show`
lists the values in force and where each
comes from. A variable that begins with `SLACKWATER_` and names no setting stops the start, so a typing error cannot pass."""
_OF_ALL: Final = "The service"


def settings() -> str:
    """Return the page."""
    parts = [_HEAD]
    for title, path, model in groups():
        parts += [f"## {title}", _table(path, model)]
    return page(*parts)


def groups() -> Iterator[tuple[str, tuple[str, ...], type[BaseModel]]]:
    """Yield every group of settings: title, path of its names, model."""
    yield _OF_ALL, (), Settings
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, BaseModel):
            yield _TITLES[type(field.default).__name__], (name,), type(field.default)


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return what a model's docstring says of its fields."""
    sections = Docstring(model.__doc__ or "", lineno=1).parse("google", warnings=False)
    return {
        each.name: " ".join(each.description.split())
        for section in sections
        if isinstance(section, DocstringSectionAttributes)
        for each in section.value
    }


def own_fields(model: type[BaseModel]) -> list[str]:
    """Return the names of a model's settings, without its groups."""
    return [name for name, field in model.model_fields.items() if not isinstance(field.default, BaseModel)]


def variable(path: tuple[str, ...]) -> str:
    """Return the environment variable of a setting."""
    return ENV_PREFIX + NESTING.join(path).upper()


def _table(path: tuple[str, ...], model: type[BaseModel]) -> str:
    said, declared = meanings(model), model.model_json_schema()["properties"]
    rows = [
        (
            f"{code(variable((*path, name)))}<br>{_kind(model, name, declared[name])}{_default(model.model_fields[name].default)}",
            _meaning(said.get(name, "")),
        )
        for name in own_fields(model)
    ]
    return table(("Variable", "Meaning"), rows)


def _meaning(text: str) -> str:
    """Return what a docstring says of a field, in words for those who set environment variables."""
    said = prose(text).replace("None:", "Not set:")
    return said[:1].upper() + said[1:]


def _kind(model: type[BaseModel], name: str, declared: dict[str, Any]) -> str:
    if "SecretStr" in str(model.model_fields[name].annotation):
        return "secret"
    if "Path" in str(model.model_fields[name].annotation):
        return "directory"
    return type_of(declared).removesuffix(" or null").removesuffix(" or text")


def _default(default: Any) -> str:
    if default is None or default is PydanticUndefined or default == "" or isinstance(default, SecretStr):
        return ""
    return f", {code(str(default).lower() if isinstance(default, bool) else str(default))}"


_TITLES: Final = {
    "SparkSettings": "Spark",
    "DriverSettings": "The driver",
    "PushSettings": "Event streams",
    "LimitSettings": "Limits",
    "OidcSettings": "OpenID Connect",
    "SqlSettings": "SQL",
    "LogSettings": "The service's log",
}
