"""Shared places of both kinds: what `SharedPlace` promises."""

import errno
import http.server
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.tools.faulty_object_store import BUCKET, serve_objects
from tests.tools.founded_place import founded_place

from millpond.errors import MillpondError
from millpond.state.shared.object_place import ObjectPlace, open_object_place
from millpond.state.shared.place import PlaceError
from millpond.state.shared.posix_place import PosixPlace


@pytest.fixture(params=["posix", "memory", "s3"])
def place(request, tmp_path, monkeypatch):
    if request.param == "posix":
        yield founded_place(tmp_path / "pond")
    elif request.param == "memory":
        store = pytest.importorskip("obstore.store")
        yield ObjectPlace("memory:///", store.MemoryStore())
    else:
        with serve_objects() as objects:
            for name, value in objects.environment.items():
                monkeypatch.setenv(name, value)
            yield open_object_place(f"s3://{BUCKET}/a/prefix")


def test_what_was_created_is_there_and_is_not_created_again(place):
    assert place.read("log/1") is None
    assert place.create("log/1", b"one")
    assert not place.create("log/1", b"two")
    assert (place.has("log/1"), place.has("log/2"), place.has("log")) == (True, False, False)
    assert place.read("log/1") == b"one"
    place.write("log/1", b"three")
    assert place.read("log/1") == b"three"
    place.remove("log/1")
    place.remove("log/1")
    assert place.read("log/1") is None


def test_of_many_that_create_one_key_one_succeeds(place):
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: place.create("log/7", b"%d" % n), range(64)))
    assert made.count(True) == 1
    assert place.read("log/7") == b"%d" % made.index(True)


def test_keys_are_listed_in_order_from_a_key_on(place):
    for key in ("log/3", "log/1", "log/2", "files/segments/a.arrow", "logs/1"):
        place.write(key, b"x")
    assert place.list_keys("log/") == ["log/1", "log/2", "log/3"]
    assert place.list_keys("log/", "log/1") == ["log/2", "log/3"]
    assert place.list_keys("files/") == ["files/segments/a.arrow"]
    assert place.list_keys("nothing/") == []


def test_files_go_up_and_come_down_whole(place, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(range(256)) * 70_000)  # more than one part of an upload
    place.upload(file, "files/a")
    assert place.download("files/a", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == file.read_bytes()
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600
    assert not place.download("files/b", tmp_path / "none")
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["copy", "file"]


def test_a_directory_that_went_away_gives_no_answer(tmp_path):
    (tmp_path / "file").write_text("not a directory")
    place = PosixPlace(tmp_path / "file" / "pond")
    with pytest.raises(PlaceError, match="Not a directory"):
        place.create("pond.json", b"x")


def test_a_directory_that_is_not_mounted_any_more_takes_nothing(tmp_path):
    """It would be written on the machine's own disk, and acknowledged."""
    place = founded_place(tmp_path / "mount" / "pond")
    assert place.create("log/1", b"x")
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "mount").rename(tmp_path / "away")
    (tmp_path / "mount").mkdir()
    for write in (
        lambda: place.create("log/2", b"x"),
        lambda: place.write("leader.json", b"x"),
        lambda: place.upload(tmp_path / "file", "files/a"),
    ):
        with pytest.raises(PlaceError, match="is the storage mounted"):
            write()
    assert list((tmp_path / "mount").iterdir()) == []
    (tmp_path / "mount").rmdir()
    (tmp_path / "away").rename(tmp_path / "mount")
    assert place.create("log/2", b"x")


def test_a_folder_that_cannot_be_read_is_not_empty(tmp_path, monkeypatch):
    place = founded_place(tmp_path)
    place.write("snapshots/1", b"x")

    def scandir(path):
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(PlaceError, match="Input/output error"):
        place.list_keys("snapshots/")


def test_a_store_that_cannot_be_reached_gives_no_answer(monkeypatch):
    pytest.importorskip("obstore")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    place = open_object_place("s3://bucket/pond", {"max_retries": 0})
    with pytest.raises(PlaceError, match="s3://bucket/pond"):
        place.read("log/1")


def test_what_a_store_says_of_keys_it_refuses_is_told(monkeypatch):
    """It stands behind the first line of the answer."""
    pytest.importorskip("obstore")
    body = b"""<?xml version="1.0" encoding="utf-8"?>
<Error><Code>SignatureDoesNotMatch</Code><Message>Check your key.</Message></Error>"""

    class Refuse(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Refuse) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "known")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        place = open_object_place("s3://bucket/pond", {"max_retries": 0})
        with pytest.raises(PlaceError, match=r"403 Forbidden: SignatureDoesNotMatch$"):
            place.read("log/1")
        server.shutdown()


def test_a_url_that_names_nothing_is_refused():
    pytest.importorskip("obstore")
    with pytest.raises(MillpondError, match="STORE-604"):
        open_object_place("ftp://somewhere")


def test_what_is_uploaded_to_a_directory_is_its_owners_alone(tmp_path):
    """Whatever the umask is, and whoever may read the file it is made of."""
    place = founded_place(tmp_path / "pond")
    (tmp_path / "rows").write_bytes(b"rows")
    (tmp_path / "rows").chmod(0o644)
    before = os.umask(0o022)
    try:
        place.upload(tmp_path / "rows", "files/segments/rows")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "pond/files/segments/rows").stat().st_mode) == 0o600
    assert place.read("files/segments/rows") == b"rows"
