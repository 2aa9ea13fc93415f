"""The meaning of a token's claims: name, role and scope of the caller. Pure: it verifies nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.access.rules import Principal, Role
from app.access.scopes import scope_of
from app.errors.app_errors import Forbidden, Unauthorized, Unprocessable

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
