"""`millpond check` and `millpond repair`: what they print."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from millpond.cli.output_format import Format, ReportFormat
from millpond.cli.result_writers import writer
from millpond.model.time import now
from millpond.service.results import StatementResult
from millpond.state.check_and_repair.check import Finding, check_store
from millpond.state.check_and_repair.repair import repair_store
from millpond.state.set_aside import clean_set_aside
from millpond.state.store import lock_store


def check(store: Path, format: ReportFormat, clean: bool) -> bool:
    """Print what a check found; return whether the store is whole."""
    report = check_store(store)
    if clean and report.is_whole:
        with lock_store(store):
            clean_set_aside(store, now(), everything=True)
    if format is ReportFormat.JSON:
        body = {
            "store": str(store),
            "whole": report.is_whole,
            "parts": [
                {"part": p.name, "checked": p.checked, "damage": p.damage, "says": p.says}
                for p in report.parts
            ],
        }
        print(json.dumps(body))
        return report.is_whole
    table = pa.table(
        {
            "part": [part.name for part in report.parts],
            "checked": [part.checked for part in report.parts],
            "damaged": [len(part.damage) for part in report.parts],
            "found": [_describe(part) for part in report.parts],
        }
    )
    writer(Format.TABLE).write(StatementResult("check", None, table=table))
    for part in report.parts:
        for line in part.damage:
            print(line)
    if report.is_whole:
        print("The store is whole.")
    else:
        print("The store is damaged: `millpond repair` makes a new one of what is whole.")
    return report.is_whole


def _describe(part: Finding) -> str:
    return "damaged" if part.damage else part.says or "whole"


def repair(store: Path, to: Path) -> None:
    """Repair a store into a new directory and print what was saved and what was lost."""
    done = repair_store(store, to)
    print(f'"{to}" is store {done.incarnation}, up to record {done.number:,}, from {done.source}.')
    for line in done.damage:
        print(f"Damaged: {line}")
    if done.lost:
        for line in done.lost:
            print(f"Lost: {line}")
    else:
        print("Nothing is lost.")
    print("Matches, runs, pairs and aggregates are computed again when it is opened.")
