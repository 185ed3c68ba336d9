"""From a query's tree to nodes: one method for each part of SQL that has incremental operators.

Where a part has none, `Unsupported` is raised and the smallest query around it that stands on its
own becomes one node that answers it anew at every change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import duckdb
from sqlglot import exp

from millpond.cql import nodes
from millpond.cql.dialect import to_duckdb
from millpond.model.windows import Now, Period, Range, Unbounded, Window
from millpond.operators.attach import Attach
from millpond.operators.multiplicity import Multiplicity
from millpond.operators.negation import Negation
from millpond.operators.node import Node
from millpond.operators.one_row import OneRow
from millpond.operators.reevaluate import Reevaluate
from millpond.operators.union import Union
from millpond.planner.bound import BoundQuery, RelationLeaf, StreamLeaf
from millpond.planner.dataflow_by_group import Item as Listed
from millpond.planner.dataflow_by_group import partitioned, regrouped
from millpond.planner.dataflow_frame import (
    Frame,
    Item,
    Relation,
    Unsupported,
    as_types,
    columns_of,
    frame_of,
    project,
    select,
)
from millpond.planner.dataflow_groups import grouped, is_grouped
from millpond.planner.dataflow_joins import (
    Condition,
    anti,
    condition,
    distinct,
    explicit,
    inner,
    outer,
    semi,
)
from millpond.planner.dataflow_marks import Case, Cases, with_marks
from millpond.planner.dataflow_order import Cut
from millpond.planner.dataflow_scalar import without_scalars
from millpond.planner.dataflow_types import answer_columns, answer_types, type_names
from millpond.planner.from_clause import bare
from millpond.planner.negation import STAMPS
from millpond.planner.placement import has_aggregate
from millpond.planner.pushdown import conjuncts
from millpond.planner.residual import LEAF, replace_literals, to_slices


class Compiler:
    """Compiles one bound query.

    Attributes:
        reasons: Why parts of it are answered anew at every change.
    """

    def __init__(
        self, bound: BoundQuery, leaves: Mapping[str, Node], columns: Mapping[str, tuple[str, ...]]
    ) -> None:
        self.reasons: list[str] = []
        self._leaves, self._columns = leaves, columns
        self._pushed = {
            leaf.table: frozenset(to_duckdb(p) for p in conjuncts(leaf.pushed))
            for leaf in bound.streams
            if leaf.pushed is not None
        }
        self._found: dict[str, StreamLeaf | RelationLeaf] = {f.table: f for f in bound.streams}
        self._found.update({f.table: f for f in bound.relations})
        self._ctes: dict[str, exp.CTE] = {}
        self._tree = bound.tree
        if bound.literals:
            self._tree = bound.tree.copy()
            replace_literals(self._tree, bound.literals)

    def compiled(self) -> Relation:
        """The whole query as a relation."""
        tree = self._tree
        return self.relation(tree.this if isinstance(tree, nodes.RelationToStream) else tree)

    # -- queries -----------------------------------------------------------------------------------

    def relation(self, node: exp.Expr) -> Relation:
        """A query that reads nothing around it.

        Raises:
            Unsupported: it does.
        """
        before, known = dict(self._ctes), len(self.reasons)
        try:
            return self._query(node)
        except Unsupported as unsupported:
            del self.reasons[known:]
            self._ctes = before
            found = self._reevaluated(node, str(unsupported))
            self.reasons.append(str(unsupported))
            return found
        finally:
            self._ctes = before

    def _query(self, node: exp.Expr) -> Relation:
        if (clause := node.args.get("with_")) is not None:
            for cte in clause.expressions:
                self._ctes = {**self._ctes, cte.alias.lower(): cte}
        if node.args.get("limit") or node.args.get("offset"):
            cut = Cut(node)
            return cut.first_of(self._query(cut.uncut))
        match node:
            case exp.Subquery():
                return self._query(node.this)
            case exp.SetOperation():
                return self._set_operation(node)
            case exp.Select():
                return self._select(node)
        raise Unsupported(type(node).__name__)

    def _set_operation(self, node: exp.SetOperation) -> Relation:
        if node.args.get(nodes.BY_ATTRIBUTES):
            return self._negation(node)
        left, right = self.relation(node.left), self.relation(node.right)
        once = bool(node.args.get("distinct"))
        both = _alike([left.node, right.node])
        match node:
            case exp.Except():
                rule = "except" if once else "except all"
            case exp.Intersect():
                rule = "intersect" if once else "intersect all"
            case _:
                united = Union(tuple(both))
                return Relation(distinct(united) if once else united, left.names)
        return Relation(Multiplicity(tuple(map(explicit, both)), rule), left.names)

    def _negation(self, node: exp.SetOperation) -> Relation:
        """EXCEPT ALL … BY: the left's rows with their age, the greatest of their timestamps."""
        aged = node.left.unnest().copy()
        assert isinstance(aged, exp.Select)
        stamps = [exp.column(name) for name in node.meta[STAMPS]]
        age: exp.Expr = exp.Greatest(this=stamps[0], expressions=stamps[1:])
        aged.append("expressions", exp.alias_(age if stamps[1:] else stamps[0], "__age"))
        left, right = self._query(aged), self.relation(node.right)
        places = []
        for side in (left, right):
            lower = [name.lower() for name in side.names]
            places.append(
                tuple(lower.index(a.name.lower()) for a in node.args[nodes.BY_ATTRIBUTES])
            )
        types = [
            [side.node.schema.field(p).type for p in by]
            for side, by in zip((left, right), places, strict=True)
        ]
        if types[0] != types[1]:
            raise Unsupported("EXCEPT ALL … BY attributes of different types")
        by = ", ".join(a.name for a in node.args[nodes.BY_ATTRIBUTES])
        found = Negation(explicit(left.node), explicit(right.node), places[0], places[1], by)
        return Relation(found, left.names[:-1])

    def _select(self, node: exp.Select) -> Relation:
        for clause in ("windows", "laterals"):
            if node.args.get(clause):
                raise Unsupported(clause.upper())
        has_windows = any(item.find(exp.Window) for item in node.expressions)
        frame = self._where(node, self._from(node))
        if has_windows or node.args.get("qualify"):
            if node.args.get("group") or node.args.get("having") or _aggregates(node):
                raise Unsupported("window functions over groups")
            found = partitioned(node, frame, self._listed(node, frame))
        elif is_grouped(node):
            found = self._grouped(node, frame)
        else:
            found = self._projected(tuple(node.expressions), frame)
        if node.args.get("distinct") is None:
            return found
        return Relation(distinct(found.node), found.names)

    def _grouped(self, node: exp.Select, frame: Frame) -> Relation:
        """A SELECT with groups, of which WHERE is done."""
        try:
            groups = grouped(node, frame)
        except Unsupported as unsupported:
            return regrouped(node, frame, self._listed(node, frame), str(unsupported))
        text = ", ".join(item.sql() for item in node.expressions)
        parts = [self._projected(g.items, g.frame, text) for g in groups]
        if len(parts) == 1:
            return parts[0]
        return Relation(Union(tuple(_alike([p.node for p in parts]))), parts[0].names)

    def _listed(self, node: exp.Select, frame: Frame) -> list[Listed]:
        """The columns of a SELECT list that are expressions over a frame's rows."""
        listed: list[Listed] = []
        for item in node.expressions:
            value = item.unalias()
            if any(c.name.lower() == "unnest" for c in item.find_all(exp.Anonymous)):
                raise Unsupported("unnest")
            if value.is_star:
                listed += _starred(value, frame)
            else:
                listed.append((item.alias_or_name or value.sql(), value))
        return listed

    def _projected(self, items: Sequence[exp.Expr], frame: Frame, text: str = "") -> Relation:
        """Rows of a SELECT list; `text` is the list as the query wrote it, if it is another."""
        names: list[str] = []
        columns: list[str | int] = []
        for item in items:
            inner_item = item.unalias()
            if inner_item.is_star:
                for name, place in _starred(inner_item, frame):
                    names.append(name)
                    columns.append(place)
                continue
            if inner_item.find(exp.Query) is not None:
                inner_item, frame = self._without_subqueries(inner_item, frame)
            if any(c.name.lower() == "unnest" for c in item.find_all(exp.Anonymous)):
                raise Unsupported("unnest")
            names.append(item.alias_or_name or inner_item.sql())
            place_or_none = frame.find(inner_item) if isinstance(inner_item, exp.Column) else None
            columns.append(frame.sql(inner_item) if place_or_none is None else place_or_none)
        text = text or ", ".join(item.sql() for item in items)
        return Relation(project(frame.node, columns, text), tuple(names))

    # -- FROM and WHERE ----------------------------------------------------------------------------

    def _from(self, node: exp.Select) -> Frame:
        """The joined items, with the WHERE conjuncts applied where they can be first."""
        clause = node.args.get("from_")
        if clause is None:
            return Frame(OneRow())
        joins = node.args.get("joins") or []
        waiting = self._plain_conjuncts(node)
        if self._has_attached(node):
            return self._attached(node, waiting)
        # Below a RIGHT or FULL join a row that is removed would be replaced by NULLs.
        early = not any(j.side in ("RIGHT", "FULL") for j in joins)
        frame = self._item(clause.this)
        if early:
            frame = self._filtered(frame, waiting)
        for join in joins:
            frame = self._joined(join, frame, self._item(join.this), waiting if early else [])
            if early:
                frame = self._filtered(frame, waiting)
        return frame

    def _has_attached(self, node: exp.Select) -> bool:
        """Whether a FROM clause has non-retroactive relations."""
        tables = [node.args["from_"].this, *(j.this for j in node.args.get("joins") or [])]
        leaves = [self._found.get(t.meta.get(LEAF, "")) for t in tables]
        return any(isinstance(f, RelationLeaf) and f.hidden for f in leaves)

    def _attached(self, node: exp.Select, waiting: list[exp.Expr]) -> Frame:
        """A FROM clause with non-retroactive relations: streams first, then what is attached.

        The streams' rows come at the timestamp of their youngest element if no window delays them,
        and are never taken back if none counts rows.
        """
        entries = [
            (node.args["from_"].this, exp.Join()),
            *((j.this, j) for j in node.args["joins"]),
        ]
        streams: list[tuple[int, Frame]] = []
        relations: list[tuple[int, Frame, list[exp.Expr] | None]] = []
        for place, (table, join) in enumerate(entries):
            leaf = self._found.get(table.meta.get(LEAF, ""))
            on = list(conjuncts(join.args.get("on")))
            inside = join.kind in ("", "INNER", "CROSS") and not join.method
            if leaf is None or not inside or join.args.get("using"):
                raise Unsupported(_ATTACHED)
            item = self._item(table)
            if isinstance(leaf, RelationLeaf):
                optional = on if join.side == "LEFT" else None
                if not leaf.hidden:
                    raise Unsupported(_ATTACHED)
                item = replace(item, node=item.node.inputs[0])
                relations.append((place, _without_hidden(item), optional))
            elif join.side or not _is_prompt(leaf.window) or any(o for _, _, o in relations if o):
                raise Unsupported(_ATTACHED)
            else:
                streams.append((place, _without_hidden(item)))
            if join.side != "LEFT":
                waiting += on
        frame, order = self._filtered(streams[0][1], waiting), [streams[0][0]]
        for place, item in streams[1:]:
            frame = self._filtered(self._joined(exp.Join(), frame, item, waiting), waiting)
            order.append(place)
        for place, item, optional in relations:
            both = _beside(frame, item)
            on = optional if optional is not None else [c for c in waiting if both.covers(c)]
            if optional is None:
                waiting[:] = [c for c in waiting if c not in on]
            found = condition(frame, item, on)
            attached = Attach(
                found.left,
                found.right,
                found.left_keys,
                found.right_keys,
                found.predicates,
                optional is not None,
                found.text,
            )
            frame = replace(both, node=project(attached, list(found.both)))
            frame = self._filtered(frame, waiting)
            order.append(place)
        ranked = sorted(zip(order, frame.items, strict=True), key=lambda pair: pair[0])
        return replace(frame, items=tuple(item for _, item in ranked))

    def _where(self, node: exp.Select, frame: Frame) -> Frame:
        """What `_from` left of WHERE."""
        where = node.args.get("where")
        if where is None:
            return frame
        if any(join.side in ("RIGHT", "FULL") for join in node.args.get("joins") or []):
            frame = frame.selected(self._plain_conjuncts(node))
        for conjunct in conjuncts(where.this):
            if conjunct.find(exp.Query) is not None:
                frame = self._confronted(conjunct, frame)
            elif not frame.covers(conjunct):
                raise Unsupported("a condition that names something of the SELECT list")
        return frame

    def _plain_conjuncts(self, node: exp.Select) -> list[exp.Expr]:
        where = node.args.get("where")
        if where is None:
            return []
        return [c for c in conjuncts(where.this) if c.find(exp.Query) is None]

    def _filtered(self, frame: Frame, waiting: list[exp.Expr]) -> Frame:
        """Applies what is waiting and speaks of the frame only; takes it out of `waiting`."""
        ready = [c for c in waiting if frame.covers(c)]
        for conjunct in ready:
            waiting.remove(conjunct)
        alone = frame.items[0] if len(frame.items) == 1 else None
        known = alone.known if alone is not None else frozenset()
        return frame.selected([c for c in ready if to_duckdb(bare(c)) not in known])

    def _item(self, node: exp.Expr) -> Frame:
        alias = node.args.get("alias")
        given = tuple(c.name for c in alias.args.get("columns") or []) if alias else ()
        if isinstance(node, exp.Table):
            table = node.meta.get(LEAF)
            if table is not None:
                found = Relation(self._leaves[table], self._columns[table])
                known = self._pushed.get(table, frozenset()) if not given else frozenset()
                name = node.alias or node.name
            else:
                cte = self._ctes[node.name.lower()]
                found, known = self._cte(cte), frozenset()
                name = node.alias or cte.alias
        elif isinstance(node, exp.Subquery):
            found, known, name = self.relation(node), frozenset(), node.alias
        else:
            raise Unsupported(type(node).__name__)
        names = given + found.names[len(given) :]
        frame = frame_of(Relation(found.node, names), name, known)
        leaf = self._found.get(node.meta.get(LEAF, "")) if isinstance(node, exp.Table) else None
        if leaf is not None and leaf.hidden:
            (item,) = frame.items
            return replace(frame, items=(replace(item, hidden=len(leaf.hidden)),))
        return frame

    def _cte(self, cte: exp.CTE) -> Relation:
        # A WITH entry sees those before it, and not itself.
        visible: dict[str, exp.CTE] = {}
        for name, entry in self._ctes.items():
            if entry is cte:
                break
            visible[name] = entry
        before, self._ctes = self._ctes, visible
        try:
            found = self.relation(cte.this)
        finally:
            self._ctes = before
        given = tuple(c.name for c in cte.args["alias"].args.get("columns") or [])
        return Relation(found.node, given + found.names[len(given) :])

    def _joined(self, join: exp.Join, left: Frame, right: Frame, waiting: list[exp.Expr]) -> Frame:
        if join.method not in ("", "NATURAL"):
            raise Unsupported(f"{join.method} JOIN")
        on = list(conjuncts(join.args.get("on")))
        if any(c.find(exp.Query) is not None for c in on):
            raise Unsupported("a subquery in ON")
        merged = self._merged(join, left, right)
        if merged:
            if join.side in ("RIGHT", "FULL"):
                raise Unsupported(f"{join.side} JOIN with USING")
            on = [_equal(left, right, name) for name in sorted(merged)]
        # ON speaks of both sides; it never sees a name of one side as the other's.
        both = _beside(left, right)
        if not all(both.covers(c) for c in on):
            raise Unsupported("a condition that names something else than the join's sides")
        if join.kind in ("SEMI", "ANTI"):
            matched = condition(left, right, on)
            return replace(left, node=(semi if join.kind == "SEMI" else anti)(matched))
        if join.side in ("LEFT", "RIGHT", "FULL"):
            node = outer(condition(left, right, on), condition(right, left, on), join.side)
            return replace(both, node=node, merged=left.merged | merged)
        if waiting:
            right = self._filtered(right, waiting)
            ready = [c for c in waiting if both.covers(c)]
            for conjunct in ready:
                waiting.remove(conjunct)
            on += ready
        alone = [[c for c in on if side.covers(c) and _reads(c)] for side in (left, right)]
        left, right = left.selected(alone[0]), right.selected(alone[1])
        rest = [c for c in on if c not in alone[0] and c not in alone[1]]
        node = inner(condition(left, right, rest))
        return replace(both, node=node, merged=left.merged | merged)

    def _merged(self, join: exp.Join, left: Frame, right: Frame) -> frozenset[str]:
        names = {i.name.lower() for i in join.args.get("using") or []}
        if join.method == "NATURAL":
            ours = {n.lower() for item in left.items for n in item.names}
            names = {n.lower() for item in right.items for n in item.names} & ours
        return frozenset(names)

    # -- subqueries in WHERE -----------------------------------------------------------------------

    def _confronted(self, conjunct: exp.Expr, frame: Frame) -> Frame:
        """A conjunct with a subquery: a semijoin or a negation, where it is one."""
        negated, inside = False, conjunct
        while isinstance(inside, exp.Not | exp.Paren):
            negated ^= isinstance(inside, exp.Not)
            inside = inside.this
        if isinstance(inside.args.get("expression"), exp.Any | exp.All):
            return self._quantified(inside, negated, frame)
        if not isinstance(inside, exp.Exists) and inside.args.get("query") is None:
            plain, frame = self._without_subqueries(conjunct, frame)
            return replace(frame, node=select(frame.node, [frame.sql(plain)], [conjunct]))
        (found, *others), _ = self._cases(inside, frame)
        if not negated:
            return replace(frame, node=semi(found.on(frame)))
        # False is what is left: neither true nor unknown.
        for case in (found, *others):
            frame = replace(frame, node=anti(case.on(frame)))
        return frame

    def _without_subqueries(self, expression: exp.Expr, frame: Frame) -> tuple[exp.Expr, Frame]:
        """An expression with columns in the place of its subqueries, and a frame that has them."""
        plain, frame = with_marks(expression, frame, self._cases)
        return without_scalars(plain, frame, self.relation, self._knows)

    def _cases(self, node: exp.Expr, frame: Frame) -> Cases:
        """What EXISTS, IN or a quantified comparison is of a frame's rows."""
        if isinstance(node, exp.Exists):
            right, outside = self._inside(node.this, frame)
            return (Case(True, lambda f: condition(f, right, outside)),), False
        if node.this.find(exp.Query) is not None:
            raise Unsupported("a subquery in a condition")
        if isinstance(word := node.args.get("expression"), exp.Any | exp.All):
            return self._quantified_cases(node, word, frame)
        if isinstance(node.this, exp.Tuple):
            raise Unsupported("IN of several columns")
        right, outside = self._inside(node.args["query"], frame)
        (value,) = self._values(node.args["query"], right)
        member = exp.column("__value", table="__member")
        given = _with_member(right, value)
        nulls = given.selected([exp.Is(this=member.copy(), expression=exp.Null())])
        every = _with_member(right, "true")

        def equal(f: Frame) -> Condition:
            wanted, known_as = _placed(node.this, f)
            return condition(known_as, given, [*outside, exp.EQ(this=wanted, expression=member)])

        def missing(f: Frame) -> Condition:
            wanted, known_as = _placed(exp.Is(this=node.this.copy(), expression=exp.Null()), f)
            always = exp.EQ(this=exp.Paren(this=wanted), expression=member.copy())
            return condition(known_as, every, [*outside, always])

        # NULL if nothing is equal, but something in the list or the value itself is unknown.
        return (
            Case(True, equal),
            Case(None, lambda f: condition(f, nulls, outside)),
            Case(None, missing),
        ), False

    def _quantified_cases(self, node: exp.Expr, word: exp.Any | exp.All, frame: Frame) -> Cases:
        right, outside = self._inside(word.this, frame)
        (value,) = self._values(word.this, right)
        given = _with_member(right, value)
        decides = isinstance(word, exp.Any)

        def compared(f: Frame, truth: exp.Expr) -> Condition:
            wanted, known_as = _placed(node.this, f)
            member = exp.column("__value", table="__member")
            told = exp.Paren(this=type(node)(this=wanted, expression=member))
            return condition(known_as, given, [*outside, exp.Is(this=told, expression=truth)])

        return (
            Case(decides, lambda f: compared(f, exp.Boolean(this=decides))),
            Case(None, lambda f: compared(f, exp.Null())),
        ), not decides

    def _quantified(self, node: exp.Expr, negated: bool, frame: Frame) -> Frame:
        """`x op ANY (…)` and `x op ALL (…)`: is there a value for which it is true, or is not?

        NOT turns what is asked for: whether the comparison is false of one, or not false of any.
        """
        word = node.args["expression"]
        if node.this.find(exp.Query) is not None:
            raise Unsupported("a subquery in a condition")
        right, outside = self._inside(word.this, frame)
        (value,) = self._values(word.this, right)
        wanted, known_as = _placed(node.this, frame)
        given = _with_member(right, value)
        compared: exp.Expr = type(node)(
            this=wanted, expression=exp.column("__value", table="__member")
        )
        exists = isinstance(word, exp.Any) != negated
        if negated or not exists:
            # NULL is neither true nor false: ALL wants no value of which it is not true, NOT ANY
            # none of which it is not false, and NOT ALL one of which it is.
            least = exp.Boolean(this=not negated)
            compare = exp.NullSafeEQ if exists else exp.NullSafeNEQ
            compared = compare(this=exp.Paren(this=compared), expression=least)
        matched = condition(known_as, given, [*outside, compared])
        return replace(frame, node=(semi if exists else anti)(matched))

    def _knows(self, select: exp.Select, expression: exp.Expr) -> bool:
        """Whether a SELECT's own FROM clause has all columns of an expression."""
        return self._from_without_where(select).covers(expression)

    def _inside(self, query: exp.Expr, around: Frame) -> tuple[Frame, list[exp.Expr]]:
        """The rows of a subquery's FROM and WHERE, and the conjuncts that read the query around."""
        node = query
        while isinstance(node, exp.Subquery) and not node.args.get("limit"):
            node = node.this
        is_simple = isinstance(node, exp.Select) and not any(
            node.args.get(k) for k in ("group", "having", "qualify", "limit", "offset", "with_")
        )
        if not is_simple or any(
            has_aggregate(i) or i.find(exp.Window) is not None for i in node.expressions
        ):
            found = self.relation(query)
            return frame_of(found, ""), []
        assert isinstance(node, exp.Select)
        where = node.args.get("where")
        outside: list[exp.Expr] = []
        frame = self._from_without_where(node)
        for conjunct in conjuncts(where.this if where is not None else None):
            if conjunct.find(exp.Query) is not None:
                frame = self._confronted(conjunct, frame)
            elif frame.covers(conjunct):
                frame = self._filtered(frame, [conjunct])
            else:
                if not all(
                    frame.find(c) is not None or around.find(c) is not None
                    for c in columns_of(conjunct)
                ):
                    raise Unsupported("a condition that reads a query further out")
                outside.append(conjunct)
        return frame, outside

    def _from_without_where(self, node: exp.Select) -> Frame:
        clause = node.args.get("from_")
        if clause is None:
            return Frame(OneRow())
        frame = self._item(clause.this)
        for join in node.args.get("joins") or []:
            frame = self._joined(join, frame, self._item(join.this), [])
        return frame

    def _values(self, query: exp.Expr, frame: Frame) -> tuple[str | int]:
        """The one column of a subquery."""
        node = query
        while isinstance(node, exp.Subquery):
            node = node.this
        if isinstance(node, exp.Select) and frame.items and frame.items[0].name:
            (item,) = node.expressions
            value = item.unalias()
            if value.is_star:
                (place,) = (place for _, place in _starred(value, frame))
                return (place,)
            if value.find(exp.Query) is not None:
                raise Unsupported("a subquery in the SELECT list")
            return (frame.sql(value),)
        return (0,)

    # -- what has no operators ---------------------------------------------------------------------

    def _reevaluated(self, node: exp.Expr, reason: str) -> Relation:
        copied = node.copy()
        hidden = [c for name, c in self._ctes.items() if not _defines(copied, name)]
        if hidden:
            own = copied.args.get("with_")
            entries = [c.copy() for c in hidden] + (own.expressions if own is not None else [])
            copied.set("with_", exp.With(expressions=entries))
        used = dict.fromkeys(
            t.meta[LEAF] for t in copied.find_all(exp.Table) if t.meta.get(LEAF) is not None
        )
        if isinstance(copied, exp.Subquery):
            copied.args.pop("alias", None)
        copied = to_slices(copied)
        sql = to_duckdb(copied)
        tables = tuple((name, self._columns[name]) for name in used)
        over = tuple(self._leaves[name] for name in used)
        try:
            columns = answer_columns(sql, tables, [n.schema for n in over])
        except duckdb.Error as error:
            raise Unsupported(reason) from error
        return Relation(
            Reevaluate(over, tables, sql, tuple(t for _, t in columns), reason),
            tuple(n for n, _ in columns),
        )


