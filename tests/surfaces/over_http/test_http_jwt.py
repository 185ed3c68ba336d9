"""JSON Web Tokens: those of the configured issuer, audience and keys let in, and no others."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from fastapi import FastAPI
from people import GRANTED, WORLD, client_of

from millpond.api.access import Access
from millpond.api.app import create_app
from millpond.api.rights.jwt_tokens import read_jwt_settings
from millpond.errors import MillpondError
from millpond.service.pond import Pond

KEY, OTHER = generate_private_key(SECP256R1()), generate_private_key(SECP256R1())


def public(key: Any, kid: str) -> dict[str, Any]:
    algorithm = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256)
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "alg": "ES256"}


SETTINGS = {"issuer": "https://id.example", "audience": "pond", "keys": [public(KEY, "one")]}


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "jwt.json"
    path.write_text(json.dumps(SETTINGS))
    return path


@pytest.fixture
def app(pond: Pond, settings: Path) -> FastAPI:
    pond.execute(WORLD)
    return create_app(pond, access=Access(jwt=settings))


def sign(key: Any = KEY, kid: str | None = "one", algorithm: str = "ES256", **claims: Any) -> str:
    body = {
        "iss": "https://id.example",
        "aud": "pond",
        "exp": time.time() + 60,
        "sub": "alice",
        "millpond_role": "reader",
        "millpond_streams": GRANTED,
    }
    given = {name: value for name, value in (body | claims).items() if value is not None}
    return jwt.encode(given, key, algorithm, headers={} if kid is None else {"kid": kid})


def test_a_token_of_the_issuer_lets_in(app: FastAPI) -> None:
    with client_of(app, sign()) as client:
        assert client.get("/v1/queries/of_alice").is_success
        assert client.get("/v1/queries/of_bob").status_code == 404
        assert client.get("/metrics").status_code == 403
    with client_of(app, sign(millpond_role="admin", aud=["x", "pond"])) as client:
        assert client.get("/v1/queries/of_bob").is_success


WRONG: dict[str, Callable[[], str]] = {
    "another key": lambda: sign(OTHER),
    "another key's id": lambda: sign(kid="two"),
    "no key's id": lambda: sign(kid=None),
    "no signature": lambda: sign("", algorithm="none"),
    "a shared secret": lambda: sign("x" * 64, algorithm="HS256"),
    "another issuer": lambda: sign(iss="https://evil.example"),
    "another audience": lambda: sign(aud="lake"),
    "it has ended": lambda: sign(exp=time.time() - 60),
    "it never ends": lambda: sign(exp=None),
    "it has not begun": lambda: sign(nbf=time.time() + 600),
    "no owner": lambda: sign(sub=None),
    "no role": lambda: sign(millpond_role=None),
    "no such role": lambda: sign(millpond_role="boss"),
    "a list of roles": lambda: sign(millpond_role=["admin"]),
    "streams that are a text": lambda: sign(millpond_streams="*"),
    "cut": lambda: sign()[:-2],
    "dots": lambda: "..",
}


@pytest.mark.parametrize("what", WRONG)
def test_any_other_does_not(what: str, app: FastAPI) -> None:
    with client_of(app, WRONG[what]()) as client:
        assert client.get("/v1/streams").status_code == 401


def test_keys_are_rotated_while_the_server_runs(app: FastAPI, settings: Path) -> None:
    with client_of(app, sign()) as old, client_of(app, sign(OTHER, "two")) as new:
        assert (old.get("/v1/streams").status_code, new.get("/v1/streams").status_code) == (
            200,
            401,
        )
        settings.write_text(json.dumps({**SETTINGS, "keys": [public(OTHER, "two")]}))
        time.sleep(1.05)
        assert (new.get("/v1/streams").status_code, old.get("/v1/streams").status_code) == (
            200,
            401,
        )


@pytest.mark.parametrize(
    "change",
    [
        {"issuer": None},
        {"audience": ""},
        {
            "keys": [
                {"kid": "x", "kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "alg": "HS256"}
            ]
        },
        {"keys": [{"kty": "EC"}]},
        {"keys": 1},
        {"claims": {"x": "y"}},
        {"quotas": {"queries": 0}},
        {"nothing": 1},
    ],
)
def test_settings_that_are_refused(change: dict[str, Any], settings: Path) -> None:
    settings.write_text(json.dumps({**SETTINGS, **change}))
    with pytest.raises(MillpondError, match="SERVE-712"):
        read_jwt_settings(settings)
