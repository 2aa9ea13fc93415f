"""Functions of URLs, read as RFC 2396 says and java.net.URI does: parts come with their %XX escapes read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import quote_plus, unquote, unquote_plus

from engine.expressions.documented import Example
from engine.expressions.library.arguments import of_values
from engine.expressions.library.by_value import Unfit
from engine.expressions.library.entry import Function
from engine.expressions.types.types import INT, STRING, ColumnType
from engine.expressions.values import evaluation_errors as gaps

_KEPT: Final = 4_096
"""URLs taken apart that are remembered: several parts of one are asked for in a row."""

_OTHER: Final = r"[^\x00-\x7f]"
_ESCAPE: Final = "%[0-9a-fA-F]{2}"
_PATH: Final = rf"(?:[A-Za-z0-9_\-!.~'()*,;:$&+=@/]|{_ESCAPE}|{_OTHER})*"
_ANY: Final = rf"(?:[A-Za-z0-9_\-!.~'()*,;:$&+=@/?\[\]]|{_ESCAPE}|{_OTHER})*"
_URI: Final = re.compile(r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+\-.]*")
_HOST: Final = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)*[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.?|\d{1,3}(?:\.\d{1,3}){3}"
_SERVER: Final = re.compile(rf"(?:[^@]*@)?({_HOST}|\[[0-9a-fA-F:.]+(?:%\w+)?\])(?::(\d*))?")
_BAD_ESCAPE: Final = re.compile("%(?![0-9a-fA-F]{2})")
_BLANK: Final = re.compile(r"[\s\x80-\x9f]")
_WHOLE_PATH, _WHOLE_REST = re.compile(_PATH), re.compile(_ANY)

Parts = tuple[str | None, str | None, str | None, str | None, str | None]


@lru_cache(maxsize=_KEPT)
def _parts(url: str) -> Parts:
    """Return scheme, authority, path, query and fragment as they are written. Raises Unfit where it is no URL."""
    found = _URI.fullmatch(url)
    if found is None or not url or _BLANK.search(url):
        raise Unfit
    scheme, authority, path, query, fragment = found.groups()
    if scheme is not None and _SCHEME.fullmatch(scheme) is None:
        raise Unfit
    is_opaque = scheme is not None and authority is None and not path.startswith("/")
    if is_opaque and (not path or _WHOLE_REST.fullmatch(path) is None):
        raise Unfit
    if not is_opaque and _WHOLE_PATH.fullmatch(path) is None:
        raise Unfit
    if authority == "" and not path and query is None:
        raise Unfit
    if any(part is not None and _WHOLE_REST.fullmatch(part) is None for part in (authority, query, fragment)):
        raise Unfit
    return (scheme, None, None, None, fragment) if is_opaque else (scheme, authority or None, path, query, fragment)


def _read(part: str | None) -> str | None:
    return None if part is None else unquote(part, errors="replace")


def _server(url: str) -> re.Match[str] | None:
    authority = _parts(url)[1]
    return None if authority is None else _SERVER.fullmatch(authority)


def _host(url: str) -> str | None:
    found = _server(url)
    return None if found is None else found[1]


def _port(url: str) -> int | None:
    found = _server(url)
    if found is None or not found[2]:
        return None
    port = int(found[2][:12])
    if port >= 2**31:
        raise Unfit
    return port


def _parameter(url: str, name: str) -> str | None:
    query = _read(_parts(url)[3])
    for pair in (query or "").split("&") if query is not None else ():
        key, _, value = pair.partition("=")
        if key == name:
            return value
    return None


def _decoded(text: str) -> str:
    if _BAD_ESCAPE.search(text):
        raise Unfit
    return unquote_plus(text, errors="replace")


def _encoded(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


def _entry(
    part: str,
    function: Callable[..., str | int | None],
    doc: str,
    *examples: Example,
    takes: str = "url: string",
    result: ColumnType = STRING,
) -> Function:
    return Function(
        f"url_{part}", takes, str(result), doc, examples, of_values(f"url_{part}", function, [STRING], result),
        gaps=gaps.where_failed("outside_domain"), ksqldb=(f"URL_{part.upper()}",),
    )  # fmt: skip


_TEA: Final = "http://tea.example:8080/pots?size=2&hot#lid"

URLS: Sequence[Function] = (
    _entry("extract_protocol", lambda url: _parts(url)[0], "The protocol of a URL.", Example(f"url_extract_protocol('{_TEA}')", "http")),
    _entry("extract_host", _host, "The host of a URL.", Example(f"url_extract_host('{_TEA}')", "tea.example")),
    _entry(
        "extract_port", _port, "The port of a URL, NULL where it names none.", Example(f"url_extract_port('{_TEA}')", 8080), result=INT,
    ),
    _entry("extract_path", lambda url: _read(_parts(url)[2]), "The path of a URL.", Example(f"url_extract_path('{_TEA}')", "/pots")),
    _entry(
        "extract_query", lambda url: _read(_parts(url)[3]), "What stands behind the ? of a URL.",
        Example(f"url_extract_query('{_TEA}')", "size=2&hot"),
    ),
    _entry(
        "extract_fragment", lambda url: _read(_parts(url)[4]), "What stands behind the # of a URL.",
        Example(f"url_extract_fragment('{_TEA}')", "lid"),
    ),
    _entry(
        "extract_parameter", _parameter, "The value of a parameter of a URL, the empty text where it has none; NULL where it is not there.",
        Example(f"url_extract_parameter('{_TEA}', 'size')", "2"), Example(f"url_extract_parameter('{_TEA}', 'hot')", ""),
        takes="url: string, name: string",
    ),
    _entry(
        "encode_param", _encoded, "The text as a parameter of a URL is written.", Example("url_encode_param('a & b')", "a+%26+b"),
    ),
    _entry("decode_param", _decoded, "The text that a parameter of a URL means.", Example("url_decode_param('a+%26+b')", "a & b")),
)  # fmt: skip
