"""From trees to text: CQL for people, and DuckDB's SQL for evaluation."""
