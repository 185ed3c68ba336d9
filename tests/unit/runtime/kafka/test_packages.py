"""Packages that an installation may lack: what is said then, and that it is said in time."""

from __future__ import annotations

import sys

import pytest

from millpond.errors import MillpondError
from millpond.runtime.kafka.packages import import_fastavro, import_kafka, import_package


@pytest.mark.parametrize(
    ("module", "load", "said"),
    [
        ("confluent_kafka", import_kafka, "Kafka needs the package confluent-kafka"),
        ("confluent_kafka.admin", import_kafka, "Kafka needs the package confluent-kafka"),
        ("fastavro", import_fastavro, "records in Avro need the package fastavro"),
    ],
)
def test_what_is_not_installed_is_named(
    module: str, load: object, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MillpondError, match=f"DATA-502: {said}") as caught:
        load()  # type: ignore[operator]
    assert "millpond[kafka]" in (caught.value.hint or "")


def test_what_is_installed_is_given() -> None:
    import json.decoder

    assert import_package("this needs", "json", "json.decoder") is json.decoder
    with pytest.raises(MillpondError, match="this needs the package none"):
        import_package("this needs", "none", "there_is_no_such_module")
