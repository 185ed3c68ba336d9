"""Tasks on machines that have nothing of the driver's directory but what they fetch."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.tools.founded_place import founded_place
from tests.unit.engine.matching.test_led_queries import STREAM, factors
from tests.unit.engine.scalars.test_user_functions import definition, pickled

from millpond.engine.matching.query_stem import snapshot_queries
from millpond.engine.scalars.user_functions import Functions, save
from millpond.errors import MillpondError
from millpond.runtime.files.stem_files import load_stem
from millpond.state.arrow_file import open_arrow, write_arrow
from millpond.state.file_share import (
    fetch,
    publish,
    publish_scratch,
    share_directory,
    share_of,
    unshare_directory,
    withdraw_scratch,
)
from millpond.state.inbox.push_file import (
    PushedRows,
    open_push,
    shared_name,
    visible_path,
    write_hidden,
)
from millpond.state.shared.place_share import PlaceShare


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Path]:
    """The driver's directory, on whose path an executor's machine has nothing."""
    directory = tmp_path / "driver"
    share = PlaceShare(directory, founded_place(tmp_path / "place"), lambda: 1)
    share.spreads = True
    share_directory(directory, share)
    yield directory
    unshare_directory(directory)


def test_the_first_file_of_a_machine_makes_its_folder(driver: Path) -> None:
    file = write_arrow(driver / "segments" / "a.arrow", pa.table({"v": [1]})).path
    shutil.rmtree(driver)
    assert open_arrow(file)["v"].to_pylist() == [1]


def test_a_push_is_read_by_its_checksum(driver: Path) -> None:
    """Whatever file of that number the machine has: it may have led, and pushed in vain."""
    inbox = driver / "inbox"
    inbox.mkdir(parents=True)
    file = write_hidden(inbox, PushedRows(7, 3, 5, pa.table({"v": [1, 2]})))
    publish(file.path, shared_name(7, file.checksum))
    in_vain = write_hidden(inbox, PushedRows(7, 3, 5, pa.table({"v": [9]})))
    in_vain.path.rename(visible_path(inbox, 7))
    found = open_push(inbox, shared_name(7, file.checksum))
    assert (found.number, found.stream_id, found.table["v"].to_pylist()) == (7, 3, [1, 2])
    assert open_push(inbox, visible_path(inbox, 7).name).table["v"].to_pylist() == [9]
    assert [path.name for path in inbox.iterdir()] == [visible_path(inbox, 7).name]
    for name in (shared_name(8, file.checksum), visible_path(inbox, 8).name):
        with pytest.raises(MillpondError, match=r"STORE-602[^$]*There is no such"):
            open_push(inbox, name)
    another = write_hidden(inbox, PushedRows(9, 3, 5, pa.table({"v": [9]})))
    publish(another.path, shared_name(9, file.checksum))
    with pytest.raises(MillpondError, match="STORE-602"):
        open_push(inbox, shared_name(9, file.checksum))
    visible_path(inbox, 7).write_bytes(b"torn")
    with pytest.raises(MillpondError, match=r"STORE-602[^$]*It cannot be read"):
        open_push(inbox, visible_path(inbox, 7).name)


def test_a_snapshot_is_fetched_with_all_it_consists_of(driver: Path) -> None:
    queries = [(slot, factors(f"a = {slot}")) for slot in range(3)]
    stems = driver / "stems"
    stems.mkdir(parents=True)
    files = snapshot_queries(queries, STREAM).save(stems / "one")
    assert len(files) > 1
    for file in files:
        publish_scratch(file)
    shutil.rmtree(driver)
    stems.mkdir(parents=True)
    assert load_stem(stems / "one").slots.tolist() == [0, 1, 2]
    shutil.rmtree(stems)
    for file in files:
        withdraw_scratch(file)
    with pytest.raises(FileNotFoundError):
        load_stem(stems / "one")


def test_scratch_is_given_only_where_work_spreads(driver: Path) -> None:
    driver.mkdir()
    (driver / "totals").write_bytes(b"1")
    share = share_of(driver / "totals")
    assert share is not None
    share.spreads = False
    publish_scratch(driver / "totals")
    (driver / "totals").unlink()
    assert not fetch(driver / "totals")


def test_a_function_is_fetched_when_it_is_called(driver: Path) -> None:
    known = definition("fetched", pickled(lambda x: x))
    publish_scratch(save(known, driver / "functions"))
    shutil.rmtree(driver)
    functions = Functions()
    functions.look_in(driver / "functions", fetch)
    assert functions.find(known.inside) is not None
    assert functions.find("another") is None
