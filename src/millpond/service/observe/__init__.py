"""EXPLAIN, control tables and metrics: they read everything and change nothing."""
