"""What options say of a server, and which address is connected to."""

from __future__ import annotations

import json

import pytest

from millpond.errors import MillpondError
from millpond.runtime.postgres.connect import connect, describe_error, read_server

GIVEN = {"host": "127.0.0.1", "database": "shop", "user": "ann"}


def test_what_options_say() -> None:
    server = read_server({**GIVEN, "port": "5433", "password": "secret('s')"}, "the sink")
    assert (server.host, server.port, server.password) == ("127.0.0.1", 5433, "secret('s')")
    assert str(server) == "shop of 127.0.0.1:5433"
    assert read_server(GIVEN, "the sink").port == 5432


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"host": " "}, "no host"),
        ({"database": ""}, "no database"),
        ({"user": ""}, "no user"),
        ({"password": "hunter2"}, "written out"),
        ({"port": "x"}, 'port of the sink cannot be "x"'),
        ({"port": "65536"}, "65536"),
        ({"sslmode": "yes"}, "sslmode"),
    ],
)
def test_options_that_say_no_server(given: dict[str, str], words: str) -> None:
    with pytest.raises(MillpondError, match=words) as refused:
        read_server({**GIVEN, **given}, "the sink")
    assert refused.value.code == "CQL-214"
    assert "hunter2" not in str(refused.value)


def test_an_address_that_is_not_allowed_is_not_connected_to() -> None:
    pytest.importorskip("psycopg2")
    asked: list[tuple[str, int]] = []

    def allows(address: str, port: int) -> bool:
        asked.append((address, port))
        return False

    with pytest.raises(MillpondError) as refused:
        connect(read_server({**GIVEN, "port": 1}, "the sink"), allows)
    assert refused.value.code == "POND-414"
    assert asked == [("127.0.0.1", 1)]


def test_an_error_shows_no_secret(tmp_path, monkeypatch) -> None:
    file = tmp_path / "secrets.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps({"s": "heron"}))
    monkeypatch.setenv("MILLPOND_SECRETS", str(file))
    assert describe_error(ValueError("heron\nis wrong")) == "… is wrong"
    assert describe_error(ValueError()) == "ValueError"
