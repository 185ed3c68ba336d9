"""The packages that Kafka needs, and that an installation may lack: the extra `kafka`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from millpond.errors import MillpondError


def import_kafka() -> Any:
    """Import the client. Raises DATA-502 if the extra is not installed."""
    import_package("Kafka needs", "confluent-kafka", "confluent_kafka.admin")
    return import_package("Kafka needs", "confluent-kafka", "confluent_kafka")


def import_fastavro() -> Any:
    """Import fastavro. Raises DATA-502 if the extra is not installed."""
    return import_package("records in Avro need", "fastavro", "fastavro")


def import_package(who_needs: str, package: str, module: str, extra: str = "kafka") -> Any:
    """Import a module of a package of an extra.

    Raises:
        MillpondError: DATA-502, the package is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MillpondError(
            "DATA-502",
            f"{who_needs} the package {package}",
            detail="It is not installed where this runs.",
            hint=f"pip install 'millpond[{extra}]', on every machine that runs tasks.",
        ) from error
