"""The package that Delta tables need, and that an installation may lack: the extra `delta`."""

from __future__ import annotations

from typing import Any

from millpond.runtime.kafka.packages import import_package


def import_deltalake() -> Any:
    """Import the client. Raises DATA-502 if the extra is not installed."""
    import_package("Delta tables need", "deltalake", "deltalake.exceptions", "delta")
    return import_package("Delta tables need", "deltalake", "deltalake", "delta")
