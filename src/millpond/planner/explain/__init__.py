"""EXPLAIN: plans as people read them."""
