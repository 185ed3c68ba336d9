"""From a query's tree to a bound query, and what EXPLAIN shows of it."""
