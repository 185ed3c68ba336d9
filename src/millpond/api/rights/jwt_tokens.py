"""JSON Web Tokens of an identity provider: who bears one that is signed for this server.

The operator's file says which issuer is trusted, for which audience, by which keys (a JWKS), and
which claims hold owner, role and streams. It is read again when it changes, so keys are rotated
without a restart. Only signatures by private keys are taken: a server that checks tokens cannot
make any.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jwt

from millpond.api.rights.caller import Caller
from millpond.api.rights.make_caller import make_caller
from millpond.errors import MillpondError

#: The algorithms of signatures that are taken.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
#: What the ids of callers begin with who bear a JSON Web Token.
JWT_MARK = "jwt-"
#: By how many seconds the clocks of issuer and server may differ.
_LEEWAY = 10
_CLAIMS = {"owner": "sub", "role": "millpond_role", "streams": "millpond_streams"}
_MOST_BYTES = 1024 * 1024


@dataclass(frozen=True)
class JwtSettings:
    """Which JSON Web Tokens are taken.

    Attributes:
        issuer: What `iss` has to be.
        audience: What `aud` has to hold.
        keys: The issuer's keys, by their ids.
        claims: The claims that hold owner, role and streams.
        quotas: What every bearer may use.
    """

    issuer: str
    audience: str
    keys: dict[str, jwt.PyJWK]
    claims: dict[str, str]
    quotas: dict[str, float]

    def find(self, token: str) -> Caller | None:
        """The caller who bears a token; None if it is not valid here and now."""
        try:
            key = self.keys[str(jwt.get_unverified_header(token)["kid"])]
            if key.algorithm_name not in ALGORITHMS:
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=self.audience,
                issuer=self.issuer,
                leeway=_LEEWAY,
                options={"require": ["exp", "iss", "aud"]},
            )
            owner = claims[self.claims["owner"]]
            id = JWT_MARK + hashlib.sha256(str(owner).encode()).hexdigest()[:8]
            role, streams = claims[self.claims["role"]], claims.get(self.claims["streams"], [])
            if not isinstance(streams, list) or not isinstance(role, str):
                return None
            caller = make_caller(id, owner, role, streams, **self.quotas)
            return replace(caller, ends_at=float(claims["exp"]) + _LEEWAY)
        except (jwt.PyJWTError, KeyError, ValueError, TypeError):
            return None


def read_jwt_settings(path: Path) -> JwtSettings:
    """The settings of a file.

    Raises:
        MillpondError: SERVE-712, the file cannot be read, or lacks something.
    """
    try:
        with open(path, encoding="utf-8") as file:
            body: dict[str, Any] = json.loads(file.read(_MOST_BYTES))
        unknown = body.keys() - {"issuer", "audience", "keys", "claims", "quotas"}
        claims = {**_CLAIMS, **body.get("claims", {})}
        if unknown or claims.keys() != _CLAIMS.keys():
            raise ValueError(f"It has what is not known: {', '.join(sorted(unknown)) or 'a claim'}")
        texts = (body["issuer"], body["audience"], *claims.values())
        if not all(isinstance(text, str) and text for text in texts):
            raise ValueError("Issuer, audience and claims are texts")
        keys = {str(key["kid"]): jwt.PyJWK(key) for key in body["keys"]}
        if wrong := [k.algorithm_name for k in keys.values() if k.algorithm_name not in ALGORITHMS]:
            raise ValueError(f"Keys of {wrong[0]} are not taken")
        quotas = dict(body.get("quotas", {}))
        make_caller("", "somebody", "reader", [], **quotas)
        return JwtSettings(body["issuer"], body["audience"], keys, claims, quotas)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, jwt.PyJWTError) as error:
        missing = f"It has no {error}" if isinstance(error, KeyError) else str(error)
        raise MillpondError(
            "SERVE-712",
            f'the file "{path}" does not say which JSON Web Tokens are taken',
            detail=f"{missing}.",
            hint='Write {"issuer": "…", "audience": "…", "keys": [a JWK with kid and alg, …]}.',
        ) from None
