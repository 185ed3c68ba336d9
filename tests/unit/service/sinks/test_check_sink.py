"""What a sink with a key can be; what a webhook can be: `test_sinks.py`."""

from __future__ import annotations

import json

import pytest

from millpond.errors import MillpondError
from millpond.service.definitions.access_policy import AccessPolicy
from millpond.service.sinks.check_sink import KEYED, OWN, default_options
from millpond.service.sinks.kafka import KafkaSender
from millpond.service.sinks.sinks import SENDERS
from millpond.testing.local_runtime import open_local

TO = "USING postgres (host 'h', database 'd', user 'u', table 't')"
KAFKA = "USING kafka (bootstrap '127.0.0.1:1', topic 't', active FALSE)"


@pytest.mark.parametrize(
    ("statement", "code", "words"),
    [
        (f"{TO} FROM QUERY q", "CQL-214", "no key"),
        (f"{TO.replace(', user', ', batch 7, cursor_table')} FROM QUERY q KEY (k)", "", "no user"),
        (f"{TO.replace('table', 'cursor_table')} FROM QUERY q KEY (k)", "", "no table"),
        (f"{TO} FROM QUERY q KEY (z)", "CQL-202", '"z"'),
        (f"{TO} FROM QUERY i KEY (k)", "CQL-214", "one query"),
        (f"{TO} FROM QUERIES TAGGED x KEY (k)", "CQL-214", "one query"),
        (f"{TO.replace(')', ', topic 1)')} FROM QUERY q KEY (k)", "CQL-214", "topic"),
        (f"{KAFKA} FROM QUERY q KEY (z)", "CQL-202", '"z"'),
        (f"{KAFKA} FROM QUERY i KEY (k)", "CQL-214", "one query"),
        (
            "USING http (url 'http://h', key_env 'HOOK_KEY') FROM QUERY q KEY (k)",
            "CQL-214",
            "KEY is none",
        ),
    ],
)
def test_sinks_that_cannot_be(tmp_path, monkeypatch, statement, code, words):
    monkeypatch.setenv("HOOK_KEY", "0123456789abcdef")
    with open_local(tmp_path / "store") as pond:
        pond.execute(
            "CREATE STREAM s (k VARCHAR); CREATE QUERY q AS SELECT k FROM s;"
            "CREATE QUERY i AS ISTREAM (SELECT k FROM s [NOW])"
        )
        with pytest.raises(MillpondError) as refused:
            pond.execute(f"CREATE SINK out {statement}")
        assert refused.value.code == (code or "CQL-214")
        assert words in str(refused.value)


def test_a_kafka_sink_logs_in_by_a_secret(tmp_path, monkeypatch) -> None:
    """The secret is an object of settings, checked when the sink is created, and kept nowhere."""
    pytest.importorskip("confluent_kafka")
    file = tmp_path / "secrets.json"
    file.touch(mode=0o600)
    settings = {"sasl.username": "pond", "sasl.password": "magpie-in-rain"}
    file.write_text(json.dumps({"kafka": settings, "ours": {"transactional.id": "x"}}))
    monkeypatch.setenv("MILLPOND_SECRETS", str(file))
    to = "USING kafka (bootstrap '127.0.0.1:1', topic 't', config secret('{}'), active FALSE)"
    to += " FROM QUERY q"
    with open_local(tmp_path / "store") as pond:
        pond.execute("CREATE STREAM s (k VARCHAR); CREATE QUERY q AS SELECT k FROM s")
        for name, words in (("nobody", 'no secret "nobody"'), ("ours", "for Millpond to decide")):
            with pytest.raises(MillpondError, match=words):
                pond.execute(f"CREATE SINK k {to.format(name)}")
        pond.execute(f"CREATE SINK k {to.format('kafka')}")
        sink = pond._components.sinks.find("k")
        assert sink.options["config"] == "secret('kafka')"
        sender = KafkaSender(sink, sink.options)
        assert sender._settings()["sasl.password"] == "magpie-in-rain"
    stored = b"".join(p.read_bytes() for p in (tmp_path / "store").rglob("*") if p.is_file())
    assert b"magpie" not in stored


def test_every_format_has_its_options() -> None:
    assert OWN.keys() == SENDERS.keys()
    assert KEYED.keys() <= SENDERS.keys()
    assert default_options()["port"] == 5432


@pytest.mark.parametrize("format", sorted(set(SENDERS) - {"http"}))
def test_a_client_is_told_who_creates_such_sinks(tmp_path, format: str) -> None:
    """Not `millpond run`, which ends the store's streams that follow a source."""
    with open_local(tmp_path / "store") as pond:
        pond.execute("CREATE STREAM s (k VARCHAR); CREATE QUERY q AS SELECT k FROM s")
        with pytest.raises(MillpondError, match="POND-414") as refused:
            list(pond.run(f"CREATE SINK out USING {format} () FROM QUERY q", AccessPolicy()))
        assert "millpond shell --store" in str(refused.value)
        assert "millpond run" not in str(refused.value)
