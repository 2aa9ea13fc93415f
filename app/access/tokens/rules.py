"""What the claims of a token mean here: who it is, which role, which scope. Pure: nothing is verified here."""

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
    """Which claims say what.

    Attributes:
        role_claim: name of a claim, or a path with dots into objects.
        roles: value of that claim → role.
        scope_claim: the same for patterns of names; None: tokens have no scope.
    """

    role_claim: str
    roles: Mapping[str, Role]
    scope_claim: str | None = None

    def principal_of(self, claims: Mapping[str, Any]) -> Principal:
        """Return who a verified token is of.

        Raises:
            Unauthorized: ``token_invalid``: its subject is no name.
            Forbidden: ``token_without_role``, ``token_without_scope``.
        """
        subject = claims.get("sub")
        if not isinstance(subject, str) or not 1 <= len(subject) <= MOST_SUBJECT or not subject.isprintable():
            raise Unauthorized("token_invalid", f"the token's `sub` is no text of 1 to {MOST_SUBJECT} characters")
        given = _texts(claims, self.role_claim)
        roles = [self.roles[text] for text in given if text in self.roles]
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
                f"the token has no claim '{self.scope_claim}', which says what names the caller may see; '{EVERYTHING}' in it is everything",
            )
        try:
            return None if EVERYTHING in patterns else scope_of(patterns)
        except Unprocessable as error:
            raise Forbidden("token_without_scope", f"the token's claim '{self.scope_claim}': {error.detail}") from error


def _texts(claims: Mapping[str, Any], path: str) -> list[str]:
    """Return the texts of a claim: one as it stands, else words with blanks between them, or a list; nothing of other forms."""
    found = claims.get(path)
    if path not in claims:  # some issuers have names with dots in them: those go before
        found = claims
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return found.split()
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []
