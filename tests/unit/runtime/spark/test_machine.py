"""What becomes of a runtime whose JVM ends, with processes and sessions that only seem to be."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from tests.waiting import wait_until

from millpond.errors import MillpondError
from millpond.runtime.spark import machine as machines
from millpond.runtime.spark.machine import OUT_OF_MEMORY, Machine
from millpond.work import limit_work


class Process:
    """A JVM's process."""

    pid = 4711

    def __init__(self) -> None:
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self.code = -9


class Dead:
    """The session of a JVM that ended after it was made."""

    @property
    def version(self) -> str:
        raise Py4JError("An error occurred while calling o81.version")


class World:
    """Starts sessions, each with a process of its own, and notes what a machine tells."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.processes: list[Process] = []
        self.refused = 0
        self.answers = True
        #: How many of the sessions, from the first one on, have lost their application.
        self.removed = 0
        self.ends_at_once = ""
        self.ends: list[MillpondError] = []
        self.starts = threading.Semaphore(0)

    def start(self) -> Any:
        if self.refused:
            self.refused -= 1
            raise RuntimeError("there is no memory for it\nand more")
        process = Process()
        self.processes.append(process)
        self.monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
        if self.ends_at_once:
            process.code = -9
            if self.ends_at_once == "unasked":
                raise Py4JError("An error occurred while calling o81.get")
            return Dead()
        jvm = self if self.answers else None
        number = len(self.processes)
        scala = SimpleNamespace(isStopped=lambda: number <= self.removed)
        java = SimpleNamespace(sc=lambda: scala)
        context = SimpleNamespace(master="local[*]", defaultParallelism=2, _jvm=jvm, _jsc=java)
        return SimpleNamespace(version="4", sparkContext=context, stop=lambda: None)

    def machine(self, **options: Any) -> Machine:
        options = {"revives": True, **options}
        made = Machine(self.start, on_end=self.ends.append, on_start=self.starts.release, **options)
        made.start()
        return made


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(machines, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(machines, "_WAITS", (0, 0, 0))
    monkeypatch.setattr(machines, "_DYING_SECONDS", 0.2)
    return World(monkeypatch)


def test_a_jvm_that_ends_is_replaced(world: World) -> None:
    machine = world.machine()
    world.processes[0].code = -9
    assert world.starts.acquire(timeout=20)
    wait_until(lambda: machine.trouble is None)
    assert len(world.processes) == 2
    assert [error.code for error in world.ends] == ["POND-415"]
    assert "signal 9" in str(world.ends[0].detail)
    assert machine.failure is None
    machine.stop()


def test_who_uses_a_spark_that_starts_behind_waits_for_it(world: World) -> None:
    may_start = threading.Event()
    used: list[str] = []

    def start() -> Any:
        may_start.wait(20)
        return world.start()

    machine = Machine(start, on_start=world.starts.release)
    machine.start(behind=True)

    def use() -> None:
        with machine.using():
            used.append(machine.session.version)

    user = threading.Thread(target=use)
    user.start()
    assert machine.trouble is not None
    assert machine.trouble.code == "POND-419"
    with pytest.raises(MillpondError, match="Spark is starting"):
        machine.session  # noqa: B018
    assert not used
    may_start.set()
    user.join(20)
    assert used == ["4"]
    assert world.starts.acquire(blocking=False)  # who is told is told before anyone may use it
    assert machine.trouble is None
    machine.stop()


def test_a_spark_that_cannot_be_started_behind_is_given_up(world: World) -> None:
    another = SimpleNamespace(shutdown=lambda: pytest.fail("it is not this machine's"), proc=None)
    world.monkeypatch.setattr(SparkContext, "_gateway", another)
    world.refused = 1
    machine = Machine(world.start, on_end=world.ends.append)
    machine.start(behind=True)
    wait_until(lambda: world.ends)
    assert machine.failure is machine.trouble is world.ends[0]
    assert machine.failure.primary == "Spark could not be started"
    assert machine.failure.detail == "there is no memory for it"
    with pytest.raises(MillpondError, match="could not be started"), machine.using():
        pass
    machine.stop()
    assert SparkContext._gateway is another


def test_a_request_does_not_wait_longer_than_it_may(world: World) -> None:
    may_start = threading.Event()
    machine = Machine(lambda: may_start.wait(20) and world.start(), end_start=may_start.set)
    machine.start(behind=True)
    with limit_work(0.01), pytest.raises(MillpondError) as raised, machine.using():
        pass
    assert raised.value.code == "POND-405"
    machine.stop()  # ends the start


@pytest.mark.parametrize("when", ["unasked", "asked"])
def test_a_jvm_that_ends_while_it_starts(world: World, when: str) -> None:
    world.ends_at_once = when
    with pytest.raises(MillpondError, match="open the store again") as raised:
        world.machine(revives=False)
    assert raised.value.code == "POND-415"
    assert raised.value.__suppress_context__
    assert SparkContext._gateway is None
    world.ends_at_once = ""
    world.machine(revives=False).stop()


def test_attempts_are_repeated_and_then_given_up(world: World) -> None:
    machine = world.machine()
    world.refused = 2
    world.processes[0].code = 1
    assert world.starts.acquire(timeout=20)
    world.refused = 3
    world.processes[1].code = 1
    wait_until(lambda: machine.failure)
    assert machine.failure is machine.trouble is world.ends[-1]
    assert "3 attempts failed" in str(machine.failure.detail)
    assert "there is no memory for it" in str(machine.failure.detail)
    machine.stop()


def test_a_jvm_that_ends_again_and_again_is_given_up(world: World) -> None:
    machine = world.machine()
    for number in range(5):
        world.processes[number].code = OUT_OF_MEMORY
        assert world.starts.acquire(timeout=20)
    world.processes[5].code = OUT_OF_MEMORY
    wait_until(lambda: machine.failure)
    assert machine.failure is not None
    assert "ended 6 times" in str(machine.failure.detail)
    assert "MILLPOND_DRIVER_MEMORY" in str(world.ends[0].detail)
    machine.stop()


def test_a_jvm_that_does_not_answer_is_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "_SILENT_LOOKS", 20)
    world.answers = False
    machine = world.machine()
    world.answers = True
    assert world.starts.acquire(timeout=20)
    assert "did not answer" in str(world.ends[0].detail)
    machine.stop()


def test_a_jvm_whose_application_was_removed_is_replaced(world: World) -> None:
    """A master that removes an application stops its session, and the JVM goes on."""
    world.removed = 1
    machine = world.machine()
    assert world.starts.acquire(timeout=20)
    wait_until(lambda: machine.trouble is None)
    assert "application was removed" in str(world.ends[0].detail)
    machine.stop()


def test_a_session_that_is_stopped_on_purpose_stays_stopped(world: World) -> None:
    machine = world.machine()
    machine._stopping.set()
    world.removed = 1
    machine._ask(machine.session, world.processes[0], 1)
    machine.stop()
    assert world.processes[0].code is None
    assert not world.ends


def test_without_a_server_every_call_says_what_to_do(world: World) -> None:
    machine = world.machine(revives=False)

    def call() -> None:
        with machine.using():
            world.processes[0].code = -9
            raise ConnectionRefusedError("111")

    with pytest.raises(MillpondError, match="open the store again") as raised:
        call()
    assert raised.value.code == "POND-415"
    assert raised.value.__suppress_context__
    with pytest.raises(MillpondError, match="POND-415"):
        machine.session  # noqa: B018
    wait_until(lambda: world.ends)
    assert len(world.processes) == 1
    machine.stop()


def test_other_errors_stay_what_they_are(world: World) -> None:
    machine = world.machine(revives=False)
    with pytest.raises(KeyError), machine.using():
        raise KeyError("x")
    with pytest.raises(MillpondError, match="DATA-502"), machine.using():
        raise MillpondError("DATA-502", "no such file")
    machine.stop()


def test_py4j_says_nothing_about_a_jvm_that_ended(world: World) -> None:
    machine = world.machine(revives=False)
    said = logging.LogRecord("root", 40, "/py4j/java_gateway.py", 1, "while sending", (), None)
    said.exc_info = (ValueError, ValueError(), None)
    root = logging.getLogger()
    assert root.filter(said)
    world.processes[0].code = -9
    assert not root.filter(said)
    other = logging.LogRecord("root", 40, "/a/program.py", 1, "news", (), None)
    assert root.filter(other)
    machine.stop()
