"""Which conjuncts may be applied to a stream's elements before the rest of the query.

A conjunct that reads only one occurrence of a stream may remove rows from that occurrence's slice
if the answer stays the same. The conjunct stays in the residual too, so it is enough that a row
which it removes there has no influence on other rows before. That is so

- for WHERE, if the occurrence stands on the preserved side of every join above it in its FROM
  clause: a row missing on the other side of an outer join would be replaced by NULLs;
- for an inner join's ON, if that holds for the joins below it; for an outer join's ON, on the
  null-supplying side only, where a row that fails ON has the same effect as no row;
- if the window commutes with selection. RANGE and similar windows look at an element's timestamp
  alone. ROWS counts an element's successors, which the selection might remove; then the conjunct is
  applied after the window, if the occurrence is its scope's only source;
- never on the right of an ASOF JOIN, where another row would be found instead;
- through a subquery or a CTE that is read once, if it maps rows one by one.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.planner.resolve.from_clause import strip_qualifiers
from millpond.planner.resolve.names import spell
from millpond.planner.resolve.row_by_row import is_row_by_row
from millpond.planner.resolve.scope import Resolution, SelectScope, Source
from millpond.work import check_work


def push_down(scopes: list[SelectScope]) -> None:
    """Give every leaf the conjuncts that may be applied to it."""
    for scope in scopes:
        for conjunct in split_where(scope.select):
            _push(conjunct, scope, scope.resolved, None)
        for join in scope.select.args.get("joins") or []:
            for conjunct in split_conjuncts(join.args.get("on")):
                _push(conjunct, scope, scope.resolved, join)


def split_conjuncts(predicate: exp.Expr | None) -> Iterator[exp.Expr]:
    """Split a conjunction into its factors, left to right."""
    stack = [predicate] if predicate is not None else []
    while stack:
        node = stack.pop()
        if isinstance(node, exp.And):
            stack += [node.expression, node.this]
        elif isinstance(node, exp.Paren) and isinstance(node.this, exp.And | exp.Paren):
            stack.append(node.this)
        else:
            yield node


def split_where(select: exp.Select) -> list[exp.Expr]:
    """Split a SELECT's WHERE into its conjuncts; none without a WHERE."""
    where = select.args.get("where")
    return list(split_conjuncts(where.this if where is not None else None))


def is_pushed_whole(scope: SelectScope) -> bool:
    """Whether every conjunct of WHERE was pushed to the scope's one source, a leaf."""
    leaf = scope.sources[0].leaf
    if leaf is None:
        return False
    return len(leaf.pushed) + len(leaf.after) == len(split_where(scope.select))


def _push(
    conjunct: exp.Expr,
    scope: SelectScope,
    resolved: dict[int, Resolution],
    join: exp.Join | None,
) -> None:
    """Push a conjunct of `scope`'s WHERE, or of a join's ON, as far down as is legal.

    `resolved` gives the meanings of the conjunct's columns in `scope`.
    """
    check_work()
    if conjunct.find(exp.Query) is not None:
        return
    columns = list(conjunct.find_all(exp.Column))
    found = [resolved.get(id(c)) for c in columns]
    source = _only_source(found, scope)
    if source is None or not _is_legal(source, join):
        return
    if source.leaf is not None:
        waits = join is None and len(scope.sources) == 1 and source.leaf.counts_all
        if not source.leaf.commutes and not waits:
            return
        # `AS f(a, b)` gives columns other names than their declared names.
        spelled = {
            r.column: source.leaf.definition.schema.names[place]
            for r in found
            if r is not None and (place := source.place(r.column)) is not None
        }
        predicate = strip_qualifiers(conjunct)
        for column in predicate.find_all(exp.Column):
            spell(column.this, spelled[column.name])
        (source.leaf.after if waits else source.leaf.pushed).append(predicate)
    elif source.body is not None:
        _push_through(conjunct, source, found)


def _push_through(conjunct: exp.Expr, source: Source, found: list[Resolution | None]) -> None:
    """Push a conjunct over a subquery's output into the subquery's own sources."""
    body = source.body
    if body is None or body.select is None or body.reads != 1 or body.origins is None:
        return
    if not found or not is_row_by_row(body.select):
        return
    inner = conjunct.copy()
    meaning: dict[int, Resolution] = {}
    for column, resolution in zip(list(inner.find_all(exp.Column)), found, strict=True):
        assert resolution is not None
        place = source.place(resolution.column)
        origin = body.origins[place] if place is not None else None
        if origin is None:
            return
        spell(column.this, origin.column)
        meaning[id(column)] = origin
    _push(inner, body.select, meaning, None)


def _only_source(found: list[Resolution | None], scope: SelectScope) -> Source | None:
    """Find the one source of this scope that all columns belong to; None if there is none."""
    if not found:
        return scope.sources[0] if len(scope.sources) == 1 else None
    source: Source | None = None
    for resolution in found:
        if resolution is None or resolution.source is None or not resolution.column:
            return None
        if resolution.outer or resolution.source not in scope.sources:
            return None
        if resolution.merged and scope.merges_outer:
            return None
        if source is not None and resolution.source is not source:
            return None
        source = resolution.source
    return source


def _is_legal(source: Source, join: exp.Join | None) -> bool:
    """Whether the joins between a source and a conjunct's clause let the conjunct pass.

    Args:
        source: The source from which the conjunct would remove rows.
        join: The join whose ON holds the conjunct; None for WHERE.
    """
    steps = source.steps
    if join is not None:
        place = next((i for i, step in enumerate(steps) if step.join is join), None)
        if place is None or not _on_passes(join, steps[place].left):
            return False
        steps = steps[place + 1 :]
    return all(_preserves(step.join, step.left) for step in steps)


def _preserves(join: exp.Join, left: bool) -> bool:
    """Whether a join, taken alone, gives each row of one side unchanged or not at all."""
    if join.kind in ("SEMI", "ANTI") or join.method == "ASOF":
        return left
    match join.side:
        case "":
            return True
        case "LEFT":
            return left
        case "RIGHT":
            return not left
    return False


def _on_passes(join: exp.Join, left: bool) -> bool:
    """Whether a conjunct of a join's ON may remove rows of one side."""
    if join.method == "ASOF":
        return False
    match join.side:
        case "":
            return join.kind != "ANTI" or not left
        case "LEFT":
            return not left
        case "RIGHT":
            return left
    return False
