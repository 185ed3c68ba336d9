"""The JVM ends under a program that has a pond open: one clear error, and the store opens again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
import millpond
from millpond import MillpondError

store, files = sys.argv[1:]
pond = millpond.open(store, master="local[1]")
read = f"(v BIGINT) USING csv OPTIONS (path '{files}')"
pond.execute(f"CREATE STREAM s (v BIGINT); CREATE STREAM f {read}")
query = pond.register("SELECT sum(v) FROM s", "total")
pond.ingest("s", [{"v": 1}])
pond.catch_up(timeout=60)
query.fetch()
os.kill(int(Path(store, "spark.pid").read_text()), signal.SIGKILL)

def call(name, work):
    try:
        print(name, work())
    except MillpondError as error:
        print(name, error.code, "open the store again" in (error.hint or ""))

call("push", lambda: pond.ingest("s", [{"v": 2}]).accepted)
call("catch up", lambda: pond.catch_up(timeout=60))
call("source", lambda: pond.execute(f"CREATE STREAM g {read}"))
call("relation", lambda: pond.execute(f"CREATE RELATION r {read}"))
call("insert", lambda: pond.execute("INSERT INTO s VALUES (3); SELECT count(*) FROM s"))
call("invoke", lambda: query.invoke().rows())
call("drop", lambda: pond.execute("DROP STREAM f")[0].message)
call("ready", lambda: pond.ready)
call("status", lambda: pond.status()["problems"][0]["code"])
pond.close()
with millpond.open(store, master="local[1]") as pond:
    pond.catch_up(timeout=60)
    print("again", pond.query("total").invoke().rows(), pond.ready)
"""

SAID = """\
push 1
catch up POND-415 True
source POND-415 True
relation POND-415 True
insert POND-415 True
invoke [(1,)]
drop stream f: dropped
ready False
status POND-415
again [(6,)] True
"""


def test_an_embedded_pond_says_so_and_the_store_opens_again(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("1\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "store"), str(tmp_path / "in")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == SAID, done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    assert "Py4J" not in done.stderr


SCRIPT = """
CREATE STREAM f (v BIGINT) USING csv OPTIONS (path '{files}');
SELECT count(*) FROM f;
"""


def test_a_script_ends_with_a_clear_last_line(tmp_path: Path) -> None:
    """The JVM has too little memory to start, or to go on."""
    (tmp_path / "in").mkdir()
    script, store = tmp_path / "s.cql", tmp_path / "store"
    script.write_text(SCRIPT.format(files=tmp_path / "in"))
    # The JVM is killed as soon as it is noted; the rest of the script has not come far by then.
    killer = (
        "import os, sys, threading, time, pathlib\n"
        "def kill():\n"
        f"    noted = pathlib.Path({str(store)!r}, 'spark.pid')\n"
        "    while not noted.exists() or not noted.read_text():\n"
        "        time.sleep(0.01)\n"
        "    os.kill(int(noted.read_text()), 9)\n"
        "threading.Thread(target=kill, daemon=True).start()\n"
        "from millpond.cli.main import main\n"
        "sys.argv[0] = 'millpond'\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", killer, "run", str(script), "--store", str(store)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    complaint = done.stderr[done.stderr.rindex("POND-415") :].splitlines()
    assert complaint[0] == "POND-415: Spark has ended"
    assert complaint[-1] in (
        "Hint: Close the pond, and open the store again.",
        # It had not started yet, while the script went on.
        "Hint: spark.log in the store's directory has what the JVM wrote. Open the store again once"
        " the cause is gone; everything acknowledged is kept.",
    )