_ATTACHED = "a join with a non-retroactive relation of rows that come late or may be taken back"


def _is_prompt(window: Window) -> bool:
    """Whether an element comes into a window at its timestamp, and leaves at a known time."""
    match window:
        case Unbounded() | Now():
            return True
        case Range(_, slide):
            return slide is None
        case Period(_, end):
            return end.offset is None or end.offset >= 0
    return False


def _without_hidden(frame: Frame) -> Frame:
    """A frame of one item without the item's hidden columns."""
    (item,) = frame.items
    node = project(frame.node, list(range(len(item.shown))))
    return Frame(node, (replace(item, names=item.shown, hidden=0),))


def _aggregates(node: exp.Select) -> bool:
    """Whether a SELECT list has aggregates beside its window functions."""
    for item in node.expressions:
        rest = exp.Paren(this=item.copy())
        for window in list(rest.find_all(exp.Window)):
            window.replace(exp.Null())
        if has_aggregate(rest):
            return True
    return False


def _alike(some: Sequence[Node]) -> list[Node]:
    """Nodes as a union takes them: with their columns of the same types."""
    tables = [(f"t{n}", node.schema.names) for n, node in enumerate(some)]
    sql = " UNION ALL ".join(f"SELECT * FROM {name}" for name, _ in tables)
    types = list(answer_types(sql, tables, [node.schema for node in some]))
    return [as_types(node, types, type_names(types)) for node in some]


