"""Aggregates over windows, merged from totals of segments instead of computed from rows."""
