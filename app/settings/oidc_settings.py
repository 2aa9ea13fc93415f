"""Settings of the OpenID Connect issuer whose tokens the service accepts beside API keys."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Accepted signatures: those of private keys. With a shared secret (HS256), everybody who can check tokens could make them."""

ROLES: Final = ("read", "write", "admin")


class OidcSettings(BaseModel):
    """The issuer of accepted tokens, and the rights that they give.

    Attributes:
        issuer: ``https://…``, the ``iss`` of tokens; None: only API keys are accepted.
        audience: the ``aud`` of tokens for this service.
        role_claim: claim with the caller's groups or roles: a text (words separated by blanks) or a list of texts; a path such as
            ``realm_access.roles`` leads into objects.
        roles: role for each of these values: ``value=role``, separated by commas.
        scope_claim: claim with the patterns of names that the caller may see, in the same forms; ``*``: all. Tokens without it are refused.
            None: tokens have no scope.
        algorithms: accepted signature algorithms, separated by commas.
        leeway_s: tolerated difference of the issuer's clock.
        keys_kept_s: how long the issuer's keys are valid while the issuer does not answer. A key that it revoked meanwhile stays valid too;
            then tokens are refused (503 ``issuer_unavailable``) until the issuer answers.
        jwks_url: URL of the issuer's keys; None: the one in its ``/.well-known/openid-configuration``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: str | None = None
    audience: str = ""
    role_claim: str = Field(default="roles", min_length=1)
    roles: str = "slackwater-read=read,slackwater-write=write,slackwater-admin=admin"
    scope_claim: str | None = Field(default=None, min_length=1)
    algorithms: str = "RS256,ES256"
    leeway_s: float = Field(default=30.0, ge=0, le=300)
    keys_kept_s: float = Field(default=86_400.0, ge=600, le=30 * 86_400)
    jwks_url: str | None = None

    @field_validator("issuer", "jwks_url")
    @classmethod
    def _is_trustworthy(cls, value: str | None) -> str | None:
        return value if value is None else trustworthy_url(value)

    @field_validator("roles")
    @classmethod
    def _are_roles(cls, value: str) -> str:
        _roles(value)
        return value

    @field_validator("algorithms")
    @classmethod
    def _are_asymmetric(cls, value: str) -> str:
        unknown = [name for name in _listed(value) if name not in ALGORITHMS]
        if unknown or not _listed(value):
            raise ValueError(
                f"{', '.join(unknown) or 'none'}: not among {', '.join(ALGORITHMS)}. With others, everybody who can check a token could make one"
            )
        return value

    @model_validator(mode="after")
    def _counts(self) -> Self:
        """Refuse settings that would be ignored, and an issuer without an audience: its tokens for other services would be accepted."""
        changed = [name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default]
        if self.issuer is None and changed:
            raise ValueError(f"{', '.join(changed)} count with an issuer only; set SLACKWATER_OIDC__ISSUER")
        if self.issuer is not None and not self.audience:
            raise ValueError(
                "SLACKWATER_OIDC__AUDIENCE is missing: tokens that the issuer made for other services would be accepted here"
            )
        return self

    @property
    def role_values(self) -> Mapping[str, str]:
        """Value of the claim → role."""
        return _roles(self.roles)

    @property
    def algorithm_names(self) -> tuple[str, ...]:
        return _listed(self.algorithms)


def trustworthy_url(text: str) -> str:
    """Return a URL whose answers cannot be changed on the network.

    Raises:
        ValueError: the URL is not of this kind.
    """
    parts = urlsplit(text)
    is_local = parts.scheme == "http" and is_loopback(parts.hostname or "")
    if not (parts.scheme == "https" or is_local) or not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(
            f"{text[:200]!r}: not a URL such as https://issuer.example.com/realm (http:// on this machine only, no user, query or fragment)"
        )
    return text


def is_loopback(host: str) -> bool:
    """Return whether only this machine can be reached, or can reach, under this name or address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part for each in text.split(",") if (part := each.strip()))


def _roles(text: str) -> dict[str, str]:
    role_by_value = {}
    for part in _listed(text):
        value, _, role = part.rpartition("=")
        if not value or role not in ROLES:
            raise ValueError(f"{part!r}: write value=role, the role being one of {', '.join(ROLES)}, with commas between them")
        role_by_value[value.strip()] = role
    if not role_by_value:
        raise ValueError("no value gives a role; write value=role, such as staff=read,operators=admin")
    return role_by_value
