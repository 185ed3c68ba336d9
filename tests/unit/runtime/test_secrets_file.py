"""The operator's file of secrets: what it gives, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millpond.catalog.objects import SourceDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.runtime.kafka.options import kafka_options
from millpond.runtime.secrets_file import VARIABLE, fill_in_secrets, hide_secrets, read_secrets

HELD = {"db": "hunter2", "kafka": {"sasl.username": "u", "sasl.password": "swordfish"}}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "secrets.json"
    path.write_text(json.dumps(HELD))
    path.chmod(0o600)
    monkeypatch.setenv(VARIABLE, str(path))
    return path


def test_options_are_filled_in(file: Path) -> None:
    given = {"password": "secret('db')", "user": "a", "note": "secret(db)"}
    assert fill_in_secrets(given) == {"password": "hunter2", "user": "a", "note": "secret(db)"}
    assert hide_secrets("login hunter2, swordfish failed") == "login …, … failed"
    for missing in ("secret('nothing')", "secret('kafka')"):
        with pytest.raises(MillpondError, match="CQL-214"):
            fill_in_secrets({"password": missing})


@pytest.mark.parametrize(
    "text", ["", "[]", '{"db": 1}', '{"kafka": {"a": ["hunter2"]}}', "hunter2"]
)
def test_a_file_that_is_none_is_refused_without_its_content(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(MillpondError, match="CQL-214") as caught:
        read_secrets()
    assert "hunter2" not in str(caught.value)


def test_a_file_that_others_can_read_is_refused(file: Path) -> None:
    file.chmod(0o640)
    with pytest.raises(MillpondError, match="Others than its owner"):
        read_secrets()


def test_without_a_file_there_are_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert fill_in_secrets({"a": "b"}) == {"a": "b"}
    with pytest.raises(MillpondError, match="There is no file of secrets"):
        fill_in_secrets({"password": "secret('db')"})


def stream(config: str) -> StreamDef:
    options = {"bootstrap": "h:1", "topic": "t", "format": "json", "config": config}
    return StreamDef(1, "s", Schema((Field("a", "INTEGER"),)), source=SourceDef("kafka", options))


def test_settings_of_a_kafka_client(file: Path) -> None:
    assert kafka_options(stream("secret('kafka')")).client()["sasl.password"] == "swordfish"
    for wrong in ("secret('db')", "secret('nothing')"):
        with pytest.raises(MillpondError, match="CQL-214") as caught:
            kafka_options(stream(wrong))
        assert "hunter2" not in str(caught.value)
    file.write_text(json.dumps({"kafka": {"bootstrap.servers": "x"}}))
    with pytest.raises(MillpondError, match="for Millpond to decide"):
        kafka_options(stream("secret('kafka')"))
