"""Peers that have standing queries: Esper, Lucene's Monitor, bytewax and Pathway.

`make peers` installs them into `.venv-peers`: the two of the JVM from Maven Central, compiled with
what is in `java`, the two of Python from PyPI. Each is a program that reads the same elements and
constants from files and has everything in memory before its clock runs. It keeps the number of
every element that a query matches, and prints one line of JSON. The head of each program says
what was done to make the engine fast, as its documentation advises.

None of the programs does what Millpond does besides: no source is read, nothing is written to a
disk, nothing survives the process, no window is kept. That is in their favour.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
HOME = Path(__file__).parents[2] / ".venv-peers"
MISSING = "not installed (make peers)"


@dataclass(frozen=True)
class Peer:
    """A program, and how many pairs of element and query it gets through in a run of seconds.

    Args:
        name: As the table says it.
        command: The program, before the kind of workload and the two files.
        needs: The file that is there if it is installed.
        pairs: By the kind of workload: how many pairs of element and query a run has. It
            decides how many elements are given.
        most: By the kind of workload: the most queries that a run is started with.
    """

    name: str
    command: tuple[str, ...]
    needs: Path
    pairs: dict[str, float]
    most: dict[str, int]

    def is_installed(self) -> bool:
        return self.needs.exists()

    def elements(self, kind: str, queries: int, scale: float, most: int) -> int:
        """How many elements a run has."""
        return int(min(most, max(2_000, scale * self.pairs[kind] / queries)))

    def run(self, kind: str, elements: Path, constants: Path, timeout: float) -> dict[str, float]:
        """One run.

        Returns: `rows` that were measured, in `seconds` of the clock and of the `processor`; over
            all rows given, `matches` and the `sum` of their elements' numbers; `registered` in
            seconds if the peer can tell.

        Raises:
            RuntimeError: the program failed or took too long, with the end of what it said.
        """
        command = [*self.command, kind, str(elements), str(constants)]
        program = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that what it started ends with it
        )
        try:
            said, errors = program.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            os.killpg(program.pid, signal.SIGKILL)
            program.communicate()
            raise RuntimeError(f"not done after {timeout:.0f} s") from error
        if program.returncode:
            raise RuntimeError(errors.strip()[-300:])
        found: dict[str, float] = json.loads(said.strip().splitlines()[-1])
        return found


def _java(name: str, program: str, ranges: float, equalities: float, most: int) -> Peer:
    classes = f"{HOME / 'classes'}{os.pathsep}{HOME / 'jars'}/*"
    return Peer(
        name,
        ("java", "-Xms2g", "-Xmx6g", "-cp", classes, program),
        HOME / "classes" / f"{program}.class",
        {"ranges": ranges, "equalities": equalities},
        {"ranges": 1_000, "equalities": most},
    )


def _python(name: str, program: str, way: str, ranges: float, equalities: float, most: int) -> Peer:
    return Peer(
        name,
        (str(HOME / "bin" / "python"), str(HERE / program), way),
        HOME / "bin" / "python",
        {"ranges": ranges, "equalities": equalities},
        {"ranges": 1_000 if ranges else 0, "equalities": most},
    )


PEERS = (
    _java("Esper 9.0.0", "EsperMatching", 1e8, 1e9, 100_000),
    _java("Lucene Monitor 9.11.1", "LuceneMatching", 2e7, 2e8, 100_000),
    _python("bytewax, items", "bytewax_matching.py", "items", 1e7, 2e7, 1_000),
    _python("bytewax, NumPy batches", "bytewax_matching.py", "batches", 5e7, 5e8, 1_000),
    _python("Pathway, filters", "pathway_matching.py", "filters", 1e7, 1e7, 1_000),
    _python("Pathway, a join", "pathway_matching.py", "join", 0, 1e9, 100_000),
)
