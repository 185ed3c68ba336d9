"""One step of a dataflow: a call of `advance`, cut into slices of instants (STREAM, CIDR 4.2).

Slices wait in queues between the operators; a scheduling policy says which operator runs next. The
queues live as long as the step. Operators do not depend on how a step is cut, so no policy alters
a change.

INV-STEP-1: every operator takes all slices, in the order of their instants.
INV-STEP-2: when as much waits as may, an operator of the oldest slice runs, whatever the policy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.engine.dataflow.arrangement import Arrangement
from millpond.engine.dataflow.failures import to_millpond_error
from millpond.engine.dataflow.first_instant import find_first_instant, is_of_the_rows, restrict
from millpond.engine.dataflow.inputs import StepInputs
from millpond.engine.dataflow.net_changes import list_changes, net_changes
from millpond.engine.dataflow.queues import Queues
from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.engine.dataflow.scheduling.policies import make_policy
from millpond.engine.dataflow.scheduling.protocol import Ready, SchedulingPolicy, find_oldest
from millpond.engine.dataflow.state_limit import StateLimit
from millpond.engine.dataflow.work import QueueFigures, measure
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING
from millpond.operators.group_by import Grouping
from millpond.operators.protocol.delta import Delta, with_nulls
from millpond.operators.protocol.node import Node, Operator, Scalars
from millpond.operators.protocol.releasing import Constraints
from millpond.operators.source import TIMESTAMP
from millpond.planner.dataflow.plan import Plan, list_in_order

#: Reads back, by a stream's name and an instant, the elements up to the instant.
History = Callable[[str, int], Iterable[pa.Table]]

#: A slice has this part of the memory of the queues. Where each is processed to completion, large
#: ones cost least; other policies choose among many.
_SLICES, _SLICES_OF_FIFO = 64, 4
#: The first slice of a step is this part of the others: nobody knows yet what becomes of it.
_FIRST_SLICE = 16
#: After so many runs the policy is told the rates anew.
_LEARN = 16


@dataclass(frozen=True)
class Scheduling:
    """How the operators of a dataflow take turns.

    Attributes:
        policy: The scheduling policy's name.
        latency: The seconds after which a slice goes before all others; None: never.
        memory: How many bytes may wait in the queues. What two runs of operators put out, and one
            instant, may come on top.
        clock: Seconds; the policy and measurements have it.
        make: Makes the policy of a name.
    """

    policy: str = "fifo"
    latency: float | None = None
    memory: int = 256 << 20
    clock: Callable[[], float] = time.perf_counter
    make: Callable[[str, float | None], SchedulingPolicy] = make_policy

    @property
    def slice_size(self) -> float:
        """How many bytes a slice may have, with what operators make of it."""
        return self.memory / (_SLICES_OF_FIFO if self.policy == "fifo" else _SLICES)


@dataclass(frozen=True)
class Goals:
    """What a step is for.

    Attributes:
        plans: The plans, by key.
        since: By plan, the instant after which its changes are given.
        begins_with_nothing: Whether no rows count as the answers before.
        after: The last instant of the step before.
        upto: The last instant of this step.
        constraints: By stream, the constraints by which operators release rows.
        nets: Whether changes of equal rows at one instant cancel, and come in canonical order.
    """

    plans: Mapping[str, Plan]
    since: Mapping[str, int]
    begins_with_nothing: bool
    after: int
    upto: int
    constraints: Constraints
    nets: bool = True


class CannotCut(Exception):
    """A row failed that may hold only before changes are given: only the whole step can tell."""


class Step:
    """A step at work.

    Attributes:
        changes: By plan, the changes of the slices, in order.
        failed: By plan, the reason why it failed.
        undefined_until: Of plans that cannot be computed at `since`: see `Dataflow`.
        queues: What waited.
    """

    def __init__(
        self,
        flow: Arrangement,
        goals: Goals,
        inputs: StepInputs,
        history: History | None,
        scheduling: Scheduling,
        limit: StateLimit,
        *,
        is_cut: bool = True,
    ) -> None:
        """Prepare a step; nothing is cut unless `is_cut`."""
        self.changes: dict[str, list[pa.Table]] = {key: [] for key in goals.plans}
        self.failed: dict[str, MillpondError] = {}
        self.undefined_until: dict[str, int] = {}
        self.queues = QueueFigures()
        self._flow, self._goals, self._inputs = flow, goals, inputs
        self._history, self._scheduling, self._limit = history, scheduling, limit
        self._since = min(goals.since.values(), default=BEGINNING - 1)
        self._first = max(self._since, BEGINNING)
        #: Where plans begin with no rows, the changes before count for the instant of beginning.
        is_whole = goals.begins_with_nothing and goals.after < max(goals.since.values())
        self._cuts = is_cut and not is_whole
        #: The last instants of the slices so far, after that of the step before.
        self._ends = [goals.after]
        #: The bytes that an operator puts out for a byte of input: of the one that puts out most.
        self._growth = 1.0
        #: By place, the bytes of input of the slices that its operator ran on, and put out for it.
        self._measured = [(0, 0)] * len(flow.nodes)
        self._broken: dict[str, MillpondError] = {}
        self._undefined: dict[str, int] = {}
        self._scalars = DuckDBScalars(None if history is None else self._recall)
        #: The last instant of the slice before the one that an operator runs on.
        self._recalled_upto = goals.after

    def run(self) -> None:
        """Run all operators over all slices.

        Raises:
            CannotCut: the step has to be run again, whole, by new operators.
        """
        self._cut()
        if self._ends[-1] == self._goals.upto:
            self._run_once()
        else:
            self._run_by(self._scheduling.make(self._scheduling.policy, self._scheduling.latency))
        self._find_failed()

    def _cut(self) -> None:
        """Find the end of the next slice."""
        upto = self._goals.upto
        if not self._cuts:
            self._ends.append(upto)
            return
        # A mean and not the most ever: where time goes on and hardly a row comes, much expires, and
        # for the rest of the step each slice would be one instant.
        self._growth = max([1.0, *(given / max(taken, 1) for taken, given in self._measured)])
        size = int(self._scheduling.slice_size / self._growth)
        if len(self._ends) == 1:
            size //= _FIRST_SLICE
        self._ends.append(self._inputs.find_end(self._ends[-1], upto, size))

    def _run_once(self) -> None:
        """Run each operator on the only slice, after those it reads; no policy could do better."""
        flow = self._flow
        outputs: dict[int, Delta] = {}
        for place in range(len(flow.nodes)):
            given = [outputs[i] for i in flow.inputs[place] if i in outputs]
            delta = self._run_node(place, 0, given)
            if delta is not None:
                outputs[place] = delta
            for gone in flow.frees[place]:
                outputs.pop(gone, None)

    def _run_by(self, policy: SchedulingPolicy) -> None:
        """Have a policy say which operator runs next, until every operator has run on all."""
        goals, clock = self._goals, self._scheduling.clock
        queues = Queues(self._flow, self._measure_rest)
        self.queues = queues.figures
        queues.begin_slice(clock(), False)
        runs = 0
        while ready := queues.list_ready():
            if runs % _LEARN == 0:
                policy.learn(self._flow.list_rates())
            runs += 1
            chosen = self._choose(policy, ready, queues)
            place, number = chosen.place, chosen.oldest
            if number == len(self._ends) - 1:
                self._cut()
                queues.begin_slice(clock(), self._ends[-1] == goals.upto)
            delta = self._run_node(place, number, queues.take(place))
            if delta is None:
                queues.fail(place)
                continue
            size = measure(delta, self._flow.widths[place])
            taken, given = self._measured[place]
            taken += self._inputs.measure(self._ends[number], self._ends[number + 1])
            self._measured[place] = taken, given + size
            queues.put(place, delta, size, clock())
        self.queues.slices = len(self._ends) - 1

    def _choose(self, policy: SchedulingPolicy, ready: list[Ready], queues: Queues) -> Ready:
        """Choose what runs next, so that no more waits than may (INV-STEP-2)."""
        room = self._scheduling.memory - queues.figures.largest - queues.bytes
        if room < self._scheduling.slice_size / self._growth:
            ready = [one for one in ready if self._flow.inputs[one.place]] or ready
        if room <= 0:
            return find_oldest(ready)
        return policy.choose(ready, self._scheduling.clock())

    def _measure_rest(self, number: int) -> int:
        """The bytes of the input from a slice on."""
        return self._inputs.measure(self._ends[number], self._goals.upto)

    # -- one operator, one slice -----------------------------------------------------------------

    def _run_node(self, place: int, number: int, given: list[Delta]) -> Delta | None:
        """Run an operator over a slice; None if it or an operator below it failed."""
        node = self._flow.nodes[place]
        if node.key in self._broken:
            return None
        after, end = self._ends[number], self._ends[number + 1]
        self._recalled_upto = after
        for below in self._flow.lending.inputs_of(node):
            if below.key in self._broken:
                self._broken[node.key] = self._broken[below.key]
                return None
        goals, scalars = self._goals, self._scalars
        is_replayed = after < self._first and node.key not in self._flow.timed
        # Whatever is before the end of a slice that is before `since` is seen by nobody.
        since = self._since if end == goals.upto else min(self._since, end)
        scalars.since = since if is_replayed else BEGINNING - 1
        if node.feed is not None:
            table = self._inputs.read(node.feed[1], after, end)
            try:
                given = [_read_feed(node, table, self._flow.reads[node.key])]
            except Exception as error:
                self._broken[node.key] = to_millpond_error(error)
                return None
        work, clock = self._flow.work[node.key], self._scheduling.clock
        began = clock()
        taken = given
        if self._limit.is_reached:
            # Of its state nothing is lent: all that it put out was read.
            self._limit.make_room(self._flow, [node.key])
        if is_replayed and after < since and isinstance(node, Grouping):
            # Its readers evaluate arguments of aggregates on all the rows that it takes in.
            given = restrict(given, since)
        found = self._try(node, given, end, scalars)
        if isinstance(found, MillpondError) and is_replayed and goals.after < BEGINNING:
            found = self._retry(node, given, found)
        if isinstance(found, MillpondError):
            self._broken[node.key] = found
            return None
        work.runs += 1
        work.seconds += clock() - began
        work.taken += sum(map(len, taken))
        work.given += len(found)
        read, widths = self._flow.inputs[place] or (place,), self._flow.widths
        bytes_taken = sum(len(d) * widths[i] for d, i in zip(taken, read, strict=False))
        work.bytes_taken += bytes_taken
        self._limit.note(node.key, bytes_taken)
        work.bytes_given += len(found) * widths[place]
        for key in self._flow.roots.get(place, ()):
            self._deliver(key, found, after)
        return found

    def _try(
        self, node: Node, inputs: list[Delta], upto: int, scalars: Scalars
    ) -> Delta | MillpondError:
        """Advance a node's operator; a failure, whatever was raised, is returned as an error."""
        try:
            return self._flow.operators[node.key].advance(inputs, upto, scalars)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return to_millpond_error(error)

    def _retry(
        self, node: Node, inputs: list[Delta], failure: MillpondError
    ) -> Delta | MillpondError:
        """Try a node that failed without the rows that only hold before `since`.

        Such rows may have failed.
        """
        if not is_of_the_rows(failure):
            return failure
        upto, scalars = self._goals.upto, self._scalars
        if len(self._ends) > 2 or self._ends[-1] != upto:
            raise CannotCut
        inputs = restrict(inputs, self._since)
        self._flow.operators[node.key] = self._flow.start(node, self._goals.constraints)
        found = self._try(node, inputs, upto, scalars)
        if isinstance(found, MillpondError) and found.code == "POND-404":
            # A user's function may fail now and not the next time: it is tried again.
            self._undefined[node.key] = find_first_instant(
                node, inputs, self._first, upto, scalars, self._start
            )
        return found

    def _start(self, node: Node) -> Operator:
        return self._flow.start(node, self._goals.constraints)

    def _recall(self, node: Node) -> Iterator[Delta]:
        """Compute again what a node gave in earlier slices and steps, from the kept elements."""
        assert self._history is not None
        upto = self._recalled_upto
        source, *steps = list_in_order([node])
        assert source.feed is not None
        for table in self._history(source.feed[1], upto):
            delta = _read_feed(source, table, self._flow.reads[source.key])
            scalars = DuckDBScalars()
            for one in steps:
                delta = self._start(one).advance([delta], upto, scalars)
            yield delta

    # -- changes ---------------------------------------------------------------------------------

    def _deliver(self, key: str, delta: Delta, after: int) -> None:
        """Give a plan's readers what its root put out for the slice after an instant."""
        if key in self.failed:
            return
        plan, since = self._goals.plans[key], self._goals.since[key]
        if after < since:
            delta = self._give_since(delta, plan, since)
        try:
            if self._goals.nets:
                self.changes[key].append(net_changes(delta, plan.schema, plan.to_stream))
            else:
                self.changes[key].append(list_changes(delta, plan.schema))
        except Exception as error:
            self.failed[key] = to_millpond_error(error)

    def _give_since(self, delta: Delta, plan: Plan, since: int) -> Delta:
        """Restrict what a plan's root gave to what the plan's readers are given."""
        if not self._goals.begins_with_nothing:
            return delta.where(delta.at > since)
        if plan.to_stream == "rstream":  # the rows of one instant are not those of the next
            return delta.where(delta.at >= since)
        return delta.since(since)

    def _find_failed(self) -> None:
        """Note the plans that have a node that failed.

        Of the failures below a node, that of the first input counts, whichever came first.
        """
        for node in self._flow.nodes:
            inputs = self._flow.lending.inputs_of(node)
            below = [self._broken[i.key] for i in inputs if i.key in self._broken]
            if below:
                self._broken[node.key] = below[0]
        for key, plan in self._goals.plans.items():
            if plan.root.key in self._broken:
                self.failed[key] = self._broken[plan.root.key]
                until = max(self._undefined.get(n.key, self._first) for n in plan.nodes())
                if until > self._first:
                    self.undefined_until[key] = until


def _read_feed(node: Node, table: pa.Table | None, places: Set[int]) -> Delta:
    """Turn a source's rows into a delta, with the columns at some places."""
    assert node.feed is not None
    kind, _, columns = node.feed
    if table is None or not table.num_rows:
        return Delta.empty(node.schema)
    table = table.combine_chunks()
    at = _ints(table, TIMESTAMP if kind == "stream" else "__at")
    given, schema = {}, node.schema
    for place in places:
        chunk, type_ = table.column(columns[place]).chunk(0), schema.field(place).type
        given[place] = chunk if chunk.type == type_ else chunk.cast(type_)
    rows = with_nulls(given, schema, table.num_rows)
    if kind == "stream":
        return Delta.of(rows, at)
    return Delta.of(rows, at, None, _ints(table, "__sign")).in_order()


def _ints(table: pa.Table, column: str) -> np.ndarray:
    values = table.column(column).chunk(0).cast(pa.int64())
    return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)
