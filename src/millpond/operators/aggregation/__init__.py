"""Aggregation below the group-by: aggregates, their measures, and the cells of a batch."""
