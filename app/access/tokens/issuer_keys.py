"""The public keys of an OpenID Connect issuer: fetched beside requests, kept while the issuer is away, bounded."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import httpx
import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1, SECP521R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from app.settings.oidc_settings import OidcSettings, trustworthy_url

FRESH_SECONDS: Final = 300.0
"""After it the keys are looked for again. One that the issuer took back counts until the next answer: so long, or up to
``keys_kept_s`` of the settings where the issuer does not answer."""

FETCHED_EVERY_SECONDS: Final = 10.0
"""Whoever sends tokens with keys that nobody has does not make us ask the issuer more often."""

FETCH_SECONDS: Final = 5.0
MOST_BYTES: Final = 256 * 1024
MOST_KEYS: Final = 100
LEAST_RSA_BITS: Final = 2_048
DISCOVERY: Final = "/.well-known/openid-configuration"

PublicKey: TypeAlias = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey | Ed448PublicKey
_CURVES: Final = {"ES256": SECP256R1, "ES384": SECP384R1, "ES512": SECP521R1}
log = structlog.stdlib.get_logger(__name__)


class IssuerAway(Exception):
    """The issuer does not tell its keys; the text says why."""


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """A key that the issuer signs with.

    Attributes:
        id: its ``kid``; None where it has none.
        algorithm: the only one it is for; None: any that fits.
    """

    id: str | None
    algorithm: str | None
    key: PublicKey

    def fits(self, algorithm: str) -> bool:
        """Whether a signature of this algorithm can be checked with it."""
        if self.algorithm not in (None, algorithm):
            return False
        if isinstance(self.key, RSAPublicKey):
            return algorithm[:2] in ("RS", "PS") and self.key.key_size >= LEAST_RSA_BITS
        if isinstance(self.key, EllipticCurvePublicKey):
            return algorithm in _CURVES and isinstance(self.key.curve, _CURVES[algorithm])
        return algorithm == "EdDSA"


class IssuerKeys:
    """Keys of one issuer. Of one event loop.

    Args:
        settings: with an issuer.
        clock: seconds, never going back.
    """

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._keys: list[IssuerKey] | None = None
        self._fetched_at = self._tried_at = float("-inf")
        self._trouble = "it was not asked yet"
        self._lock = asyncio.Lock()
        self._refreshing: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None, algorithm: str) -> list[IssuerKey]:
        """Return the keys with which a token may be signed: at most one where it names one.

        Nobody waits for the issuer while the key is known, and was told by it within ``keys_kept_s``.

        Raises:
            IssuerAway: nothing fits or what does is too old, and the issuer cannot be asked.
        """
        found = self._known(key_id, algorithm)
        if found:
            if self._is_due(FRESH_SECONDS) and (self._refreshing is None or self._refreshing.done()):
                self._refreshing = asyncio.create_task(self._refresh())
            return found
        await self._refresh()
        found = self._known(key_id, algorithm)
        if not found and (self._keys is None or self._fetched_at < self._tried_at):
            old = f"they were read last more than {self._settings.keys_kept_s:g} s ago, and now " if self._are_too_old() else ""
            raise IssuerAway(old + self._trouble)
        return found

    async def fetch(self) -> list[IssuerKey]:
        """Ask the issuer for its keys.

        Raises:
            IssuerAway: it does not answer, or with something else.
        """
        try:
            async with asyncio.timeout(FETCH_SECONDS), httpx.AsyncClient(timeout=FETCH_SECONDS) as client:
                return _usable(await self._read(client, self._settings.jwks_url or await self._discovered(client)))
        except TimeoutError as error:
            raise IssuerAway(f"no answer within {FETCH_SECONDS:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise IssuerAway(str(error) or type(error).__name__) from error

    def _are_too_old(self) -> bool:
        return self._keys is not None and self._clock() - self._fetched_at > self._settings.keys_kept_s

    def _known(self, key_id: str | None, algorithm: str) -> list[IssuerKey]:
        if self._are_too_old():
            return []
        fitting = [key for key in self._keys or () if key.fits(algorithm)]
        return fitting if key_id is None else [key for key in fitting if key.id == key_id]

    def _is_due(self, age_s: float) -> bool:
        now = self._clock()
        return now - self._fetched_at >= age_s and now - self._tried_at >= FETCHED_EVERY_SECONDS

    async def _refresh(self) -> None:
        async with self._lock:
            if not self._is_due(0):
                return  # somebody else was here meanwhile, or just before
            self._tried_at = self._clock()
            try:
                self._keys = await self.fetch()
                self._fetched_at = self._tried_at
            except IssuerAway as error:
                self._trouble = str(error)
                log.warning(
                    "issuer_keys_not_fetched", issuer=self._settings.issuer, error=self._trouble, keys=len(self._keys or ())
                )
            except Exception:
                # Whatever comes from outside: nobody waits for the task beside requests, so its fault would stay unseen.
                self._trouble = "what it tells cannot be read; the service's log says why"
                log.exception("issuer_keys_not_read", issuer=self._settings.issuer, keys=len(self._keys or ()))

    async def _discovered(self, client: httpx.AsyncClient) -> str:
        issuer = str(self._settings.issuer)
        told = await self._read(client, issuer.rstrip("/") + DISCOVERY)
        if told.get("issuer") != issuer:
            raise ValueError(f"it calls itself {str(told.get('issuer'))[:200]!r}; set SLACKWATER_OIDC__ISSUER to exactly that")
        return trustworthy_url(str(told.get("jwks_uri")))

    async def _read(self, client: httpx.AsyncClient, url: str) -> dict[str, Any]:
        body = b""
        async with client.stream("GET", url, headers={"Accept": "application/json"}) as response:
            if response.status_code != httpx.codes.OK:
                raise ValueError(f"{url} answers {response.status_code}")
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MOST_BYTES:
                    raise ValueError(f"{url} answers more than {MOST_BYTES} bytes")
        try:
            told = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{url} answers no JSON") from error
        if not isinstance(told, dict):
            raise ValueError(f"{url} answers no JSON object")  # noqa: TRY004 - of what came, not of our types
        return told


def _usable(told: dict[str, Any]) -> list[IssuerKey]:
    """Return the keys that can check signatures; an issuer may have others, of kinds that we do not know, or have none left."""
    listed = told.get("keys")
    if not isinstance(listed, list):
        raise ValueError("its keys are no list (`keys`)")  # noqa: TRY004 - of what came, not of our types
    found = [key for key in map(_read_key, listed[:MOST_KEYS]) if key is not None]
    if not found:
        log.warning("issuer_has_no_usable_keys", listed=len(listed))
    return found


def _read_key(told: object) -> IssuerKey | None:
    """Return a key of the issuer's list; None where it is not one that checks signatures, or is malformed."""
    if not isinstance(told, dict) or told.get("use", "sig") != "sig" or told.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    key_id, algorithm = told.get("kid"), told.get("alg")
    if not isinstance(key_id, str | None) or not isinstance(algorithm, str | None):
        log.warning("issuer_key_not_read", kid=repr(key_id)[:80], error="its `kid` or `alg` is no text")
        return None
    try:
        key = jwt.PyJWK.from_dict(told).key
    except Exception as error:  # noqa: BLE001 - PyJWT raises TypeError and others as well: one odd key must not take the others along
        log.warning("issuer_key_not_read", kid=repr(key_id)[:80], error=str(error)[:200])
        return None
    is_public = isinstance(key, RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey | Ed448PublicKey)
    return IssuerKey(key_id, algorithm, key) if is_public else None
