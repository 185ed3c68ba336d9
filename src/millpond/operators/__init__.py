"""Incremental operators: what changes in a query's relations when its inputs change.

Each file here is one operator: its `Node` (what a plan asks of it: key, pattern, cost) and its
`Operator` (its state, and the method that advances it by one step). Operators never import each
other; a plan composes them. Below them lie three packages: `protocol` says what a node and an
operator are and what runs along an edge (a `Delta`); `structures` has what operators keep rows in;
`aggregation` has what the group-by measures, with one aggregate family a file in `aggregates`.
"""
