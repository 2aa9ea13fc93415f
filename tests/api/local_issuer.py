"""A small OpenID Connect issuer on this machine: it tells its keys, signs tokens, and can be away, slow, wrong or too talkative."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

AUDIENCE = "slackwater"


@cache
def rsa_key(name: str, bits: int = 2048) -> rsa.RSAPrivateKey:
    """Return a key of that name; making one takes a while."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def ec_key(name: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


class LocalIssuer:
    """An issuer.

    Attributes:
        keys: what it tells, by ``kid``.
        asked: how often it was asked for its keys.
        answer: what it says instead of its keys: (status, body).
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: dict[str | None, Any] = {"r1": rsa_key("r1"), "e1": ec_key("e1")}
        self.asked = 0
        self.answer: tuple[int, bytes] | None = None

    def told(self) -> dict[str, Any]:
        listed = []
        for kid, key in self.keys.items():
            algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
            shown = json.loads(algorithm.to_jwk(key.public_key()))
            listed.append({**shown, "use": "sig"} | ({} if kid is None else {"kid": kid}))
        return {"keys": listed}

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Return claims of a sound token, changed; a claim that is None is left out."""
        now = int(time.time())
        usual = {"iss": self.url, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 60, "roles": ["slackwater-read"]}
        return {name: value for name, value in {**usual, **changed}.items() if value is not None}

    def token(self, *, key: Any = None, kid: str | None = "r1", algorithm: str | None = None, **changed: Any) -> str:
        """Sign a token."""
        signing = self.keys.get(kid) if key is None else key
        usual = "ES256" if isinstance(signing, ec.EllipticCurvePrivateKey) else "RS256"
        headers = {} if kid is None else {"kid": kid}
        return jwt.encode(self.claims(**changed), signing, algorithm or usual, headers)


@contextmanager
def local_issuer() -> Iterator[LocalIssuer]:
    """Run an issuer for the length of a block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = 200, b""
            if self.path == "/realm/.well-known/openid-configuration":
                body = json.dumps({"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys"}).encode()
            elif self.path == "/realm/keys":
                issuer.asked += 1
                status, body = issuer.answer or (200, json.dumps(issuer.told()).encode())
            else:
                status = 404
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer = LocalIssuer(f"http://127.0.0.1:{server.server_address[1]}/realm")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
