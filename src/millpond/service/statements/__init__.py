"""Executes parsed statements: each has one effect on the pond and one result."""
