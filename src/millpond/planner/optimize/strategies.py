"""Strategies: how the readers of an edge learn that a row has left (Update patterns, 2.3 and 5.4).

- `negative`, the negative tuple approach: "each window referenced in the query is materialized and
  explicitly generates a negative tuple for every expiration" (2.3.1). So every window is a queue
  with an `Expire` above it, and everything above reads rows of both signs. State is looked up by
  key, duplicates are counted, nothing is rewritten. (The queue may be one that several windows
  share: `planner/optimize/shared_windows.py`.)
- `direct`, the direct approach: rows carry their expirations and "operators can access their state
  directly and find expired tuples without the need for negative tuples" (2.3.2), in state that is
  "sorted by tuple arrival time", so that "deletions require a sequential scan of the buffer"
  (2.3.3); duplicate elimination "stores both its input and its output" (5.3.1); nothing is
  rewritten. Only for plans without negation and retroactive relations. Where rows leave in the
  order they came, a scan ends at the first that stays: there arrival order is a queue.
- `aware`: the form of each edge and operator that is expected to cost least
(`planner/optimize/cost.py`),
  among them δ*, partitions by expiration time, and the rewritings of 5.4.2.

The paper's operators are nested loops (5.4.1: a join costs λ1·N2 + λ2·N1). Here operators look keys
up in tables and process a step's rows at once, under every strategy: the strategies do not differ
in that.

Every strategy gives the same answers. Strategies differ in which operators keep which rows, and in
how many rows run on the edges.
"""

from __future__ import annotations

from types import MappingProxyType

from millpond.errors import MillpondError
from millpond.model.patterns import Pattern
from millpond.operators.distinct_delta_star import DistinctDeltaStar
from millpond.operators.expire import Expire, announce_expirations
from millpond.operators.protocol.node import Node
from millpond.operators.set_operations import SetOperation
from millpond.operators.structures.expiration_queues import ARRIVAL_ORDER
from millpond.planner.optimize.choices import Choices
from millpond.planner.optimize.cost import PlanStatistics, find_cheapest, is_distinct, strip_expire
from millpond.planner.optimize.rules import RULES, Rule, rewrite


def apply_strategy(
    root: Node,
    strategy: str,
    known: PlanStatistics,
    partitions: int | None = None,
    rules: tuple[Rule, ...] = RULES,
    choices: Choices = MappingProxyType({}),
) -> Node:
    """Rewrite a plan for a strategy, with every expiration announced at its root.

    Args:
        root: The plan as written.
        strategy: A value of the option `strategy`.
        known: The statistics from which `aware` estimates costs.
        partitions: How many partitions by expiration time `aware` uses; None: as many as cost
            least.
        rules: The rewritings `aware` may use.
        choices: What somebody chose of operators, which `aware` follows.

    Raises:
        MillpondError: CQL-214, `direct` of a plan with a STRICT edge.
    """
    if strategy == "aware":
        return find_cheapest(root, known, partitions, rules, choices)
    if strategy == "negative":
        return announce_expirations(_announce_on_windows(strip_expire(root)))
    _refuse_strict(root)
    return rewrite(announce_expirations(root), (_keep_arrival_order,))


def _announce_on_windows(root: Node) -> Node:
    """Replace a plan's `Expire` nodes by one on every window.

    An NRR join refuses negative tuples: it would join a negative tuple with the relation's rows of
    the wrong instant. So below an NRR join no expiration is announced; the `Expire` is above it.
    """
    done: dict[str, Node] = {}

    def visit(node: Node) -> Node:
        if node.key not in done:
            done[node.key] = announce(node)
        return done[node.key]

    def announce(node: Node) -> Node:
        if any(node.refuses_negatives):
            pairs = zip(node.inputs, node.refuses_negatives, strict=True)
            inputs = tuple(i if refuses else visit(i) for i, refuses in pairs)
            return announce_expirations(node.over_inputs(inputs))
        if node.is_window:
            return announce_expirations(node)
        inputs = tuple(visit(i) for i in node.inputs)
        if inputs == node.inputs:
            return node
        if is_distinct(node) and inputs[0].announces:
            return SetOperation(inputs, "distinct")
        return node.over_inputs(inputs)

    return visit(root)


def _refuse_strict(root: Node) -> None:
    stack = [root]
    while stack:
        node = stack.pop()
        if node.pattern is Pattern.STRICT and all(
            i.pattern is not Pattern.STRICT for i in node.inputs
        ):
            raise MillpondError(
                "CQL-214",
                "the query option \"strategy\" cannot be 'direct' for this query",
                detail=f"Rows of its {node.name} {node.detail}".rstrip()
                + " may leave at a time nobody could know, and only negative tuples tell.",
                hint="Use 'aware' or 'negative'.",
            )
        # An NRR join of rows that are never taken back takes no row back either.
        attaching = any(node.refuses_negatives)
        pairs = zip(node.inputs, node.refuses_negatives, strict=True)
        stack += [i for i, refuses in pairs if refuses or not attaching]


def _keep_arrival_order(node: Node) -> Node | None:
    """Give a node the state of the direct approach: rows in arrival order."""
    if isinstance(node, Expire) and node.partitions != ARRIVAL_ORDER:
        return Expire(node.input, ARRIVAL_ORDER)
    if isinstance(node, DistinctDeltaStar) and not node.keeps_input:
        return DistinctDeltaStar(node.input, keeps_input=True)
    return None
