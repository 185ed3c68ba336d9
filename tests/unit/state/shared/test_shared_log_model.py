"""The shared log over a storage that delays, and loses answers: nothing acknowledged is lost.

Drivers start, append, take snapshots and remove records. At every call of the storage a driver may
be stopped while others go on, for hours; a call may happen without an answer, not happen, or happen
later. Whatever comes, a record that was acknowledged is in the log once, in the order of the
acknowledgements, and a driver that acknowledges knows everything that came before.
"""

import json
from contextlib import suppress

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millpond.errors import MillpondError
from millpond.state.journal.record import decode_body
from millpond.state.shared.place import FIRST, PlaceError
from millpond.state.shared.shared_log import (
    SNAPSHOTS,
    LogBehind,
    LogReader,
    SharedLog,
    SharedSnapshot,
    list_shared_snapshots,
)

INCARNATION = "abcdef"


class SimulatedPlace:
    """Shared storage whose every call asks the world what becomes of it."""

    url = "simulated://place"

    def __init__(self, world):
        self.objects, self.world, self.late = {FIRST: b"{}"}, world, []

    def create(self, key, data):
        return self.world.call(lambda: self._create(key, data), can_be_late=True)

    def _create(self, key, data):
        if key in self.objects:
            return False
        self.objects[key] = data
        return True

    def write(self, key, data):
        return self.world.call(lambda: self.objects.__setitem__(key, data))

    def read(self, key):
        return self.world.call(lambda: self.objects.get(key))

    def has(self, key):
        return self.world.call(lambda: key in self.objects)

    def list_keys(self, prefix, after=""):
        return self.world.call(
            lambda: sorted(k for k in self.objects if k.startswith(prefix) and k > after)
        )

    def remove(self, key):
        return self.world.call(lambda: self.objects.pop(key, None))


class Driver:
    """A process that may lead: it knows what the log's records say, up to its number."""

    def __init__(self, world, name):
        self.world, self.name = world, f"{name:016x}"
        self.known, self.log, self.is_over, self.busy = [], None, False, False
        self.snapshots = []

    def lead(self):
        place, clock = self.world.place, self.world.clock
        while self.log is None:
            began = clock()
            found = list_shared_snapshots(place)
            number, self.known = 0, []
            if found:
                number = found[-1].number
                self.known = json.loads(place.read(found[-1].key) or "null")
                if self.known is None:
                    continue
            reader = LogReader(place, INCARNATION, number, began, clock)
            with suppress(LogBehind):
                while self.log is None:
                    while (record := reader.read_next()) is not None:
                        self.known += read_payloads(record)
                    log = SharedLog(reader, self.name, clock, self.world.wait)
                    if log.claim():
                        self.log = log

    def append(self, payload):
        number = self.log.append([("note", [[payload]])])
        self.known = [*self.known, payload]
        self.world.acknowledge(number, payload, self.known)

    def take_snapshot(self):
        taken = SharedSnapshot(self.log.number, "0" * 16)
        self.world.place.write(taken.key, json.dumps(self.known).encode())
        self.snapshots = list_shared_snapshots(self.world.place)
        if len(self.snapshots) > 1:
            self.log.trim(self.snapshots[-2].number)
            for old in self.snapshots[:-2]:
                self.world.place.remove(old.key)


def read_payloads(record):
    return [rows[0][0] for _, rows in decode_body(record.body)]


class World(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.now, self.depth, self.choices = 1_000.0, 0, iter(())
        self.place = SimulatedPlace(self)
        self.drivers, self.acknowledged, self.payloads = [], [], 0

    def clock(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds

    def call(self, act, can_be_late=False):
        """Do one call of the storage, in one of the ways a call can go."""
        self.now += 0.01
        way = next(self.choices, 0)
        if way == 1:
            self.let_others_act()
        if way == 2:
            raise PlaceError("it was lost on the way there")
        if way == 3 and can_be_late:
            self.place.late.append(act)
            raise PlaceError("it is late")
        result = act()
        if way == 4:
            raise PlaceError("the answer was lost")
        if way == 5:
            self.let_others_act()
        return result

    def let_others_act(self):
        """Stop whoever is calling; others go on meanwhile."""
        if self.depth == 3:
            return
        self.depth += 1
        for _ in range(next(self.choices, 0)):
            self.act(next(self.choices, 0))
        self.depth -= 1

    def act(self, what):
        if what == 6:
            self.now += 4_000.0
            return
        if what == 7:
            for late in self.place.late:
                late()
            self.place.late = []
            return
        free = [d for d in self.drivers if not d.busy and not d.is_over and d.log is not None]
        if what in (0, 5) or not free:
            if len(self.drivers) > 6:
                return
            free = [Driver(self, len(self.drivers))]
            self.drivers += free
        driver = free[(what + self.payloads) % len(free)]
        driver.busy = True
        try:
            if driver.log is None:
                driver.lead()
            elif what == 4:
                driver.take_snapshot()
            else:
                self.payloads += 1
                driver.append(self.payloads)
        except (PlaceError, MillpondError):
            driver.is_over = what != 4 or driver.log is None or driver.log.ended is not None
        finally:
            driver.busy = False

    def acknowledge(self, number, payload, known):
        assert not self.acknowledged or number > self.acknowledged[-1][0]
        self.acknowledged.append((number, payload))
        before = [p for _, p in self.acknowledged]
        assert [p for p in known if p in set(before)] == before

    @rule(what=st.integers(0, 7), choices=st.lists(st.integers(0, 7), max_size=40))
    def go_on(self, what, choices):
        self.choices = iter(choices)
        self.act(what)
        self.choices = iter(())

    @invariant()
    def everything_acknowledged_is_there(self):
        last = Driver(self, 99)
        found = [k for k in sorted(self.place.objects) if k.startswith(SNAPSHOTS)]
        number, known = 0, []
        if found:
            number = SharedSnapshot(int(found[-1][10:22]), "").number
            known = json.loads(self.place.objects[found[-1]])
        reader = LogReader(self.place, INCARNATION, number, self.now, self.clock)
        while (record := reader.read_next()) is not None:
            known = [*known, *read_payloads(record)]
        wanted = {payload for _, payload in self.acknowledged}
        assert [p for p in known if p in wanted] == [p for _, p in self.acknowledged]
        assert len(set(known)) == len(known)
        assert last.log is None


TestSharedLog = World.TestCase
TestSharedLog.settings = settings(
    max_examples=300,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
