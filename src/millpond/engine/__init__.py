"""The engine: pure functions and values, from a batch of rows to the answer of a query.

It has no clock, no files and no Spark. From the bottom up: `values` codes values by the regions
that constants cut an axis into; `predicates` brings a WHERE clause into boolean factors; `scalars`
has DuckDB evaluate expressions, residual SQL and user-defined functions; `eddy` routes morsels of
tuples through modules; `matching` is the query-data join (grouped filters, Query SteM, kernels,
Results Structure); `joins` joins streams (arrangements, Data SteMs, pairs); `admission` makes
elements or rejects of rows; `invocation` takes the rows that windows hold at invocation; `dataflow`
runs the operators of many plans together.
"""
