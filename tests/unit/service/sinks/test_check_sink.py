"""What a sink with a key can be; what a webhook can be: `test_sinks.py`."""

from __future__ import annotations

import pytest

from millpond.errors import MillpondError
from millpond.service.sinks.check_sink import KEYED, OWN, default_options
from millpond.service.sinks.sinks import SENDERS
from millpond.testing.local_runtime import open_local

TO = "USING postgres (host 'h', database 'd', user 'u', table 't')"


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


def test_every_format_has_its_options() -> None:
    assert OWN.keys() == SENDERS.keys()
    assert set(KEYED) <= SENDERS.keys()
    assert default_options()["port"] == 5432
