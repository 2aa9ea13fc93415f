"""Contexts: services by name, each with its URL and its key, in one file that only its owner can read.

Only this module decides which service a command uses: by ``--url`` and ``--key``, then by the environment, then by a context.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import httpx

from slackwater.cli.options.failing import UsageError
from slackwater.settings import API_KEY_VARIABLE, CONTEXT_VARIABLE, DEFAULT_URL, URL_VARIABLE, authorization

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_OWNER_ONLY: Final = 0o600


@dataclass(frozen=True, slots=True)
class Context:
    """One service."""

    url: str
    key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts of a user, and the current one."""

    by_name: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    def named(self, name: str) -> Context:
        """Return a context.

        Raises:
            UsageError: there is none of this name.
        """
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise UsageError(
                f"there is no context '{name}' (there are: {known})", f"make it: slackwater context add {name} --url URL"
            )
        return self.by_name[name]

    def with_context(self, name: str, context: Context) -> Contexts:
        """Return the contexts with one added or replaced; the first one becomes current."""
        if _NAME.fullmatch(name) is None:
            raise UsageError(f"{name!r} is no name of a context", "use letters, digits, '.', '_' and '-', such as prod")
        return Contexts({**self.by_name, name: context}, self.current or name)

    def without(self, name: str) -> Contexts:
        """Return the contexts without one."""
        self.named(name)
        rest = {other: context for other, context in self.by_name.items() if other != name}
        return Contexts(rest, None if self.current == name else self.current)

    def using(self, name: str) -> Contexts:
        """Return the contexts with another current one."""
        self.named(name)
        return replace(self, current=name)


class ContextFile:
    """The file of the contexts. Every write replaces the whole file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Contexts:
        """Return its contents; empty if there is no file.

        Raises:
            UsageError: it cannot be read, or others can read it although it has keys.
        """
        try:
            with self.path.open(encoding="utf-8") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                found = json.load(file)
            contexts = {name: _context(each) for name, each in found["contexts"].items()}
            current = found.get("current")
        except FileNotFoundError:
            return Contexts()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"{self.path} cannot be read: {error}", "mend it, or remove it and add your contexts again"
            ) from error
        if os.name == "posix" and mode & 0o077 and any(each.key for each in contexts.values()):
            raise UsageError(f"{self.path} has keys, and others can read it (mode {mode:o})", f"chmod 600 {self.path}")
        return Contexts(contexts, current if current in contexts else None)

    def write(self, contexts: Contexts) -> None:
        """Replace the file; only its owner can read it."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        body = {
            "current": contexts.current,
            "contexts": {
                name: {"url": each.url, **({} if each.key is None else {"key": each.key})}
                for name, each in contexts.by_name.items()
            },
        }
        beside = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "w", encoding="utf-8") as file:
                json.dump(body, file, indent=2)
                file.write("\n")
            beside.replace(self.path)
        finally:
            beside.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """The options of a command that select the service; None: not set."""

    url: str | None = None
    key: str | None = None
    context: str | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """The service of a command.

    Attributes:
        origin: the option, variable or context that selected it, for people.
    """

    url: str
    key: str | None = field(repr=False)
    origin: str


def chosen(options: ServiceOptions, environment: Mapping[str, str], file: ContextFile) -> Service:
    """Return the service to use.

    An option has priority over the environment, and the environment over the current context. The key of a context is sent only to the
    context's own URL: another URL needs a key of its own. A context named by an option uses its own key, because the environment's key may be
    for another service.

    Raises:
        UsageError: there is no such context, or the URL or the key is invalid.
    """
    url, url_origin = _first((options.url, "--url"), (environment.get(URL_VARIABLE), URL_VARIABLE))
    key, _ = _first((options.key, "--key"), (environment.get(API_KEY_VARIABLE), API_KEY_VARIABLE))
    if options.context is not None and options.url is not None:
        raise UsageError("--url and --context both name a service", "give one of them")
    if url is None or options.context is not None:
        contexts = file.read()
        name, _ = _first(
            (options.context, "--context"), (environment.get(CONTEXT_VARIABLE), CONTEXT_VARIABLE), (contexts.current, "")
        )
        if name is not None:
            found = contexts.named(name)
            own, _ = _first((found.key if options.context is not None else None, ""), (key, ""), (found.key, ""))
            return Service(checked_url(found.url), checked_key(options.key or own), f"context {name}")
    return Service(checked_url(url or DEFAULT_URL), checked_key(key), url_origin or "the default")


def _context(found: Mapping[str, Any]) -> Context:
    url, key = found["url"], found.get("key")
    if not isinstance(url, str) or not isinstance(key, str | None):
        raise TypeError("a URL is a text, and so is a key")
    return Context(url, key)


def _first(*given: tuple[str | None, str]) -> tuple[str | None, str | None]:
    return next(((value, origin) for value, origin in given if value), (None, None))


def checked_url(url: str) -> str:
    """Return the URL of a service in its stored form.

    Raises:
        UsageError: it is not a URL of a service.
    """
    try:
        is_url = re.match(r"https?://[^/]", url) is not None and bool(httpx.URL(url).host)
    except httpx.InvalidURL:
        is_url = False
    if not is_url:
        raise UsageError(f"{url!r} is no URL of a service", "give one such as http://127.0.0.1:8080")
    return url.rstrip("/")


def checked_key(key: str | None) -> str | None:
    """Return a key.

    Raises:
        UsageError: it is not a valid key.
    """
    try:
        return key if key is None or authorization(key) else None
    except ValueError as error:
        raise UsageError(str(error), "copy it again: --key, SLACKWATER_API_KEY, or slackwater context add") from error


def shown(name: str, context: Context, *, is_current: bool) -> dict[str, Any]:
    """Return a context for output, without its key."""
    return {"name": name, "current": is_current, "url": context.url, "key": context.key is not None}
