"""Data structures in which operators keep rows."""
