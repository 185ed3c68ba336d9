"""Shared directories: who learns of them how."""

import subprocess
import sys

from tests.tools.founded_place import founded_place

from millpond.state.arrow_file import open_arrow
from millpond.state.file_share import DIRECTORY_VARIABLE, PLACE_VARIABLE, fetch, share_of

WORKER = """
import pyarrow as pa, sys
from pathlib import Path
import millpond.state.shared.shared_store
from millpond.state.arrow_file import write_arrow
write_arrow(Path(sys.argv[1]), pa.table({"a": [1, 2]}))
"""


def test_a_worker_gives_what_it_writes_to_everybody(tmp_path, monkeypatch):
    directory, place = tmp_path / "store", tmp_path / "place"
    founded_place(place)
    (directory / "segments").mkdir(parents=True)
    file = directory / "segments" / "a.arrow"
    environment = {DIRECTORY_VARIABLE: str(directory), PLACE_VARIABLE: str(place)}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    subprocess.run([sys.executable, "-c", WORKER, str(file)], check=True, timeout=120)
    given = place / "files" / "segments" / "a.arrow"
    assert open_arrow(given)["a"].to_pylist() == [1, 2]
    assert given.read_bytes() == file.read_bytes()


def test_a_file_of_this_machine_alone_is_nobodys(tmp_path):
    assert share_of(tmp_path / "a.arrow") is None
    assert not fetch(tmp_path / "a.arrow")
