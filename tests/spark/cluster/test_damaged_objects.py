"""What is damaged in the shared place, and whole at the driver, is put back for the workers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.demo.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: A driver whose pushes are damaged as they are given away, here and in the shared place.
DRIVER = """
import sys
from pathlib import Path
from millpond.service.open_pond import open_pond
from millpond.state.inbox import inbox

place, master, store, cache = map(str, sys.argv[1:])
harmed = []
publish = inbox.publish

def damage(file):
    file.write_bytes(file.read_bytes()[:100])

def publish_and_damage(file, name=None):
    publish(file, name)
    if "there" in harmed:
        damage(Path(place, "files", "inbox", name))
    if "here" in harmed:
        damage(file)

def count(name, least):
    pond._components.invoker.scans.least_rows = least
    return pond.ask(f"SELECT count(*) AS n FROM {name} WHERE v % 7 >= 0").table["n"][0].as_py()

inbox.publish = publish_and_damage
with open_pond(Path(store), shared=place, master=master) as pond:
    pond._components.maintenance.stop()
    pond.execute("CREATE STREAM s (v BIGINT)")
    pond.execute("CREATE STREAM other (v BIGINT)")

    harmed[:] = ["there"]
    pond.ingest("s", [{"v": 1}, {"v": 2}])
    pond.catch_up(timeout=120)
    assert count("s", 1000) == 2

    harmed[:] = ["there", "here"]
    pond.ingest("s", [{"v": 3}])
    harmed.clear()
    pond.ingest("s", [{"v": 4}])
    pond.ingest("other", [{"v": 5}])
    pond.catch_up(timeout=120)
    assert (count("s", 1000), count("other", 1000)) == (3, 1)
    [problem] = pond.status()["problems"]
    assert "STORE-602" in str(problem) and f"{place}/files/inbox/000000000002-" in str(problem)

    for segment in pond._components.log.version.segments(1):
        damage(Path(place, "files", segment.path))
        Path(cache, segment.path).unlink()
    spread = pond._components.invoker.scans.count
    assert count("s", 0) == 3
    assert pond._components.invoker.scans.count == spread + 1
    for segment in pond._components.log.version.segments(1):
        given = Path(place, "files", segment.path)
        assert given.read_bytes() == Path(store, segment.path).read_bytes()
print("done")
"""


@pytest.mark.timeout(500)
def test_what_the_driver_has_whole_is_put_back_and_what_nobody_has_is_lost_alone(
    tmp_path: Path,
) -> None:
    caches = tmp_path / "caches"
    caches.mkdir()
    script = 'mount -t tmpfs none "$0" && exec "$@"'
    alone = ("unshare", "-m", "sh", "-c", script, str(caches))
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("a view of the file system for each process needs unshare, and root")
    cluster = Cluster(tmp_path)
    try:
        cluster.start_spark(0)
        cluster.start_worker(alone)
        store = caches / "driver"
        theirs = f"/proc/{cluster.workers[0].pid}/root{store}"
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, cluster.place, cluster.master, str(store), theirs],
            capture_output=True,
            text=True,
            timeout=400,
            env=dict(cluster.environment),
        )
    finally:
        cluster.close()
    assert done.stdout.endswith("done\n"), done.stdout + done.stderr[-3000:]
