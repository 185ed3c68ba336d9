"""Joins of lumps: rows of a source that a query does not tell apart are joined once, together."""