def _defines(node: exp.Expr, name: str) -> bool:
    clause = node.args.get("with_")
    return clause is not None and any(c.alias.lower() == name for c in clause.expressions)


def _starred(item: exp.Expr, frame: Frame) -> list[tuple[str, int]]:
    if any(item.args.get(k) for k in ("except_", "replace", "rename", "except")):
        raise Unsupported("* with exceptions")
    if isinstance(item, exp.Star):
        return list(frame.output())
    wanted = item.args["table"].name.lower()
    for i in frame.items:
        if i.name.lower() == wanted:
            return [(name, i.start + n) for n, name in enumerate(i.shown)]
    raise Unsupported("* of a query further out")


def _beside(left: Frame, right: Frame) -> Frame:
    """A frame of both frames' items; its node is the left one's."""
    offset = len(left.node.schema)
    shifted = tuple(replace(i, start=i.start + offset) for i in right.items)
    return replace(left, items=(*left.items, *shifted))


def _equal(left: Frame, right: Frame, name: str) -> exp.Expr:
    """The equality USING stands for."""
    sides = []
    for frame in (left, right):
        item = next((i for i in frame.items if i.place(name) is not None), None)
        if item is None or not item.name:
            raise Unsupported("USING of a column without a table")
        sides.append(exp.column(name, table=item.name, quoted=True))
    return exp.EQ(this=sides[0], expression=sides[1])


def _reads(expression: exp.Expr) -> bool:
    return any(True for _ in columns_of(expression))


def _with_member(rows: Frame, value: str | int) -> Frame:
    """Rows with a value, by place or as SQL, that is known as `__member.__value` too."""
    places = range(len(rows.node.schema))
    given = Frame(project(rows.node, [*places, value]), rows.items)
    return replace(given, items=(*given.items, Item("__member", ("__value",), len(places))))


def _placed(expression: exp.Expr, frame: Frame) -> tuple[exp.Expr, Frame]:
    """An expression over a frame under names nobody else has, and the frame with these names."""
    holder = exp.Paren(this=expression.copy())
    for column in list(columns_of(holder)):
        place = frame.find(column)
        if place is None:
            raise Unsupported("a value that reads a query further out")
        column.replace(exp.column(f"__{place}", table="__around"))
    names = tuple(f"__{place}" for place in range(len(frame.node.schema)))
    return holder.this, replace(frame, items=(*frame.items, Item("__around", names, 0)))
