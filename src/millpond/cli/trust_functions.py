"""`millpond trust`: shows a store's functions without running them, and seals those one trusts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from millpond.cli.output_format import Format
from millpond.cli.result_writers import writer
from millpond.errors import MillpondError
from millpond.planner.resolve.names import did_you_mean
from millpond.service.queries.function_registry import sort_by_name
from millpond.service.results import StatementResult
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.function_key import FunctionKey, digest_code, list_imports
from millpond.state.store import Store


def trust_functions(store: Path, names: Sequence[str], every: bool, path: Path | None) -> None:
    """Print a store's functions, or seal some of them with the user's key.

    Args:
        store: The store's directory; nobody may have it open.
        names: The functions to seal.
        every: Whether to seal all.
        path: The key's file; None for the user's own.

    Raises:
        MillpondError: STORE-601, STORE-604; CQL-212, there is no such function; CQL-221, the key
            cannot be used.
    """
    if not (store / "FORMAT").exists():
        raise MillpondError(
            "STORE-604", f'"{store}" is not a store', hint="Name the store's directory."
        )
    key = FunctionKey(path)
    with Store.open(store) as opened:
        known = opened.log.version.functions
        for name in names:
            if name.lower() not in known:
                raise MillpondError(
                    "CQL-212",
                    f'no user-defined function "{name}"',
                    hint=did_you_mean(name, known) or f"millpond trust {store} lists them.",
                )
        chosen = list(known) if every else sorted({name.lower() for name in names})
        if chosen:
            sealed = [key.seal(known[name]) for name in chosen]
            opened.log.commit(EpochChange(kind="function", add_functions=sealed))
        functions = sort_by_name(opened.log.version)
        table = pa.table(
            {
                "function": [f.signature for f in functions],
                "trusted": [key.is_sealed(f) for f in functions],
                "bytes": [len(f.code) for f in functions],
                "sha256": [digest_code(f)[:16] for f in functions],
                "its code imports": [", ".join(list_imports(f)) for f in functions],
            }
        )
    writer(Format.TABLE).write(StatementResult("trust", None, table=table))
    waiting = table["trusted"].to_pylist().count(False)
    if waiting:
        print(f"{waiting} of {len(functions)} are not trusted: their code is not run.")
        print("If you know who wrote them: `millpond trust STORE NAME…`, or `--all`.")
