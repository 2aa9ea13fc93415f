"""Secrets as a definition has them: a value, ``env:NAME`` or ``file:PATH``. Pure; who reads references is ``secret_sources.py``."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final
from urllib.parse import quote

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretStr

ENV: Final = "env:"
FILE: Final = "file:"
VARIABLES: Final = "SLACKWATER_SECRET_"
"""Beginning of the variables that ``env:`` may name: a definition must not read whatever else the environment holds."""

KEY_VARIABLE: Final = "SLACKWATER_SECRET_KEY"
"""The one variable with that beginning that ``env:`` may not name: it is what secrets are encrypted with."""

_LEAST_LINE_CHARS: Final = 16
"""Of a line of a PEM text; shorter ones say nothing."""

MOST_CHARS: Final = 64 * 1024
"""Of a secret, in a definition or in a file: a chain of certificates has some thousands."""

MOST_REFERENCE_CHARS: Final = 1_024
SHOWN: Final[Mapping[str, bool]] = {"set": True}
"""In the place of a value, wherever a definition is shown or stored."""

_VARIABLE: Final = re.compile(rf"{VARIABLES}[A-Z0-9_]{{1,200}}")
_NOT_SENT_BACK: Final = "a stored secret is never shown and cannot be sent back; give the value again, or env:NAME or file:PATH"


def is_reference(text: str) -> bool:
    """Whether a text says where a secret is, and is not the secret itself."""
    return text.startswith((ENV, FILE))


def _refuse_shown(value: Any) -> Any:
    if isinstance(value, dict):
        raise ValueError(_NOT_SENT_BACK)  # noqa: TRY004 - pydantic reports ValueError with its pointer
    return value


def _check(text: str) -> str:
    """Check a reference. Messages repeat nothing of it: what begins as one may be a password all the same.

    Raises:
        ValueError: it names what no definition may read.
    """
    if text.startswith(ENV):
        name = text.removeprefix(ENV)
        if not _VARIABLE.fullmatch(name) or name == KEY_VARIABLE:
            raise ValueError(
                f"`env:` names a variable {VARIABLES}… (A-Z, 0-9 and _) and not {KEY_VARIABLE}; a value that itself begins with env: or file: "
                "goes into a file (file:PATH)"
            )
    elif text.startswith(FILE):
        path = text.removeprefix(FILE)
        if not path or len(path) > MOST_REFERENCE_CHARS or "\0" in path or ".." in path.split("/"):
            raise ValueError("`file:` names a file below SLACKWATER_SECRETS_DIR, without '..'")
    elif "\0" in text:
        raise ValueError("holds the character U+0000, which no client can send; take it out")
    return text


def _check_secret(secret: SecretStr) -> SecretStr:
    _check(secret.get_secret_value())
    return secret


def _check_pem(text: str) -> str:
    if not is_reference(_check(text)) and "-----BEGIN " not in text:
        raise ValueError("must be PEM, a text with -----BEGIN …, or env:NAME or file:PATH")
    return text


def _check_secret_pem(secret: SecretStr) -> SecretStr:
    _check_pem(secret.get_secret_value())
    return secret


Secret = Annotated[
    SecretStr, Field(min_length=1, max_length=MOST_CHARS), BeforeValidator(_refuse_shown), AfterValidator(_check_secret)
]
"""A password, token or key."""

SecretPem = Annotated[
    SecretStr, Field(min_length=1, max_length=MOST_CHARS), BeforeValidator(_refuse_shown), AfterValidator(_check_secret_pem)
]
"""A client's certificate or private key."""

PublicPem = Annotated[str, Field(min_length=1, max_length=MOST_CHARS), AfterValidator(_check_pem)]
"""Certificates that may be shown; references as in secrets."""


def taken_out(definition: BaseModel) -> tuple[dict[str, Any], dict[str, str]]:
    """Part a definition from its secrets.

    Returns:
        The definition as it is shown and stored, every default spelled out, and the values by their pointers.
    """
    values: dict[str, str] = {}

    def shown(node: Any, pointer: str) -> Any:
        if isinstance(node, SecretStr):
            text = node.get_secret_value()
            if is_reference(text):
                return text
            values[pointer] = text
            return dict(SHOWN)
        if isinstance(node, dict):
            return {name: shown(inner, f"{pointer}/{name}") for name, inner in node.items()}
        return [shown(inner, f"{pointer}/{place}") for place, inner in enumerate(node)] if isinstance(node, list) else node

    return shown(definition.model_dump(), ""), values


def put_back(shown: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    """Return what ``taken_out`` has parted, together again; a value that is missing stays as it is shown."""

    def whole(node: Any, pointer: str) -> Any:
        if pointer in values:
            return SecretStr(values[pointer])
        return {name: whole(inner, f"{pointer}/{name}") for name, inner in node.items()} if isinstance(node, Mapping) else node

    return {name: whole(inner, f"/{name}") for name, inner in shown.items()}


def forms_of(value: str) -> Iterator[str]:
    """Yield a secret as texts of other programs may show it: as it is, line by line, quoted, encoded."""
    yield value
    yield from (line for line in value.splitlines() if len(line) >= _LEAST_LINE_CHARS)
    yield quote(value, safe="")
    yield b64encode(value.encode()).decode().rstrip("=")
    yield repr(value)[1:-1]
