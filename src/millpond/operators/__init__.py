"""Incremental operators: what a query's relations change by when its inputs do.

One file an operator, each with its `Node` (what a plan knows of it) and its `Operator` (the state
and the function that advances it). `node` is the protocol, `delta` what runs on the edges, `keys`,
`grouping` and `expiry` what several operators are built from. Operators never import each other: a
plan composes them.
"""
