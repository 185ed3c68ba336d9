"""Aggregation below the group-by: what aggregates measure, and the cells they keep."""
