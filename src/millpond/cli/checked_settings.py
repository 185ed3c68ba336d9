"""What `serve` and `run` refuse of their settings, setting by setting, before anything is started.

`millpond config` asks the same functions as the commands, so it refuses what they refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from millpond.catalog.option import Scope
from millpond.catalog.options import list_options
from millpond.errors import MillpondError
from millpond.service.queries.options import check_settings


def check_memory(max_memory: str) -> None:
    """Raises CQL-214 for what is no amount of memory."""
    check_settings({"max_memory": max_memory}, Scope.QUERY)


def find_refusals(values: Mapping[str, Any]) -> dict[str, MillpondError]:
    """Find the settings of a command that it would refuse, with the error it would end with.

    What stands for a moment alone is not asked: whether the port is free, the storage answers, or
    Spark starts.

    Args:
        values: The settings by name; None for those without a value.
    """
    found: dict[str, MillpondError] = {}
    for names, check in _CHECKS.items():
        given = {name: values[name] for name in names if values.get(name) not in (None, (), [])}
        if not given:
            continue
        try:
            check(**given)
        except MillpondError as error:
            found.update(dict.fromkeys(given, error))
    for scope in (Scope.ENGINE, Scope.SERVER):
        for name in list_options(scope):
            if values.get(name) is not None:
                try:
                    check_settings({name: values[name]}, scope)
                except MillpondError as error:
                    found[name] = error
    return found


def _check_access(**given: Any) -> None:
    from millpond.api.access import Access

    host, hosts = given.get("host"), given.get("allow_host", [])
    Access.of(None, [*hosts, *([] if host is None else [host])], given.get("allow_origin", []))


def _check_port(port: int) -> None:
    from millpond.api import listening

    if not 0 <= port <= 65_535:
        listening.bind("127.0.0.1", port)


def _check_policy(**given: Any) -> None:
    from millpond.service.definitions.access_policy import AccessPolicy

    names = ("source_root", "source_format", "sink_host", "source_host", "backup_root")  # its order
    AccessPolicy.of(*(given.get(name, ()) for name in names))


def _check_transport(**given: Any) -> None:
    from millpond.api.listening import Transport

    Transport.of(
        given.get("tls_cert"),
        given.get("tls_key"),
        given.get("path_prefix", ""),
        given.get("trusted_proxy", ()),
    )


def _check_tokens(tokens: Path) -> None:
    from millpond.api.rights.token_file import read_entries

    read_entries(tokens)


def _check_jwt(jwt: Path) -> None:
    from millpond.api.rights.jwt_tokens import read_jwt_settings

    read_jwt_settings(jwt)


def _check_secrets(secrets: Path) -> None:
    from millpond.runtime.secrets_file import read_secrets

    read_secrets(str(secrets))


def check_shared(shared: str) -> None:
    """Raises STORE-604 for what names no place of a shared store."""
    from millpond.state.shared.shared_store import open_place

    open_place(shared)


def _check_spark_conf(**given: Any) -> None:
    from millpond.cli.spark_flags import read_spark_conf

    read_spark_conf(given.get("spark_conf", ()), given.get("jars"), given.get("packages"))


_CHECKS: dict[tuple[str, ...], Callable[..., None]] = {
    ("max_memory",): check_memory,
    ("host",): _check_access,
    ("allow_host",): _check_access,
    ("allow_origin",): _check_access,
    ("port",): _check_port,
    ("source_root",): _check_policy,
    ("source_format",): _check_policy,
    ("source_host",): _check_policy,
    ("sink_host",): _check_policy,
    ("backup_root",): _check_policy,
    ("tls_cert", "tls_key"): _check_transport,
    ("path_prefix",): _check_transport,
    ("trusted_proxy",): _check_transport,
    ("tokens",): _check_tokens,
    ("jwt",): _check_jwt,
    ("secrets",): _check_secrets,
    ("shared",): check_shared,
    ("spark_conf", "jars", "packages"): _check_spark_conf,
}
