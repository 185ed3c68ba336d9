"""From a bound query to a dataflow: the graph of operators that computes the query's changes.

`plan` is the result and its entry point. `compiler` goes through a SELECT and calls a module for
each part of SQL that has operators: `from_clause` and `from_items`, `joins`, `nrr_join`,
`subquery_conditions`, `mark_join` and `scalar_subqueries`, `group_by` and `grouping_sets`, `top_k`.
`leaves` makes sources of streams and relations; `frame` and `column_types` say which columns an
edge has. A part of SQL without operators is recomputed at every change; `recompute_groups`
recomputes only the changed groups.
"""
