"""The planner: from a query's tree to a bound query, and to the operators that compute its changes.

From the bottom up: `resolve` finds what each name means, makes a leaf of each occurrence of a
stream, and pushes predicates down; `residual` is the SQL left for DuckDB; `check` has DuckDB check
types and localizes errors; `joins` finds the conjuncts that join streams; `bind` runs these steps,
and skips them for a query whose shape has a template; `explain` prints plans; `optimize` chooses
among plans by rules, statistics and cost; `dataflow` builds the graph of operators that computes a
query's changes.
"""
