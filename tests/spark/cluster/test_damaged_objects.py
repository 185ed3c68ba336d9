"""What is damaged in the shared place, and whole at the driver, is put back for the workers."""

from __future__ import annotations

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

place, master, store = sys.argv[1:]
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

def count(name):
    return pond.ask(f"SELECT count(*) AS n FROM {name}").table["n"][0].as_py()

inbox.publish = publish_and_damage
with open_pond(Path(store), shared=place, master=master) as pond:
    pond._components.maintenance.stop()
    pond.execute("CREATE STREAM s (v BIGINT)")
    pond.execute("CREATE STREAM other (v BIGINT)")

    harmed[:] = ["there"]
    pond.ingest("s", [{"v": 1}, {"v": 2}])
    pond.catch_up(timeout=120)
    assert count("s") == 2

    harmed[:] = ["there", "here"]
    pond.ingest("s", [{"v": 3}])
    harmed.clear()
    pond.ingest("s", [{"v": 4}])
    pond.ingest("other", [{"v": 5}])
    pond.catch_up(timeout=120)
    assert (count("s"), count("other")) == (3, 1)
    # The inbox has come to its next batch, and its status says a while longer that it had stopped.
    problems = [p["detail"] for p in pond.status()["problems"] if p["code"] == "STORE-602"]
    assert len(problems) == 1 and f"{place}/files/inbox/000000000002-" in problems[0], problems
print("done")
"""


@pytest.mark.timeout(500)
def test_what_the_driver_has_whole_is_put_back_and_what_nobody_has_is_lost_alone(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path)
    try:
        cluster.start_spark(1)
        store = tmp_path / "driver"
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, cluster.place, cluster.master, str(store)],
            capture_output=True,
            text=True,
            timeout=400,
            env=dict(cluster.environment),
        )
    finally:
        cluster.close()
    assert done.stdout.endswith("done\n"), done.stdout + done.stderr[-3000:]
