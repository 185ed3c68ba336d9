"""Incremental operators: compute how a query's relations change when its inputs change.

Each file here is one operator: its `Node` (what a plan asks of it: key, pattern, cost) and its
`Operator` (its state, and the method that advances it by one step). Operators never import each
other; a plan composes them. Below them lie three packages: `protocol` defines nodes, operators
and the changes that run along an edge (a `Delta`); `structures` has the data structures in which
operators keep rows; `aggregation` has the measures of the group-by, with one aggregate family a
file in `aggregates`.
"""
