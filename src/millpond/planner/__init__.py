"""From a query's tree to a bound query, and to the operators that compute its changes.

`bind` lists the steps of binding, `templates` skips them for queries of a shape that is known.
`dataflow` plans changes, `strategies`, `rules` and `cost` choose how. `explain` shows all of it.
"""
