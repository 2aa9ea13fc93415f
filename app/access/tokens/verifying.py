"""Authentication by tokens of an OpenID Connect issuer: signature, times, issuer, audience; then the claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import jwt

from app.access.keys.sql import KeyCache
from app.access.rules import KEY_MARK, Principal, Role
from app.access.scopes import scope_of
from app.access.tokens.issuer_keys import IssuerAway, IssuerKeys
from app.errors.app_errors import Forbidden, Unauthorized, Unavailable, Unprocessable
from app.settings.oidc_settings import OidcSettings

MOST_SUBJECT = 255
EVERYTHING = "*"


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """The claims with the role and the scope.

    Attributes:
        role_claim: name of a claim, or a path with dots into objects.
        roles: value of that claim → role.
        scope_claim: the same for patterns of names; None: tokens have no scope.
    """

    role_claim: str
    roles: Mapping[str, Role]
    scope_claim: str | None = None

    def principal_of(self, claims: Mapping[str, Any]) -> Principal:
        """Return the caller of a verified token.

        Raises:
            Unauthorized: ``token_invalid``: its subject is not a name.
            Forbidden: ``token_without_role``, ``token_without_scope``.
        """
        subject = claims.get("sub")
        if not isinstance(subject, str) or not 1 <= len(subject) <= MOST_SUBJECT or not subject.isprintable():
            raise Unauthorized("token_invalid", f"the token's `sub` is not a text of 1 to {MOST_SUBJECT} characters")
        role_texts = _texts(claims, self.role_claim)
        roles = [self.roles[text] for text in role_texts if text in self.roles]
        if not roles:
            raise Forbidden(
                "token_without_role",
                f"the token's claim '{self.role_claim}' has none of {', '.join(self.roles)} (SLACKWATER_OIDC__ROLES); ask the administrator "
                "of the issuer for one of them",
            )
        return Principal("oidc", subject, subject, max(roles), self._scope(claims))

    def _scope(self, claims: Mapping[str, Any]) -> Any:
        if self.scope_claim is None:
            return None
        patterns = _texts(claims, self.scope_claim)
        if not patterns:
            raise Forbidden(
                "token_without_scope",
                f"the token has no claim '{self.scope_claim}', which has the names that the caller may see; '{EVERYTHING}' in it allows all",
            )
        try:
            return None if EVERYTHING in patterns else scope_of(patterns)
        except Unprocessable as error:
            raise Forbidden("token_without_scope", f"the token's claim '{self.scope_claim}': {error.detail}") from error


def _texts(claims: Mapping[str, Any], path: str) -> list[str]:
    """Return the texts of a claim: the words of a text, or the texts of a list; nothing for other values."""
    value = claims.get(path)
    if path not in claims:  # some issuers use dots in a claim's name, so the whole name is tried first
        value = claims
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        return value.split()
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


MOST_CHARACTERS: Final = 8_192
"""Longest token; longer ones are refused before any part is read."""

_REQUIRED: Final = ["iss", "aud", "exp", "sub"]


class TokenReader:
    """Authenticates tokens.

    Args:
        keys: the issuer's keys; by default they are fetched by the settings.
    """

    def __init__(self, settings: OidcSettings, keys: IssuerKeys | None = None) -> None:
        self._settings = settings
        self._keys = IssuerKeys(settings) if keys is None else keys
        roles = {value: Role.of(role) for value, role in settings.role_values.items()}
        self._rules = ClaimRules(settings.role_claim, roles, settings.scope_claim)

    async def recognise(self, text: str) -> Principal:
        """Return the caller of this token.

        Raises:
            Unauthorized: ``token_invalid``, ``token_expired``.
            Forbidden: ``token_without_role``, ``token_without_scope``.
            Unavailable: ``issuer_unavailable``: its keys are not known.
        """
        if len(text) > MOST_CHARACTERS:
            raise _invalid(f"the token has more than {MOST_CHARACTERS} characters; let the issuer put fewer claims into it")
        try:
            header = jwt.get_unverified_header(text)
        except jwt.PyJWTError as error:
            raise _invalid(f"this is neither an API key (sw_…) nor a token: {error}") from error
        algorithm = header.get("alg")
        if algorithm not in self._settings.algorithm_names:
            accepted = ", ".join(self._settings.algorithm_names)
            raise _invalid(
                f"the token is signed with {str(algorithm)[:20]}; this service accepts {accepted} (SLACKWATER_OIDC__ALGORITHMS)"
            )
        return self._rules.principal_of(self._claims(text, algorithm, await self._key(header.get("kid"), algorithm)))

    async def _key(self, key_id: str | None, algorithm: str) -> Any:
        try:
            keys = await self._keys.find(key_id, algorithm)
        except IssuerAway as error:
            detail = f"the keys of {self._settings.issuer} are not known: {error}; try again in a moment"
            raise Unavailable("issuer_unavailable", detail, headers={"Retry-After": "10"}) from error
        if len(keys) == 1:
            return keys[0].key
        if key_id is None:
            raise _invalid(
                "the token does not say with which key it is signed (`kid`), and the issuer has several" if keys else _NO_KEY
            )
        raise _invalid(f"the token is signed with the key {key_id[:80]!r}: {_NO_KEY}")

    def _claims(self, text: str, algorithm: str, key: Any) -> dict[str, Any]:
        settings = self._settings
        try:
            claims: dict[str, Any] = jwt.decode(
                text,
                key,
                algorithms=[algorithm],
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=settings.leeway_s,
                options={"require": _REQUIRED},
            )
        except jwt.ExpiredSignatureError as error:
            raise Unauthorized(
                "token_expired", f"the token has expired{_expired_at(text)}; get a new one from {settings.issuer}"
            ) from error
        except jwt.InvalidAudienceError as error:
            detail = f"the token is not for this service: its `aud` does not name {settings.audience!r}"
            raise _invalid(f"{detail}; ask the issuer for one that does") from error
        except jwt.InvalidIssuerError as error:
            raise _invalid(f"the token is not of this service's issuer: its `iss` is not {settings.issuer!r}") from error
        except jwt.ImmatureSignatureError as error:
            raise _invalid(f"{error}; compare the issuer's clock with this machine's") from error
        except jwt.InvalidSignatureError as error:
            raise _invalid(
                "the token's signature is not by the issuer's key; the token was changed, or somebody else made it"
            ) from error
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
            raise _invalid(f"the token cannot be read: {error}") from error
        return claims


class Authenticator:
    """Authenticates the caller by a key or a token.

    Args:
        tokens: of its issuer; None where it has none.
    """

    def __init__(self, keys: KeyCache, tokens: TokenReader | None) -> None:
        self._keys = keys
        self._tokens = tokens

    async def recognise(self, text: str) -> Principal:
        """Return the caller of this key or token.

        Raises:
            Unauthorized: it is not valid.
            Forbidden: the token gives no role or no scope.
            Unavailable: the issuer's keys are not known.
        """
        if self._tokens is None or text.startswith(KEY_MARK):
            return await self._keys.recognise(text)
        return await self._tokens.recognise(text)


_NO_KEY: Final = "the issuer has no such key; get a new token, the issuer may have changed its keys"


def _expired_at(text: str) -> str:
    """Return the text that says when a verified token expired; empty if it cannot be read."""
    try:
        ended = jwt.decode(text, options={"verify_signature": False})["exp"]
        return f" at {datetime.fromtimestamp(int(ended), UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError, OSError):
        return ""


def _invalid(detail: str) -> Unauthorized:
    return Unauthorized("token_invalid", detail)
