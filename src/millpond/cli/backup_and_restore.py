"""`millpond backup` and `millpond restore`: what they print."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import typer

from millpond.cli.output_format import Format, ReportFormat
from millpond.cli.result_writers import writer
from millpond.model.time import format_instant, parse_instant
from millpond.runtime.spark.checkpoint import cut_back
from millpond.service.results import StatementResult
from millpond.state.backup.backup import backup_store
from millpond.state.backup.kept import list_kept, read_incarnation
from millpond.state.backup.restore import restore_store


def backup(store: Path, to: Path, copy: bool, format: ReportFormat) -> None:
    """Make a backup and print what it has."""
    kept = backup_store(store, to, link=not copy)
    if format is ReportFormat.JSON:
        print(json.dumps({"backup": str(to), **asdict(kept)}))
        return
    print(
        f'"{to}" has epoch {kept.epoch:,} of {format_instant(kept.committed_at)}: '
        f"{kept.files:,} files, {kept.bytes:,} bytes; {kept.new_bytes:,} bytes are new."
    )


def list_backups(backup: Path, format: ReportFormat) -> None:
    """Print the backups in a directory."""
    incarnation, kept = read_incarnation(backup), list_kept(backup)
    if format is ReportFormat.JSON:
        print(json.dumps({"store": incarnation, "backups": [asdict(k) for k in kept]}))
        return
    table = pa.table(
        {
            "epoch": [k.epoch for k in kept],
            "committed": [format_instant(k.committed_at) for k in kept],
            "taken": [format_instant(k.taken_at) for k in kept],
            "files": [k.files for k in kept],
            "bytes": [k.bytes for k in kept],
            "new bytes": [k.new_bytes for k in kept],
        }
    )
    writer(Format.TABLE).write(StatementResult("backups", None, table=table))
    print(f'They are of store {incarnation}. "millpond restore {backup} NEW" makes a new store.')


def restore(
    backup: Path, to: Path, epoch: int | None, at: str | None, copy: bool, format: ReportFormat
) -> bool:
    """Restore a store and print what it is as of; return whether every file is whole."""
    done = restore_store(
        backup,
        to,
        epoch=epoch,
        at=None if at is None else _parse(at),
        link=not copy,
        cut_checkpoint=cut_back,
    )
    if format is ReportFormat.JSON:
        body = asdict(done)
        print(json.dumps({**body, "to": str(to)}))
        return not done.damage
    when = format_instant(done.point.committed_at)
    print(f'"{to}" is store {done.incarnation}, as of epoch {done.point.epoch:,} of {when}.')
    if done.point != done.asked:
        print(
            f"Between backups not every file is kept: this is the last whole state before epoch "
            f"{done.asked.epoch:,} of {format_instant(done.asked.committed_at)}."
        )
    for line in done.damage:
        print(f"Damaged: {line}")
    for name in done.stopped:
        print(
            f'Stream "{name}" stops: what Spark remembers of its source is not kept for that '
            "epoch. DROP it and CREATE it again; it then reads its source from the beginning."
        )
    print("Cursors of before are good up to the last change that both have.")
    print("Matches, runs, pairs and aggregates are computed again when it is opened.")
    return not done.damage


def _parse(text: str) -> int:
    try:
        return parse_instant(text)
    except ValueError as error:
        raise typer.BadParameter(f'--at "{text}" is not a timestamp') from error
