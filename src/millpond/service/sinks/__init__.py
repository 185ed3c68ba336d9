"""Sinks: the changes of queries, delivered to where somebody waits for them."""
