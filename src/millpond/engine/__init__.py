"""The engine: pure functions and values, from a batch of rows to the answer of a query.

Admission: `heartbeat`, `ingress`. The query-data join: `factors` (what of a predicate is shared),
`value_sets`, `grouped_filter`, `query_stem`, `region_codes`, `match`, `matches`, `other_factors`;
the order in which it is done: `eddy`, `routing`. Joins of streams: `join_plan`, `arrangement`,
`data_stem`, `join`, `pairs`. Invocation: `slices`, `residual`. Changes: `dataflow`. Expressions are
DuckDB's everywhere: `scalar`, `user_functions`.
"""
