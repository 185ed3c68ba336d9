"""Everything DuckDB evaluates: expressions, residual SQL, user-defined functions, deadlines."""
